//! The loop of one core.
//!
//! One iteration, all of it with one timestamp:
//!
//! 1. changes: pollers that were added, what handles of pollers wish, a wish to shut down;
//! 2. inbox: at most [`INBOX_BUDGET`] messages;
//! 3. busy pollers, in the order of registration (a device's poller, registered first, takes its completions first);
//! 4. timed pollers that are due, the earliest first, at most [`TIMED_BUDGET`];
//! 5. flush, in reverse order of registration: whoever polls first flushes last, so that what others hand over in their
//!    flush still leaves in this iteration. Only where the iteration found something or looked at changes, or a timed poller or a
//!    copy of the statistics was due: there is nothing to hand over else.
//!
//! In steady state an iteration makes no system call, takes no lock and does not allocate. One that finds nothing costs a reading of
//! the clock, a load for all changes together, one for each lane, and a call for each busy poller. It
//! accounts for nothing but its number: what else there is to know of it follows from the next iteration that does more.

use core::time::Duration;
use std::sync::Arc;

use crate::clock::{Clock, Now, Ticker, nanoseconds};
use crate::core_set::CpuId;
use crate::cpu;
use crate::group::{Group, Member};
use crate::inbox::{CoreIndex, INBOX_BUDGET, Inbox, Source};
use crate::long::{Inquiry, LONG_ITERATION, cause};
use crate::options::{Idle, Options};
use crate::poller::{
    Additions, Intake, MAX_POLLERS, NewPoller, Poller, PollerAdder, PollerError, PollerHandle, Schedule, Sleep,
    WishCell,
};
use crate::primitive::yield_now;
use crate::publish::Published;
use crate::running::Finished;
use crate::seat::Seat;
use crate::shutdown::{Life, Report, ShutdownHandle};
use crate::sleeper::Bed;
use crate::slot::Slot;
use crate::slots::Slots;
use crate::stall::StallRecord;
use crate::statistics::{LoopCounters, PollerStatistics, Statistics};
use crate::turn::TurnCell;

/// Timed pollers run per iteration; the others that are due follow in the next one. They are housekeeping, and each looks
/// for the earliest of all: more of them at once would make the busy pollers wait.
pub const TIMED_BUDGET: usize = 8;
/// How often the statistics are copied out for other threads: a line per second is right to one percent. Nanoseconds.
const PUBLISH_PERIOD: u64 = 10_000_000;

/// Of iterations that found something the longer ones are worth a system call that says what else took their time: it is less than half
/// a percent of them. Nanoseconds.
const WORTH_ASKING: u64 = 100_000;

/// So many nanoseconds of the time between two iterations count against the grace of a shutdown: a reactor that was stopped could drain
/// nothing meanwhile, nor could whom its pollers wait for, if that was stopped with it.
const STANDSTILL: u64 = 100_000_000;

const _: () = assert!(TIMED_BUDGET <= MAX_POLLERS, "a budget above the number of pollers is none");

/// The state of one core, handed to every poller as `&mut`, and what messages mean to it.
pub trait Context {
    /// What other cores send; `()` or [`core::convert::Infallible`] where they send nothing.
    type Message: Send + 'static;

