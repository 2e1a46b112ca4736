//! The memories of one engine by their places: which are declared, which are being removed, and which place the next one gets.

use crate::{gather::MemoryId, link::DeclaredMemory, mr::ConnectionKey};
use std::collections::VecDeque;

/// The engine's own memory, its first.
pub(crate) const OWN: MemoryId = MemoryId::of(0, 0);

/// How far a memory has come.
#[derive(Debug, Default)]
enum State {
    /// None has the place.
    #[default]
    Vacant,
    Declared(DeclaredMemory),
    /// It is being removed.
    Leaving,
}

/// A place of the table.
#[derive(Debug, Default)]
struct Place {
    /// Memories that it had before; begins anew behind 65,535.
    generation: u16,
    state: State,
}

/// How far the engine has seen that nothing uses a memory that was withdrawn: connections in front of this one cannot, nor can its MRs in
/// front of this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Withdrawal {
    memory: MemoryId,
    connection: u16,
    /// Of those of the connection.
    mr: u32,
    /// Where its barrier stands in the send queue of the connection of this name.
    barrier: Option<(ConnectionKey, u64)>,
}

impl Withdrawal {
    const fn new(memory: MemoryId) -> Self {
        Self { memory, connection: 0, mr: 0, barrier: None }
    }

    pub(crate) fn memory(&self) -> MemoryId {
        self.memory
    }

    /// The connection that it has come to.
    pub(crate) fn connection(&self) -> usize {
        usize::from(self.connection)
    }

    /// The MR that it has come to, of those of the connection.
    pub(crate) fn mr(&self) -> u32 {
        self.mr
    }

    /// Where the barrier of the connection stands, once all its MRs are out of use, and whose it is.
    pub(crate) fn barrier(&self) -> Option<(ConnectionKey, u64)> {
        self.barrier
    }

    /// The MR is out of use.
    pub(crate) fn pass_mr(&mut self) {
        self.mr += 1;
    }

    /// Waits for this barrier, or for a place for one.
    pub(crate) fn await_barrier(&mut self, barrier: Option<(ConnectionKey, u64)>) {
        self.barrier = barrier;
    }

    /// Nothing of the connection uses the memory.
    pub(crate) fn pass_connection(&mut self) {
        *self = Self { connection: self.connection + 1, ..Self::new(self.memory) };
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Memories {
    places: Box<[Place]>,
    /// Those without a memory. The one that lost its memory first is the first to have another one, so that names come again as late as
    /// can be.
    free: VecDeque<u16>,
    /// Those that may still be in use.
    withdrawn: Vec<Withdrawal>,
    /// Those that Control has to release, or is releasing.
    releasing: u16,
}

impl Memories {
    /// None, in so many places.
    pub(crate) fn new(places: u16) -> Self {
        Self {
            places: (0..places).map(|_| Place::default()).collect(),
            free: (0..places).collect(),
            withdrawn: Vec::with_capacity(places.into()),
            releasing: 0,
        }
    }

    /// The name of the memory that is declared next; `None` where all places are taken.
    pub(crate) fn next(&self) -> Option<MemoryId> {
        let place = *self.free.front()?;
        Some(MemoryId::of(place, self.places.get(usize::from(place))?.generation))
    }

    /// The memory of this name, which is the next one, is declared.
    pub(crate) fn declare(&mut self, name: MemoryId, memory: DeclaredMemory) {
        debug_assert_eq!(self.next(), Some(name), "memories are named in order");
        self.free.pop_front();
        if let Some(place) = self.place_of(name) {
            place.state = State::Declared(memory);
        }
    }

    /// A declared memory by its name; none that is being removed.
    pub(crate) fn get(&self, name: MemoryId) -> Option<&DeclaredMemory> {
        let place = self.places.get(usize::from(name.place()))?;
        match &place.state {
            State::Declared(memory) if MemoryId::of(name.place(), place.generation) == name => Some(memory),
            _ => None,
        }
    }

    /// A declared memory is withdrawn: nothing new uses it.
    pub(crate) fn withdraw(&mut self, memory: MemoryId) {
        let Some(place) = self.place_of(memory) else { return };
        if matches!(place.state, State::Declared(_)) {
            place.state = State::Leaving;
            self.withdrawn.push(Withdrawal::new(memory));
        }
    }

    /// The one of this number of those that may still be in use.
    pub(crate) fn withdrawn(&self, at: usize) -> Option<Withdrawal> {
        self.withdrawn.get(at).copied()
    }

    /// It has come so far.
    pub(crate) fn walked(&mut self, at: usize, withdrawal: Withdrawal) {
        if let Some(kept) = self.withdrawn.get_mut(at) {
            *kept = withdrawal;
        }
    }

    /// The one of this number is the first of them from now on, and those in front of it are the last.
    pub(crate) fn begin_with(&mut self, at: usize) {
        self.withdrawn.rotate_left(at);
    }

    /// Whether some may still be in use.
    pub(crate) fn are_withdrawn(&self) -> bool {
        !self.withdrawn.is_empty()
    }

    /// Whether some are being removed.
    pub(crate) fn are_leaving(&self) -> bool {
        self.are_withdrawn() || self.releasing > 0
    }

    /// Control was asked to release the one of those that may still be in use that has this number: it is not.
    pub(crate) fn release(&mut self, at: usize) {
        self.withdrawn.swap_remove(at);
        self.releasing += 1;
    }

    /// Nothing reaches a memory any more: its place is free for another one. False where it was not being removed.
    pub(crate) fn removed(&mut self, memory: MemoryId) -> bool {
        let Some(place) = self.place_of(memory).filter(|place| matches!(place.state, State::Leaving)) else {
            return false;
        };
        (place.state, place.generation) = (State::Vacant, place.generation.wrapping_add(1));
        self.free.push_back(memory.place());
        self.releasing = self.releasing.saturating_sub(1);
        true
    }

    fn place_of(&mut self, name: MemoryId) -> Option<&mut Place> {
        let place = self.places.get_mut(usize::from(name.place()))?;
        (MemoryId::of(name.place(), place.generation) == name).then_some(place)
    }
}
