//! Compare and write of media that have no such operation of their own: by a lock of ranges that all ways to a medium
//! have together ([`RangeLocks`]), and a storage around each of them ([`Comparing`]) that reads, compares and writes
//! while the range is locked.
//!
//! Nobody counts what he writes. Who wants a range says so in a table, whose version every way looks at once a flush;
//! each way that sees it change holds back what is new and would change the range, and agrees when nothing of what it has
//! does. So what is written while nothing is locked costs that look, and no write waits for a core that may sleep; a lock
//! waits for all cores.

mod comparison;
mod locks;
mod storage;
mod way;

pub(crate) use comparison::are_equal;
pub use locks::{MAX_RANGE_LOCK_WAYS, MAX_RANGE_LOCKS, RangeLocks, TooManyWays};
pub use storage::{Changing, Comparing, MAX_COMPARE_AND_WRITE_BYTES};
