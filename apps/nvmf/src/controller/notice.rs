//! How long hosts are given to hear that a controller takes no commands any more.

use core::time::Duration;

/// How long a host has to hear that a controller drains, in which all that it sends is answered: an event, a log page and the answers to
/// what is on its way take it a few round trips, and a thread that is not run for a while, or takes turns with a hundred others, less than
/// this. Whatever is sent behind that and not answered may have been executed as far as the host knows.
pub(super) const NOTICE: Duration = Duration::from_secs(1);
/// How long a queue that has answered everything may take until its device is done with the last of it.
pub(super) const LAST_ANSWERS: Duration = Duration::from_millis(50);
