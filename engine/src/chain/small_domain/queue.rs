//! A send queue as the engine drives it, and what an outsider knows of it.

use super::super::{SendQueue, WORD, reserved_entries, work};
use crate::plan::unsignalled_limit;
use crate::provider::{SendQueueCost, Token, TokenKind};
use crate::signal::{SINGLE, SignalPolicy, Signaller};

/// RDMA operations of the largest transfer.
const OPERATIONS: u32 = 2;
/// Messages in a row that need not ask, where entries do not say less.
const UNSIGNALLED_MESSAGES: u32 = 3;

/// What a walk is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) cost: SendQueueCost,
    /// Entries beside those without which nothing goes.
    pub(super) spare: u32,
    /// MRs, each of which holds the entries of its invalidation.
    pub(super) keys: u32,
    pub(super) policy: SignalPolicy,
    /// A refused post does not end the connection.
    pub(super) goes_on: bool,
}

impl Shape {
    /// The largest request without its fence, or transfer.
    fn largest(&self) -> u32 {
        (self.cost.register + self.cost.message).max(OPERATIONS * self.cost.message)
    }

    fn room(&self) -> u32 {
        self.keys * self.cost.invalidate + self.largest()
    }

    /// Those that requests and transfers can have.
    fn usable(&self) -> u32 {
        self.room() + self.spare
    }

    pub(super) fn entries(&self) -> u32 {
        reserved_entries(self.cost) + self.usable()
    }

    fn signaller(&self) -> Signaller {
        let largest_cost = self.cost.register.max(self.cost.invalidate).max(self.cost.message);
        let limit = unsignalled_limit(self.entries(), reserved_entries(self.cost) + self.room(), largest_cost);
        let limit = if self.goes_on { limit.min(SINGLE) } else { limit };
        Signaller::with_limits(self.policy, limit, UNSIGNALLED_MESSAGES)
    }
}

/// One step of the engine or of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// A request with a key; whether somebody waits for its message.
    Request(bool),
    /// A message alone.
    Message,
    /// RDMA WRITEs, so many.
    Write(u32),
    /// An RDMA READ, which asks.
    Read,
    /// Of every key whose request was staged.
    Invalidate,
    /// The peer invalidated a key whose request was posted.
    InvalidateRemotely,
    /// Posts what is staged, of which the device takes all, or so many.
    Flush(Option<usize>),
    /// The oldest that asked completes.
    Complete,
    /// The one that stands so many behind the oldest fails, and the rest is flushed.
    Fail(usize),
}

pub(super) fn every_act() -> impl Iterator<Item = Act> {
    use Act::*;
    let refused = [0, 1, 2].map(|accepted| Flush(Some(accepted)));
    let plain = [Request(false), Request(true), Message, Write(1), Write(OPERATIONS), Read, Invalidate];
    let rest = [InvalidateRemotely, Flush(None), Complete, Fail(0), Fail(2)];
    plain.into_iter().chain(refused).chain(rest)
}

/// A work request in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    token: Token,
    signalled: bool,
    /// Somebody waits for it.
    awaited: bool,
}

/// The engine's part, and the outsider's list.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    shape: Shape,
    signaller: Signaller,
    /// Posted ones in front, then staged ones.
    entries: Vec<Entry>,
    posted: usize,
    /// Indices of keys that hold the entries of their invalidation.
    live: Vec<u32>,
    transfers_unsignalled: bool,
    /// The position of the first of `entries`.
    oldest: u64,
}

impl Queue {
    pub(super) fn open(send_queue: &mut SendQueue, shape: Shape) -> Self {
        send_queue.open(shape.entries());
        let oldest = send_queue.next_position();
        let (entries, live) = (Vec::new(), Vec::new());
        Self { shape, signaller: shape.signaller(), entries, posted: 0, live, transfers_unsignalled: false, oldest }
    }

    /// What tells one state from another: positions count by where they are in the ring, and who waits by where that is.
    pub(super) fn name(&self, send_queue: &SendQueue) -> impl Eq + core::hash::Hash + use<> {
        let place = self.oldest % (self.shape.entries().next_power_of_two() as u64);
        let awaited = send_queue.awaited.at(0).rotate_right((self.oldest % WORD) as u32);
        let in_queue = (self.entries.clone(), self.posted, self.live.clone());
        (self.signaller.clone(), in_queue, self.transfers_unsignalled, place, awaited)
    }

