//! Which work request asks for a completion.
//!
//! A device frees send queue entries only when it reports a completion, so every so often one must be asked for; each one
//! costs the device a write and the core a cache line (U26). Every policy keeps to one bound: unsignalled entries never
//! reach more than half the send queue, so that the other half is always on its way back (I31), and never leave too little
//! for the largest request; unsignalled messages never hold more than their share of the request slots.

use crate::provider::WorkRequest;
use frwr_mempool::mutant;

/// How completions are asked for (D21).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SignalPolicy {
    /// As rarely as the bound permits, and when too many request slots wait for a completion.
    #[default]
    Sparse,
    /// The kernel's budget of work requests with its exact unsigned arithmetic (S48 to S50, T1 to T4, F4).
    KernelBudget {
        /// The budget's refill; 0 signals every message.
        batch: u32,
    },
    /// Counts messages only, whatever stands in front of them (S54).
    SendsOnly {
        /// Messages between two signalled ones; 0 signals every message.
        batch: u32,
    },
    /// One counter over registrations and messages; a registration may be signalled too (S55).
    GlobalCounter {
        /// The send queue's size as that version computes it.
        max_send_wr: u32,
    },
}

/// The largest start value that [`SignalPolicy::GlobalCounter`] takes for none, so that everything is signalled (S55).
const GLOBAL_COUNTER_SIGNALS_ALL: u32 = 2;

/// Held slots may be at most one in this many of the slab before they ask for a completion.
const HELD_SLOTS_SHARE: u32 = 4;

/// Work requests of a request with one registration.
pub(crate) const SINGLE: u32 = 2;

/// Unsignalled entries and messages that no queue gets to: half of what the halves of a run count, so that nothing runs over.
const MOST_UNSIGNALLED: u32 = (1 << 31) - 1;

/// So many request slots of `slab`, kept only until their message retires, ask for a completion: a quarter of them.
#[must_use]
pub(crate) const fn held_slots_limit(slab: u32) -> u32 {
    slab.div_ceil(HELD_SLOTS_SHARE)
}

/// Whether so many request slots are kept only until their message retires that the next message should ask for a
/// completion: a quarter of the slab.
#[must_use]
pub const fn held_slots_pressure(held: u32, slab: u32) -> bool {
    held >= held_slots_limit(slab)
}

/// The decision for one send queue.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq, Eq, Hash))]
pub struct Signaller {
    policy: SignalPolicy,
    /// Budget left, in the unit of the policy; signed because [`SignalPolicy::GlobalCounter`] passes through zero.
    budget: i64,
    /// Since the last work request that completes: entries in the low half, and in the high half messages of requests, each of which
    /// holds its slot. Each begins so far below its bit of [`REACHED`] that it gets there with its limit.
    run: u64,
    /// A run right behind a work request that completes.
    fresh: u64,
    /// Bits of a run that make a message ask for a completion: [`REACHED`], or any where a policy has a count of its own.
    stops: u64,
    /// Entries of the run before the latest chain of invalidations, in case the post refused it.
    before_invalidations: u32,
}

/// One message of a run.
const MESSAGE: u64 = 1 << 32;

/// The limit of a run's entries.
const ENTRIES_REACHED: u64 = 1 << 31;

/// The limits of both halves of a run.
const REACHED: u64 = MESSAGE << 31 | ENTRIES_REACHED;

/// The policy decides: a run that a message was added to always has some bit.
const BY_POLICY: u64 = u64::MAX;

impl Signaller {
    /// For a send queue of `send_queue_entries`.
    #[must_use]
    pub const fn new(policy: SignalPolicy, send_queue_entries: u32) -> Self {
        Self::with_limits(policy, send_queue_entries / 2, u32::MAX)
    }

    /// With limits for what may stand in a row without a completion: below `entries` work requests, and up to `messages`
    /// messages of requests. Where nothing else is posted, no completion would free what the last run holds, so each
    /// limit must leave enough for the next, which then brings one.
    #[must_use]
    pub const fn with_limits(policy: SignalPolicy, entries: u32, messages: u32) -> Self {
        let budget = match policy {
            SignalPolicy::Sparse => 0,
            SignalPolicy::KernelBudget { batch } | SignalPolicy::SendsOnly { batch } => batch as i64,
            SignalPolicy::GlobalCounter { max_send_wr } => reload(max_send_wr),
        };
        let every = signals_every_message(policy);
        let entries = if entries < MOST_UNSIGNALLED { entries } else { MOST_UNSIGNALLED };
        let messages = if messages < MOST_UNSIGNALLED { messages } else { MOST_UNSIGNALLED };
        let messages = if every { 0 } else { messages };
        // The message behind the last one that need not ask gets to its limit.
        let fresh = REACHED - MESSAGE * (messages as u64 + 1) - entries as u64;
        let stops = if every || matches!(policy, SignalPolicy::Sparse) { REACHED } else { BY_POLICY };
        Self { policy, budget, run: fresh, fresh, stops, before_invalidations: 0 }
    }

