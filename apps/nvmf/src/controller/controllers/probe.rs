//! What the device of a controller's host is asked, and has answered: one probe at a time, an RDMA WRITE of no bytes on the admin queue.
//! An answer says that the host had that queue when the probe reached it, and so vouches for everything that was asked before.

use core::time::Duration;

/// How long a peer's device may take to acknowledge a probe. Devices give up after their retries, and end the connection by that:
/// eight times some seconds at most, as the connection manager sets them up.
pub(in super::super) const PROBE_TIMEOUT: Duration = Duration::from_secs(60);

/// Probes of one controller. Times are watched times.
#[derive(Debug)]
pub(super) struct Probe {
    /// When one was sent that was not answered yet.
    sent: Option<Duration>,
    /// The newest question that was put, ...
    asked: u64,
    /// ... that had been put when that probe was sent, ...
    carried: u64,
    /// ... and that was answered.
    answered: u64,
}

impl Probe {
    /// Of a controller that was made behind this question: it is no answer to that.
    pub(super) fn behind(question: u64) -> Self {
        Self { sent: None, asked: question, carried: question, answered: question }
    }

    /// One is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.sent.is_some()
    }

    /// When it was sent.
    pub(super) fn sent(&self) -> Option<Duration> {
        self.sent
    }

    /// Puts a question. True where it is open: a probe that was sent behind it has not been answered.
    pub(super) fn ask(&mut self, question: u64) -> bool {
        self.asked = self.asked.max(question);
        self.answered < question
    }

    /// A probe was sent.
    pub(super) fn send(&mut self, now: Duration) {
        (self.sent, self.carried) = (Some(now), self.asked);
    }

    /// It was answered.
    pub(super) fn answer(&mut self) {
        (self.sent, self.answered) = (None, self.carried);
    }

    /// A question is open, and a probe was not answered for so long.
    pub(super) fn is_left_open(&self, now: Duration) -> bool {
        self.answered < self.asked && self.sent.is_some_and(|at| now.saturating_sub(at) >= PROBE_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::{PROBE_TIMEOUT, Probe};
    use core::time::Duration;

    #[test]
    fn a_probe_answers_what_was_asked_before_it_was_sent() {
        let mut probe = Probe::behind(3);
        assert!(!probe.ask(3), "the controller was made behind that");
        probe.send(Duration::ZERO);
        assert!(probe.ask(4));
        probe.answer();
        assert!(probe.ask(4), "that probe was under way already");
        probe.send(Duration::ZERO);
        assert!(probe.ask(4) && probe.is_under_way());
        probe.answer();
        assert!(!probe.ask(4) && !probe.is_under_way());
    }

    #[test]
    fn a_question_is_left_open_where_its_probe_is_not_answered_in_time() {
        let mut probe = Probe::behind(0);
        probe.send(Duration::ZERO);
        assert!(!probe.is_left_open(PROBE_TIMEOUT), "nobody asked");
        probe.ask(1);
        assert!(probe.is_left_open(PROBE_TIMEOUT) && !probe.is_left_open(PROBE_TIMEOUT - Duration::from_nanos(1)));
        probe.answer();
        assert!(!probe.is_left_open(PROBE_TIMEOUT), "there is no probe that could be late");
        probe.send(PROBE_TIMEOUT);
        assert!(!probe.is_left_open(PROBE_TIMEOUT));
    }
}