    fn cost(&self, token: Token) -> u32 {
        match token.kind() {
            TokenKind::Register => self.shape.cost.register,
            TokenKind::Invalidate => self.shape.cost.invalidate,
            _ => self.shape.cost.message,
        }
    }

    /// What holds between any two steps.
    pub(super) fn check(&self, send_queue: &SendQueue, act: Act) {
        let in_queue: u32 = self.entries.iter().map(|entry| self.cost(entry.token)).sum();
        let held = self.live.len() as u32 * self.shape.cost.invalidate;
        assert_eq!(send_queue.free + in_queue + held, self.shape.usable(), "credits behind {act:?}: {self:?}");
        let (posted, in_flight) = (send_queue.posted() as usize, send_queue.in_flight() as usize);
        assert_eq!((posted, in_flight, send_queue.oldest()), (self.posted, self.entries.len(), self.oldest), "{act:?}");
        // Behind the last that asks.
        let run = self.entries.iter().rev().take_while(|entry| !entry.signalled).count();
        let limit = self.shape.entries() / 2;
        assert!(
            run as u32 <= limit.max(SINGLE + OPERATIONS),
            "{run} in a row ask for nothing behind {act:?}: {self:?}"
        );
        self.check_not_stuck(send_queue, act);
    }

    /// Where nothing will complete, nothing frees entries but the next one that asks: so there is room for it.
    fn check_not_stuck(&self, send_queue: &SendQueue, act: Act) {
        let completes = self.entries.iter().any(|entry| entry.signalled);
        if completes || self.posted < self.entries.len() {
            return;
        }
        let new_key = if (self.live.len() as u32) < self.shape.keys { self.shape.cost.invalidate } else { 0 };
        let need = self.shape.largest() + new_key;
        assert!(send_queue.can_reserve(need), "stuck with {} behind {act:?}: {self:?}", send_queue.free);
        assert!(!self.entries.iter().any(|entry| entry.token.is(TokenKind::Invalidate)), "a fence that never comes");
    }

    /// Does it, where that can happen now.
    pub(super) fn act(&mut self, send_queue: &mut SendQueue, act: Act) -> Option<()> {
        match act {
            Act::Request(awaited) => self.request(send_queue, awaited),
            Act::Message => self.message(send_queue),
            Act::Write(operations) => self.write(send_queue, operations),
            Act::Read => self.read(send_queue),
            Act::Invalidate => self.invalidate(send_queue),
            Act::InvalidateRemotely => self.invalidate_remotely(send_queue),
            Act::Flush(accepted) => self.flush(send_queue, accepted),
            Act::Complete => self.complete(send_queue),
            Act::Fail(at) => self.fail(send_queue, at),
        }
    }

    fn stage(&mut self, token: Token, signalled: bool, awaited: bool) {
        self.entries.push(Entry { token, signalled, awaited });
    }

    /// An index that no work request of this kind in the queue has.
    fn vacant(&self, kind: TokenKind) -> u32 {
        let taken = |index: &u32| self.entries.iter().any(|entry| entry.token == Token::new(kind, *index, 1));
        (0..).find(|index| !taken(index)).unwrap_or_default()
    }

    fn request(&mut self, send_queue: &mut SendQueue, awaited: bool) -> Option<()> {
        let SendQueueCost { register, invalidate, message } = self.shape.cost;
        let used = |key: &u32| {
            let tokens = [TokenKind::Register, TokenKind::Invalidate].map(|kind| Token::new(kind, *key, 1));
            self.live.contains(key) || self.entries.iter().any(|entry| tokens.contains(&entry.token))
        };
        let key = (0..self.shape.keys).find(|key| !used(key))?;
        send_queue.reserve(register + message + invalidate).then_some(())?;
        self.live.push(key);
        let (registration, request) = (
            Token::new(TokenKind::Register, key, 1),
            Token::new(TokenKind::Message, self.vacant(TokenKind::Message), 1),
        );
        let mut by_steps = self.signaller.clone();
        let asked = (by_steps.registration(), by_steps.message(SINGLE, awaited, false));
        let mut work = [work(registration), work(request)];
        let message_asks = self.signaller.request(&mut work, awaited, false);
        let register_asks = work[0].signalled;
        assert_eq!((register_asks, message_asks), asked, "as by steps");
        assert_eq!((work[1].signalled, &self.signaller), (message_asks, &by_steps));
        send_queue.stage_request(&work, awaited);
        self.stage(registration, register_asks, false);
        self.stage(request, message_asks, awaited);
        Some(())
    }

