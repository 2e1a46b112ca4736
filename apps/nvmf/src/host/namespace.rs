//! The namespace that a host reads and writes, and those that it could.

use super::failure::HostFailure;
use crate::storage::Geometry;
use crate::wire::{IDENTIFY_BYTES, IdentifyActiveNamespaces, IdentifyDescriptors, IdentifyNamespace};
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
    /// Blocks of one Compare and Write at most, where it says (NACWU).
    pub(super) compare_and_write: Option<u32>,
}

/// What is known of the namespace, over all sessions.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    geometry: Option<Geometry>,
    identity: Identity,
    /// What the session's Namespace Identification Descriptor list says, which is read before the rest; `None` where it was refused.
    uuid: Option<[u8; 16]>,
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

    /// Remembers what the list of descriptors says.
    pub(super) fn take_descriptors(&mut self, bytes: &[u8; IDENTIFY_BYTES], success: bool) {
        self.uuid = success.then(|| IdentifyDescriptors::uuid(bytes));
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
        let identity = Identity { nguid: identify.nguid, eui64: identify.eui64, uuid: self.uuid };
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
        // A list that was refused takes back nothing.
        let uuid = identity.uuid.or(self.identity.uuid);
        (self.geometry, self.identity) = (Some(geometry), Identity { uuid, ..identity });
        let zeroes_deallocate = identify.deallocate_features & IdentifyNamespace::ZEROES_DEALLOCATE != 0;
        let has_units = identify.features & IdentifyNamespace::OWN_ATOMIC_UNITS != 0;
        let compare_and_write = has_units.then(|| u32::from(identify.compare_and_write_unit.get()) + 1);
        Ok(Identified { group: identify.ana_group.get(), zeroes_deallocate, compare_and_write })
    }
}

/// The names of a namespace; zeros are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) nguid: [u8; 16],
    pub(super) eui64: [u8; 8],
    /// `None` where the controller did not say whether there is one.
    pub(super) uuid: Option<[u8; 16]>,
}

/// Whether it says of itself which one it is.
fn is_named(Identity { nguid, eui64, uuid }: Identity) -> bool {
    nguid != [0; 16] || eui64 != [0; 8] || uuid.is_some_and(|uuid| uuid != [0; 16])
}

/// Whether a namespace that was named says now that it is another one.
pub(super) fn is_other(before: Identity, now: Identity) -> bool {
    let has_other_uuid = |(before, now)| before != [0; 16] && before != now;
    (before.nguid != [0; 16] && before.nguid != now.nguid)
        || (before.eui64 != [0; 8] && before.eui64 != now.eui64)
        || before.uuid.zip(now.uuid).is_some_and(has_other_uuid)
}

/// ANAGRPID of a namespace's Identify; 0 where there is none.
pub(super) fn ana_group(bytes: &[u8; IDENTIFY_BYTES]) -> u32 {
    IdentifyNamespace::ref_from_bytes(bytes).map_or(0, |identify| identify.ana_group.get())
}
