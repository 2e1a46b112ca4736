//! What a load waits for while none of its requests ends: seen on its core, and told by the main thread.

use super::{
    end_time::END_TIME,
    host_end::EndOfWait,
    load_paths::{LoadedWaits, state_name},
};
use core::{mem::discriminant, time::Duration};
use frwr_engine::provider::Port;
use frwr_nvmf::host::{PathState, Paths};
use std::net::SocketAddr;

/// For so long none of the requests in hand has ended before that is told: longer than disks and networks do that work, and short for
/// who looks at 0 IOPS.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// What requests wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// The only path, which is so.
    Path(PathState),
    /// One of several paths: none serves.
    AnyPath,
    /// That a lost controller may execute writes no more, which it had not answered.
    FormerController,
    /// That the target takes them, which refuses them for the time being.
    Refusals,
    /// Answers.
    Answers,
}

/// What they wait for, and what ends that where the load is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) waits_for: WaitsFor,
    pub(super) end: Option<EndOfWait>,
}

/// What there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitNews {
    /// None has ended for so long, and what they wait for, or by now wait for.
    Waits(Duration, Wait),
    /// They end again: for how long none had.
    GoesOn(Duration),
}

/// Looks whether the requests of a core's load end. All times are those in which it polled.
#[derive(Debug, Default)]
pub(super) struct HostWaits {
    /// Requests that had ended at the last look.
    ended: u64,
    /// Since when there is none more.
    since: Duration,
    /// How often requests had been refused at the first look that found none more.
    refused: Option<u64>,
    /// What they waited for at the last look, and since when.
    seen: Option<(Wait, Duration)>,
    told: Option<Wait>,
}

impl HostWaits {
    /// So many requests have ended; whether others are in hand. Where one has ended since, or none is, that is what there may be to tell.
    pub(super) fn look(&mut self, ended: u64, in_hand: bool, now: Duration) -> Option<WaitNews> {
        if in_hand && ended == self.ended {
            return None;
        }
        let stood = now.saturating_sub(self.since);
        (self.ended, self.since, self.refused, self.seen) = (ended, now, None, None);
        self.told.take().map(|_| WaitNews::GoesOn(stood))
    }

    /// What requests wait for that go by these paths, at a look at which none has ended.
    pub(super) fn waits_for<P: Port>(&mut self, paths: &Paths<P>) -> WaitsFor {
        let only = paths.state(0).filter(|_| paths.count() == 1);
        // What several paths give back is for another one.
        let of_paths = (0..paths.count()).map(|path| paths.path_statistics(path));
        let (given_back, fenced) =
            of_paths.fold((0, 0), |(refused, waiting), path| (refused + path.refused, waiting + path.waiting));
        let are_refused = self.are_refused(paths.statistics().repeated + given_back);
        match only {
            Some(state) if !state.serves() => WaitsFor::Path(state),
            None if !paths.is_ready() => WaitsFor::AnyPath,
            _ if fenced > 0 => WaitsFor::FormerController,
            _ if are_refused => WaitsFor::Refusals,
            _ => WaitsFor::Answers,
        }
    }

    /// None has ended at that look. `refused`: how often requests were refused so far; whether that goes on.
    fn are_refused(&mut self, refused: u64) -> bool {
        refused > *self.refused.get_or_insert(refused)
    }

    /// What they wait for is to be told, where it has lasted and is something else than was told last: behind the end of one wait answers
    /// take a moment.
    pub(super) fn tell(&mut self, wait: Wait, now: Duration) -> Option<WaitNews> {
        let since = self.seen.filter(|(seen, _)| seen.is_like(wait)).map_or(now, |(_, since)| since);
        self.seen = Some((wait, since));
        let is_known = self.told.is_some_and(|told| told.is_like(wait));
        if is_known || now.saturating_sub(since) < TOLD_AFTER {
            return None;
        }
        self.told = Some(wait);
        Some(WaitNews::Waits(now.saturating_sub(self.since), wait))
    }
}

impl Wait {
    /// Nothing that somebody would want to be told once more: one attempt after the other fails, each for its own reason.
    fn is_like(self, other: Self) -> bool {
        let same = match (self.waits_for, other.waits_for) {
            (WaitsFor::Path(one @ PathState::Lost(_)), WaitsFor::Path(other)) => {
                discriminant(&one) == discriminant(&other)
            }
            (one, other) => one == other,
        };
        same && self.end == other.end
    }