    fn message(&mut self, send_queue: &mut SendQueue) -> Option<()> {
        send_queue.reserve(self.shape.cost.message).then_some(())?;
        let token = Token::new(TokenKind::Message, self.vacant(TokenKind::Message), 1);
        let asks = self.signaller.message(1, false, false);
        send_queue.stage_request(&[work(token)], false);
        self.stage(token, asks, false);
        Some(())
    }

    fn write(&mut self, send_queue: &mut SendQueue, operations: u32) -> Option<()> {
        send_queue.reserve(operations * self.shape.cost.message).then_some(())?;
        let token = Token::new(TokenKind::Transfer, self.vacant(TokenKind::Transfer), 1);
        let asks = self.signaller.reply(operations, self.shape.goes_on, false);
        self.transfers_unsignalled = !asks;
        send_queue.stage_operations(token, operations.into(), true);
        for at in 1..=operations {
            self.stage(token, asks && at == operations, at == operations);
        }
        Some(())
    }

    fn read(&mut self, send_queue: &mut SendQueue) -> Option<()> {
        send_queue.reserve(self.shape.cost.message).then_some(())?;
        let token = Token::new(TokenKind::Transfer, self.vacant(TokenKind::Transfer), 1);
        self.signaller.signalled();
        self.transfers_unsignalled = false;
        send_queue.stage_operation(token, true);
        self.stage(token, true, true);
        Some(())
    }

    fn invalidate(&mut self, send_queue: &mut SendQueue) -> Option<()> {
        let keys = core::mem::take(&mut self.live);
        (!keys.is_empty()).then_some(())?;
        let first = send_queue.next_position();
        for (position, key) in (first..).zip(&keys) {
            let token = Token::new(TokenKind::Invalidate, *key, 1);
            send_queue.put_invalidation(position, token, *key);
            self.stage(token, self.shape.goes_on, true);
        }
        send_queue.stage_invalidations(keys.len() as u64);
        self.entries.last_mut()?.signalled = true;
        self.signaller.invalidations(keys.len() as u32, true);
        Some(())
    }

    fn invalidate_remotely(&mut self, send_queue: &mut SendQueue) -> Option<()> {
        let staged = self.entries.get(self.posted..)?;
        let is_posted = |key: &u32| staged.iter().all(|entry| entry.token != Token::new(TokenKind::Register, *key, 1));
        let at = self.live.iter().position(is_posted)?;
        self.live.remove(at);
        send_queue.release(self.shape.cost.invalidate);
        Some(())
    }

    fn flush(&mut self, send_queue: &mut SendQueue, accepted: Option<usize>) -> Option<()> {
        let staged = self.entries.len() - self.posted;
        let accepted = accepted.unwrap_or(staged);
        (staged > 0).then_some(())?;
        if core::mem::take(&mut self.transfers_unsignalled)
            && let Some(last) = self.entries.last_mut().filter(|last| !last.signalled)
        {
            last.signalled = true;
            self.signaller.signalled();
        }
        if accepted > staged {
            return None;
        }
        send_queue.accept(accepted);
        if accepted < staged {
            self.refuse(send_queue, accepted);
        } else {
            self.posted = self.entries.len();
        }
        Some(())
    }

    /// The device took only so many of the chain.
    fn refuse(&mut self, send_queue: &mut SendQueue, accepted: usize) {
        let refused = self.entries.split_off(self.posted + accepted);
        for (at, entry) in refused.iter().enumerate() {
            let posted = send_queue.refused_at(at);
            assert_eq!((posted.token, send_queue.cost_of(&posted)), (entry.token, self.cost(entry.token)));
            send_queue.release(send_queue.cost_of(&posted));
        }
        self.posted = self.entries.len();
        if !self.shape.goes_on {
            self.end(send_queue);
            return;
        }
        let is = |kind: TokenKind| move |entry: &&Entry| entry.token.is(kind);
        let invalidations = refused.iter().filter(is(TokenKind::Invalidate)).count() as u32;
        if invalidations > 0 {
            self.signaller.invalidations(invalidations, false);
        }
        self.signaller.refused();
        if refused.iter().any(|entry| entry.token.is(TokenKind::Transfer)) {
            self.end(send_queue);
            return;
        }
        // What the device never heard of has no invalidation, and what it did is invalidated where the message was refused.
        for registration in refused.iter().filter(is(TokenKind::Register)) {
            let before = self.live.len();
            self.live.retain(|key| *key != registration.token.index());
            send_queue.release((before - self.live.len()) as u32 * self.shape.cost.invalidate);
        }
        if refused.iter().any(|entry| entry.token.is(TokenKind::Message)) {
            self.invalidate(send_queue);
        }
    }

