//! The one error of everything that has a capacity.

/// There is no room now. The value that was to be put in comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room; take something out, then try again")]
pub struct Full<T>(pub T);