    /// In a line, where none has ended for so long. `path`: the only one, where there is one.
    pub(super) fn line(self, stood: Duration, path: Option<SocketAddr>, limits: &LoadedWaits) -> String {
        let what = self.what(stood, path);
        match self.end {
            None => format!("{what}{}", self.limit(limits)),
            Some(EndOfWait::Told) => {
                format!("{what}; the run was told to end, and waits for {} s at most", END_TIME.as_secs())
            }
            Some(EndOfWait::Over(time)) => {
                let options = if path.is_some() { "--io-timeout" } else { "--io-timeout, --keep-alive" };
                format!("{what}; the load is over, and waits for {} s at most ({options})", time.as_secs())
            }
        }
    }

    fn what(self, stood: Duration, path: Option<SocketAddr>) -> String {
        let begins = path.map_or_else(String::new, |path| format!("path {path}: "));
        match self.waits_for {
            WaitsFor::Path(state) => format!("{begins}{}: requests wait", state_name(state)),
            WaitsFor::AnyPath => format!("{begins}no path serves: requests wait"),
            WaitsFor::FormerController => {
                format!("{begins}writes that a lost path has not answered wait until its controller is over")
            }
            WaitsFor::Refusals => format!("{begins}requests are refused for the time being, and sent again"),
            WaitsFor::Answers => format!("{begins}no request has been answered for {} s", stood.as_secs()),
        }
    }

