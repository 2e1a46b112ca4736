//! How large requests are: one size, or a mix of them, as fio's `bssplit` has it.

use super::{Operation, random::Random};
use core::fmt;

/// Sizes of a mix at most: as many as fio takes.
const MAX_SIZES: usize = 64;
/// All of the requests, in percent.
const ALL: u32 = 100;
/// Smallest size: the smallest block of a namespace.
const LEAST: u32 = 512;

/// One size of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    bytes: u32,
    /// Percent of the requests that are as large, or as one of those in front of it.
    up_to: u32,
}

/// Sizes of one kind of operation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SizeMix(Box<[Part]>);

impl SizeMix {
    fn draw(&self, random: &mut Random) -> u32 {
        let [only] = &*self.0 else {
            let drawn = random.below(ALL.into()) as u32;
            return self.0.iter().find(|part| drawn < part.up_to).map_or(0, |part| part.bytes);
        };
        only.bytes
    }
}

/// Sizes of requests. Every size is a multiple of the [`Self::unit`], in which the load counts its places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of reads, writes and trims.
    mixes: [SizeMix; 3],
    unit: u32,
    most: u32,
}

impl Sizes {
    /// All requests are of one size, which is not 0.
    #[must_use]
    pub fn uniform(bytes: u32) -> Self {
        let mix = || SizeMix([Part { bytes, up_to: ALL }].into());
        Self { mixes: [(); 3].map(|()| mix()), unit: bytes, most: bytes }
    }

    /// A mix, as fio's `bssplit` has it: `4K/10:64K/50:32K/40`, where sizes without a percentage share what is left, and
    /// with commas one such list for reads, writes and trims, of which the last stands for those that are missing. `bytes`
    /// says what a size with a unit is; it has at most `most` bytes.
    ///
    /// # Errors
    /// What is wrong, with limit and value, for people.
    pub fn parse(text: &str, bytes: impl Fn(&str) -> Option<u32>, most: u32) -> Result<Self, String> {
        let lists: Vec<&str> = text.split(',').collect();
        if lists.len() > 3 {
            return Err(format!("has {} lists: must be one for reads, writes and trims each at most", lists.len()));
        }
        let mixes = lists.iter().map(|list| mix(list, &bytes, most)).collect::<Result<Vec<_>, _>>()?;
        let of = |kind: usize| mixes[kind.min(mixes.len() - 1)].clone();
        let mixes = [of(0), of(1), of(2)];
        let all = || mixes.iter().flat_map(|mix| mix.0.iter().map(|part| part.bytes));
        let (unit, most) = (all().reduce(greatest_common_divisor), all().max());
        let (unit, most) = (unit.unwrap_or(LEAST), most.unwrap_or(LEAST));
        Ok(Self { mixes, unit, most })
    }

    /// What all sizes are multiples of, in bytes.
    #[must_use]
    pub fn unit(&self) -> u32 {
        self.unit
    }

    /// The largest, in bytes.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.most
    }

    /// There is but one.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        self.unit == self.most
    }

    /// The size of a request.
    pub(super) fn draw(&self, operation: Operation, random: &mut Random) -> u32 {
        self.mixes[match operation {
            Operation::Read | Operation::Flush => 0,
            Operation::Write => 1,
            Operation::Trim => 2,
        }]
        .draw(random)
    }
}

/// As it is typed.
impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_uniform() {
            return write!(f, "{}", self.most);
        }
        let [reads, writes, trims] = &self.mixes;
        let told = if reads == writes && writes == trims { &self.mixes[..1] } else { &self.mixes[..] };
        for (at, mix) in told.iter().enumerate() {
            let mut before = 0;
            for part in &mix.0 {
                let between = if before > 0 { ":" } else { &","[..at.min(1)] };
                write!(f, "{between}{}/{}", part.bytes, part.up_to - before)?;
                before = part.up_to;
            }
        }
        Ok(())
    }
}

