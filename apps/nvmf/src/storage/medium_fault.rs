//! What is wrong with a medium for good.

/// What is wrong with a medium until it is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum MediumFault {
    /// Somebody has made it shorter than its namespace. Every operation fails: what was behind the cut is gone, and a file would
    /// read as zeros there as soon as something is written behind it.
    Shrunk {
        /// Bytes that it had when that was noticed.
        found: u64,
        /// Bytes of the namespace.
        wanted: u64,
    },
    /// A flush failed. Every further one fails: the kernel tells of what it could not write once.
    Unflushed,
    /// A connection to the medium's server ended between changes that it had acknowledged and their flush. Every flush fails: it
    /// may have died with them, and its successor would flush without them.
    Interrupted,
    /// A connection to the medium's server was given up with changes unanswered. Every operation fails: the server may still
    /// carry them out, over what is written now.
    Unanswered,
    /// The medium's server does not keep to its protocol. Every operation fails.
    Breach,
    /// The medium's server came back with an export that cannot take the place of the one it had. Every operation fails.
    Changed,
    /// Somebody removed the image, its pool or its snapshot. Every operation fails: what is left of it would read as zeros.
    Removed,
}
