//! What a figure has to be.

use super::figure::readable;
use core::fmt;

/// One condition on a figure of ours, or on its ratio to the peer's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Not more and not less.
    Equal(f64),
    /// Ours divided by the peer's is at most this.
    RatioAtMost(f64),
    /// Ours divided by the peer's is at least this.
    RatioAtLeast(f64),
}

/// Figures that are counted differ by less than this from what they should be; the rest is how numbers are printed.
const EXACT: f64 = 1e-6;

impl Goal {
    /// Whether it holds, and nothing where it needs a ratio that is not known.
    pub(super) fn holds(self, ours: f64, ratio: Option<f64>) -> Option<bool> {
        match self {
            Self::AtMost(limit) => Some(ours <= limit + EXACT),
            Self::AtLeast(limit) => Some(ours >= limit - EXACT),
            Self::Equal(value) => Some((ours - value).abs() <= EXACT),
            Self::RatioAtMost(limit) => ratio.map(|ratio| ratio <= limit + EXACT),
            Self::RatioAtLeast(limit) => ratio.map(|ratio| ratio >= limit - EXACT),
        }
    }

    /// The figure that it names.
    pub(super) fn limit(self) -> f64 {
        let (Self::AtMost(limit)
        | Self::AtLeast(limit)
        | Self::Equal(limit)
        | Self::RatioAtMost(limit)
        | Self::RatioAtLeast(limit)) = self;
        limit
    }

    /// How much of what is allowed is used up: at most 1 where the goal holds.
    pub(super) fn used(self, ours: f64, ratio: Option<f64>) -> Option<f64> {
        let share = match self {
            Self::AtMost(limit) | Self::Equal(limit) => ours / limit,
            Self::AtLeast(limit) => limit / ours,
            Self::RatioAtMost(limit) => ratio? / limit,
            Self::RatioAtLeast(limit) => limit / ratio?,
        };
        // A goal of nothing, or a rate of nothing, has no share.
        (share.is_finite() && share >= 0.0).then_some(share)
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "<={}", readable(*limit)),
            Self::AtLeast(limit) => write!(f, ">={}", readable(*limit)),
            Self::Equal(value) => write!(f, "={}", readable(*value)),
            Self::RatioAtMost(limit) => write!(f, "<={}x", readable(*limit)),
            Self::RatioAtLeast(limit) => write!(f, ">={}x", readable(*limit)),
        }
    }
}

/// All goals of a case in one word.
pub(super) fn goals_text(goals: &[Goal]) -> String {
    if goals.is_empty() {
        return "-".to_owned();
    }
    goals.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_hold_up_to_their_limit() {
        for (goal, ours, ratio, holds, used) in [
            (Goal::AtMost(23.0), 23.0, None, Some(true), Some(1.0)),
            (Goal::AtMost(23.0), 23.1, Some(0.1), Some(false), Some(23.1 / 23.0)),
            (Goal::AtLeast(1.9), 1.9, None, Some(true), Some(1.0)),
            (Goal::AtLeast(1.9), 1.5, Some(2.0), Some(false), Some(1.9 / 1.5)),
            (Goal::Equal(2.0), 2.0, None, Some(true), Some(1.0)),
            (Goal::Equal(2.0), 1.0, None, Some(false), Some(0.5)),
            (Goal::Equal(0.0), 0.0, None, Some(true), None),
            (Goal::RatioAtMost(0.5), 46.0, None, None, None),
            (Goal::RatioAtMost(0.5), 46.0, Some(0.5), Some(true), Some(1.0)),
            (Goal::RatioAtMost(0.5), 46.0, Some(0.75), Some(false), Some(1.5)),
            (Goal::RatioAtLeast(1.9), 1.0, Some(1.9), Some(true), Some(1.0)),
            (Goal::RatioAtLeast(1.9), 1.0, Some(0.95), Some(false), Some(2.0)),
            (Goal::RatioAtLeast(0.95), 1.0, Some(-0.5), Some(false), None),
        ] {
            assert_eq!(goal.holds(ours, ratio), holds, "{goal}");
            assert_eq!(goal.used(ours, ratio), used, "{goal}");
        }
    }

    #[test]
    fn goals_are_written_as_the_goals_table_writes_them() {
        assert_eq!(goals_text(&[Goal::RatioAtMost(0.5), Goal::AtMost(23.0)]), "<=0.5x <=23");
        assert_eq!(goals_text(&[Goal::RatioAtLeast(1.9), Goal::Equal(2.0)]), ">=1.9x =2");
        assert_eq!(goals_text(&[]), "-");
    }
}
