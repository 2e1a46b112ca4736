//! An engine between two threads: opened where Control is, made on its core.

use super::Engine;
use crate::{
    link::CoreLink,
    options::EngineOptions,
    plan::EngineError,
    provider::{Capabilities, CommandError, Port},
    sizes::EngineSizes,
};
use frwr_mempool::Region;

/// Why no engine was opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenEngineError {
    /// An option is out of range, or the device too small.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The device opened no port.
    #[error("the device opened no port: {0}")]
    Port(#[from] CommandError),
}

/// All that an engine is made of but its memory; from [`crate::Control::open_engine`]. It may go to another thread first: an engine is
/// best made on its own core, in memory of that core's node.
pub struct EngineBuilder<P: Port> {
    port: P,
    link: CoreLink,
    options: EngineOptions,
    capabilities: Capabilities,
    region_bytes: usize,
    sizes: EngineSizes,
}

impl<P: Port> EngineBuilder<P> {
    /// `open` opens a port with completion queues of so many entries for sends and receives.
    pub(crate) fn open(
        options: EngineOptions,
        capabilities: Capabilities,
        open: impl FnOnce(u32, u32) -> Result<(P, CoreLink), CommandError>,
    ) -> Result<Self, OpenEngineError> {
        let region_bytes = Engine::<P>::region_bytes(&options, &capabilities)?;
        let (send, receive) = Engine::<P>::completion_entries(&options, &capabilities)?;
        let sizes = EngineSizes::of(&options, &capabilities)?;
        let (port, link) = open(send, receive)?;
        Ok(Self { port, link, options, capabilities, region_bytes, sizes })
    }

    /// Bytes that [`EngineBuilder::build`] carves out of its region. What the caller carves besides comes on top.
    #[must_use]
    pub fn region_bytes(&self) -> usize {
        self.region_bytes
    }

    /// What the engine will have of everything: less than its options ask for, where the device's queues are short.
    #[must_use]
    pub fn sizes(&self) -> EngineSizes {
        self.sizes
    }

    /// What the device can do.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The engine.
    ///
    /// # Errors
    /// [`EngineError`] when the region is too small.
    pub fn build(self, region: &mut Region) -> Result<Engine<P>, EngineError> {
        Engine::new(self.port, self.link, region, self.options, &self.capabilities)
    }
}
