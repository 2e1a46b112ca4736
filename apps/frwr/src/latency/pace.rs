//! What a long run says of itself while it goes on: a line per second.

use core::time::Duration;

/// Runs that are shorter have said all in time.
const FIRST: Duration = Duration::from_secs(3);
/// A line for each.
const PERIOD: Duration = Duration::from_secs(1);

/// The requests of all cores, as the main thread reads them now and then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Bytes of one request.
    size: u32,
    /// When its first request had ended.
    began: Option<Duration>,
    /// The reading of the last line: when, and how many requests.
    last: (Duration, u64),
}

impl Pace {
    pub(super) fn new(size: u32) -> Self {
        Self { size, ..Self::default() }
    }

    /// To be called often; `requests` are those that have ended, those of the warm-up too. A line is of the time since the one before,
    /// however long that was.
    pub(super) fn pass(&mut self, now: Duration, requests: u64, say: &mut dyn FnMut(&str)) {
        if requests == 0 {
            return;
        }
        let Some(began) = self.began else {
            (self.began, self.last) = (Some(now), (now, requests));
            return;
        };
        let (since, counted) = self.last;
        let span = now.saturating_sub(since);
        if span < PERIOD {
            return;
        }
        self.last = (now, requests);
        if now >= began + FIRST && requests > counted {
            let rate = (requests - counted) as f64 / span.as_secs_f64();
            say(&self.line(now.saturating_sub(began), rate));
        }
    }

    fn line(&self, elapsed: Duration, rate: f64) -> String {
        let bytes = rate * f64::from(self.size);
        let seconds = elapsed.as_secs_f64();
        if self.size == 0 {
            return format!("{seconds:.0} s: {rate:.0} requests/s");
        }
        let (mebibytes, gigabits) = (bytes / f64::from(1 << 20), bytes * 8.0 / 1e9);
        format!("{seconds:.0} s: {rate:.0} requests/s, {mebibytes:.1} MiB/s, {gigabits:.3} Gbit/s")
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;
    use core::time::Duration;

    #[test]
    fn a_line_is_of_the_time_since_the_one_before() {
        let (mut pace, mut said) = (Pace::new(4096), Vec::new());
        for (milliseconds, requests, wanted) in [
            (0, 0, None),
            (5_000, 10, None),
            (5_900, 1_000, None),
            (6_000, 1_010, None),
            (7_000, 2_010, None),
            (8_000, 4_010, Some("3 s: 2000 requests/s, 7.8 MiB/s, 0.066 Gbit/s")),
            (8_500, 5_000, None),
            // Nobody came by for 20 s: one line, of those.
            (28_000, 44_010, Some("23 s: 2000 requests/s, 7.8 MiB/s, 0.066 Gbit/s")),
            (29_000, 44_010, None),
            (30_000, 45_010, Some("25 s: 1000 requests/s, 3.9 MiB/s, 0.033 Gbit/s")),
        ] {
            said.clear();
            pace.pass(Duration::from_millis(milliseconds), requests, &mut |line| said.push(line.to_owned()));
            assert_eq!(said.first().map(String::as_str), wanted, "{milliseconds}");
        }
    }
}
