//! The loop of one core.
//!
//! One iteration, all of it with one timestamp:
//!
//! 1. changes: pollers that were added, what handles of pollers wish, a wish to shut down;
//! 2. inbox: at most [`INBOX_BUDGET`] messages;
//! 3. busy pollers, in the order of registration (a device's poller, registered first, takes its completions first);
//! 4. timed pollers that are due, the earliest first, at most [`TIMED_BUDGET`];
//! 5. flush, in reverse order of registration: whoever polls first flushes last, so that what others hand over in their
//!    flush still leaves in this iteration.
//!
//! In steady state an iteration makes no system call, takes no lock and does not allocate. One that finds nothing costs a load
//! for all changes together, one for each lane, and a call for each busy poller and each that flushes.

use core::time::Duration;
use std::sync::Arc;

use crate::clock::{Clock, Moment, Ticker, nanoseconds};
use crate::core_set::CpuId;
use crate::group::{Group, Member};
use crate::inbox::{CoreIndex, Inbox, Source};
use crate::poller::{
    Additions, MAX_POLLERS, NewPoller, Poller, PollerAdder, PollerError, PollerHandle, Schedule, Sleep, WishCell,
};
use crate::publish::Published;
use crate::running::Finished;
use crate::seat::{Idle, Options, Seat};
use crate::shutdown::{Life, Report, ShutdownHandle};
use crate::slot::Slot;
use crate::statistics::{LoopCounters, Statistics};

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

/// No poller runs.
const NOBODY: usize = usize::MAX;

/// The loop of one core with its context `C`. It lives on the thread that runs it; [`PollerHandle`], [`PollerAdder`] and
/// [`ShutdownHandle`] reach it from elsewhere.
pub struct Reactor<C: Context> {
    /// What others ask of the reactor beside messages.
    member: Arc<Member>,
    ticker: Ticker,
    /// Nanosecond of the current or last iteration; never goes back.
    now: u64,
    /// When the next timed poller is due, or the next copy of the statistics.
    alarm: u64,
    inbox: Inbox<C::Message>,
    slots: Vec<Slot<C>>,
    /// A busy poller flushes.
    flushes: bool,
    /// The last iteration found something, and is not accounted for yet.
    found: bool,
    /// The first iteration has begun.
    started: bool,
    /// Which poller runs, to name it if it panics; or [`NOBODY`].
    running: usize,
    /// Since when all iterations found nothing.
    idle_since: u64,
    counters: LoopCounters,
    context: C,
    options: Options,
    life: Life,
    next_publication: u64,
    clock: Clock,
    core: CoreIndex,
    cpu: Option<CpuId>,
    group: Arc<Group>,
    published: Arc<Published>,
    additions: Arc<Additions<C>>,
}

