//! What a line about a peer's silence adds where nobody polled for a while.

use core::fmt;
use core::time::Duration;

/// Less than this is not worth a word: loops come late by so much on any machine.
const LEAST: Duration = Duration::from_millis(100);

/// For how long nobody polled; says nothing where that was as good as never.
pub(crate) struct StoodStill(pub(crate) Duration);

impl fmt::Display for StoodStill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < LEAST {
            return Ok(());
        }
        write!(f, " (this core stood still for {:.1} s besides, which does not count)", self.0.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::StoodStill;
    use core::time::Duration;

    #[test]
    fn a_standstill_is_told_and_none_is_not() {
        for short in [Duration::ZERO, Duration::from_millis(99)] {
            assert_eq!(StoodStill(short).to_string(), "");
        }
        let told = StoodStill(Duration::from_millis(57_340)).to_string();
        assert_eq!(told, " (this core stood still for 57.3 s besides, which does not count)");
    }
}
