//! Queue pairs that devices refuse to destroy.

use core::time::Duration;

/// Between two lines.
const LINE_PERIOD: Duration = Duration::from_secs(1);

/// What is said of queue pairs that the devices refuse to destroy: a line for each, or one for all that came in a second.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    kept: u64,
    /// There are more of them than were told of.
    is_news: bool,
    next_line: Duration,
}

impl Refusals {
    /// When there is something to say, if there is.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.is_news.then_some(self.next_line)
    }

    /// Looks, after a poll: devices keep so many in all. `elapsed` is time since an epoch of the caller's.
    pub(crate) fn tell(&mut self, kept: u64, elapsed: Duration, say: &mut dyn FnMut(&str)) {
        // What is destroyed before its line is due keeps nobody waiting.
        self.is_news = kept > 0 && (self.is_news || kept > self.kept);
        self.kept = kept;
        if self.is_news && elapsed >= self.next_line {
            (self.is_news, self.next_line) = (false, elapsed.saturating_add(LINE_PERIOD));
            say(&format!(
                "the device refuses to destroy {kept} queue pair(s) and is asked again; a connection whose queue pair may still \
                 work ends when the device complies, and its requests with it"
            ));
        }
    }
}
