//! The namespace that a host reads and writes, and those that it could.

use super::failure::HostFailure;
use crate::storage::Geometry;
use crate::wire::{IDENTIFY_BYTES, IdentifyActiveNamespaces, IdentifyNamespace};
use arrayvec::ArrayVec;
use zerocopy::FromBytes;

/// Active namespaces that are remembered, for tools.
const MAX_ACTIVE: usize = 64;

/// What its Identify says beside its size.
pub(super) struct Identified {
    /// ANAGRPID; 0 for none.
    pub(super) group: u32,
    /// Write Zeroes may ask it to deallocate (DLFEAT).
    pub(super) zeroes_deallocate: bool,
}

/// What is known of the namespace, over all sessions.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    geometry: Option<Geometry>,
    identity: Identity,
    active: ArrayVec<u32, MAX_ACTIVE>,
}

impl Namespace {
    /// `None` before the first session.
    pub(super) fn geometry(&self) -> Option<Geometry> {
        self.geometry
    }

    /// What it says by name which one it is; `None` before the first session, and where it has none.
    pub(super) fn identity(&self) -> Option<Identity> {
        Some(self.identity).filter(|identity| is_named(*identity))
    }

    /// The first active namespaces of the subsystem.
    pub(super) fn active(&self) -> &[u32] {
        &self.active
    }

    /// The host with the admin queue says how large it is.
    pub(super) fn told(&mut self, geometry: Geometry) {
        self.geometry = Some(geometry);
    }

    /// Remembers the first active namespaces; what the controller does not list is found by its Identify.
    pub(super) fn take_active(&mut self, bytes: &[u8; IDENTIFY_BYTES], success: bool) {
        self.active.clear();
        let Ok(list) = IdentifyActiveNamespaces::ref_from_bytes(bytes) else { return };
        let listed =
            list.namespaces.iter().map(|identifier| identifier.get()).take_while(|identifier| *identifier != 0);
        self.active.extend(listed.take(if success { MAX_ACTIVE } else { 0 }));
    }

    /// `live`: the session goes on; else it begins, and the namespace may be another one.
    ///
    /// # Errors
    /// The host cannot use it, or not any longer.
    pub(super) fn check_namespace(
        &mut self,
        bytes: &[u8; IDENTIFY_BYTES],
        live: bool,
    ) -> Result<Identified, HostFailure> {
        let Ok(identify) = IdentifyNamespace::ref_from_bytes(bytes) else {
            return Err(HostFailure::Unsupported("Identify Namespace"));
        };
        let (blocks, block_bytes) = identify.geometry().map_err(HostFailure::Format)?;
        let geometry = Geometry::new(blocks, block_bytes)
            .map_err(|_| HostFailure::Unsupported("namespaces of fewer than 2^64 bytes"))?;
        let identity = (identify.nguid, identify.eui64);
        match self.geometry {
            // Lost writes must not reach another namespace in the place of theirs.
            Some(_) if is_other(self.identity, identity) => return Err(HostFailure::NamespaceChanged),
            // A namespace may have another size while it is used: requests behind its end fail. It may not have another
            // block size under requests that were taken for it, nor another size behind a reconnect where it says by no
            // name that it is no other one.
            Some(before) if (live || is_named(self.identity)) && before.block_bytes() == geometry.block_bytes() => {}
            Some(before) if before != geometry => return Err(HostFailure::NamespaceChanged),
            _ => {}
        }
        (self.geometry, self.identity) = (Some(geometry), identity);
        let zeroes_deallocate = identify.deallocate_features & IdentifyNamespace::ZEROES_DEALLOCATE != 0;
        Ok(Identified { group: identify.ana_group.get(), zeroes_deallocate })
    }
}

/// NGUID and EUI64 of a namespace.
pub(super) type Identity = ([u8; 16], [u8; 8]);

/// Whether it says of itself which one it is.
fn is_named(identity: Identity) -> bool {
    identity != Identity::default()
}

/// Whether a namespace that was named says now that it is another one; zeros are no name.
pub(super) fn is_other(before: Identity, now: Identity) -> bool {
    (before.0 != [0; 16] && before.0 != now.0) || (before.1 != [0; 8] && before.1 != now.1)
}

/// ANAGRPID of a namespace's Identify; 0 where there is none.
pub(super) fn ana_group(bytes: &[u8; IDENTIFY_BYTES]) -> u32 {
    IdentifyNamespace::ref_from_bytes(bytes).map_or(0, |identify| identify.ana_group.get())
}
