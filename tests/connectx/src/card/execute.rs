//! What a work request does, at both ends.

use super::{
    Card,
    completion::{Completion, Syndrome},
    context::{AsyncEvent, QueuePairState},
    keys::{Accessor, Denied, Range, Right},
    queue_pair::QueuePair,
    wqe::{Control, Element, Local, Work},
};
use crate::memory;

/// Steps in which nobody answers at the other end, before a requester gives up. No time is meant by it: long enough for a peer
/// whose next state is on its way.
const PATIENCE: u32 = 20_000;

/// Steps of one try, where the receiver has nothing posted.
const TRY: u32 = 1_000;

/// Tries for ever.
const FOR_EVER: u8 = 7;

/// A receive that was taken.
struct Receive {
    /// Its number, where it is of a shared queue.
    position: u16,
    elements: Vec<Element>,
    /// Whose memory it may be: of a shared queue that one's domain's.
    who: Accessor,
}

/// How a work request went.
enum Outcome {
    /// Done; bytes, where the operation tells them.
    Done(u32),
    /// It is tried again.
    Later,
    Failed(Syndrome),
}

impl From<Denied> for Outcome {
    /// Of what is the requester's own.
    fn from(_: Denied) -> Self {
        Self::Failed(Syndrome::LocalProtection)
    }
}

impl Card {
    /// Executes a queue pair's next work request. Whether there was one that went on.
    pub(super) fn execute_next(&mut self, number: u32) -> bool {
        let Some(queue_pair) = self.queue_pairs.get(&number) else { return false };
        let found = match queue_pair.next_control(number) {
            None => return false,
            Some(found) => found.and_then(|control| Ok((control, queue_pair.work(&control)?))),
        };
        let (control, work) = match found {
            Ok(found) => found,
            Err(what) => {
                self.violated(number, what);
                return true;
            }
        };
        let outcome = match work {
            Work::Nothing => Outcome::Done(0),
            Work::Register { key, change } => {
                let who = Self::accessor(queue_pair, number);
                // What fails of a LOCAL_INV is an operation, not a bind.
                let syndrome = if change.free == Some(true) { Syndrome::LocalOperation } else { Syndrome::Bind };
                match self.keys.change(who, key, &change) {
                    Ok(()) => Outcome::Done(0),
                    Err(Denied) => Outcome::Failed(syndrome),
                }
            }
            Work::Send { local, invalidate } => self.send(number, &local, invalidate),
            Work::Write { local, key, address } => self.write(number, &local, key, address),
            Work::Read { local, key, address } => self.read(number, &local, key, address),
        };
        self.conclude(number, &control, &outcome)
    }

    fn conclude(&mut self, number: u32, control: &Control, outcome: &Outcome) -> bool {
        let Some(queue_pair) = self.queue_pairs.get_mut(&number) else { return false };
        let (opcode, position) = (control.opcode, control.position);
        match *outcome {
            Outcome::Later => return false,
            Outcome::Done(bytes) => {
                queue_pair.advance(control);
                if control.signalled {
                    self.complete(number, &Completion::Sent { opcode, position, bytes, failed: None });
                }
            }
            Outcome::Failed(syndrome) => {
                queue_pair.advance(control);
                self.complete(number, &Completion::Sent { opcode, position, bytes: 0, failed: Some(syndrome) });
                self.fail(number, None);
            }
        }
        true
    }

    /// The other end, where it listens to this one.
    fn peer(&mut self, number: u32) -> Result<u32, Outcome> {
        let Some(queue_pair) = self.queue_pairs.get(&number) else { return Err(Outcome::Later) };
        let peer = queue_pair.destination;
        let is_ready = self.queue_pairs.get(&peer).is_some_and(|other| {
            other.destination == number
                && matches!(other.state, QueuePairState::ReadyToReceive | QueuePairState::ReadyToSend)
        });
        if is_ready {
            return Ok(peer);
        }
        Err(self.wait(number, PATIENCE, Syndrome::RetriesExceeded))
    }

    fn wait(&mut self, number: u32, most: u32, then: Syndrome) -> Outcome {
        let Some(queue_pair) = self.queue_pairs.get_mut(&number) else { return Outcome::Later };
        queue_pair.waited += 1;
        if queue_pair.waited > most { Outcome::Failed(then) } else { Outcome::Later }
    }

    /// The bytes that a work request sends.
    fn gather(&self, number: u32, local: &Local) -> Result<Vec<u8>, Denied> {
        match local {
            Local::Inline(data) => Ok(data.clone()),
            Local::Elements(elements) => Ok(load(&self.ranges(self.who(number)?, elements, Right::LocalRead)?)),
        }
    }

    fn who(&self, number: u32) -> Result<Accessor, Denied> {
        self.queue_pairs.get(&number).map(|queue_pair| Self::accessor(queue_pair, number)).ok_or(Denied)
    }

    fn ranges(&self, who: Accessor, elements: &[Element], right: Right) -> Result<Vec<Range>, Denied> {
        let mut ranges = Vec::new();
        for element in elements {
            let bytes = u64::from(element.bytes());
            ranges.extend(self.keys.translate(who, element.key(), element.address(), bytes, right)?);
        }
        Ok(ranges)
    }

