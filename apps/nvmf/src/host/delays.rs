//! The pauses in front of what is sent again.

use crate::wire::Status;
use core::time::Duration;

/// The pause before a command is sent again for the first time; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause of our own choosing: what the controller had against the command may be over.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause that a controller may ask for by its Command Retry Delay Times, which say up to 109 minutes.
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// Doublings after which a pause is the longest one whatever it began with.
const MAX_DOUBLINGS: u16 = 8;

/// Command Retry Delay Times 1 to 3 (CRDT), which a status names by its Command Retry Delay.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetryDelays([Duration; 3]);

impl RetryDelays {
    /// From units of 100 ms.
    pub(super) fn new(units: [u16; 3]) -> Self {
        Self(units.map(|units| Duration::from_millis(100 * u64::from(units))))
    }

    /// What passes before a command is sent again: what the controller asks for, or a pause that grows with
    /// how often it was refused.
    pub(super) fn pause(&self, refusals: u16, status: Status) -> Duration {
        let asked = usize::from(status.retry_delay()).checked_sub(1).and_then(|at| self.0.get(at));
        match asked.filter(|delay| !delay.is_zero()) {
            Some(delay) => (*delay).min(LONGEST_DELAY),
            None => (FIRST_PAUSE * (1 << refusals.min(MAX_DOUBLINGS))).min(LONGEST_PAUSE),
        }
    }
}