    /// A request's message and the registrations in front of it: `work_requests` entries in all. Returns whether the
    /// message is to be signalled. `must_signal`: something waits for its completion (S51, `kref > 1`);
    /// `held_slots_pressure`: see [`held_slots_pressure`]. No chain comes near 2^31 entries.
    ///
    /// Under [`SignalPolicy::GlobalCounter`] each registration was counted by [`Signaller::registration`] before, and only
    /// the message is counted here.
    #[inline(always)]
    pub fn message(&mut self, work_requests: u32, must_signal: bool, held_slots_pressure: bool) -> bool {
        // Registrations are not counted.
        let work_requests = if mutant!(K6_message) { 1 } else { work_requests };
        if !must_signal && !held_slots_pressure && self.skips(work_requests) {
            return false;
        }
        if self.counts_by_policy() {
            return self.message_by_policy(work_requests, must_signal, held_slots_pressure);
        }
        self.asks()
    }

    /// [`Signaller::registration`] of each registration of a request, and [`Signaller::message`] of the message behind them. None of
    /// them is signalled before; returns whether the message is now.
    #[inline(always)]
    pub(crate) fn request(&mut self, work: &mut [WorkRequest], must_signal: bool, held_slots_pressure: bool) -> bool {
        // At most MAX_MRS_PER_REQUEST, and one.
        let count = if mutant!(K6_message) { 1 } else { work.len() as u32 };
        if !must_signal && !held_slots_pressure && self.skips(count) {
            return false;
        }
        if self.counts_by_policy() {
            return self.request_by_policy(work, must_signal, held_slots_pressure);
        }
        if let Some(message) = work.last_mut() {
            message.signalled = true;
        }
        self.asks()
    }

    #[inline(never)]
    fn request_by_policy(&mut self, work: &mut [WorkRequest], must_signal: bool, pressure: bool) -> bool {
        let count = work.len() as u32;
        let Some((message, registrations)) = work.split_last_mut() else { return false };
        for registration in registrations {
            registration.signalled = self.registration();
        }
        message.signalled = self.message(count, must_signal, pressure);
        message.signalled
    }

    /// A message asks for its completion.
    #[inline(always)]
    fn asks(&mut self) -> bool {
        self.signalled();
        if mutant!(F4) {
            // What was counted beyond the last one goes on counting.
            self.run += u64::from(self.left() / 2);
        }
        true
    }

    /// A policy with a count of its own decides, which knows of messages that are waited for.
    #[inline]
    pub(crate) const fn counts_by_policy(&self) -> bool {
        self.stops == BY_POLICY
    }

    /// Counts a message and what stands in front of it where it need not be signalled, and nothing has to be counted for a policy.
    #[inline(always)]
    fn skips(&mut self, work_requests: u32) -> bool {
        let next = self.run + (MESSAGE + u64::from(work_requests));
        if next & self.stops != 0 {
            return false;
        }
        self.run = next;
        true
    }

    #[inline(never)]
    fn message_by_policy(&mut self, work_requests: u32, must_signal: bool, held_slots_pressure: bool) -> bool {
        let must_signal = must_signal || (self.run + MESSAGE) & (MESSAGE << 31) != 0;
        let wanted = self.wants(work_requests, must_signal, held_slots_pressure);
        let counted = if matches!(self.policy, SignalPolicy::GlobalCounter { .. }) { 1 } else { work_requests };
        let signal = self.count(counted, wanted);
        if !signal {
            self.run += MESSAGE;
        }
        signal
    }

    /// The same for a message that holds no request slot: a responder's reply, with the RDMA WRITEs in front of it, which nobody counted
    /// before.
    #[inline]
    pub fn reply(&mut self, work_requests: u32, must_signal: bool, held_slots_pressure: bool) -> bool {
        let wanted = self.wants(work_requests, must_signal, held_slots_pressure);
        self.count(work_requests, wanted)
    }

    /// Whether the policy wants a completion.
    #[inline(always)]
    fn wants(&mut self, work_requests: u32, must_signal: bool, held_slots_pressure: bool) -> bool {
        // The usual one, with nothing asked of the others.
        if matches!(self.policy, SignalPolicy::Sparse) {
            return must_signal || held_slots_pressure;
        }
        self.policy_wants(work_requests, must_signal)
    }

    #[inline(never)]
    fn policy_wants(&mut self, work_requests: u32, must_signal: bool) -> bool {
        match self.policy {
            SignalPolicy::Sparse => must_signal,
            SignalPolicy::KernelBudget { batch } => self.kernel_budget(batch, work_requests, must_signal),
            SignalPolicy::SendsOnly { batch } => self.sends_only(batch, must_signal),
            SignalPolicy::GlobalCounter { max_send_wr } => self.global_counter(max_send_wr, must_signal),
        }
    }

