//! Parts of requests: each is what one command does, in a slot of its own.

use crate::wire::Status;
use core::time::Duration;
use frwr_mempool::mutant;

/// Whether the controller was asked to abort a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abortion {
    /// No.
    None,
    /// The host that has the admin queue was asked to, and has not said that it did.
    Asked,
    /// Its Abort was sent.
    Sent,
}

/// Where a command ends and how its data travels, by the limits of one session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) blocks: u32,
    /// Blocks behind them that follow in the same slot: the command was cut in a session with higher limits.
    pub(super) rest: u32,
    /// Keys that it takes.
    pub(super) keys: u8,
    pub(super) bounce: Option<u16>,
    /// The session, counted from 1; 0 for a rest that was not cut yet.
    pub(super) session: u64,
}

impl Extent {
    /// Nothing is to be copied when it has ended, and nothing follows it.
    pub(super) fn is_plain(&self) -> bool {
        self.rest == 0 && self.bounce.is_none()
    }
}

/// A command of a request, from the moment it was cut until it ended. It is changed here alone: others see it by reference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) request: u16,
    /// First block, counted from the request's.
    pub(super) first: u32,
    pub(super) extent: Extent,
    /// The queue that it was submitted to.
    pub(super) queue: u16,
    /// When it is to be aborted, or given up if it was, in watched time. `None` for never.
    pub(super) deadline: Option<Duration>,
    pub(super) abortion: Abortion,
    /// It was lost with a connection, and was not sent again yet.
    pub(super) lost: bool,
    /// How often it was, and what that counts.
    pub(super) losses: u32,
    pub(super) blame: u16,
    /// How often the controller refused it with a status that lets it be sent again.
    pub(super) refusals: u16,
    /// The path failed it, and another one may take it when it has paused.
    pub(super) failed_by_path: Option<Status>,
}

impl Part {
    fn new(request: u16, first: u32, extent: Extent) -> Self {
        let (lost, losses, blame, refusals) = (false, 0, 0, 0);
        let (queue, deadline, abortion, failed_by_path) = (0, None, Abortion::None, None);
        Self { request, first, extent, queue, deadline, abortion, lost, losses, blame, refusals, failed_by_path }
    }

    /// The engine took it.
    pub(super) fn sent(&mut self, queue: u16, deadline: Option<Duration>) {
        (self.queue, self.deadline, self.abortion, self.lost) = (queue, deadline, Abortion::None, false);
    }
}

/// Where a command is, or was.
#[derive(Clone, Debug)]
struct Place {
    is_taken: bool,
    part: Part,
}

/// All command slots of I/O.
#[derive(Debug)]
pub(super) struct Parts {
    places: Vec<Place>,
    free: Vec<u16>,
}

impl Parts {
    pub(super) fn new(count: u16) -> Self {
        let extent = Extent { blocks: 0, rest: 0, keys: 0, bounce: None, session: 0 };
        let vacant = Place { is_taken: false, part: Part::new(0, 0, extent) };
        Self { places: vec![vacant; count.into()], free: (0..count).rev().collect() }
    }

    /// All slots.
    pub(super) fn slots(&self) -> core::ops::Range<u16> {
        // Made from as many.
        0..self.places.len() as u16
    }

    /// Every slot has a command.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// So many slots have none.
    pub(super) fn has_room_for(&self, count: usize) -> bool {
        self.free.len() >= count
    }

    /// No slot has one.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    pub(super) fn get(&self, slot: u16) -> Option<&Part> {
        self.places.get(usize::from(slot)).filter(|place| place.is_taken).map(|place| &place.part)
    }

    pub(super) fn get_mut(&mut self, slot: u16) -> Option<&mut Part> {
        self.places.get_mut(usize::from(slot)).filter(|place| place.is_taken).map(|place| &mut place.part)
    }

    /// A command was cut; its slot, if one is free.
    pub(super) fn begin(&mut self, request: u16, first: u32, extent: Extent) -> Option<u16> {
        let slot = self.free.pop()?;
        *self.places.get_mut(usize::from(slot))? = Place { is_taken: true, part: Part::new(request, first, extent) };
        Some(slot)
    }

    /// It was cut again, by the limits of another session.
    pub(super) fn fit(&mut self, slot: u16, extent: Extent) {
        if let Some(part) = self.get_mut(slot) {
            part.extent = extent;
        }
    }

    /// The controller was asked to abort it, or the other host was, and it has to be answered until `deadline`.
    pub(super) fn aborted(&mut self, slot: u16, abortion: Abortion, deadline: Option<Duration>) {
        if let Some(part) = self.get_mut(slot) {
            (part.abortion, part.deadline) = (abortion, deadline);
        }
    }

    /// Its rest follows, as a command that nothing has happened to. Returns its buffer: the rest may need another one, or
    /// none.
    pub(super) fn go_on(&mut self, slot: u16) -> Option<u16> {
        let part = self.get_mut(slot)?;
        let Extent { blocks, rest, keys, bounce, .. } = part.extent;
        part.first += blocks;
        part.extent = Extent { blocks: rest, rest: 0, keys, bounce: None, session: 0 };
        (part.lost, part.losses, part.blame, part.refusals) = (false, 0, 0, 0);
        bounce
    }

    /// It was lost with its connection, which counts `blame`.
    pub(super) fn lost(&mut self, slot: u16, blame: u16) -> Option<&Part> {
        let part = self.get_mut(slot)?;
        part.lost = true;
        part.losses = part.losses.saturating_add(1);
        part.blame = part.blame.saturating_add(blame);
        Some(part)
    }

    /// The controller refused it, and it is sent again.
    pub(super) fn refused(&mut self, slot: u16) {
        if let Some(part) = self.get_mut(slot) {
            part.refusals = part.refusals.saturating_add(1);
        }
    }

    /// The path failed it, and it pauses before another one takes it.
    pub(super) fn failed_by_path(&mut self, slot: u16, status: Status) {
        if let Some(part) = self.get_mut(slot) {
            part.failed_by_path = Some(status);
        }
    }

    /// It ended, and its keys are dead. Returns what it was.
    #[inline(always)]
    pub(super) fn end(&mut self, slot: u16) -> Option<&Part> {
        let place = self.places.get_mut(usize::from(slot)).filter(|place| place.is_taken)?;
        place.is_taken = false;
        // S10: a command's slot never comes back.
        if !mutant!(S10_host_slot) {
            self.free.push(slot);
        }
        Some(&place.part)
    }
}
