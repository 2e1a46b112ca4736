//! The half of a connected queue pair that executes its send queue, in order.

use super::bases::Cursor;
use super::nic::Nic;
use super::profile::Rules;
use super::registration::Asker;
use super::send_queue::{Entry, Progress, SendQueue};
use super::vendor_code as code;
use super::wire::{Request, Response, ResponsePacket, WireEnd};
use crate::provider::{Failure, FailureStatus, Operation, ScatterElement};

/// Progress steps without an answer from a closed wire that count as one retry.
pub(super) const RETRY_STEPS: u32 = 16;
/// Longest message, in bytes (InfiniBand).
pub(super) const MAX_MESSAGE: u64 = 1 << 31;
/// The highest retry count: "for ever" of receiver-not-ready retries, and on some devices of the others too.
const ALL_RETRIES: u8 = 7;

/// What is known of the messages under way.
#[derive(Debug)]
pub(super) struct Requester {
    /// Number of the next message.
    next_sequence: u32,
    /// All messages before this number were answered.
    answered: u32,
    sending: Option<Sending>,
    reading: Cursor,
    reads: u32,
    max_reads: u32,
    /// Progress steps without an answer from a closed wire; `None` for ever.
    retry_limit: Option<u32>,
    /// Nothing completes any more until the queue pair is moved to the error state.
    hangs: bool,
    silent_steps: u32,
    rnr_limit: u8,
    rnr_count: u8,
    refused: Option<Failure>,
    /// A registration was executed that a message would overtake without a fence.
    registration_to_fence: bool,
}

/// A message that is partly on the wire.
#[derive(Clone, Copy, Debug)]
struct Sending {
    sequence: u32,
    cursor: Cursor,
    sent: u32,
    length: u32,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The queue pair lives on.
    Alive,
    /// The oldest work request failed: the queue pair goes to the error state.
    Failed(Failure),
}

const fn failed(status: FailureStatus, code: u32) -> Progress {
    Progress::Failed(Failure::new(status, code))
}

