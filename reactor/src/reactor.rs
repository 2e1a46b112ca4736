//! The loop of one core.
//!
//! One iteration, all of it with one timestamp:
//!
//! 1. changes: pollers that were added, a wish to shut down;
//! 2. inbox: at most [`INBOX_BUDGET`] messages;
//! 3. busy pollers, in the order of registration (a device's poller, registered first, takes its completions first);
//! 4. timed pollers that are due, the earliest first, at most [`TIMED_BUDGET`];
//! 5. flush, in reverse order of registration: whoever polls first flushes last, so that what others hand over in their
//!    flush still leaves in this iteration.
//!
//! In steady state an iteration makes no system call, takes no lock and does not allocate.

use core::time::Duration;
use std::sync::Arc;

use crate::clock::{Clock, nanoseconds};
use crate::core_set::CpuId;
use crate::group::Group;
use crate::inbox::{CoreIndex, Inbox, Source};
use crate::poller::{
    Additions, MAX_POLLERS, NewPoller, Poller, PollerAdder, PollerError, PollerHandle, Schedule, Sleep, Wish, WishCell,
};
use crate::publish::Published;
use crate::running::Finished;
use crate::seat::{Idle, Options, Seat};
use crate::shutdown::{Life, Report, ShutdownHandle};
use crate::statistics::{LoopCounters, PollerStatistics, Statistics};

/// Messages taken per iteration: with some ten nanoseconds each, the pollers wait for less than a microsecond.
pub const INBOX_BUDGET: usize = 64;
/// Timed pollers run per iteration; the others that are due follow in the next one. They are housekeeping, and each looks
/// for the earliest of all: more of them at once would make the busy pollers wait.
pub const TIMED_BUDGET: usize = 8;
/// How often the statistics are copied out for other threads: a line per second is right to one percent. Nanoseconds.
const PUBLISH_PERIOD: u64 = 10_000_000;

const _: () = assert!(TIMED_BUDGET <= MAX_POLLERS, "a budget above the number of pollers is none");

/// The state of one core, handed to every poller as `&mut`, and what messages mean to it.
pub trait Context {
    /// What other cores send; `()` or [`core::convert::Infallible`] where they send nothing.
    type Message: Send + 'static;

    /// Takes one message. `now` is the time of the iteration.
    fn message(&mut self, from: Source, message: Self::Message, now: Duration);
}

/// What one iteration found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Messages and work units, never zero.
    Worked(u32),
    /// Nothing to do.
    Idle,
    /// The reactor has shut down and does nothing any more.
    Stopped,
}

/// A poller in its reactor.
struct Slot<C> {
    poller: Box<dyn Poller<C>>,
    timer: Option<Timer>,
    wish: WishCell,
    /// It was polled in this iteration, so it is flushed at its end.
    polled: bool,
    /// It found work in this iteration.
    worked: bool,
    counters: PollerStatistics,
}

/// Times of the loop are nanoseconds: see [`Clock::nanoseconds`].
#[derive(Clone, Copy)]
struct Timer {
    period: u64,
    due: u64,
}

impl Timer {
    /// A timed poller rests until it is due.
    fn sleep(self) -> Sleep {
        Sleep::Until(Duration::from_nanos(self.due))
    }

    /// The next time after `now`; what was missed is skipped.
    fn rearm(&mut self, now: u64) {
        let next = self.due.saturating_add(self.period);
        self.due = if next > now { next } else { now.saturating_add(self.period) };
    }
}

/// The loop of one core with its context `C`. It lives on the thread that runs it; [`PollerHandle`], [`PollerAdder`] and
/// [`ShutdownHandle`] reach it from elsewhere.
pub struct Reactor<C: Context> {
    context: C,
    slots: Vec<Slot<C>>,
    inbox: Inbox<C::Message>,
    clock: Clock,
    /// Nanosecond of the current or last iteration; never goes back.
    now: u64,
    /// The iteration that began at `now` is not accounted for yet: whether it found something.
    open: Option<bool>,
    /// Which poller runs, to name it if it panics.
    running: Option<usize>,
    life: Life,
    counters: LoopCounters,
    next_publication: u64,
    core: CoreIndex,
    cpu: Option<CpuId>,
    options: Options,
    group: Arc<Group>,
    published: Arc<Published>,
    additions: Arc<Additions<C>>,
}

impl<C: Context> Reactor<C> {
    pub(crate) fn new(seat: Seat<C::Message>, context: C) -> Self {
        let now = seat.clock.nanoseconds();
        Self {
            context,
            slots: Vec::with_capacity(MAX_POLLERS),
            inbox: seat.inbox,
            clock: seat.clock,
            now,
            open: None,
            running: None,
            life: Life::Running,
            counters: LoopCounters::default(),
            next_publication: now,
            core: seat.core,
            cpu: seat.cpu,
            options: seat.options,
            group: seat.group,
            published: seat.published,
            additions: Arc::new(Additions::new()),
        }
    }