    /// One registration of a request. Returns whether it is to be signalled, which only [`SignalPolicy::GlobalCounter`]
    /// asks for; the others count registrations with their message (S46, S47).
    #[inline(always)]
    pub fn registration(&mut self) -> bool {
        let SignalPolicy::GlobalCounter { max_send_wr } = self.policy else { return false };
        self.counted_registration(max_send_wr)
    }

    #[inline(never)]
    fn counted_registration(&mut self, max_send_wr: u32) -> bool {
        let wanted = self.global_counter(max_send_wr, false);
        self.count(1, wanted)
    }

    /// A registration that no message follows. Returns whether it is to be signalled; `must_signal`: it is in any case. The last
    /// one of a chain is signalled besides, since nothing may ever be posted behind it.
    pub fn standalone(&mut self, must_signal: bool) -> bool {
        let wanted = match self.policy {
            SignalPolicy::GlobalCounter { max_send_wr } => self.global_counter(max_send_wr, must_signal),
            _ => must_signal,
        };
        self.count(1, wanted)
    }

    /// A chain of `count` invalidations whose last one is signalled (S55, S66). Called with `posted` when it is built, and
    /// again without when the post refused it.
    pub fn invalidations(&mut self, count: u32, posted: bool) {
        if let SignalPolicy::GlobalCounter { max_send_wr } = self.policy {
            let count = i64::from(count);
            self.budget = reload(max_send_wr) + if posted { -count } else { count };
        }
        if posted {
            self.before_invalidations = self.unsignalled();
            self.signalled();
        } else if !mutant!(signal_refused_invalidations) {
            // Else what would have completed counts as having done so.
            self.run = self.run - u64::from(self.unsignalled()) + u64::from(self.before_invalidations);
        }
    }

    /// Some other signalled work request was posted: what stands before it will complete with it.
    pub const fn signalled(&mut self) {
        self.run = self.fresh;
    }

    /// Part of a chain was refused, and with it perhaps what was to be signalled: the next message is.
    pub const fn refused(&mut self) {
        self.run += self.left() as u64;
    }

    /// Entries since the last one that completes; at most half the send queue (I31).
    #[must_use]
    pub const fn unsignalled(&self) -> u32 {
        // The low halves.
        (self.run as u32) - (self.fresh as u32)
    }

    /// Entries with which the limit is reached.
    const fn left(&self) -> u32 {
        (REACHED as u32).saturating_sub(self.run as u32)
    }

    /// Applies the bound, which stands above every policy, and keeps the count.
    #[inline]
    const fn count(&mut self, entries: u32, wanted: bool) -> bool {
        let next = self.run + entries as u64;
        let signal = wanted || next & ENTRIES_REACHED != 0;
        self.run = if signal { self.fresh } else { next };
        signal
    }

    fn kernel_budget(&mut self, batch: u32, work_requests: u32, must_signal: bool) -> bool {
        let needed = i64::from(work_requests);
        if must_signal || needed > self.budget {
            // In the kernel the difference is an unsigned 32-bit number, so a negative one is larger than any batch (S49).
            let overshoot = if mutant!(F4_budget) { i64::from(batch) } else { needed - self.budget };
            self.budget = if overshoot < 0 { i64::from(batch) } else { overshoot.min(i64::from(batch)) };
            true
        } else {
            self.budget -= needed;
            false
        }
    }

    fn sends_only(&mut self, batch: u32, must_signal: bool) -> bool {
        if must_signal || self.budget == 0 {
            self.budget = i64::from(batch);
            true
        } else {
            self.budget -= 1;
            false
        }
    }

    const fn global_counter(&mut self, max_send_wr: u32, must_signal: bool) -> bool {
        self.budget -= 1;
        let due = must_signal || self.budget <= 0;
        if due {
            self.budget = reload(max_send_wr);
        }
        due
    }
}

/// A policy without a budget: each message asks, which is as if none might go without, and there is nothing to count.
/// [`SignalPolicy::GlobalCounter`] signals registrations as well then.
const fn signals_every_message(policy: SignalPolicy) -> bool {
    matches!(policy, SignalPolicy::KernelBudget { batch: 0 } | SignalPolicy::SendsOnly { batch: 0 })
}

/// The start value of [`SignalPolicy::GlobalCounter`]: half the queue less one, or 0 where that is too little (S55).
const fn reload(max_send_wr: u32) -> i64 {
    let half = (max_send_wr / 2).saturating_sub(1);
    if half <= GLOBAL_COUNTER_SIGNALS_ALL { 0 } else { half as i64 }
}
