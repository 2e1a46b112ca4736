//! The one error of everything that has a capacity.

use core::fmt;

/// There is no room now. The value that was to be put in comes back.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no room; take something out, then try again")]
pub struct Full<T>(pub T);

// Whatever the value is: a refusal must be printable.
impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Full(..)")
    }
}
