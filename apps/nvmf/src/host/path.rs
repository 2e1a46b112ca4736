//! A session as commands of I/O see it.

use super::limits::Limits;
use super::queues::Queues;

/// What they need of it, lent for one call.
pub(super) struct Path<'a> {
    pub(super) queues: &'a mut Queues,
    pub(super) limits: &'a Limits,
    /// Bytes of a block of the namespace.
    pub(super) block: u32,
    /// The session, counted from 1.
    pub(super) session: u64,
}
