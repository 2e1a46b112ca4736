//! What becomes of a promise that is tried.

use super::report::Verdict;

/// A promise that is kept, or why it is not.
pub(super) type Outcome<T = ()> = Result<T, Verdict>;

/// It is broken where the condition does not hold.
macro_rules! ensure {
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Verdict::Broken(format!($($what)+)));
        }
    };
}
pub(super) use ensure;

/// Nothing is shown, and why.
pub(super) fn not_shown<T>(why: &str) -> Outcome<T> {
    Err(Verdict::NotShown(why.to_owned()))
}

/// Something that is there whenever a storage keeps its promises.
pub(super) fn broken(what: &str) -> Verdict {
    Verdict::Broken(what.to_owned())
}