/// Whether message number `a` is before `b`; numbers wrap.
pub(super) const fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Requester {
    pub(super) fn new(max_reads: u32, retry_count: u8, rnr_limit: u8, rules: &Rules) -> Self {
        let is_endless = rules.endless_retries && retry_count >= ALL_RETRIES;
        Self {
            next_sequence: 0,
            answered: 0,
            sending: None,
            reading: Cursor::default(),
            reads: 0,
            max_reads,
            retry_limit: if is_endless { None } else { Some((u32::from(retry_count) + 1) * RETRY_STEPS) },
            hangs: false,
            silent_steps: 0,
            rnr_limit,
            rnr_count: 0,
            refused: None,
            registration_to_fence: false,
        }
    }

    /// Takes responses, retires what is complete, executes what can be, within a budget of packets.
    pub(super) fn step(
        &mut self,
        queue: &mut SendQueue,
        wire: &mut WireEnd,
        nic: &mut Nic,
        asker: Asker,
        budget: &mut u32,
    ) -> Step {
        if self.hangs {
            return Step::Alive;
        }
        // Order matters: what the peer answered before it went away must be seen after it is seen to be gone.
        let gone = !queue.is_empty() && wire.peer_is_gone();
        let mut heard = false;
        let held = nic.interferences.any(&nic.monitor, |one| one.holds_answers(asker.queue_pair));
        while *budget > 0 && !held {
            let response = wire.response_in.pop_with(|packet| self.hear(packet, queue, nic, asker));
            let Some(()) = response else { break };
            heard = true;
            *budget -= 1;
        }
        if let Some(status) = self.retire(queue, nic, asker) {
            return Step::Failed(status);
        }
        self.execute(queue, wire, nic, asker, budget);
        if let Some(status) = self.retire(queue, nic, asker) {
            return Step::Failed(status);
        }
        self.silent_steps = if gone && !heard && !queue.is_empty() { self.silent_steps.saturating_add(1) } else { 0 };
        self.patience()
    }

    /// A step in which nothing crosses the wire.
    pub(super) fn hear_nothing(&mut self, queue: &SendQueue) -> Step {
        self.silent_steps = if queue.is_empty() { 0 } else { self.silent_steps.saturating_add(1) };
        self.patience()
    }

    /// It has nothing to do before the peer answers, as of the last step: what is posted is sent, or waits for an answer itself. An answer
    /// that has come is a thing to do, and so is to count the steps of a peer that is gone.
    pub(super) fn rests(&self, queue: &SendQueue, wire: &WireEnd) -> bool {
        if queue.is_empty() {
            return true;
        }
        let awaits = queue.next().is_none_or(|entry| self.awaits_answer(entry, queue));
        awaits && self.refused.is_none() && wire.response_in.is_empty() && !wire.peer_is_gone()
    }

    /// Whether the work request whose turn it is cannot begin before the peer has answered an earlier one.
    fn awaits_answer(&self, entry: &Entry, queue: &SendQueue) -> bool {
        let waits = match entry.request.operation {
            Operation::Invalidate { .. } => queue.executed > 0,
            Operation::Read { .. } => self.reads > 0 && self.reads >= self.max_reads,
            Operation::Register(_) | Operation::Send { .. } | Operation::Write { .. } => false,
        };
        waits || (entry.request.fence && self.reads > 0)
    }

    /// Whether there is a retry left.
    fn patience(&self) -> Step {
        let is_exhausted = self.retry_limit.is_some_and(|limit| self.silent_steps > limit);
        if is_exhausted {
            Step::Failed(Failure::new(FailureStatus::RetryExceeded, code::NO_ANSWER))
        } else {
            Step::Alive
        }
    }

    fn hear(&mut self, packet: &ResponsePacket, queue: &SendQueue, nic: &Nic, asker: Asker) {
        let (sequence, answered_before) = (packet.sequence, self.answered);
        match packet.header {
            Response::Acknowledge => self.answer_up_to(sequence.wrapping_add(1)),
            Response::Refuse(failure) => {
                self.answer_up_to(sequence);
                self.refused = Some(failure);
            }
            Response::NotReady => {
                self.answer_up_to(sequence);
                self.hangs |= nic.rules.hangs_when_not_ready && queue.registers_behind(sequence);
                self.rnr_count = if self.answered == answered_before { self.rnr_count.saturating_add(1) } else { 1 };
                if self.rnr_limit < ALL_RETRIES && self.rnr_count > self.rnr_limit {
                    self.refused = Some(Failure::new(FailureStatus::RnrRetryExceeded, code::NO_RECEIVE));
                }
                return;
            }
            Response::Data => self.hear_data(packet, queue, nic, asker),
        }
        if self.answered != answered_before {
            self.rnr_count = 0;
        }
    }

    fn hear_data(&mut self, packet: &ResponsePacket, queue: &SendQueue, nic: &Nic, asker: Asker) {
        self.answer_up_to(packet.sequence);
        let Some(entry) = queue.sent(packet.sequence) else { return };
        if packet.first {
            self.reading = Cursor::default();
        }
        let elements = queue.elements_of(entry);
        if nic.bases.scatter(elements, &mut self.reading, asker.domain, packet.data()).is_err() {
            self.refused = Some(Failure::new(FailureStatus::LocalProtection, code::BASE_GONE));
        } else if packet.last {
            self.reads = self.reads.saturating_sub(1);
            self.answer_up_to(packet.sequence.wrapping_add(1));
        }
    }

    /// A peer's number counts only as far as messages were sent.
    fn answer_up_to(&mut self, end: u32) {
        if is_before(self.answered, end) && !is_before(self.next_sequence, end) {
            self.answered = end;
        }
    }

    /// Completes from the front; says how the oldest work request failed, if it did.
    fn retire(&mut self, queue: &mut SendQueue, nic: &mut Nic, asker: Asker) -> Option<Failure> {
        loop {
            let entry = queue.front()?;
            match entry.progress {
                Progress::Done => {}
                Progress::Sent(sequence) if is_before(sequence, self.answered) => {}
                Progress::Failed(failure) => return Some(failure),
                Progress::Waiting | Progress::Sent(_) => return self.refused,
            }
            let signalled = entry.request.signalled;
            let (entry, frees) = queue.retire(signalled)?;
            queue.check_unchanged(&entry, nic, asker);
            if signalled {
                nic.complete_send(asker.queue_pair, entry.request.token, Ok(()), frees);
            }
        }
    }

    fn execute(&mut self, queue: &mut SendQueue, wire: &mut WireEnd, nic: &mut Nic, asker: Asker, budget: &mut u32) {
        while *budget > 0 {
            let Some(entry) = queue.next() else { return };
            let entry = *entry;
            if matches!(entry.progress, Progress::Failed(_)) || (entry.request.fence && self.reads > 0) {
                return;
            }
            let queue_pair = asker.queue_pair;
            let failure = nic.interferences.ask(&nic.monitor, |one| one.fails(queue_pair, &entry.request));
            let progress = match entry.request.operation {
                _ if failure.is_some() => failure.map_or(Progress::Waiting, Progress::Failed),
                Operation::Register(fields) => {
                    let elements = queue.elements_of(&entry);
                    let done = nic.keys.register(&fields, elements, asker, &mut nic.bases);
                    self.registration_to_fence = nic.options.capabilities.fence_after_registration;
                    if done { Progress::Done } else { failed(nic.rules.register_failure, code::REGISTRATION) }
                }
                Operation::Invalidate { key, .. } => {
                    // The local invalidate fence: all earlier work requests first.
                    if queue.executed > 0 {
                        let failed = self.retire(queue, nic, asker).is_some();
                        if failed || queue.executed > 0 {
                            return;
                        }
                    }
                    self.registration_to_fence = false;
                    let done = nic.invalidate(key, asker);
                    if done { Progress::Done } else { failed(FailureStatus::LocalOperation, code::LOCAL_INVALIDATION) }
                }
                // A real device would let the message overtake now and then; here it never gets away with it.
                _ if self.registration_to_fence && !entry.request.fence => {
                    failed(FailureStatus::LocalOperation, code::UNFENCED)
                }
                Operation::Send { invalidate: Some(_), .. } if !nic.options.capabilities.send_with_invalidate => {
                    failed(FailureStatus::LocalOperation, code::NO_SEND_WITH_INVALIDATE)
                }
                _ => match self.transmit(&entry, queue.elements_of(&entry), wire, nic, asker, budget) {
                    Some(progress) => progress,
                    None => return,
                },
            };
            if matches!(progress, Progress::Sent(_)) && !matches!(entry.request.operation, Operation::Read { .. }) {
                queue.note_sent(nic, asker);
            }
            queue.set_next(progress);
            if matches!(progress, Progress::Failed(_)) {
                return;
            }
            queue.executed += 1;
            if !matches!(progress, Progress::Sent(_)) {
                *budget -= 1;
            }
        }
    }

    /// Puts packets of a message on the wire. `None`: not all of them yet.
    fn transmit(
        &mut self,
        entry: &Entry,
        elements: &[ScatterElement],
        wire: &mut WireEnd,
        nic: &Nic,
        asker: Asker,
        budget: &mut u32,
    ) -> Option<Progress> {
        let reads = matches!(entry.request.operation, Operation::Read { .. });
        self.registration_to_fence = false;
        let mut sending = match self.sending {
            Some(sending) => sending,
            None => match start(elements, reads, nic, asker) {
                Ok(length) => Sending { sequence: self.next_sequence, cursor: Cursor::default(), sent: 0, length },
                Err(failure) => return Some(Progress::Failed(failure)),
            },
        };
        if reads {
            return self.transmit_read(entry, sending, wire, budget);
        }
        let mtu = nic.options.mtu;
        loop {
            if *budget == 0 {
                self.sending = Some(sending);
                return None;
            }
            let length = (sending.length - sending.sent).min(mtu);
            let last = sending.sent + length == sending.length;
            let mut result = Ok(());
            let sent = wire.request_out.push_with(|packet| {
                packet.header = header(&entry.request.operation, &sending);
                packet.sequence = sending.sequence;
                packet.first = sending.sent == 0;
                packet.last = last;
                packet.length = length;
                let room = &mut packet.payload[..length as usize];
                result = nic.bases.gather(elements, &mut sending.cursor, asker.domain, room);
                if result.is_err() {
                    // The base registration went away in mid-message: the peer gets no byte of whatever is in the room.
                    packet.header = Request::Abandoned;
                    packet.length = 0;
                }
            });
            if !sent {
                self.sending = Some(sending);
                return None;
            }
            wire.sent = true;
            *budget -= 1;
            if result.is_err() {
                return Some(failed(FailureStatus::LocalProtection, code::BASE_GONE));
            }
            sending.sent += length;
            if last {
                self.sending = None;
                self.next_sequence = sending.sequence.wrapping_add(1);
                return Some(Progress::Sent(sending.sequence));
            }
        }
    }

    fn transmit_read(
        &mut self,
        entry: &Entry,
        sending: Sending,
        wire: &mut WireEnd,
        budget: &mut u32,
    ) -> Option<Progress> {
        if self.max_reads == 0 {
            return Some(failed(FailureStatus::LocalOperation, code::NO_READS));
        }
        if self.reads >= self.max_reads {
            return None;
        }
        let sent = wire.request_out.push_with(|packet| {
            packet.header = header(&entry.request.operation, &sending);
            packet.sequence = sending.sequence;
            packet.first = true;
            packet.last = true;
            packet.length = 0;
        });
        if !sent {
            return None;
        }
        wire.sent = true;
        *budget -= 1;
        self.reads += 1;
        self.next_sequence = sending.sequence.wrapping_add(1);
        Some(Progress::Sent(sending.sequence))
    }
}

