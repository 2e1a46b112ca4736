//! The host's job before the namespace is known, and what becomes of it then.

use super::load_file::{MAX_FILE_BYTES, enough_memory};
use crate::{
    job::{AddressOrder, Change, Content, JobOptions, LoadOptions, MAX_UNITS, Mix, Sizes, UNIT_BYTES},
    options::JobArguments,
};
use core::time::Duration;
use frwr_nvmf::storage::Geometry;
use std::sync::Arc;

/// What is to be moved.
#[derive(Clone)]
pub(super) enum Source {
    /// A file, into the namespace and back.
    File { bytes: Arc<[u8]>, digest: [u8; 32] },
    /// What the namespace holds: all of it, or its first bytes.
    Namespace { bytes: Option<u64>, expected: Option<[u8; 32]> },
    /// Nothing but the load, in all of the namespace, or so many bytes of it.
    Range { bytes: Option<u64> },
}

/// A job that waits for a session.
#[derive(Clone)]
pub(super) struct JobPlan {
    pub(super) source: Source,
    /// Bytes of the namespace in front of what is moved.
    pub(super) offset: u64,
    pub(super) pieces: u32,
    pub(super) queue_depth: u32,
    pub(super) load: LoadOptions,
    pub(super) seed: u64,
}

impl JobPlan {
    /// The main job: a file, and then reads and writes of one size at random places.
    pub(super) fn new(job: &JobArguments, source: Source) -> Self {
        let load = LoadOptions {
            order: AddressOrder::Random,
            mix: Mix { reads: job.read_share(), change: Change::Write },
            sizes: Sizes::uniform(job.block.block_size),
            verify: true,
            rate: None,
            ramp: Duration::ZERO,
            runtime: Duration::from_secs(job.runtime),
            bytes: None,
            number: 0,
            loads: 1,
        };
        Self { source, offset: 0, pieces: 1, queue_depth: job.queue_depth, load, seed: job.seed }
    }

    /// Bytes of the largest request.
    pub(super) fn most(&self) -> u32 {
        self.load.sizes.most()
    }

    /// The job on a namespace of that size, whose controller moves `max_transfer` bytes at a time.
    ///
    /// # Errors
    /// Limit, value and remedy, for people.
    pub(super) fn options(self, geometry: Geometry, max_transfer: u32) -> Result<JobOptions, String> {
        let (sizes, sector_bytes) = (&self.load.sizes, geometry.block_bytes());
        let (unit, most) = (sizes.unit(), sizes.most());
        if sizes.is_uniform() && unit < sector_bytes {
            return Err(format!(
                "--block-size is {unit}: the namespace has blocks of {sector_bytes} bytes; choose as many or more"
            ));
        }
        if !unit.is_multiple_of(sector_bytes) {
            return Err(format!(
                "--bssplit is {sizes}: the namespace has blocks of {sector_bytes} bytes; choose multiples of those"
            ));
        }
        if most > max_transfer {
            return Err(format!(
                "--block-size is {most}: the target moves {max_transfer} bytes at a time; choose as many or fewer"
            ));
        }
        Ok(JobOptions {
            content: content(self.source, &self.load, self.offset, geometry)?,
            first: self.offset / u64::from(unit),
            sector_bytes,
            pieces: self.pieces,
            queue_depth: self.queue_depth,
            load: self.load,
            seed: self.seed,
        })
    }
}

fn content(source: Source, load: &LoadOptions, offset: u64, geometry: Geometry) -> Result<Content, String> {
    // No overflow: a geometry has fewer than 2^64 bytes.
    let all = geometry.blocks() * u64::from(geometry.block_bytes());
    let Some(limit) = all.checked_sub(offset).filter(|limit| *limit > 0) else {
        return Err(format!("--offset is {offset}: the namespace has {all} bytes; choose fewer"));
    };
    match source {
        Source::File { bytes, .. } if bytes.len() as u64 > limit => {
            Err(format!("--file has {} bytes: the namespace has {limit}; serve a larger one", bytes.len()))
        }
        Source::File { bytes, digest } => Ok(Content::File { bytes, digest }),
        Source::Namespace { bytes: Some(bytes), .. } | Source::Range { bytes: Some(bytes) } if bytes > limit => {
            Err(format!("--bytes is {bytes}: the namespace has {limit}; choose fewer"))
        }
        Source::Namespace { bytes: None, .. } if limit > MAX_FILE_BYTES => Err(format!(
            "the namespace has {limit} bytes: a copy has at most {MAX_FILE_BYTES}; give --bytes, or --no-verify"
        )),
        Source::Namespace { bytes, expected } => {
            let bytes = bytes.unwrap_or(limit);
            enough_memory(bytes).map_err(|error| error.to_string())?;
            Ok(Content::Found { bytes, expected })
        }
        Source::Range { bytes } => range(bytes.unwrap_or(limit), load),
    }
}