    /// Takes one message. `now` is the time of the iteration.
    fn message(&mut self, from: Source, message: Self::Message, now: &Now);
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

/// Who is flushed at the end of an iteration.
#[derive(Clone, Copy)]
enum Flush {
    Nobody,
    /// Busy pollers.
    Busy,
    /// The same, and the timed ones that were polled.
    All,
}

/// A span in ticks.
fn ticks_of(span: Duration, now: &Now) -> u64 {
    // Microseconds: far below 2^64 nanoseconds.
    now.ticks_at(span.as_nanos() as u64).saturating_sub(now.ticks_at(0))
}

/// The loop of one core with its context `C`. It lives on the thread that runs it; [`PollerHandle`], [`PollerAdder`] and
/// [`ShutdownHandle`] reach it from elsewhere.
pub struct Reactor<C: Context> {
    /// What others ask of the reactor beside messages.
    member: Arc<Member>,
    ticker: Ticker,
    /// Time of the current or last iteration; never goes back.
    now: Now,
    /// An iteration is a plain one if it begins less than so many ticks after the one before. So it is 0 where none is plain, and
    /// else above the longest iteration, or above what makes one a long one.
    plain_below: u64,
    /// [`LONG_ITERATION`] in ticks.
    long: u64,
    /// [`Options::stall_threshold`] in nanoseconds.
    stall: u64,
    /// Why iterations took long.
    inquiry: Inquiry,
    /// When the next timed poller is due, or the next copy of the statistics; in ticks.
    alarm: u64,
    inbox: Inbox<C::Message>,
    /// The last look at it used up its budget.
    inbox_left: bool,
    slots: Slots<C>,
    /// A busy poller flushes.
    flushes: bool,
    /// The current iteration found something. False between two.
    more: bool,
    /// Messages and work units that the current iteration found; zero between two.
    messages: u32,
    work: u32,
    /// The last iteration found something, and is not accounted for yet.
    found: bool,
    /// The first iteration has begun.
    started: bool,
    /// Whose turn it is unless something else is noted: the first busy poller's.
    first_busy: Option<usize>,
    /// Since when all iterations found nothing, in ticks.
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
    additions: Intake<C>,
    bed: Bed,
}

impl<M> Seat<M> {
    /// Makes the reactor. Call it on the thread that will run it.
    #[must_use]
    pub fn reactor<C: Context<Message = M>>(self, context: C) -> Reactor<C> {
        Reactor::new(self, context)
    }
}

impl<C: Context> Reactor<C> {
    fn new(seat: Seat<C::Message>, context: C) -> Self {
        let ticker = Ticker::new(seat.clock.clone());
        let now = ticker.now();
        // Of a seat's group it is always a member.
        let member = seat.group.member(seat.core.index()).map(Arc::clone).unwrap_or_default();
        // The first iteration looks at everything.
        member.ask_attention();
        Self {
            member,
            ticker,
            now,
            plain_below: 0,
            long: ticks_of(LONG_ITERATION, &now),
            stall: nanoseconds(seat.options.stall_threshold),
            inquiry: Inquiry::default(),
            alarm: 0,
            inbox: seat.inbox,
            inbox_left: false,
            slots: Slots::new(),
            flushes: false,
            more: false,
            messages: 0,
            work: 0,
            found: false,
            started: false,
            first_busy: None,
            idle_since: now.ticks,
            counters: LoopCounters::default(),
            context,
            options: seat.options,
            life: Life::Running,
            next_publication: now.nanoseconds(),
            clock: seat.clock,
            core: seat.core,
            cpu: seat.cpu,
            group: seat.group,
            published: seat.published,
            additions: Intake(Arc::new(Additions::new())),
            bed: Bed::default(),
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
        PollerAdder { additions, group, core: self.core.index(), bed: self.bed.clone() }
    }

    /// Wakes this reactor where a descriptor becomes readable while it sleeps, which costs it three descriptors, and waking it a system
    /// call more. Before it runs. Whoever arms what makes it readable ([`Poller::arm`]) also reads it, if that is needed: the reactor
    /// does not, and is woken by what comes newly. A descriptor that is closed wakes no more. What comes while it runs is
    /// [`PollerAdder::wake_by`]'s.
    ///
    /// # Errors
    /// The system has no descriptor left, or this is none that can be waited for.
    #[cfg(not(loom))]
    pub fn wake_by(&mut self, descriptor: impl std::os::fd::AsFd) -> std::io::Result<()> {
        self.bed.add(descriptor)
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
        let long = self.published.long_iterations();
        self.final_counters().with(self.core, self.cpu, self.figures().collect(), long)
    }

    /// One iteration. With a [`crate::VirtualClock`] it depends on nothing but its inputs. A panic of a poller passes
    /// through; the other pollers are not flushed then ([`Self::run`]'s thread does that).
    #[inline]
    pub fn step(&mut self) -> Step {
        let counter = cpu::ticks();
        // Where the counter went back, that is longer than any.
        let duration = counter.wrapping_sub(self.now.ticks);
        if duration >= self.plain_below || counter >= self.alarm || self.member.wants_attention() {
            return self.step_fully(counter);
        }
        self.now.ticks = counter;
        if self.inbox.has_news() {
            self.receive();
        }
        self.poll_busy();
        if self.more {
            return self.end(Flush::Busy);
        }
        self.counters.iterations += 1;
        Step::Idle
    }

    /// An iteration that is not plain: it follows one that found something, or that was longer than any before; a timed poller is
    /// due, or a copy of the statistics; something has changed that rarely does; the reactor drains. It is every one where
    /// the clock is not the processor's counter, or pollers are timed.
    #[inline(never)]
    fn step_fully(&mut self, counter: u64) -> Step {
        if matches!(self.life, Life::Stopped { .. }) {
            return Step::Stopped;
        }
        self.begin(self.ticker.read(counter));
        let changed = self.member.wants_attention() && self.member.take_attention();
        let others_were_drained = changed && self.look_at_changes();
        // What a full budget left is no news.
        if self.inbox_left || self.inbox.has_news() {
            self.receive();
        }
        let received = self.messages > 0;
        if self.options.time_pollers {
            self.time_busy();
        } else {
            self.poll_busy();
        }
        let rings = self.now.ticks >= self.alarm;
        if rings {
            self.poll_timed();
        }
        let flush = if rings {
            Flush::All
        } else if changed || self.messages > 0 || self.work > 0 {
            Flush::Busy
        } else {
            Flush::Nobody
        };
        let step = self.end(flush);
        if rings {
            self.end_alarm();
        }
        if changed {
            self.end_changes(!received, others_were_drained);
        }
        let plain = self.ticker.counts_ticks() && !self.options.time_pollers && !self.found;
        self.plain_below = if plain { self.counters.longest.min(self.long).saturating_add(1) } else { 0 };
        step
    }

    /// Looks at what rarely changes. Says whether all reactors of the wiring were drained when this iteration began.
    #[cold]
    fn look_at_changes(&mut self) -> bool {
        self.take_additions();
        self.follow_wishes();
        self.watch_shutdown()
    }

    /// Ends an iteration that looked at changes.
    #[cold]
    fn end_changes(&mut self, inbox_empty: bool, others_were_drained: bool) {
        if matches!(self.life, Life::Draining { .. }) {
            self.drain(inbox_empty, others_were_drained);
        }
        if !matches!(self.life, Life::Running) {
            self.member.ask_attention();
        }
    }

    /// Ends an iteration in which timed pollers were due, or a copy of the statistics.
    #[cold]
    fn end_alarm(&mut self) {
        self.slots.others_mut().iter_mut().for_each(Slot::end_timed);
        if self.now.nanoseconds() >= self.next_publication {
            self.publish();
        }
        self.look_at_slots();
    }

    /// Ends an iteration that found something, or is not a plain one.
    #[inline(never)]
    fn end(&mut self, flush: Flush) -> Step {
        match flush {
            Flush::All => self.flush_all(),
            Flush::Busy if self.flushes => self.flush_busy(),
            Flush::Busy | Flush::Nobody => {}
        }
        self.more = false;
        self.counters.iterations += 1;
        let (messages, work) = (core::mem::take(&mut self.messages), core::mem::take(&mut self.work));
        let found = messages.saturating_add(work);
        if found == 0 {
            return Step::Idle;
        }
        self.account_found(messages, work);
        Step::Worked(found)
    }

    /// Steps until the reactor has shut down. While there is nothing to do it spins or sleeps as [`Idle`] says; an
    /// unpinned reactor offers its core to other threads after each empty iteration.
    pub fn run(&mut self) {
        self.group.enter(self.core.index(), self.bed.wakeup());
        if !self.clock.is_virtual() {
            self.inquiry.begin();
        }
        let (mut spun_since, mut found) = (self.now.ticks, true);
        let spins = match self.options.idle {
            Idle::Spin => None,
            Idle::SleepAfter(time) => Some(ticks_of(time, &self.now)),
        };
        // Else no iteration is a plain one, and nothing asks the processor's counter.
        let counts_ticks = self.ticker.counts_ticks();
        loop {
            let step = if counts_ticks { self.step() } else { self.step_fully(0) };
            match step {
                Step::Stopped => return,
                Step::Worked(_) => found = true,
                Step::Idle => {
                    if core::mem::take(&mut found) {
                        spun_since = self.now.ticks;
                    }
                    let rests = spins.is_some_and(|spins| self.now.ticks.wrapping_sub(spun_since) >= spins);
                    // Who may not sleep now, or just has, spins as long again.
                    found = rests;
                    if (!rests || !self.sleep()) && self.cpu.is_none() {
                        yield_now();
                    }
                }
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

    /// Begins an iteration at this reading of the clock, and accounts for the iteration before. Time counts from the first one
    /// on.
    fn begin(&mut self, ticks: u64) {
        let ticks = ticks.max(self.now.ticks);
        if !self.started {
            self.started = true;
            (self.now.ticks, self.idle_since) = (ticks, ticks);
        }
        let began = core::mem::replace(&mut self.now.ticks, ticks);
        let duration = ticks - began;
        if duration > self.counters.longest {
            (self.counters.longest, self.counters.longest_at) = (duration, began);
        }
        if duration > self.long {
            self.account_long(began, duration);
        }
        if self.found {
            self.account(began, duration);
        }
    }

    /// Accounts for an iteration that took long and is over now: how long, and why.
    #[cold]
    fn account_long(&mut self, began: u64, ticks: u64) {
        let duration = self.now.span(ticks);
        let at = self.now.with_ticks(began).nanoseconds();
        let is_worth = !self.found || duration >= WORTH_ASKING.min(self.stall);
        let asks = duration > self.stall || (is_worth && self.inquiry.is_due(at));
        let usage = self.inquiry.ask(asks);
        let cause = cause(usage, self.found);
        self.published.long().count(cause, duration);
        let poller = if self.found { self.slots.charge_long() } else { None };
        if duration > self.stall {
            self.published.stall().write(StallRecord { began: at, duration, cause, poller, usage });
        }
    }

    /// Accounts for an iteration that found something and is over now.
    fn account(&mut self, began: u64, duration: u64) {
        (self.found, self.idle_since) = (false, self.now.ticks);
        self.counters.busy = self.counters.busy.saturating_add(duration);
        self.slots.for_each_mut(|slot| slot.end_iteration(duration, began));
    }

    /// Accounts for what the current iteration found, and for the idle ones before it.
    fn account_found(&mut self, messages: u32, work: u32) {
        self.end_idleness();
        (self.found, self.plain_below) = (true, 0);
        self.counters.busy_iterations += 1;
        self.counters.work += u64::from(work);
        self.counters.messages += u64::from(messages);
    }

    /// Accounts for the iterations since one found something, but the current one.
    fn end_idleness(&mut self) {
        self.counters.idle = self.counters.idle.saturating_add(self.now.ticks.saturating_sub(self.idle_since));
        self.idle_since = self.now.ticks;
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
            poller.begin_shutdown(&mut self.context, &self.now);
        }
        let now = self.now.nanoseconds();
        self.slots.push(Slot::new(name, schedule, poller, wish, now, self.counters.iterations));
        self.look_at_slots();
    }

    /// Does what handles of pollers wish.
    fn follow_wishes(&mut self) {
        let dropped = self.slots.follow(self.counters.iterations);
        if dropped > 0 {
            self.additions.release(dropped);
            self.publish_list();
        }
        self.look_at_slots();
    }

    /// Works out what iterations need to know of all slots together.
    fn look_at_slots(&mut self) {
        self.flushes = self.slots.iter().any(|slot| slot.flushed);
        self.first_busy = self.slots.first_busy();
        self.end_turn();
        let first_due = self.slots.others().iter().filter_map(Slot::due).min();
        let alarm = first_due.map_or(self.next_publication, |due| due.min(self.next_publication));
        self.alarm = self.now.ticks_at(alarm);
    }

    /// Notices a wish to shut down, and says whether all reactors of the wiring were drained when this iteration began.
    fn watch_shutdown(&mut self) -> bool {
        match self.life {
            Life::Draining { .. } => self.group.all_drained(),
            Life::Running if self.group.grace().is_some() => {
                self.life = Life::Draining { spent: 0, looked: self.now.nanoseconds() };
                for number in 0..self.slots.len() {
                    if let Some(slot) = self.slots.get_mut(number) {
                        self.member.turn().set_poller(number);
                        slot.poller.begin_shutdown(&mut self.context, &self.now);
                    }
                }
                self.end_turn();
                false
            }
            Life::Running | Life::Stopped { .. } => false,
        }
    }

    /// Takes messages.
    fn receive(&mut self) {
        // Should the context panic, what is behind the message is no news any more.
        (self.inbox_left, self.plain_below) = (true, 0);
        self.member.turn().set_messages();
        let Self { inbox, context, now, .. } = self;
        let received = inbox.receive(INBOX_BUDGET, |from, message| context.message(from, message, now));
        // At most the budget.
        self.messages = received as u32;
        self.end_turn();
        self.inbox_left = received >= INBOX_BUDGET;
        self.more |= received > 0;
    }

    /// Polls the busy pollers.
    #[inline(always)]
    fn poll_busy(&mut self) {
        let Self { slots, context, now, member, work, more, .. } = self;
        if let Some((first, others)) = slots.busy_mut().split_first_mut() {
            poll(first, context, now, work, more);
            for slot in &mut *others {
                member.turn().set_poller(slot.number);
                poll(slot, context, now, work, more);
            }
            if !others.is_empty() {
                member.turn().set_poller(first.number);
            }
        }
    }

    /// Whatever had its turn beside the busy pollers is done.
    fn end_turn(&self) {
        self.member.turn().set(self.first_busy);
    }

    /// The same, and charges each with its time.
    #[inline(never)]
    fn time_busy(&mut self) {
        for number in 0..self.slots.len() {
            if self.slots.get(number).is_some_and(|slot| slot.busy) {
                self.poll_one(number);
            }
        }
        self.end_turn();
    }

    fn poll_one(&mut self, number: usize) {
        let Some(slot) = self.slots.get_mut(number) else { return };
        let before = self.options.time_pollers.then(|| self.clock.now());
        self.member.turn().set_poller(number);
        let work = slot.poller.poll(&mut self.context, &self.now);
        if let Some(before) = before {
            slot.charge(self.clock.now().saturating_sub(before), before);
        }
        if work > 0 {
            slot.count_work(work);
            self.work = self.work.saturating_add(work);
        }
    }

    /// Runs timed pollers that are due, the earliest first.
    fn poll_timed(&mut self) {
        let now = self.now.nanoseconds();
        for _ in 0..TIMED_BUDGET {
            let Some((number, due)) = self.earliest() else { break };
            if due > now {
                break;
            }
            if let Some(slot) = self.slots.get_mut(number) {
                slot.begin_timed(now);
            }
            self.poll_one(number);
        }
        self.end_turn();
    }

    /// The active timed poller that is due first.
    fn earliest(&self) -> Option<(usize, u64)> {
        let timed = self.slots.others().iter().filter_map(|slot| Some((slot.number, slot.due()?)));
        timed.min_by_key(|&(_, due)| due)
    }

    fn flush_busy(&mut self) {
        for slot in self.slots.busy_mut().iter_mut().rev() {
            flush(slot, &mut self.context, &self.now, self.member.turn());
        }
        self.end_turn();
    }

    /// The same, with the timed pollers that were polled.
    #[cold]
    fn flush_all(&mut self) {
        for number in (0..self.slots.len()).rev() {
            if let Some(slot) = self.slots.get_mut(number) {
                flush(slot, &mut self.context, &self.now, self.member.turn());
            }
        }
        self.end_turn();
    }

    /// Ends the loop if all reactors are drained, or the deadline is over.
    fn drain(&mut self, inbox_empty: bool, others_were_drained: bool) {
        let now = self.now.nanoseconds();
        let Life::Draining { spent, looked } = &mut self.life else { return };
        *spent = spent.saturating_add(now.saturating_sub(*looked).min(STANDSTILL));
        *looked = now;
        let spent = *spent;
        let is_undrained = |slot: &&Slot<C>| {
            self.member.turn().set_poller(slot.number);
            !slot.poller.drained(&self.context)
        };
        let mut undrained = self.slots.iter().filter(is_undrained).peekable();
        let drained = inbox_empty && undrained.peek().is_none();
        // All were drained before this iteration looked into the inbox, and it was empty: nobody owes anybody anything.
        let together = drained && others_were_drained;
        if together || spent >= self.group.grace().unwrap_or_default() {
            let undrained = undrained.map(Slot::name).collect();
            self.life = Life::Stopped { undrained };
            self.begin(self.ticker.read(cpu::ticks()));
            self.publish();
        }
        let gone = matches!(self.life, Life::Stopped { .. });
        self.member.turn().set(if gone { None } else { self.first_busy });
        self.group.set_drained(self.core.index(), drained || gone);
    }

    /// The figures of the loop, in nanoseconds.
    fn final_counters(&self) -> LoopCounters {
        let mut counters = LoopCounters { at: self.now.ticks, ..self.counters };
        counters.would_blocks = self.group.would_blocks(self.core.index());
        if !self.found {
            counters.idle = counters.idle.saturating_add(self.now.ticks.saturating_sub(self.idle_since));
        }
        counters.in_nanoseconds(&self.now)
    }

    /// Those of the pollers.
    fn figures(&self) -> impl Iterator<Item = PollerStatistics> + Clone {
        self.slots.iter().map(|slot| slot.figures(self.counters.iterations, &self.now))
    }

    fn publish(&mut self) {
        self.next_publication = self.now.nanoseconds().saturating_add(PUBLISH_PERIOD);
        self.published.write(&self.final_counters(), self.figures());
    }

    /// The same, after the list of pollers changed.
    #[cold]
    fn publish_list(&self) {
        self.published.write_list(&self.final_counters(), self.figures());
    }

    /// Until when all agree to sleep; `None` is not at all, `Some(u64::MAX)` until woken.
    fn sleep_limit(&mut self) -> Option<u64> {
        if !matches!(self.life, Life::Running) {
            return None;
        }
        let mut limit = u64::MAX;
        for slot in self.slots.iter().filter(|slot| slot.is_active()) {
            self.member.turn().set_poller(slot.number);
            let until = slot.sleep_until(&self.context);
            self.end_turn();
            let until = match until {
                Sleep::Busy => return None,
                Sleep::Until(time) => nanoseconds(time),
                Sleep::Forever => u64::MAX,
            };
            limit = limit.min(until);
        }
        (limit > self.now.nanoseconds()).then_some(limit)
    }

    /// Sleeps if nobody objects, and says whether nobody did. Between announcing and sleeping there is one more full iteration, so
    /// whatever was sent before the sender could see the announcement, or came before it was armed, is found by that iteration; whatever
    /// comes later wakes.
    #[cold]
    fn sleep(&mut self) -> bool {
        if self.sleep_limit().is_none() {
            return false;
        }
        self.group.announce_sleep(self.core.index());
        let armed = self.arm();
        let agreed = armed && self.step() == Step::Idle;
        if agreed && let Some(limit) = self.sleep_limit() {
            self.rest(limit);
        }
        self.group.end_sleep(self.core.index());
        agreed
    }

    /// Whatever brings any of the pollers work wakes from now on.
    fn arm(&mut self) -> bool {
        let mut armed = true;
        for number in 0..self.slots.len() {
            if let Some(slot) = self.slots.get_mut(number) {
                self.member.turn().set_poller(number);
                armed &= slot.arm(&mut self.context);
            }
        }
        self.end_turn();
        armed
    }

    /// Sleeps until then, `u64::MAX` until it is woken.
    fn rest(&mut self, limit: u64) {
        self.counters.sleeps += 1;
        self.publish();
        self.begin(self.ticker.read(cpu::ticks()));
        self.end_idleness();
        self.member.turn().set_asleep();
        let time = Duration::from_nanos(limit.saturating_sub(self.now.nanoseconds()));
        self.bed.sleep((limit != u64::MAX).then_some(time));
        self.inquiry.slept();
        self.end_turn();
        let began = self.now.ticks;
        self.now.ticks = self.ticker.read(cpu::ticks()).max(began);
        self.idle_since = self.now.ticks;
        self.counters.asleep = self.counters.asleep.saturating_add(self.now.ticks - began);
    }

    /// The poller that a panic passed through.
    pub(crate) fn running_poller(&self) -> Option<&'static str> {
        self.slots.get(self.member.turn().poller()?).map(Slot::name)
    }

    /// Flushes everybody but the poller that panicked, so that what they gathered is not lost.
    pub(crate) fn flush_after_panic(&mut self) {
        let culprit = self.member.turn().poller();
        self.slots.for_each_mut(|slot| slot.flush_anyhow(Some(slot.number) != culprit));
        self.flush_all();
    }
}

/// Polls a busy poller.
#[inline(always)]
fn poll<C>(slot: &mut Slot<C>, context: &mut C, now: &Now, work: &mut u32, more: &mut bool) {
    let found = slot.poller.poll(context, now);
    if found > 0 {
        slot.count_work(found);
        *work = work.saturating_add(found);
        *more = true;
    }
}

/// Flushes a poller, if that is its turn.
#[inline(always)]
fn flush<C>(slot: &mut Slot<C>, context: &mut C, now: &Now, turn: &TurnCell) {
    if slot.flushed {
        turn.set_poller(slot.number);
        slot.poller.flush(context, now);
    }
}

impl<C: Context> core::fmt::Debug for Reactor<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reactor").field("core", &self.core).field("life", &self.life).finish_non_exhaustive()
    }
}
