//! A send queue: work requests in order, with the elements that were copied when they were posted (S116).

use super::bases::Cursor;
use super::nic::Nic;
use super::registration::Asker;
use crate::provider::{ElementRange, Failure, Operation, ScatterElement, WorkRequest};
use core::hash::Hasher;
use std::collections::VecDeque;
use std::hash::DefaultHasher;

/// How far the oldest work requests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Not executed, or a message that is still being sent.
    Waiting,
    /// A message with this number: the peer has not answered yet.
    Sent(u32),
    /// Executed; completes when all before it have.
    Done,
    /// Refused by this device; fails when all before it have completed.
    Failed(Failure),
}

/// One work request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) request: WorkRequest,
    pub(super) progress: Progress,
    /// Of what was sent, where somebody watches.
    digest: Option<u64>,
    cost: u32,
    slot: u32,
    elements: u32,
}

/// The send queue of one queue pair.
#[derive(Debug)]
pub(super) struct SendQueue {
    entries: VecDeque<Entry>,
    elements: Box<[ScatterElement]>,
    /// Elements that each entry has room for.
    stride: u32,
    capacity: u32,
    next_slot: u32,
    /// Entries taken, in units of the send queue; freed when a completion is polled, as on real devices.
    used: u32,
    /// Units of completed work requests that no completion has told of yet.
    silent: u32,
    /// Entries from the front that were executed.
    pub(super) executed: usize,
}

impl SendQueue {
    pub(super) fn new(capacity: u32, stride: u32) -> Self {
        let elements = vec![ScatterElement::default(); capacity as usize * stride as usize].into_boxed_slice();
        Self {
            entries: VecDeque::with_capacity(capacity as usize),
            elements,
            stride,
            capacity,
            next_slot: 0,
            used: 0,
            silent: 0,
            executed: 0,
        }
    }

    /// Whether work of this cost still fits behind `planned` more.
    pub(super) fn has_room(&self, cost: u32, planned: u32) -> bool {
        u64::from(self.used) + u64::from(planned) + u64::from(cost) <= u64::from(self.capacity)
    }

    /// Whether an entry can hold that many elements.
    pub(super) fn takes_elements(&self, count: usize) -> bool {
        count <= self.stride as usize
    }

    /// Appends a work request; the caller has asked for room.
    pub(super) fn push(&mut self, request: WorkRequest, elements: &[ScatterElement], cost: u32) {
        let slot = self.next_slot;
        self.next_slot = if slot + 1 >= self.capacity { 0 } else { slot + 1 };
        let first = slot as usize * self.stride as usize;
        if let Some(room) = self.elements.get_mut(first..first + elements.len()) {
            room.copy_from_slice(elements);
        }
        self.used += cost;
        let elements = elements.len() as u32;
        self.entries.push_back(Entry { request, progress: Progress::Waiting, digest: None, cost, slot, elements });
    }

    /// Send queue entries came free: their completion was taken.
    pub(super) fn free(&mut self, units: u32) {
        self.used = self.used.saturating_sub(units);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn front(&self) -> Option<&Entry> {
        self.entries.front()
    }

    pub(super) fn next(&self) -> Option<&Entry> {
        self.entries.get(self.executed)
    }

    pub(super) fn set_next(&mut self, progress: Progress) {
        if let Some(entry) = self.entries.get_mut(self.executed) {
            entry.progress = progress;
        }
    }

    /// The message with this number, if the peer's answer to it is still awaited.
    pub(super) fn sent(&self, sequence: u32) -> Option<&Entry> {
        self.entries.iter().take(self.executed).find(|entry| entry.progress == Progress::Sent(sequence))
    }

    /// Whether a registration stands behind the message with this number.
    pub(super) fn registers_behind(&self, sequence: u32) -> bool {
        let behind = self.entries.iter().skip_while(|entry| entry.progress != Progress::Sent(sequence));
        behind.into_iter().any(|entry| matches!(entry.request.operation, Operation::Register(_)))
    }

    /// The elements of an entry.
    pub(super) fn elements_of(&self, entry: &Entry) -> &[ScatterElement] {
        let first = entry.slot as usize * self.stride as usize;
        self.elements.get(first..first + entry.elements as usize).unwrap_or(&[])
    }

    /// The message whose turn it is was sent, whole: notes what it was.
    pub(super) fn note_sent(&mut self, nic: &Nic, asker: Asker) {
        if !nic.options.watches_buffers {
            return;
        }
        let digest = self.next().copied().and_then(|entry| self.digest_of(&entry, nic, asker));
        if let Some(entry) = self.entries.get_mut(self.executed) {
            entry.digest = digest;
        }
    }

    /// A message may be sent again until it has completed: its memory is what it was.
    pub(super) fn check_unchanged(&self, entry: &Entry, nic: &Nic, asker: Asker) {
        if entry.digest.is_some() && self.digest_of(entry, nic, asker) != entry.digest {
            let (token, queue_pair) = (entry.request.token, asker.queue_pair);
            nic.monitor.violated(format!("{queue_pair:?}: the memory of {token:?} changed before its completion"));
        }
    }

    /// Of the bytes that a message sends; `None` where some of them cannot be read.
    fn digest_of(&self, entry: &Entry, nic: &Nic, asker: Asker) -> Option<u64> {
        let elements = self.elements_of(entry);
        let length: usize = elements.iter().map(|element| element.length as usize).sum();
        let (mut cursor, mut bytes) = (Cursor::default(), vec![0; length]);
        nic.bases.gather(elements, &mut cursor, asker.domain, &mut bytes).ok()?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        Some(hasher.finish())
    }

    /// Takes the oldest entry off, with the units that its completion frees.
    pub(super) fn retire(&mut self, completes: bool) -> Option<(Entry, u32)> {
        let entry = self.entries.pop_front()?;
        self.executed = self.executed.saturating_sub(1);
        self.silent += entry.cost;
        let frees = if completes { core::mem::take(&mut self.silent) } else { 0 };
        Some((entry, frees))
    }
}

/// The elements that an operation names in its chain.
pub(super) const fn range_of(operation: &Operation) -> ElementRange {
    match operation {
        Operation::Register(fields) => fields.elements,
        Operation::Invalidate { .. } => ElementRange { first: 0, count: 0 },
        Operation::Send { local, .. } | Operation::Read { local, .. } | Operation::Write { local, .. } => *local,
    }
}
