//! How long, how often and in which intervals a host tries to get its controller back.

use super::failure::HostFailure;
use super::options::HostOptions;
use super::time::Time;
use core::time::Duration;

/// The back-off's exponent stays below the bits of its factor.
const MAX_DOUBLINGS: u32 = 16;

/// What failed since a session was whole.
#[derive(Debug, Default)]
pub(super) struct Reconnect {
    /// When the controller was lost, in watched time.
    lost_at: Option<Duration>,
    /// Attempts that failed since the last success.
    attempts: u32,
    /// When all queues of the session came up, by the caller's time.
    settled_at: Option<Duration>,
    /// Attempts that failed, and sessions that ended soon, in a row.
    hasty: u32,
}

impl Reconnect {
    /// Where all queues of all cores are up, earlier failures count no more, but for the pause behind the next one
    /// ([`Reconnect::pause`]).
    pub(super) fn settled(&mut self, time: &Time) {
        self.attempts = 0;
        self.lost_at = None;
        // Followers may leave a session that goes on.
        self.settled_at.get_or_insert(time.now());
    }

    /// A session failed, or an attempt at one. A session that lasted no longer than the longest pause is no reason to begin
    /// with the shortest again: a target that ends each session as soon as it is set up would be asked for another a
    /// hundred times a second, for ever.
    pub(super) fn failed(&mut self, time: &Time, options: &HostOptions) {
        self.attempts += 1;
        let lasted = self.settled_at.map_or(Duration::ZERO, |since| time.now().saturating_sub(since));
        if lasted > options.longest_back_off {
            self.hasty = 0;
        }
        self.hasty = self.hasty.saturating_add(1);
    }

    /// Why no other attempt is made: too many failed, or the controller has been away for longer than it may.
    pub(super) fn given_up(&mut self, time: &Time, options: &HostOptions) -> Option<HostFailure> {
        if self.attempts > options.max_attempts {
            return Some(HostFailure::TooManyAttempts);
        }
        let since = *self.lost_at.get_or_insert(time.watched());
        let timeout = options.controller_loss_timeout;
        (!timeout.is_zero() && time.is_over(since, timeout)).then_some(HostFailure::ControllerLoss)
    }

    /// The session ends.
    pub(super) fn ended(&mut self) {
        self.settled_at = None;
    }

    /// What passes before the next attempt: doubles with every failed one in a row, and with every session that ended soon.
    pub(super) fn pause(&self, options: &HostOptions) -> Duration {
        let doublings = self.hasty.saturating_sub(1).min(MAX_DOUBLINGS);
        options.first_back_off.saturating_mul(1 << doublings).min(options.longest_back_off)
    }
}
