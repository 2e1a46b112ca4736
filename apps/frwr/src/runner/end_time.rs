//! How long what is in flight may take where a run ends: of `load`, and of `latency`.

use core::time::Duration;

/// How long requests may take that are in flight when the run is told to end: longer than disks and networks do that work, and short
/// for who has typed Control-C. Those that wait for a path, which may come back, would take 30 s, and so would those that their target does
/// not answer.
pub(crate) const END_TIME: Duration = Duration::from_secs(5);
/// How long sessions and connections may take to end behind that: an answer or two of a peer that is there.
pub(crate) const CLOSE_TIME: Duration = Duration::from_secs(1);