/// Checks the local elements of a message and says its length.
fn start(elements: &[ScatterElement], write: bool, nic: &Nic, asker: Asker) -> Result<u32, Failure> {
    let length: u64 = elements.iter().map(|element| u64::from(element.length)).sum();
    if length > MAX_MESSAGE {
        return Err(Failure::new(FailureStatus::LocalLength, code::MESSAGE_LENGTH));
    }
    let good =
        |element: &ScatterElement| element.length == 0 || nic.bases.resolve(element, asker.domain, write).is_some();
    if elements.iter().all(good) {
        Ok(length as u32)
    } else {
        Err(Failure::new(FailureStatus::LocalProtection, code::LOCAL_ELEMENT))
    }
}

/// The header of the next packet of a message.
fn header(operation: &Operation, sending: &Sending) -> Request {
    let left = sending.length - sending.sent;
    match *operation {
        Operation::Read { remote, .. } => Request::Read { key: remote.key, address: remote.address, length: left },
        Operation::Write { remote, .. } => {
            let address = remote.address.wrapping_add(u64::from(sending.sent));
            Request::Write { key: remote.key, address, total: left }
        }
        Operation::Send { invalidate, .. } => Request::Send { invalidate },
        Operation::Register(_) | Operation::Invalidate { .. } => Request::Send { invalidate: None },
    }
}