    /// Adds a poller. The name is what statistics and reports call it. Allocates.
    pub fn add(
        &mut self,
        name: &'static str,
        schedule: Schedule,
        poller: impl Poller<C> + 'static,
    ) -> Result<PollerHandle, PollerError> {
        self.additions.reserve()?;
        let wish = WishCell::default();
        let handle = PollerHandle { wish: wish.clone(), group: Arc::clone(&self.group), core: self.core.index() };
        self.insert(name, schedule, Box::new(poller), wish);
        self.publish_list();
        Ok(handle)
    }

    /// Adds pollers later, also from other threads.
    #[must_use]
    pub fn adder(&self) -> PollerAdder<C> {
        let (additions, group) = (Arc::clone(&self.additions), Arc::clone(&self.group));
        PollerAdder { additions, group, core: self.core.index() }
    }

    /// Shuts this reactor and its wiring down.
    #[must_use]
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle(Arc::clone(&self.group))
    }

    /// Number among the reactors.
    #[must_use]
    pub fn core(&self) -> CoreIndex {
        self.core
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &C {
        &self.context
    }

    /// The context, between two steps.
    #[must_use]
    pub fn context_mut(&mut self) -> &mut C {
        &mut self.context
    }

    /// The figures up to the last iteration that ended. Allocates.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let pollers = self.slots.iter().map(|slot| slot.counters.clone()).collect();
        self.final_counters().with(self.core, self.cpu, pollers)
    }

    /// One iteration. With a [`crate::VirtualClock`] it depends on nothing but its inputs. A panic of a poller passes
    /// through; the other pollers are not flushed then ([`Self::run`]'s thread does that).
    pub fn step(&mut self) -> Step {
        if matches!(self.life, Life::Stopped { .. }) {
            return Step::Stopped;
        }
        let now = self.tick();
        self.counters.iterations += 1;
        self.take_additions();
        let others_were_drained = self.watch_shutdown(now);
        let time = Duration::from_nanos(now);
        let messages = self.receive(time);
        let (busy, first_due) = self.poll_busy(time);
        let timed = if now >= first_due { self.poll_timed(now) } else { 0 };
        let work = busy.saturating_add(timed);
        self.flush(time);
        let found = messages.saturating_add(work);
        self.open = Some(found > 0);
        self.counters.busy_iterations += u64::from(found > 0);
        self.counters.work += u64::from(work);
        self.counters.messages += u64::from(messages);
        if matches!(self.life, Life::Draining { .. }) {
            self.drain(now, messages == 0, others_were_drained);
        }
        if now >= self.next_publication {
            self.publish();
        }
        if found > 0 { Step::Worked(found) } else { Step::Idle }
    }

    /// Steps until the reactor has shut down. While there is nothing to do it spins or sleeps as [`Idle`] says; an
    /// unpinned reactor offers its core to other threads after each empty iteration.
    pub fn run(&mut self) {
        self.group.enter(self.core.index());
        let mut empty: u32 = 0;
        loop {
            match self.step() {
                Step::Stopped => return,
                Step::Worked(_) => empty = 0,
                Step::Idle => empty = empty.saturating_add(1),
            }
            let rested = match self.options.idle {
                Idle::SleepAfter(limit) if empty > limit => self.sleep(),
                _ => None,
            };
            match rested {
                Some(Step::Worked(_)) => empty = 0,
                None if empty > 0 && self.cpu.is_none() => std::thread::yield_now(),
                _ => {}
            }
        }
    }

    /// Ends the reactor: its context and the report. Also before it has shut down; who was not asked to drain is not
    /// listed then.
    #[must_use]
    pub fn finish(mut self) -> Finished<C> {
        let messages_left = self.inbox.discard();
        self.group.set_drained(self.core.index(), true);
        let statistics = self.statistics();
        let undrained = match self.life {
            Life::Stopped { undrained } => undrained,
            Life::Running | Life::Draining { .. } => Vec::new(),
        };
        Finished { core: self.core, context: self.context, report: Report { undrained, messages_left, statistics } }
    }

    /// Begins an iteration: reads the clock, and accounts for the iteration before.
    fn tick(&mut self) -> u64 {
        let (began, now) = (self.now, self.clock.nanoseconds().max(self.now));
        self.now = now;
        if let Some(found) = self.open.take() {
            self.account(began, now.saturating_sub(began), found);
        }
        now
    }

    fn account(&mut self, began: u64, duration: u64, found: bool) {
        self.counters.at = self.now;
        if duration > self.counters.longest {
            (self.counters.longest, self.counters.longest_at) = (duration, began);
        }
        if !found {
            self.counters.idle = self.counters.idle.saturating_add(duration);
            return;
        }
        self.counters.busy = self.counters.busy.saturating_add(duration);
        let (duration, began) = (Duration::from_nanos(duration), Duration::from_nanos(began));
        for slot in self.slots.iter_mut().filter(|slot| slot.worked) {
            slot.counters.longest_iteration.observe(duration, began);
        }
    }

    fn take_additions(&mut self) {
        if !self.group.take_announcement(self.core.index()) {
            return;
        }
        for NewPoller { name, schedule, poller, wish } in self.additions.take() {
            self.insert(name, schedule, poller, wish);
        }
        self.publish_list();
    }

    fn insert(&mut self, name: &'static str, schedule: Schedule, mut poller: Box<dyn Poller<C>>, wish: WishCell) {
        let timer = match schedule {
            Schedule::Busy | Schedule::Every(Duration::ZERO) => None,
            Schedule::Every(period) => {
                let period = nanoseconds(period);
                Some(Timer { period, due: self.now.saturating_add(period) })
            }
        };
        if matches!(self.life, Life::Draining { .. }) {
            poller.begin_shutdown(&mut self.context, Duration::from_nanos(self.now));
        }
        let counters = PollerStatistics { name, ..PollerStatistics::default() };
        self.slots.push(Slot { poller, timer, wish, polled: false, worked: false, counters });
    }

    /// Notices a wish to shut down, and says whether all reactors of the wiring were drained when this iteration began.
    fn watch_shutdown(&mut self, now: u64) -> bool {
        match self.life {
            Life::Draining { .. } => self.group.all_drained(),
            Life::Running if self.group.grace().is_some() => {
                self.life = Life::Draining { since: now };
                for slot in &mut self.slots {
                    slot.poller.begin_shutdown(&mut self.context, Duration::from_nanos(now));
                }
                false
            }
            Life::Running | Life::Stopped { .. } => false,
        }
    }

    fn receive(&mut self, now: Duration) -> u32 {
        let Self { inbox, context, .. } = self;
        let received = inbox.receive(INBOX_BUDGET, |from, message| context.message(from, message, now));
        u32::try_from(received).unwrap_or(u32::MAX)
    }

    /// Visits every poller: applies what its handle wishes, and polls the busy ones. Returns their work units and when
    /// the first timed poller is due.
    fn poll_busy(&mut self, now: Duration) -> (u32, u64) {
        let (mut work, mut first_due, mut any_removed): (u32, _, _) = (0, u64::MAX, false);
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots.get_mut(index) else { break };
            (slot.polled, slot.worked) = (false, false);
            match (slot.wish.get(), slot.timer) {
                (Wish::Active, None) => work = work.saturating_add(self.poll_one(index, now)),
                (Wish::Active, Some(timer)) => first_due = first_due.min(timer.due),
                (Wish::Paused, _) => {}
                (Wish::Removed, _) => any_removed = true,
            }
        }
        if any_removed {
            self.remove(now);
        }
        (work, first_due)
    }

    /// Runs timed pollers that are due, the earliest first.
    fn poll_timed(&mut self, now: u64) -> u32 {
        let mut work: u32 = 0;
        for _ in 0..TIMED_BUDGET {
            let Some((index, due)) = self.earliest() else { break };
            if due > now {
                break;
            }
            if let Some(timer) = self.slots.get_mut(index).and_then(|slot| slot.timer.as_mut()) {
                timer.rearm(now);
            }
            work = work.saturating_add(self.poll_one(index, Duration::from_nanos(now)));
        }
        work
    }

    /// The active timed poller that is due first.
    fn earliest(&self) -> Option<(usize, u64)> {
        let active = self.slots.iter().enumerate().filter(|(_, slot)| slot.wish.get() == Wish::Active);
        active.filter_map(|(index, slot)| Some((index, slot.timer?.due))).min_by_key(|&(_, due)| due)
    }

    fn poll_one(&mut self, index: usize, now: Duration) -> u32 {
        let Some(slot) = self.slots.get_mut(index) else { return 0 };
        self.running = Some(index);
        let before = self.options.time_pollers.then(|| self.clock.now());
        let work = slot.poller.poll(&mut self.context, now);
        if let Some(before) = before {
            let time = self.clock.now().saturating_sub(before);
            slot.counters.time = slot.counters.time.saturating_add(time);
            slot.counters.longest_poll.observe(time, before);
        }
        self.running = None;
        (slot.polled, slot.worked) = (true, work > 0);
        slot.counters.polls += 1;
        slot.counters.empty_polls += u64::from(work == 0);
        slot.counters.work += u64::from(work);
        work
    }

    /// Drops removed pollers. Those that were polled in this iteration before their removal are flushed first.
    #[cold]
    fn remove(&mut self, now: Duration) {
        let Self { slots, context, .. } = self;
        let before = slots.len();
        slots.retain_mut(|slot| {
            let keep = slot.wish.get() != Wish::Removed;
            if !keep && slot.polled {
                slot.poller.flush(context, now);
            }
            keep
        });
        self.additions.release(before - self.slots.len());
        self.publish_list();
    }

    fn flush(&mut self, now: Duration) {
        for index in (0..self.slots.len()).rev() {
            let Some(slot) = self.slots.get_mut(index) else { continue };
            if slot.polled {
                self.running = Some(index);
                slot.poller.flush(&mut self.context, now);
                self.running = None;
            }
        }
    }

    /// Ends the loop if all reactors are drained, or the deadline is over.
    fn drain(&mut self, now: u64, inbox_empty: bool, others_were_drained: bool) {
        let Life::Draining { since } = self.life else { return };
        let context = &self.context;
        let mut undrained = self.slots.iter().filter(|slot| !slot.poller.drained(context)).peekable();
        let drained = inbox_empty && undrained.peek().is_none();
        let deadline = since.saturating_add(self.group.grace().unwrap_or_default());
        // All were drained before this iteration looked into the inbox, and it was empty: nobody owes anybody anything.
        let together = drained && others_were_drained;
        if together || now >= deadline {
            let undrained = undrained.map(|slot| slot.counters.name).collect();
            self.life = Life::Stopped { undrained };
            self.tick();
            self.publish();
        }
        let gone = matches!(self.life, Life::Stopped { .. });
        self.group.set_drained(self.core.index(), drained || gone);
    }

    fn final_counters(&self) -> LoopCounters {
        LoopCounters { would_blocks: self.group.would_blocks(self.core.index()), ..self.counters }
    }

    fn publish(&mut self) {
        self.next_publication = self.now.saturating_add(PUBLISH_PERIOD);
        self.published.write(&self.final_counters(), self.slots.iter().map(|slot| &slot.counters));
    }

    /// The same, after the list of pollers changed.
    #[cold]
    fn publish_list(&self) {
        self.published.write_list(&self.final_counters(), self.slots.iter().map(|slot| &slot.counters));
    }

    /// Until when all agree to sleep; `None` is not at all, `Some(u64::MAX)` until woken.
    fn sleep_limit(&self) -> Option<u64> {
        if !matches!(self.life, Life::Running) {
            return None;
        }
        let mut limit = u64::MAX;
        for slot in self.slots.iter().filter(|slot| slot.wish.get() == Wish::Active) {
            let until = match slot.timer.map_or_else(|| slot.poller.sleep_until(&self.context), Timer::sleep) {
                Sleep::Busy => return None,
                Sleep::Until(time) => nanoseconds(time),
                Sleep::Forever => u64::MAX,
            };
            limit = limit.min(until);
        }
        (limit > self.now).then_some(limit)
    }

    /// Sleeps if nobody objects. Between announcing and sleeping there is one more full iteration, so whatever was sent
    /// before the sender could see the announcement is found by that iteration; whatever comes later unparks. Returns what
    /// that iteration found; `None` if somebody objected before it.
    #[cold]
    fn sleep(&mut self) -> Option<Step> {
        self.sleep_limit()?;
        self.group.announce_sleep(self.core.index());
        let step = self.step();
        if step == Step::Idle
            && let Some(limit) = self.sleep_limit()
        {
            self.publish();
            self.tick();
            let began = self.now;
            match limit {
                u64::MAX => std::thread::park(),
                _ => std::thread::park_timeout(Duration::from_nanos(limit.saturating_sub(began))),
            }
            self.tick();
            self.counters.asleep = self.counters.asleep.saturating_add(self.now.saturating_sub(began));
        }
        self.group.end_sleep(self.core.index());
        Some(step)
    }

    /// The poller that was running when a panic passed through.
    pub(crate) fn running_poller(&self) -> Option<&'static str> {
        self.slots.get(self.running?).map(|slot| slot.counters.name)
    }

    /// Flushes everybody but the poller that panicked, so that what they gathered is not lost.
    pub(crate) fn flush_after_panic(&mut self) {
        let culprit = self.running.take();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            slot.polled = Some(index) != culprit && slot.wish.get() == Wish::Active;
        }
        self.flush(Duration::from_nanos(self.now));
    }
}

impl<C: Context> core::fmt::Debug for Reactor<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reactor").field("core", &self.core).field("life", &self.life).finish_non_exhaustive()
    }
}