fn mix(list: &str, bytes: &impl Fn(&str) -> Option<u32>, most: u32) -> Result<SizeMix, String> {
    let said: Vec<(u32, Option<u32>)> =
        list.split(':').map(|part| part_of(part, bytes, most)).collect::<Result<_, _>>()?;
    if said.len() > MAX_SIZES {
        return Err(format!("has {} sizes: must be {MAX_SIZES} at most", said.len()));
    }
    let named: u32 = said.iter().filter_map(|(_, percent)| *percent).sum();
    // At most as many as sizes, which are few.
    let unnamed = said.iter().filter(|(_, percent)| percent.is_none()).count() as u32;
    let Some(left) = ALL.checked_sub(named).filter(|left| *left == 0 || unnamed > 0) else {
        return Err(format!("has percentages of {named} in all: must be 100"));
    };
    let (mut parts, mut up_to, mut shared) = (Vec::with_capacity(said.len()), 0, 0);
    for (bytes, percent) in said {
        up_to += percent.unwrap_or_else(|| {
            // What is left is shared out in whole percents, none of which is lost.
            shared += 1;
            left * shared / unnamed - left * (shared - 1) / unnamed
        });
        parts.push(Part { bytes, up_to });
    }
    // What comes up never would still be the unit of all others.
    let mut before = 0;
    parts.retain(|part| core::mem::replace(&mut before, part.up_to) < part.up_to);
    Ok(SizeMix(parts.into()))
}

fn part_of(part: &str, bytes: &impl Fn(&str) -> Option<u32>, most: u32) -> Result<(u32, Option<u32>), String> {
    let (size, percent) = part.split_once('/').map_or((part, ""), |(size, percent)| (size, percent));
    let size = bytes(size).filter(|size| (LEAST..=most).contains(size) && size.is_multiple_of(LEAST));
    let size = size.ok_or_else(|| {
        format!("has {part:?}: a size must be a multiple of {LEAST} from {LEAST} to {most} bytes, such as 4K/60")
    })?;
    let percent = match percent {
        "" => None,
        number => {
            let percent = number.parse().ok().filter(|percent| *percent <= ALL);
            Some(percent.ok_or_else(|| format!("has {part:?}: a percentage must be a whole number from 0 to 100"))?)
        }
    };
    Ok((size, percent))
}

fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    let (mut one, mut other) = (one, other);
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::{Operation, Sizes};
    use crate::{job::random::Random, options::few_bytes_with_unit};

    fn parsed(text: &str) -> Result<Sizes, String> {
        Sizes::parse(text, few_bytes_with_unit, 4 << 20)
    }

    #[test]
    fn mixes_are_read_as_fio_reads_them() {
        for (text, unit, most, told) in [
            ("4K", 4096, 4096, "4096"),
            ("4K/10:64K/50:32K/40", 4096, 65536, "4096/10:65536/50:32768/40"),
            // What has no percentage shares the rest.
            ("4k/50:1k/:32k/", 1024, 32768, "4096/50:1024/25:32768/25"),
            ("512:1K:2K", 512, 2048, "512/33:1024/33:2048/34"),
            ("8K/60:12K/40", 4096, 12288, "8192/60:12288/40"),
            // Reads, writes and trims.
            ("4K,8K/50:16K/50", 4096, 16384, "4096/100,8192/50:16384/50,8192/50:16384/50"),
            ("4M/1:512/99", 512, 4 << 20, "4194304/1:512/99"),
            // What never comes up is no size.
            ("512/0:4K/100", 4096, 4096, "4096"),
        ] {
            let sizes = parsed(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((sizes.unit(), sizes.most(), sizes.to_string().as_str()), (unit, most, told), "{text}");
        }
    }

    #[test]
    fn what_is_no_mix_is_told_with_limit_and_value() {
        let many = ["4K"; 65].join(":");
        for (text, parts) in [
            ("4K/60:8K/50", ["110", "must be 100"]),
            ("4K/60:8K/30", ["90", "must be 100"]),
            ("4K/101", ["4K/101", "0 to 100"]),
            ("4K/x", ["4K/x", "whole number"]),
            ("", ["\"\"", "512"]),
            ("100/50:4K/50", ["100/50", "multiple of 512"]),
            ("5M", ["5M", "4194304"]),
            ("4K::8K", ["\"\"", "such as"]),
            ("1K,2K,3K,4K", ["4 lists", "at most"]),
            (&many, ["65 sizes", "64"]),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_come_up_as_often_as_their_percentages_say() {
        let (sizes, mut random) = (parsed("4K/10:64K/50:32K/40,512").unwrap(), Random::new(5));
        let mut counts = [0_u32; 3];
        for _ in 0..100_000 {
            let size = sizes.draw(Operation::Read, &mut random);
            counts[[4096, 65536, 32768].iter().position(|wanted| *wanted == size).unwrap()] += 1;
            assert_eq!(sizes.draw(Operation::Write, &mut random), 512);
        }
        for (count, wanted) in counts.into_iter().zip([10_000, 50_000, 40_000]) {
            assert!(count.abs_diff(wanted) < 1000, "{counts:?}");
        }
    }
}
