//! The host's job before the namespace is known, and what becomes of it then.

use super::load_file::{MAX_FILE_BYTES, enough_memory};
use crate::{
    job::{Content, JobOptions},
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
}

/// A job that waits for a session.
#[derive(Clone)]
pub(super) struct JobPlan {
    pub(super) source: Source,
    pub(super) block_bytes: u32,
    pub(super) pieces: u32,
    pub(super) queue_depth: u32,
    pub(super) read_share: u8,
    pub(super) runtime: Duration,
    pub(super) seed: u64,
}

impl JobPlan {
    /// What is asked for, with the memory of requests in so many pieces.
    pub(super) fn new(job: &JobArguments, source: Source, pieces: u32) -> Self {
        let read_share = job.read_share(matches!(source, Source::File { .. }));
        Self {
            source,
            block_bytes: job.block.block_size,
            pieces,
            queue_depth: job.queue_depth,
            read_share,
            runtime: Duration::from_secs(job.runtime),
            seed: job.seed,
        }
    }

    /// The job on a namespace of that size, whose controller moves `max_transfer` bytes at a time.
    ///
    /// # Errors
    /// Limit, value and remedy, for people.
    pub(super) fn options(self, geometry: Geometry, max_transfer: u32) -> Result<JobOptions, String> {
        let (block_bytes, sector_bytes) = (self.block_bytes, geometry.block_bytes());
        if block_bytes < sector_bytes {
            return Err(format!(
                "--block-size is {block_bytes}: the namespace has blocks of {sector_bytes} bytes; choose as many or more"
            ));
        }
        if block_bytes > max_transfer {
            return Err(format!(
                "--block-size is {block_bytes}: the target moves {max_transfer} bytes at a time; choose as many or fewer"
            ));
        }
        Ok(JobOptions {
            content: content(self.source, geometry)?,
            sector_bytes,
            block_bytes,
            pieces: self.pieces,
            queue_depth: self.queue_depth,
            read_share: self.read_share,
            runtime: self.runtime,
            seed: self.seed,
        })
    }
}

fn content(source: Source, geometry: Geometry) -> Result<Content, String> {
    // No overflow: a geometry has fewer than 2^64 bytes.
    let limit = geometry.blocks() * u64::from(geometry.block_bytes());
    match source {
        Source::File { bytes, .. } if bytes.len() as u64 > limit => {
            Err(format!("--file has {} bytes: the namespace has {limit}; serve a larger one", bytes.len()))
        }
        Source::File { bytes, digest } => Ok(Content::File { bytes, digest }),
        Source::Namespace { bytes: Some(bytes), .. } if bytes > limit => {
            Err(format!("--bytes is {bytes}: the namespace has {limit}; choose fewer"))
        }
        Source::Namespace { bytes: None, .. } if limit > MAX_FILE_BYTES => {
            Err(format!("the namespace has {limit} bytes: a copy has at most {MAX_FILE_BYTES}; give --bytes"))
        }
        Source::Namespace { bytes, expected } => {
            let bytes = bytes.unwrap_or(limit);
            enough_memory(bytes).map_err(|error| error.to_string())?;
            Ok(Content::Found { bytes, expected })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{JobPlan, Source};
    use core::time::Duration;
    use frwr_nvmf::storage::Geometry;

    fn plan(source: Source, block_bytes: u32) -> JobPlan {
        JobPlan { source, block_bytes, pieces: 1, queue_depth: 1, read_share: 100, runtime: Duration::ZERO, seed: 1 }
    }

    fn found(bytes: Option<u64>) -> Source {
        Source::Namespace { bytes, expected: None }
    }

    #[test]
    fn what_does_not_suit_the_namespace_names_limit_value_and_remedy() {
        let geometry = Geometry::new(3, 4096).unwrap();
        let file = Source::File { bytes: vec![0; 12_289].into(), digest: [0; 32] };
        for (plan, parts) in [
            (plan(found(None), 512), ["--block-size is 512", "4096", "or more"]),
            (plan(found(None), 65536), ["--block-size is 65536", "32768", "or fewer"]),
            (plan(found(Some(12_289)), 4096), ["--bytes is 12289", "12288", "fewer"]),
            (plan(file, 4096), ["12289", "12288", "larger"]),
        ] {
            let refusal = plan.options(geometry, 32768).unwrap_err();
            assert!(parts.iter().all(|part| refusal.contains(part)), "{refusal}");
        }
        let large = Geometry::new(1 << 40, 512).unwrap();
        assert!(plan(found(None), 4096).options(large, 32768).unwrap_err().contains("--bytes"));
        assert_eq!(plan(found(None), 4096).options(geometry, 32768).unwrap().content.bytes(), 12_288);
        assert_eq!(plan(found(Some(5)), 4096).options(large, 32768).unwrap().content.bytes(), 5);
    }
}
