//! The memories of one engine by their places: which are declared, and which place the next one gets.

use crate::{gather::MemoryId, link::DeclaredMemory};
use std::collections::VecDeque;

/// The engine's own memory, its first.
pub(crate) const OWN: MemoryId = MemoryId::of(0, 0);

/// A place of the table.
#[derive(Debug, Default)]
struct Place {
    /// Memories that it had before.
    generation: u16,
    memory: Option<DeclaredMemory>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Memories {
    places: Box<[Place]>,
    /// Those without a memory. The one that lost its memory first is the first to have another one, so that names come again as late as
    /// can be.
    free: VecDeque<u16>,
}

impl Memories {
    /// None, in so many places.
    pub(crate) fn new(places: u16) -> Self {
        Self { places: (0..places).map(|_| Place::default()).collect(), free: (0..places).collect() }
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
        if let Some(place) = self.places.get_mut(usize::from(name.place())) {
            place.memory = Some(memory);
        }
    }

    /// A declared memory by its name.
    pub(crate) fn get(&self, name: MemoryId) -> Option<&DeclaredMemory> {
        let place = self.places.get(usize::from(name.place()))?;
        place.memory.as_ref().filter(|_| MemoryId::of(name.place(), place.generation) == name)
    }
}