    /// For how long, and which option says so.
    fn limit(self, limits: &LoadedWaits) -> String {
        let LoadedWaits { path_timeout, io_timeout, io_retries, reconnects, longest_fence } = limits;
        let for_path = format!("{path_timeout} s at most (--path-timeout)");
        let fails = "then they fail, and with them the run";
        match self.waits_for {
            WaitsFor::Path(PathState::Connected(_)) | WaitsFor::AnyPath => format!(" for {for_path}, {fails}"),
            WaitsFor::Path(_) => format!(" for {reconnects} attempts that fail in a row at most (--reconnects)"),
            WaitsFor::FormerController => match longest_fence {
                Some(seconds) => format!(", for {seconds} s at most (--keep-alive, --quiesce-margin)"),
                None => ", which only its return proves (--keep-alive is 0)".to_owned(),
            },
            WaitsFor::Refusals => {
                format!(" for {for_path}, or {io_retries} times (--io-retries), {fails}")
            }
            WaitsFor::Answers => format!("; one is given up, and its connection, behind {io_timeout} s (--io-timeout)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HostWaits, LoadedWaits, Wait, WaitNews, WaitsFor};
    use crate::runner::host_end::EndOfWait;
    use core::time::Duration;
    use frwr_nvmf::{
        host::{HostFailure, PathState},
        wire::AnaState,
    };

    const LIMITS: LoadedWaits =
        LoadedWaits { path_timeout: 30, io_timeout: 20, io_retries: 5, reconnects: 10, longest_fence: Some(62) };
    const INACCESSIBLE: WaitsFor = WaitsFor::Path(PathState::Connected(AnaState::Inaccessible));

    fn wait(waits_for: WaitsFor) -> Wait {
        Wait { waits_for, end: None }
    }

    fn waits(tenths: u64, wait: Wait) -> WaitNews {
        WaitNews::Waits(Duration::from_millis(100 * tenths), wait)
    }

    /// What is told, and at which tenth of a second, of requests that have ended by then and what the others wait for.
    fn told(course: impl Fn(u64) -> (u64, bool, Wait)) -> Vec<(u64, WaitNews)> {
        let (mut waits, mut news) = (HostWaits::default(), Vec::new());
        for tenth in 1..100 {
            let ((ended, in_hand, wait), now) = (course(tenth), Duration::from_millis(100 * tenth));
            let looked = waits.look(ended, in_hand, now);
            let stands = in_hand && looked.is_none();
            let told = if stands { looked.or_else(|| waits.tell(wait, now)) } else { looked };
            news.extend(told.map(|told| (tenth, told)));
        }
        news
    }

    #[test]
    fn it_is_told_once_what_is_waited_for_and_that_it_goes_on() {
        let answers = wait(WaitsFor::Answers);
        assert_eq!(told(|tenth| (tenth, true, answers)), [], "they end");
        assert_eq!(told(|tenth| (tenth / 9, true, answers)), [], "none was as slow");
        assert_eq!(told(|_| (0, false, answers)), [], "there are none");
        // One ends in the first second, and the next ones from the fourth on.
        let ended = |tenth| if tenth < 40 { u64::from(tenth >= 10) } else { tenth };
        let news = told(|tenth| (ended(tenth), true, wait(INACCESSIBLE)));
        let expected = [(20, waits(10, wait(INACCESSIBLE))), (40, WaitNews::GoesOn(Duration::from_secs(3)))];
        assert_eq!(news, expected);
    }

    #[test]
    fn what_comes_in_place_of_what_was_waited_for_is_told_too() {
        let lost =
            |what| wait(WaitsFor::Path(PathState::Lost(HostFailure::Timeout { what, stood_still: Duration::ZERO })));
        let ending = |wait| Wait { end: Some(EndOfWait::Told), ..wait };
        let course = |tenth| match tenth {
            ..20 => wait(WaitsFor::Answers),
            20..30 => lost("connecting"),
            // Attempt by attempt; one had a session for a moment.
            35 => wait(WaitsFor::Answers),
            30..40 => lost("something else"),
            _ => ending(lost("something else")),
        };
        let news = told(|tenth| (u64::from(tenth >= 60), tenth <= 60, course(tenth)));
        let expected = [
            (11, waits(11, wait(WaitsFor::Answers))),
            (30, waits(30, lost("something else"))),
            (50, waits(50, ending(lost("something else")))),
            (60, WaitNews::GoesOn(Duration::from_secs(6))),
        ];
        assert_eq!(news, expected);
    }

    #[test]
    fn refusals_count_from_when_nothing_ended() {
        let mut waits = HostWaits::default();
        assert!(!waits.are_refused(7) && !waits.are_refused(7) && waits.are_refused(8));
        waits.look(1, true, Duration::ZERO);
        assert!(!waits.are_refused(8));
    }

    #[test]
    fn a_line_says_what_is_waited_for_how_long_and_which_option_changes_that() {
        let path = Some("127.0.0.1:4420".parse().unwrap());
        let line = |wait: Wait, path| wait.line(Duration::from_millis(1010), path, &LIMITS);
        for (waits_for, path, text) in [
            (
                INACCESSIBLE,
                path,
                "path 127.0.0.1:4420: connected, inaccessible: requests wait for 30 s at most (--path-timeout), then they fail, and \
                 with them the run",
            ),
            (
                WaitsFor::AnyPath,
                None,
                "no path serves: requests wait for 30 s at most (--path-timeout), then they fail, and with them the run",
            ),
            (
                WaitsFor::Path(PathState::Connecting),
                path,
                "path 127.0.0.1:4420: connecting: requests wait for 10 attempts that fail in a row at most (--reconnects)",
            ),
            (
                WaitsFor::FormerController,
                None,
                "writes that a lost path has not answered wait until its controller is over, for 62 s at most (--keep-alive, \
                 --quiesce-margin)",
            ),
            (
                WaitsFor::Refusals,
                path,
                "path 127.0.0.1:4420: requests are refused for the time being, and sent again for 30 s at most (--path-timeout), \
                 or 5 times (--io-retries), then they fail, and with them the run",
            ),
            (
                WaitsFor::Answers,
                path,
                "path 127.0.0.1:4420: no request has been answered for 1 s; one is given up, and its connection, behind 20 s \
                 (--io-timeout)",
            ),
        ] {
            assert_eq!(line(wait(waits_for), path), text);
        }
        let ending = |end| Wait { end: Some(end), ..wait(WaitsFor::AnyPath) };
        for (end, path, text) in [
            (EndOfWait::Told, path, "the run was told to end, and waits for 5 s at most"),
            (
                EndOfWait::Over(Duration::from_secs(20)),
                path,
                "the load is over, and waits for 20 s at most (--io-timeout)",
            ),
            (
                EndOfWait::Over(Duration::from_secs(62)),
                None,
                "the load is over, and waits for 62 s at most (--io-timeout, --keep-alive)",
            ),
        ] {
            let line = line(ending(end), path);
            assert!(line.ends_with(&format!("no path serves: requests wait; {text}")), "{line}");
        }
    }
}