fn range(bytes: u64, load: &LoadOptions) -> Result<Content, String> {
    let (unit, most) = (load.sizes.unit(), load.sizes.most());
    if bytes < most.into() {
        return Err(format!("the load is in {bytes} bytes: must be {most} or more, as large as its largest request"));
    }
    let units = bytes / u64::from(unit);
    if load.verify && units > MAX_UNITS {
        return Err(format!(
            "the load is in {units} blocks of {unit} bytes: what was written where is known of {MAX_UNITS} at most; give \
             --bytes, larger requests, or --no-verify"
        ));
    }
    if load.verify {
        enough_memory(units * UNIT_BYTES).map_err(|error| error.to_string())?;
    }
    Ok(Content::Range { bytes })
}

#[cfg(test)]
mod tests {
    use super::{AddressOrder, Change, JobPlan, LoadOptions, Mix, Sizes, Source};
    use crate::options::few_bytes_with_unit;
    use core::time::Duration;
    use frwr_nvmf::storage::Geometry;

    fn plan(source: Source, block_bytes: u32) -> JobPlan {
        let load = LoadOptions {
            order: AddressOrder::Random,
            mix: Mix { reads: 100, change: Change::Write },
            sizes: Sizes::uniform(block_bytes),
            verify: true,
            rate: None,
            ramp: Duration::ZERO,
            runtime: Duration::ZERO,
            bytes: None,
            number: 0,
            loads: 1,
        };
        JobPlan { source, offset: 0, pieces: 1, queue_depth: 1, load, seed: 1 }
    }

    fn found(bytes: Option<u64>) -> Source {
        Source::Namespace { bytes, expected: None }
    }

    #[test]
    fn what_does_not_suit_the_namespace_names_limit_value_and_remedy() {
        let geometry = Geometry::new(3, 4096).unwrap();
        let file = Source::File { bytes: vec![0; 12_289].into(), digest: [0; 32] };
        let mut mixed = plan(found(None), 4096);
        mixed.load.sizes = Sizes::parse("4K/50:6K/50", few_bytes_with_unit, 1 << 20).unwrap();
        for (plan, parts) in [
            (plan(found(None), 512), ["--block-size is 512", "4096", "or more"]),
            (plan(found(None), 65536), ["--block-size is 65536", "32768", "or fewer"]),
            (plan(found(Some(12_289)), 4096), ["--bytes is 12289", "12288", "fewer"]),
            (plan(file, 4096), ["12289", "12288", "larger"]),
            (mixed, ["--bssplit is 4096/50:6144/50", "4096 bytes", "multiples"]),
            (plan(Source::Range { bytes: Some(12_289) }, 4096), ["--bytes is 12289", "12288", "fewer"]),
            (plan(Source::Range { bytes: None }, 16384), ["12288 bytes", "16384", "or more"]),
            (JobPlan { offset: 12_288, ..plan(found(None), 4096) }, ["--offset is 12288", "12288 bytes", "fewer"]),
            (JobPlan { offset: 4096, ..plan(found(Some(12_288)), 4096) }, ["--bytes is 12288", "8192", "fewer"]),
        ] {
            let refusal = plan.options(geometry, 32768).unwrap_err();
            assert!(parts.iter().all(|part| refusal.contains(part)), "{refusal}");
        }
        let large = Geometry::new(1 << 40, 512).unwrap();
        assert!(plan(found(None), 4096).options(large, 32768).unwrap_err().contains("--bytes"));
        assert_eq!(plan(found(None), 4096).options(geometry, 32768).unwrap().content.bytes(), 12_288);
        assert_eq!(plan(found(Some(5)), 4096).options(large, 32768).unwrap().content.bytes(), 5);
    }

    #[test]
    fn a_load_that_nobody_checks_is_in_any_namespace_and_one_that_is_checked_in_as_much_as_is_known_of() {
        let large = Geometry::new(1 << 40, 512).unwrap();
        let refusal = plan(Source::Range { bytes: None }, 4096).options(large, 32768).unwrap_err();
        for part in ["137438953472 blocks of 4096", "134217728", "--no-verify"] {
            assert!(refusal.contains(part), "{refusal}");
        }
        let mut unchecked = plan(Source::Range { bytes: None }, 4096);
        unchecked.load.verify = false;
        assert_eq!(unchecked.options(large, 32768).unwrap().content.bytes(), 1 << 49);
        let some = Source::Range { bytes: Some(1 << 30) };
        let options = JobPlan { offset: 8192, ..plan(some, 4096) }.options(large, 32768).unwrap();
        assert_eq!((options.content.bytes(), options.first), (1 << 30, 2));
    }
}
