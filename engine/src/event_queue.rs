//! Events that wait to be taken.

use crate::{
    event::{ConnectionId, Event, Received, RequestStatus, TransferStatus},
    mr::Grant,
    provider::Completion,
    request::RequestHandle,
};
use std::collections::VecDeque;

/// Bytes of an entry: a cache line at most, since every request leaves one.
const MAX_ENTRY_BYTES: usize = 64;
const _: () = assert!(size_of::<Entry>() <= MAX_ENTRY_BYTES, "the entry of a request stays small");

/// An event as it waits. Those of requests, messages and transfers are frequent and small; the others carry private data
/// and wait in a queue of their own, so that nobody moves its bytes for a request.
#[derive(Debug)]
enum Entry {
    Completed {
        request: RequestHandle,
        cookie: u64,
        status: RequestStatus,
    },
    Received {
        connection: ConnectionId,
        received: Received,
    },
    Registered {
        request: RequestHandle,
        cookie: u64,
        grant: Grant,
    },
    Fetched {
        cookie: u64,
        status: TransferStatus,
    },
    Responded {
        cookie: u64,
        status: TransferStatus,
    },
    Foreign(Completion),
    /// The oldest of the others.
    Rare,
}

/// Events, oldest first.
#[derive(Debug)]
pub(crate) struct EventQueue {
    entries: VecDeque<Entry>,
    rare: VecDeque<Event>,
}

impl EventQueue {
    /// Room for `events`, of which `rare` belong to connections and listeners.
    pub(crate) fn new(events: usize, rare: usize) -> Self {
        Self { entries: VecDeque::with_capacity(events), rare: VecDeque::with_capacity(rare) }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    #[inline]
    pub(crate) fn push_back(&mut self, event: Event) {
        let entry = match event {
            Event::Completed { request, cookie, status } => Entry::Completed { request, cookie, status },
            Event::Received { connection, received } => Entry::Received { connection, received },
            Event::Registered { request, cookie, grant } => Entry::Registered { request, cookie, grant },
            Event::Fetched { cookie, status } => Entry::Fetched { cookie, status },
            Event::Responded { cookie, status } => Entry::Responded { cookie, status },
            Event::Foreign(completion) => Entry::Foreign(completion),
            rare => {
                self.rare.push_back(rare);
                Entry::Rare
            }
        };
        self.entries.push_back(entry);
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<Event> {
        Some(match self.entries.pop_front()? {
            Entry::Completed { request, cookie, status } => Event::Completed { request, cookie, status },
            Entry::Received { connection, received } => Event::Received { connection, received },
            Entry::Registered { request, cookie, grant } => Event::Registered { request, cookie, grant },
            Entry::Fetched { cookie, status } => Event::Fetched { cookie, status },
            Entry::Responded { cookie, status } => Event::Responded { cookie, status },
            Entry::Foreign(completion) => Event::Foreign(completion),
            Entry::Rare => return self.rare.pop_front(),
        })
    }
}
