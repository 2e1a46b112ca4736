//! The requests of one core: a slot each, and the engine's questions about their messages.

use super::{
    layout::Layout,
    message::{Header, Kind, name_grants},
};
use core::time::Duration;
use frwr_engine::{
    AnnounceError, Announcement, ConnectionId, Message, Protocol, RequestHandle, provider::RemoteMemory,
};

/// One request in flight, or room for one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Which of the core's connections.
    pub(super) link: u16,
    /// Its number there: what messages say.
    pub(super) number: u16,
    /// Where its memory begins.
    pub(super) offset: usize,
    /// The low bits of the number of the request in it; 0 before the first.
    pub(super) sequence: u32,
    /// The engine's name of it, while its message is on its way.
    pub(super) handle: Option<RequestHandle>,
    /// When it began, or was meant to.
    pub(super) start: Duration,
    /// What was registered for it by a system call.
    pub(super) memory: Option<RemoteMemory>,
    /// Keys of a batch.
    pub(super) keys: u16,
    /// Those of them that have not come as far as the others.
    pub(super) left: u16,
    /// Of a WRITE that another one is to answer.
    pub(super) rally: Rally,
}

/// How far a WRITE and the one that answers it are. The slot is free behind both: the first one's completion may come after the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rally {
    /// There is none.
    #[default]
    Over,
    /// Neither has been heard of.
    Begun,
    /// The WRITE has completed.
    Written,
    /// The answer was seen at this time, and no completion yet.
    Answered(Duration),
}

/// Both ends of a request's memory hold this: it differs from request to request, and is never 0.
pub(super) fn stamp(number: u16, sequence: u32) -> u64 {
    0x6672_0000_0000_0000 | u64::from(number) << 32 | u64::from(sequence)
}

/// The slots of all connections, one connection behind the other.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[Slot]>,
    of_link: usize,
    /// By the engine's index of a connection: which of ours it is.
    links: Box<[Option<u16>]>,
}

impl Slots {
    /// `of_link` slots for each of `links` connections, with memory as it is laid out.
    pub(super) fn new(links: u16, of_link: u32, layout: &Layout) -> Self {
        let slot = |link, number| Slot {
            link,
            number,
            // All batches share their bytes, and messages have none.
            offset: layout.slot_offset(usize::from(link), u32::from(number).min(layout.slots - 1)),
            sequence: 0,
            handle: None,
            start: Duration::ZERO,
            memory: None,
            keys: 0,
            left: 0,
            rally: Rally::Over,
        };
        // Depths are bounded far below 2^16.
        let numbers = 0..of_link as u16;
        let slots = (0..links).flat_map(|link| numbers.clone().map(move |number| slot(link, number))).collect();
        Self { slots, of_link: of_link as usize, links: vec![None; usize::from(links)].into() }
    }

    pub(super) fn get(&self, index: u32) -> Option<&Slot> {
        self.slots.get(index as usize)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Slot> {
        self.slots.get_mut(index as usize)
    }

    pub(super) fn len(&self) -> u32 {
        // Connections times depth: bounded by 2^16.
        self.slots.len() as u32
    }

    /// Where the memory of each begins.
    pub(super) fn offsets(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().map(|slot| slot.offset)
    }

    /// Indices in the order in which connections take turns.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = u32> + use<> {
        let (links, of_link) = (self.links.len(), self.of_link);
        (0..of_link).flat_map(move |number| (0..links).map(move |link| (link * of_link + number) as u32))
    }

    /// The engine's connection of this index is that one of ours.
    pub(super) fn connected(&mut self, connection: ConnectionId, link: u16) {
        if let Some(place) = self.links.get_mut(usize::from(connection.index)) {
            *place = Some(link);
        }
    }

    /// Which of our connections it is.
    pub(super) fn link_of(&self, connection: ConnectionId) -> Option<u16> {
        *self.links.get(usize::from(connection.index))?
    }

    fn replied(&self, connection: ConnectionId, header: Header) -> Option<RequestHandle> {
        let (link, number) = (usize::from(self.link_of(connection)?), usize::from(header.slot));
        let slot = self.slots.get(link * self.of_link + number).filter(|_| number < self.of_link)?;
        slot.handle.filter(|_| slot.sequence == header.sequence)
    }
}

impl Protocol for Slots {
    fn announce(&mut self, message: &mut [u8], announced: &Announcement<'_>) -> Result<(), AnnounceError> {
        name_grants(message, announced.grants()).ok_or(AnnounceError)
    }

    fn classify(&mut self, connection: ConnectionId, prefix: &[u8], _: u32) -> Message {
        match Header::decode(prefix) {
            Some(header) if header.kind == Kind::Reply => {
                self.replied(connection, header).map_or(Message::Malformed, Message::Reply)
            }
            Some(Header { kind: Kind::Ready | Kind::TooLarge | Kind::NotRegistered | Kind::Pong, .. }) => {
                Message::Command
            }
            _ => Message::Malformed,
        }
    }
}