    /// What a completion passed comes out once, in order, and whoever waits for it is told.
    fn complete(&mut self, send_queue: &mut SendQueue) -> Option<()> {
        let at = self.entries[..self.posted].iter().position(|entry| entry.signalled)?;
        let through = self.oldest + at as u64;
        let token = self.entries[at].token;
        assert_eq!(send_queue.position_of(token), Some(through), "{token:?}: {self:?}");
        let is_first = self.entries.iter().filter(|entry| entry.token == token).count() == 1 && at == 0;
        assert!(!is_first || send_queue.is_oldest(token));
        assert_eq!(send_queue.retire_through(through), self.oldest);
        let mut told = Vec::new();
        for word in (self.oldest / WORD..=through / WORD).map(|word| word * WORD) {
            let bits = send_queue.take_awaited(word, through);
            told.extend((0..WORD).filter(|bit| bits & 1 << bit != 0).map(|bit| word + bit));
        }
        let retired = (self.oldest..).zip(self.entries.drain(..=at));
        let awaited: Vec<u64> = retired.filter(|(_, entry)| entry.awaited).map(|(position, _)| position).collect();
        assert_eq!(told, awaited, "who waits is told");
        assert!(!send_queue.is_pending(through) && send_queue.is_pending(through + 1));
        assert_eq!(send_queue.position_of(token), None, "once");
        (self.oldest, self.posted) = (through + 1, self.posted - at - 1);
        Some(())
    }

    fn fail(&mut self, send_queue: &mut SendQueue, at: usize) -> Option<()> {
        (at < self.posted && self.posted == self.entries.len()).then_some(())?;
        for entry in self.entries.drain(..=at) {
            let posted = send_queue.retire().map(|posted| posted.token);
            assert_eq!(posted, Some(entry.token), "in order");
            assert!(!send_queue.is_pending(self.oldest));
            self.oldest += 1;
        }
        self.posted = self.entries.len();
        self.end(send_queue);
        Some(())
    }

    /// The queue pair ends: all comes out that is posted, once, and all entries are those of the next one.
    fn end(&mut self, send_queue: &mut SendQueue) {
        for entry in core::mem::take(&mut self.entries) {
            assert_eq!(send_queue.abandon().map(|posted| posted.token), Some(entry.token), "in order");
        }
        assert_eq!((send_queue.retire(), send_queue.abandon()), (None, None));
        let held = self.live.len() as u32 * self.shape.cost.invalidate;
        assert_eq!(send_queue.free + held, self.shape.usable(), "every entry came back");
        *self = Self::open(send_queue, self.shape);
    }
}

/// What a send queue knows, for who walks on from there several times.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    places: Vec<(u64, u32)>,
    awaited: Vec<u64>,
    positions: [u64; 5],
    counts: [u32; 3],
}

impl Kept {
    pub(super) fn of(queue: &SendQueue) -> Self {
        let SendQueue { ring, owners, awaited, .. } = queue;
        Self {
            places: ring.as_slice().iter().copied().zip(owners.as_slice().iter().copied()).collect(),
            awaited: awaited.as_slice().to_vec(),
            positions: [queue.head, queue.tail, queue.done, queue.end, queue.last_alone],
            counts: [queue.free, queue.depth, queue.unequal],
        }
    }

    pub(super) fn restore(&self, queue: &mut SendQueue) {
        for (at, (place, owner)) in (0..).zip(&self.places) {
            queue.ring.set(at, *place);
            queue.owners.set(at, *owner);
        }
        (0..).zip(&self.awaited).for_each(|(at, bits)| queue.awaited.set(at, *bits));
        [queue.head, queue.tail, queue.done, queue.end, queue.last_alone] = self.positions;
        [queue.free, queue.depth, queue.unequal] = self.counts;
    }
}
