//! All that is known of an export.

use super::super::Geometry;
use super::{NbdOptions, handshake::Export, socket::Place};

/// All that a storage needs to know of its export.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) options: NbdOptions,
    pub(super) places: Vec<Place>,
    pub(super) export: Export,
    pub(super) geometry: Geometry,
}

impl Access {
    /// Nothing that changes blocks.
    pub(super) const fn is_read_only(&self) -> bool {
        self.options.read_only || self.export.is_read_only()
    }

    /// What has completed is as durable as it gets.
    pub(super) const fn is_write_through(&self) -> bool {
        self.options.write_through || !self.export.can_flush()
    }

    /// Changes ask for FUA.
    pub(super) const fn asks_for_fua(&self) -> bool {
        self.export.can_fua() && self.is_write_through()
    }

    /// Bytes of the namespace.
    pub(super) fn bytes(&self) -> u64 {
        self.geometry.bytes()
    }

    /// What is found now can be used in place of the export that was opened, but for its size.
    pub(super) const fn is_kept_by(&self, found: &Export) -> bool {
        found.takes_the_place_of(&self.export, self.geometry.block_bytes())
    }
}
