//! The main thread while the cores are set up: that takes seconds where much memory is pinned, and for ever where a core stands still.

use super::watchdog::{Standing, Verdict, Watchdog, left_standing};
use crate::{Error, signals::Asked};
use core::{ops::ControlFlow, time::Duration};
use frwr_reactor::{Clock, Context, CoreIndex, LaunchError, Outbox, Pulse, Reactor, Reactors, Running, Seat};

/// Starts reactors, and says which of them are not ready after long, and how far the start is when somebody asks. Where the run shall
/// end those are waited for as long as for any core that stands still.
///
/// # Errors
/// As [`Reactors::launch`]; one that says so where cores are left behind, with all that they hold.
pub(crate) fn launch_watched<M, C, I>(
    reactors: Reactors<M>,
    prepare: impl FnMut(CoreIndex) -> I,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<Running<M, C>, Error>
where
    M: Send + 'static,
    C: Context<Message = M> + Send + 'static,
    I: FnOnce(Seat<M>, Outbox<M>) -> Result<Reactor<C>, Error> + Send + 'static,
{
    let clock = Clock::system();
    let began = clock.now();
    let mut start = StartWatch::default();
    let launched =
        reactors.launch_watched(prepare, |pulses| start.look(clock.now().saturating_sub(began), pulses, asked, say));
    match launched {
        Err(LaunchError::GivenUp) => Err(left_standing(&start.given_up)),
        Err(error) => Err(error.into()),
        Ok(running) => {
            if start.watchdog.sees_standstill() {
                say(&format!("all cores are ready, after {:.1} s", clock.now().saturating_sub(began).as_secs_f64()));
            }
            Ok(running)
        }
    }
}

#[derive(Default)]
struct StartWatch {
    watchdog: Watchdog,
    given_up: Vec<Standing>,
}

impl StartWatch {
    fn look(
        &mut self,
        elapsed: Duration,
        pulses: &[Pulse],
        asked: &dyn Asked,
        say: &mut dyn FnMut(&str),
    ) -> ControlFlow<()> {
        if !self.watchdog.is_due(elapsed) {
            return ControlFlow::Continue(());
        }
        if asked.to_report() {
            say(&format!("{:>4} s  setting the cores up", elapsed.as_secs()));
        }
        match self.watchdog.look(elapsed, pulses.iter().copied(), say) {
            // Who is ready waits for these, and ends without them.
            Verdict::GiveUp(cores) | Verdict::Alone(cores) if asked.to_stop() => {
                self.given_up = cores;
                ControlFlow::Break(())
            }
            Verdict::GoOn | Verdict::GiveUp(_) | Verdict::Alone(_) => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StartWatch;
    use core::{sync::atomic::AtomicBool, time::Duration};
    use frwr_reactor::{CoreIndex, Pulse, Turn};

    fn pulse(core: u16, turn: Turn) -> Pulse {
        Pulse {
            core: CoreIndex(core),
            cpu: None,
            thread: 0,
            iterations: 0,
            busy_iterations: 0,
            turn,
            probed: false,
            ended: false,
        }
    }

    /// What is said of a start of which one core waits for the other, and when it is given up, in tenths of a second.
    fn start(ready_at: u64, asked_at: u64) -> (Vec<String>, Option<u64>) {
        let (mut watch, mut said, asked) = (StartWatch::default(), Vec::new(), AtomicBool::new(false));
        for tenth in 0..400 {
            asked.store(tenth >= asked_at, core::sync::atomic::Ordering::Relaxed);
            let second = pulse(1, if tenth < ready_at { Turn::SettingUp } else { Turn::Asleep });
            let pulses = [pulse(0, Turn::Asleep), second];
            let now = Duration::from_millis(tenth * 100);
            if watch.look(now, &pulses, &asked, &mut |line| said.push(line.to_owned())).is_break() {
                assert_eq!(watch.given_up.len(), 1);
                said.push(watch.given_up[0].to_string());
                return (said, Some(tenth));
            }
        }
        (said, None)
    }

    #[test]
    fn a_core_that_takes_long_is_told_of_and_waited_for() {
        assert_eq!(start(9, 0), (vec![], None), "not where it takes less than a second");
        let (said, given_up) = start(35, 400);
        assert_eq!(given_up, None);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].starts_with("reactor 1 (unpinned) is not ready yet: its initialisation has taken 1."),
            "{said:?}"
        );
        assert!(said[1].starts_with("reactor 1 (unpinned) goes on after 3."), "{said:?}");
        assert_eq!(start(400, 400).1, None, "nobody asked for an end");
    }

    #[test]
    fn one_that_is_never_ready_is_given_up_ten_seconds_after_the_start_where_the_run_shall_end() {
        for (asked_at, given_up) in [(0, 100..=104), (50, 100..=104), (200, 200..=202)] {
            let (said, at) = start(400, asked_at);
            assert!(at.is_some_and(|at| given_up.contains(&at)), "{at:?}");
            let left = said.last().unwrap();
            assert!(left.starts_with("reactor 1 (unpinned) did not end: its initialisation has taken "), "{left}");
        }
    }
}