impl<C: Context> Reactor<C> {
    pub(crate) fn new(seat: Seat<C::Message>, context: C) -> Self {
        let now = seat.clock.nanoseconds();
        // Of a seat's group it is always a member.
        let member = seat.group.member(seat.core.index()).map(Arc::clone).unwrap_or_default();
        // The first iteration looks at everything.
        member.ask_attention();
        Self {
            member,
            ticker: Ticker::new(seat.clock.clone()),
            now,
            alarm: now,
            inbox: seat.inbox,
            slots: Vec::with_capacity(MAX_POLLERS),
            flushes: false,
            found: false,
            started: false,
            running: NOBODY,
            idle_since: now,
            counters: LoopCounters::default(),
            context,
            options: seat.options,
            life: Life::Running,
            next_publication: now,
            clock: seat.clock,
            core: seat.core,
            cpu: seat.cpu,
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
        let pollers = self.slots.iter().map(Slot::figures).collect();
        self.final_counters().with(self.core, self.cpu, pollers)
    }

    /// One iteration. With a [`crate::VirtualClock`] it depends on nothing but its inputs. A panic of a poller passes
    /// through; the other pollers are not flushed then ([`Self::run`]'s thread does that).
    #[inline]
    pub fn step(&mut self) -> Step {
        if self.member.wants_attention() {
            return self.step_with_changes();
        }
        let now = self.tick();
        self.iterate(now)
    }

    /// The same, where something has changed that rarely does, and as long as the reactor drains.
    #[cold]
    #[inline(never)]
    fn step_with_changes(&mut self) -> Step {
        if matches!(self.life, Life::Stopped { .. }) {
            return Step::Stopped;
        }
        self.member.take_attention();
        self.start();
        let now = self.tick();
        self.take_additions();
        self.follow_wishes();
        let others_were_drained = self.watch_shutdown(now.nanoseconds);
        let messages = self.counters.messages;
        let step = self.iterate(now);
        if matches!(self.life, Life::Draining { .. }) {
            self.drain(now.nanoseconds, self.counters.messages == messages, others_were_drained);
        }
        if !matches!(self.life, Life::Running) {
            self.member.ask_attention();
        }
        step
    }

    /// What every iteration does.
    #[inline(always)]
    fn iterate(&mut self, now: Moment) -> Step {
        let messages = if self.inbox.is_quiet() { 0 } else { self.receive(now.time) };
        let work = if self.options.time_pollers { self.time_busy(now.time) } else { self.poll_busy(now.time) };
        if now.nanoseconds >= self.alarm {
            return self.end_with_alarm(now, messages, work);
        }
        if self.flushes {
            self.flush(now.time);
        }
        self.end(messages, work)
    }

    /// Ends an iteration.
    #[inline(always)]
    fn end(&mut self, messages: u32, work: u32) -> Step {
        self.running = NOBODY;
        self.counters.iterations += 1;
        let found = messages.saturating_add(work);
        if found == 0 {
            return Step::Idle;
        }
        self.account_found(messages, work);
        Step::Worked(found)
    }

    /// Ends an iteration in which more is due: timed pollers, or a copy of the statistics.
    #[cold]
    #[inline(never)]
    fn end_with_alarm(&mut self, now: Moment, messages: u32, work: u32) -> Step {
        let work = work.saturating_add(self.poll_timed(now));
        self.flush(now.time);
        self.slots.iter_mut().for_each(Slot::end_timed);
        let step = self.end(messages, work);
        if now.nanoseconds >= self.next_publication {
            self.publish();
        }
        self.look_at_slots();
        step
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

    /// Time counts from the first iteration on.
    fn start(&mut self) {
        if !self.started {
            self.started = true;
            self.now = self.ticker.now(self.now).nanoseconds;
            self.idle_since = self.now;
        }
    }

    /// Begins an iteration: reads the clock, and accounts for the iteration before.
    #[inline(always)]
    fn tick(&mut self) -> Moment {
        let began = self.now;
        let now = self.ticker.now(began);
        self.now = now.nanoseconds;
        let duration = now.nanoseconds - began;
        if duration > self.counters.longest {
            (self.counters.longest, self.counters.longest_at) = (duration, began);
        }
        if self.found {
            self.account(began, duration);
        }
        now
    }

    /// Accounts for an iteration that found something and is over now.
    fn account(&mut self, began: u64, duration: u64) {
        (self.found, self.idle_since) = (false, self.now);
        self.counters.busy = self.counters.busy.saturating_add(duration);
        let (duration, began) = (Duration::from_nanos(duration), Duration::from_nanos(began));
        self.slots.iter_mut().for_each(|slot| slot.end_iteration(duration, began));
    }

    /// Accounts for what the current iteration found, and for the idle ones before it.
    fn account_found(&mut self, messages: u32, work: u32) {
        self.end_idleness();
        self.found = true;
        self.counters.busy_iterations += 1;
        self.counters.work += u64::from(work);
        self.counters.messages += u64::from(messages);
    }

    /// Accounts for the iterations since one found something, but the current one.
    fn end_idleness(&mut self) {
        self.counters.idle = self.counters.idle.saturating_add(self.now.saturating_sub(self.idle_since));
        self.idle_since = self.now;
    }

    fn take_additions(&mut self) {
        let additions = self.additions.take();
        if additions.is_empty() {
            return;
        }
        for NewPoller { name, schedule, poller, wish } in additions {
            self.insert(name, schedule, poller, wish);
        }
        self.publish_list();
    }

    fn insert(&mut self, name: &'static str, schedule: Schedule, mut poller: Box<dyn Poller<C>>, wish: WishCell) {
        if matches!(self.life, Life::Draining { .. }) {
            poller.begin_shutdown(&mut self.context, Duration::from_nanos(self.now));
        }
        self.slots.push(Slot::new(name, schedule, poller, wish, self.now));
        self.look_at_slots();
    }

    /// Does what handles of pollers wish.
    fn follow_wishes(&mut self) {
        let before = self.slots.len();
        self.slots.retain_mut(Slot::follow);
        if self.slots.len() < before {
            self.additions.release(before - self.slots.len());
            self.publish_list();
        }
        self.look_at_slots();
    }

    /// Works out what iterations need to know of all slots together.
    fn look_at_slots(&mut self) {
        self.flushes = self.slots.iter().any(|slot| slot.flushed);
        let first_due = self.slots.iter().filter_map(Slot::due).min();
        self.alarm = first_due.map_or(self.next_publication, |due| due.min(self.next_publication));
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

    /// Polls the busy pollers. Returns their work units.
    #[inline(always)]
    fn poll_busy(&mut self, now: Duration) -> u32 {
        let mut work: u32 = 0;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if slot.busy {
                self.running = index;
                let found = slot.poller.poll(&mut self.context, now);
                slot.count_poll();
                if found > 0 {
                    slot.count_work(found);
                    work = work.saturating_add(found);
                }
            }
        }
        work
    }

    /// The same, and charges each with its time.
    #[inline(never)]
    fn time_busy(&mut self, now: Duration) -> u32 {
        let mut work: u32 = 0;
        for index in 0..self.slots.len() {
            if self.slots.get(index).is_some_and(|slot| slot.busy) {
                work = work.saturating_add(self.poll_one(index, now));
            }
        }
        work
    }

    fn poll_one(&mut self, index: usize, now: Duration) -> u32 {
        let Some(slot) = self.slots.get_mut(index) else { return 0 };
        self.running = index;
        let before = self.options.time_pollers.then(|| self.clock.now());
        let work = slot.poller.poll(&mut self.context, now);
        if let Some(before) = before {
            slot.charge(self.clock.now().saturating_sub(before), before);
        }
        slot.count_poll();
        if work > 0 {
            slot.count_work(work);
        }
        work
    }

    /// Runs timed pollers that are due, the earliest first.
    fn poll_timed(&mut self, now: Moment) -> u32 {
        let mut work: u32 = 0;
        for _ in 0..TIMED_BUDGET {
            let Some((index, due)) = self.earliest() else { break };
            if due > now.nanoseconds {
                break;
            }
            if let Some(slot) = self.slots.get_mut(index) {
                slot.begin_timed(now.nanoseconds);
            }
            work = work.saturating_add(self.poll_one(index, now.time));
        }
        work
    }

    /// The active timed poller that is due first.
    fn earliest(&self) -> Option<(usize, u64)> {
        let timed = self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index, slot.due()?)));
        timed.min_by_key(|&(_, due)| due)
    }

    fn flush(&mut self, now: Duration) {
        for (index, slot) in self.slots.iter_mut().enumerate().rev() {
            if slot.flushed {
                self.running = index;
                slot.poller.flush(&mut self.context, now);
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
            let undrained = undrained.map(Slot::name).collect();
            self.life = Life::Stopped { undrained };
            self.tick();
            self.publish();
        }
        let gone = matches!(self.life, Life::Stopped { .. });
        self.group.set_drained(self.core.index(), drained || gone);
    }

    fn final_counters(&self) -> LoopCounters {
        let mut counters = LoopCounters { at: self.now, ..self.counters };
        counters.would_blocks = self.group.would_blocks(self.core.index());
        if !self.found {
            counters.idle = counters.idle.saturating_add(self.now.saturating_sub(self.idle_since));
        }
        counters
    }

    fn publish(&mut self) {
        self.next_publication = self.now.saturating_add(PUBLISH_PERIOD);
        self.published.write(&self.final_counters(), self.slots.iter().map(Slot::figures));
    }

    /// The same, after the list of pollers changed.
    #[cold]
    fn publish_list(&self) {
        self.published.write_list(&self.final_counters(), self.slots.iter().map(Slot::figures));
    }

    /// Until when all agree to sleep; `None` is not at all, `Some(u64::MAX)` until woken.
    fn sleep_limit(&self) -> Option<u64> {
        if !matches!(self.life, Life::Running) {
            return None;
        }
        let mut limit = u64::MAX;
        for slot in self.slots.iter().filter(|slot| slot.is_active()) {
            let until = match slot.sleep_until(&self.context) {
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
            let began = self.tick().nanoseconds;
            self.end_idleness();
            match limit {
                u64::MAX => std::thread::park(),
                _ => std::thread::park_timeout(Duration::from_nanos(limit.saturating_sub(began))),
            }
            self.now = self.ticker.now(began).nanoseconds;
            self.idle_since = self.now;
            self.counters.asleep = self.counters.asleep.saturating_add(self.now.saturating_sub(began));
        }
        self.group.end_sleep(self.core.index());
        Some(step)
    }

    /// The poller that was running when a panic passed through.
    pub(crate) fn running_poller(&self) -> Option<&'static str> {
        self.slots.get(self.running).map(Slot::name)
    }

    /// Flushes everybody but the poller that panicked, so that what they gathered is not lost.
    pub(crate) fn flush_after_panic(&mut self) {
        let culprit = core::mem::replace(&mut self.running, NOBODY);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            slot.flush_anyhow(index != culprit);
        }
        self.flush(Duration::from_nanos(self.now));
    }
}

impl<C: Context> core::fmt::Debug for Reactor<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reactor").field("core", &self.core).field("life", &self.life).finish_non_exhaustive()
    }
}
