//! What takes longer than the main thread may stand still for: one call at a time, on a thread of its own, with a deadline.

use super::{super::prepared::Patience, deadlines::ASIDE_TIME};
use crate::{
    Error,
    control::{Failure, INTERNAL, NOT_DONE, TIMED_OUT},
};
use core::time::Duration;
use serde_json::{Value, json};
use std::{
    sync::mpsc::{self, Receiver, TryRecvError},
    thread::{self, JoinHandle},
};

/// Threads that may go on though nobody waits for them any more: what hangs in the kernel cannot be taken back, and has no end that is
/// known.
const MAX_LEFT: usize = 4;

/// A call under way, and those that nobody waits for any more. `T` comes of it; `W` is what is done with that.
#[derive(Debug)]
pub(super) struct Aside<T, W> {
    under_way: Option<UnderWay<T, W>>,
    left: Vec<Left>,
}

#[derive(Debug)]
struct UnderWay<T, W> {
    what: W,
    /// What people know it by.
    name: String,
    began: Duration,
    patience: Patience,
    result: Receiver<Result<T, Error>>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct Left {
    name: String,
    thread: JoinHandle<()>,
}

/// What is waited for.
#[derive(Debug)]
pub(super) struct Awaited {
    name: String,
    since: Duration,
}

impl Awaited {
    /// As JSON.
    pub(super) fn json(&self, now: Duration) -> Value {
        json!({ "medium": self.name, "seconds": now.saturating_sub(self.since).as_secs_f64() })
    }
}

impl<T, W> Default for Aside<T, W> {
    fn default() -> Self {
        Self { under_way: None, left: Vec::new() }
    }
}

impl<T: Send + 'static, W> Aside<T, W> {
    /// A call is under way.
    pub(super) const fn is_busy(&self) -> bool {
        self.under_way.is_some()
    }

    /// The call under way is for what this says.
    pub(super) fn is_of(&self, says: impl FnOnce(&W) -> bool) -> bool {
        self.under_way.as_ref().is_some_and(|call| says(&call.what))
    }

    /// What the call under way is of.
    pub(super) fn under_way(&self) -> Option<Awaited> {
        self.under_way.as_ref().map(|call| Awaited { name: call.name.clone(), since: call.began })
    }

    /// Waits for the call under way, if there is one, no longer than it may take.
    pub(super) fn finish(self) {
        if let Some(under_way) = self.under_way {
            let _ = under_way.result.recv_timeout(ASIDE_TIME);
        }
    }

