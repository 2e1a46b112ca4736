//! What of a seed's run takes place.

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeSet;

/// What of a seed's run takes place: all of it, unless the run is being shrunk. Written as `faults=3,17 requests=40`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The only faults that strike, by their number in the uncut run; `None` for all.
    pub faults: Option<BTreeSet<u64>>,
    /// Requests that are submitted at most; `None` for all.
    pub requests: Option<u64>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut space = "";
        if let Some(faults) = &self.faults {
            let numbers: Vec<_> = faults.iter().map(u64::to_string).collect();
            write!(f, "faults={}", numbers.join(","))?;
            space = " ";
        }
        if let Some(requests) = self.requests {
            write!(f, "{space}requests={requests}")?;
        }
        Ok(())
    }
}

/// A text that is no [`Cut`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCut(String);

impl fmt::Display for UnknownCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is none of: faults=NUMBER,NUMBER... requests=NUMBER", self.0)
    }
}

impl FromStr for Cut {
    type Err = UnknownCut;

    fn from_str(text: &str) -> Result<Self, UnknownCut> {
        let mut cut = Self::default();
        for part in text.split_whitespace() {
            let unknown = || UnknownCut(part.to_owned());
            match part.split_once('=').ok_or_else(unknown)? {
                ("faults", numbers) => {
                    let numbers = numbers.split(',').filter(|number| !number.is_empty());
                    let numbers: Result<_, _> = numbers.map(str::parse).collect();
                    cut.faults = Some(numbers.map_err(|_| unknown())?);
                }
                ("requests", number) => cut.requests = Some(number.parse().map_err(|_| unknown())?),
                _ => return Err(unknown()),
            }
        }
        Ok(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::Cut;

    #[test]
    fn what_is_printed_is_read_again() {
        for text in ["", "faults=", "faults=3,17", "requests=40", "faults=0 requests=1"] {
            assert_eq!(text.parse::<Cut>().unwrap().to_string(), text);
        }
        for text in ["fault=1", "faults=x", "requests=", "nothing"] {
            assert!(text.parse::<Cut>().is_err(), "{text}");
        }
    }
}
