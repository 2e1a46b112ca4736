//! Memory that is declared.

use super::Engine;
use crate::{
    gather::MemoryId,
    link::{DeclaredMemory, MemoryAccess, NotAsked, ToControl},
    provider::Port,
};
use frwr_mempool::DeviceMemory;

/// A memory could not be declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddMemoryError {
    /// All places are taken.
    #[error(
        "the engine takes {limit} memories, its own among them, and has them; raise EngineOptions::memories, declare fewer and larger \
         ones, or remove some"
    )]
    TooMany {
        /// [`EngineOptions::memories`](crate::EngineOptions::memories).
        limit: u16,
    },
    /// Control has not taken earlier messages yet.
    #[error("control is busy; poll it and try again")]
    WouldBlock,
    /// The engine's Control was dropped.
    #[error("the engine's Control was dropped, so that no memory can be registered; keep it as long as its engines")]
    NoControl,
}

impl From<NotAsked> for AddMemoryError {
    fn from(reason: NotAsked) -> Self {
        match reason {
            NotAsked::Busy => Self::WouldBlock,
            NotAsked::Gone => Self::NoControl,
        }
    }
}

impl<P: Port> Engine<P> {
    /// Declares a memory that segments may lie in. Connections opened afterwards can use it at once, those that are open already when
    /// [`Event::MemoryRegistered`] says so: until then segments in it are refused there ([`SubmitError::UnknownMemory`]).
    /// The memory stays registered until [`Engine::remove_memory`]; in protection domains of single connections
    /// ([`crate::DomainPolicy`]) until these end, in the one that connections share until Control is dropped.
    ///
    /// One that is [`MemoryAccess::ReadOnly`] is sent, written to peers, and opened to their RDMA READs; a chunk that a peer could write
    /// to and a fetch into it are refused ([`GatherError::ReadOnly`](crate::GatherError::ReadOnly)). That goes for this name of the
    /// bytes alone: under another one, declared with [`MemoryAccess::ReadWrite`], they are written.
    ///
    /// [`Event::MemoryRegistered`]: crate::Event::MemoryRegistered
    /// [`SubmitError::UnknownMemory`]: crate::SubmitError::UnknownMemory
    ///
    /// # Errors
    /// [`AddMemoryError`].
    pub fn add_memory(&mut self, memory: DeviceMemory, access: MemoryAccess) -> Result<MemoryId, AddMemoryError> {
        let id = self.memories.next().ok_or(AddMemoryError::TooMany { limit: self.options.memories })?;
        let declared = DeclaredMemory { bytes: memory, access };
        self.link.ask(ToControl::AddMemory { memory: id, declared: declared.clone() })?;
        self.memories.declare(id, declared);
        Ok(id)
    }

    /// A declared memory; none that is being removed.
    #[must_use]
    pub fn memory(&self, memory: MemoryId) -> Option<&DeviceMemory> {
        self.memories.get(memory).map(|declared| &declared.bytes)
    }
}