    /// Begins with a call of something of this name, where none is under way. `patience` is what the call looks at.
    ///
    /// # Errors
    /// Too many that were given up have not ended, or there is no thread.
    pub(super) fn begin(
        &mut self,
        what: W,
        name: String,
        patience: Patience,
        now: Duration,
        call: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<(), Failure> {
        self.left.retain(|left| !left.thread.is_finished());
        if self.left.len() >= MAX_LEFT {
            let names: Vec<_> = self.left.iter().map(|left| left.name.as_str()).collect();
            let text = format!(
                "{} that were given up have not answered yet: {}; nothing was changed; see why, or start serve again",
                names.len(),
                names.join(", ")
            );
            return Err(Failure::new(NOT_DONE, text));
        }
        let (done, result) = mpsc::channel();
        let run = move || {
            // What comes when nobody waits for it any more is closed here.
            let _ = done.send(call());
        };
        let thread = thread::Builder::new().name("frwr-aside".to_owned()).spawn(run).map_err(|error| {
            let text = format!("no thread for {name} ({error}); nothing was changed; raise the limit of processes");
            Failure::new(NOT_DONE, text)
        })?;
        self.under_way = Some(UnderWay { what, name, began: now, patience, result, thread });
        Ok(())
    }

    /// What came of the call, or that it has not ended in time.
    pub(super) fn turn(&mut self, now: Duration) -> Option<(W, Result<T, Failure>)> {
        let under_way = self.under_way.take()?;
        let name = &under_way.name;
        let failure = match under_way.result.try_recv() {
            Ok(Ok(result)) => return Some((under_way.what, Ok(result))),
            Ok(Err(error)) => Failure::new(NOT_DONE, format!("{error}; nothing was changed")),
            Err(TryRecvError::Empty) if now.saturating_sub(under_way.began) < ASIDE_TIME => {
                self.under_way = Some(under_way);
                return None;
            }
            Err(TryRecvError::Empty) => {
                under_way.patience.end();
                let text = format!(
                    "{name} has not answered in {} s; nothing was changed; see whether its disk, file system or server does, and try \
                     again",
                    ASIDE_TIME.as_secs()
                );
                self.left.push(Left { name: under_way.name, thread: under_way.thread });
                Failure::new(TIMED_OUT, text)
            }
            // It panicked.
            Err(TryRecvError::Disconnected) => {
                Failure::new(INTERNAL, format!("{name}: a defect of the program; nothing was changed"))
            }
        };
        Some((under_way.what, Err(failure)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls that end when the test says so, which is where the other end goes.
    struct Held {
        aside: Aside<mpsc::Sender<()>, u32>,
        ends: Vec<mpsc::Sender<()>>,
        patience: Vec<Patience>,
    }

    impl Held {
        fn new() -> Self {
            Self { aside: Aside::default(), ends: Vec::new(), patience: Vec::new() }
        }

        /// One more, of what tells when it is dropped.
        fn begin(&mut self, at: u64) -> Result<mpsc::Receiver<()>, Failure> {
            let ((end, waits), (kept, is_dropped)) = (mpsc::channel::<()>(), mpsc::channel());
            let (patience, number) = (Patience::default(), self.ends.len());
            let call = move || {
                let _ = waits.recv();
                Ok(kept)
            };
            let at = Duration::from_secs(at);
            self.aside.begin(number as u32, format!("medium {number}"), patience.clone(), at, call)?;
            self.ends.push(end);
            self.patience.push(patience);
            Ok(is_dropped)
        }

        fn turn(&mut self, at: u64) -> Option<(u32, Result<mpsc::Sender<()>, Failure>)> {
            self.aside.turn(Duration::from_secs(at))
        }

        /// What comes of the one under way, without a deadline.
        fn outcome(&mut self) -> (u32, Result<mpsc::Sender<()>, Failure>) {
            loop {
                if let Some(outcome) = self.turn(0) {
                    return outcome;
                }
            }
        }
    }

    #[test]
    fn what_a_call_comes_to_is_told_once_and_then_there_is_room_for_the_next() {
        let mut held = Held::new();
        let _first = held.begin(0).unwrap();
        assert!(held.aside.is_busy() && held.turn(ASIDE_TIME.as_secs() - 1).is_none());
        held.ends.clear();
        let (number, result) = held.outcome();
        assert!(number == 0 && result.is_ok() && !held.aside.is_busy() && held.turn(0).is_none());
        assert!(held.begin(0).is_ok());
    }

    #[test]
    fn what_is_late_is_an_error_and_what_it_would_have_brought_is_dropped_on_its_thread() {
        let mut held = Held::new();
        let is_dropped = held.begin(3).unwrap();
        assert!(held.turn(ASIDE_TIME.as_secs() + 2).is_none() && held.patience[0].lasts().is_ok());
        let (_, result) = held.turn(ASIDE_TIME.as_secs() + 3).unwrap();
        let failure = result.unwrap_err();
        assert_eq!(failure.code, TIMED_OUT);
        assert!(["medium 0", "20 s", "nothing was changed"].iter().all(|part| failure.message.contains(part)));
        assert!(held.patience[0].lasts().is_err() && !held.aside.is_busy());
        held.ends.clear();
        assert!(is_dropped.recv().is_err());
    }

    #[test]
    fn only_so_many_are_left_behind_and_one_that_ended_makes_room() {
        let mut held = Held::new();
        for number in 0..MAX_LEFT {
            held.begin(0).unwrap();
            assert!(held.turn(ASIDE_TIME.as_secs()).unwrap().1.is_err(), "{number}");
        }
        let failure = held.begin(0).unwrap_err();
        assert_eq!(failure.code, NOT_DONE);
        assert!(failure.message.contains("medium 0, medium 1") && failure.message.contains("4 that were given up"));
        held.ends.remove(0);
        while held.begin(0).is_err() {}
    }

    #[test]
    fn a_thread_that_panics_is_an_error_of_the_program() {
        let mut aside = Aside::<(), ()>::default();
        // It ends as one that panicked does, without the words of that.
        let call = || std::panic::resume_unwind(Box::new(()));
        aside.begin((), "it".to_owned(), Patience::default(), Duration::ZERO, call).unwrap();
        let failure = loop {
            if let Some((_, result)) = aside.turn(Duration::ZERO) {
                break result.unwrap_err();
            }
        };
        assert_eq!(failure.code, INTERNAL);
    }
}