    fn send(&mut self, number: u32, local: &Local, invalidate: Option<u32>) -> Outcome {
        let data = match self.gather(number, local) {
            Ok(data) => data,
            Err(denied) => return denied.into(),
        };
        let peer = match self.peer(number) {
            Ok(peer) => peer,
            Err(outcome) => return outcome,
        };
        let Some(Receive { position, elements, who }) = self.take_receive(peer) else {
            let retries = self.queue_pairs.get(&number).map_or(0, |queue_pair| queue_pair.receiver_retries);
            if retries >= FOR_EVER {
                return Outcome::Later;
            }
            return self.wait(number, u32::from(retries) * TRY, Syndrome::ReceiverNotReady);
        };
        let room: u64 = elements.iter().map(|element| u64::from(element.bytes())).sum();
        if data.len() as u64 > room {
            self.receive_failed(peer, position, Syndrome::LocalLength);
            return Outcome::Failed(Syndrome::RemoteInvalidRequest);
        }
        let Ok(ranges) = self.ranges(who, &elements, Right::LocalWrite) else {
            self.receive_failed(peer, position, Syndrome::LocalProtection);
            return Outcome::Failed(Syndrome::RemoteOperation);
        };
        store(&ranges, &data);
        if let Some(key) = invalidate {
            let who = self.who(peer);
            if who.is_err() || who.is_ok_and(|who| self.keys.invalidate(who, key).is_err()) {
                // The message has arrived: its sender is told so.
                self.receive_failed(peer, position, Syndrome::RemoteInvalidRequest);
                return Outcome::Done(0);
            }
        }
        let result = Ok((data.len() as u32, invalidate));
        self.complete(peer, &Completion::Received { position, result });
        Outcome::Done(0)
    }

    fn take_receive(&mut self, peer: u32) -> Option<Receive> {
        let own = self.who(peer).ok()?;
        let other = self.queue_pairs.get_mut(&peer)?;
        let Some(shared) = other.context.shared_receives else {
            return other.has_receive().then(|| Receive { position: 0, elements: other.take_receive(), who: own });
        };
        let queue = self.shared.get_mut(&shared)?;
        if !queue.has_receive() {
            return None;
        }
        let who = Accessor { domain: queue.domain(), ..own };
        let taken = queue.take().map(|(position, elements)| Receive { position, elements, who });
        if taken.is_none() {
            self.violations.push(format!("shared receive queue {shared:#x}: an entry is linked to none"));
        }
        taken
    }

    fn receive_failed(&mut self, peer: u32, position: u16, syndrome: Syndrome) {
        self.complete(peer, &Completion::Received { position, result: Err(syndrome) });
        self.fail(peer, None);
    }

    fn write(&mut self, number: u32, local: &Local, key: u32, address: u64) -> Outcome {
        let data = match self.gather(number, local) {
            Ok(data) => data,
            Err(denied) => return denied.into(),
        };
        match self.remote(number, key, address, data.len() as u64, Right::RemoteWrite) {
            Ok(ranges) => {
                store(&ranges, &data);
                Outcome::Done(0)
            }
            Err(outcome) => outcome,
        }
    }

    fn read(&mut self, number: u32, local: &[Element], key: u32, address: u64) -> Outcome {
        let ranges = match self.who(number).and_then(|who| self.ranges(who, local, Right::LocalWrite)) {
            Ok(ranges) => ranges,
            Err(denied) => return denied.into(),
        };
        let bytes: u64 = ranges.iter().map(|range| range.bytes).sum();
        match self.remote(number, key, address, bytes, Right::RemoteRead) {
            Ok(remote) => {
                store(&ranges, &load(&remote));
                // At most what work requests can name.
                Outcome::Done(bytes as u32)
            }
            Err(outcome) => outcome,
        }
    }

    /// What a peer's key reaches; a misuse ends both ends.
    fn remote(&mut self, number: u32, key: u32, address: u64, bytes: u64, right: Right) -> Result<Vec<Range>, Outcome> {
        let peer = self.peer(number)?;
        let permits = |other: &QueuePair| match right {
            Right::RemoteWrite => other.permits_write(),
            _ => other.permits_read(),
        };
        let found = self
            .queue_pairs
            .get(&peer)
            .filter(|other| permits(other))
            .ok_or(Denied)
            .and_then(|other| self.keys.translate(Self::accessor(other, peer), key, address, bytes, right));
        found.map_err(|Denied| {
            self.fail(peer, Some(AsyncEvent::AccessError(peer)));
            Outcome::Failed(Syndrome::RemoteAccess)
        })
    }
}

/// The bytes of several ranges, one behind the other.
fn load(ranges: &[Range]) -> Vec<u8> {
    let mut data = Vec::new();
    for range in ranges {
        let from = data.len();
        data.resize(from + range.bytes as usize, 0);
        memory::read(range.address, &mut data[from..]);
    }
    data
}

/// Puts bytes into several ranges, as far as they go.
fn store(ranges: &[Range], mut data: &[u8]) {
    for range in ranges {
        let (now, later) = data.split_at(data.len().min(range.bytes as usize));
        memory::write(range.address, now);
        data = later;
    }
}
