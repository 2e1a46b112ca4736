//! Whether all paths lead to the same namespace: by the names that it gives itself, by its block size, and by its size.

use super::super::namespace::{Identity, is_other};
use crate::storage::Geometry;

/// Why a path is not used although it has a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathRefusal {
    /// Nothing says which namespace it is.
    #[error(
        "its namespace has neither NGUID, EUI64 nor UUID, so that nothing says that it is that of the other paths; give it one on all targets"
    )]
    Unnamed,
    /// It is another one.
    #[error("its namespace has another NGUID, EUI64 or UUID than that of the other paths; it is another namespace")]
    OtherNamespace,
    /// The block size.
    #[error(
        "its namespace has blocks of {theirs} bytes, and that of the other paths of {ours}; it is another namespace"
    )]
    BlockBytes {
        /// Of the other paths.
        ours: u32,
        /// Of this one.
        theirs: u32,
    },
    /// The size. It may be told to controllers at different times, so that the path is used as soon as they agree.
    #[error("its namespace has {theirs} blocks, and that of the other paths {ours}; it is not used while they differ")]
    Blocks {
        /// Of the other paths.
        ours: u64,
        /// Of this one.
        theirs: u64,
    },
}

impl PathRefusal {
    /// It will not pass.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Blocks { .. })
    }
}

/// What the paths agree on.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    identity: Option<Identity>,
    geometry: Option<Geometry>,
}

impl Agreement {
    /// Of the namespace; `None` before a path led to it.
    pub(super) fn geometry(&self) -> Option<Geometry> {
        self.geometry
    }

    /// Judges a path that comes in. `alone`: no other path is in, so that the size is for this one to say.
    pub(super) fn admit(
        &mut self,
        identity: Option<Identity>,
        geometry: Geometry,
        alone: bool,
    ) -> Result<(), PathRefusal> {
        let identity = identity.ok_or(PathRefusal::Unnamed)?;
        if self.identity.is_some_and(|ours| is_other(ours, identity)) {
            return Err(PathRefusal::OtherNamespace);
        }
        if let Some(ours) = self.geometry {
            let theirs = geometry;
            if ours.block_bytes() != theirs.block_bytes() {
                return Err(PathRefusal::BlockBytes { ours: ours.block_bytes(), theirs: theirs.block_bytes() });
            }
            if ours != theirs && !alone {
                return Err(PathRefusal::Blocks { ours: ours.blocks(), theirs: theirs.blocks() });
            }
        }
        self.identity.get_or_insert(identity);
        self.geometry = Some(geometry);
        Ok(())
    }

    /// A path that is in says that the namespace has another size by now.
    pub(super) fn resized(&mut self, geometry: Geometry) {
        self.geometry = Some(geometry);
    }
}

#[cfg(test)]
mod tests {
    use super::{Agreement, Identity, PathRefusal};
    use crate::storage::Geometry;

    #[test]
    fn what_is_another_namespace_is_refused_and_another_size_until_it_is_the_same() {
        let of = |blocks, bytes| Geometry::new(blocks, bytes).unwrap();
        let named = |byte| Some(Identity { nguid: [byte; 16], ..Identity::default() });
        let with_uuid = |uuid| named(1).map(|identity| Identity { uuid, ..identity });
        let mut agreement = Agreement::default();
        assert_eq!(agreement.admit(None, of(8, 512), true), Err(PathRefusal::Unnamed));
        assert_eq!(agreement.admit(named(1), of(8, 512), true), Ok(()));
        assert_eq!(agreement.admit(named(2), of(8, 512), true), Err(PathRefusal::OtherNamespace));
        assert_eq!(
            agreement.admit(Some(Identity { eui64: [1; 8], ..Identity::default() }), of(8, 512), true),
            Err(PathRefusal::OtherNamespace)
        );
        // The first one had none; and who does not say so is no other.
        assert_eq!(agreement.admit(with_uuid(Some([3; 16])), of(8, 512), false), Ok(()));
        let mut by_uuid = Agreement::default();
        assert_eq!(by_uuid.admit(with_uuid(Some([3; 16])), of(8, 512), true), Ok(()));
        assert_eq!(by_uuid.admit(with_uuid(None), of(8, 512), false), Ok(()));
        for other in [[4; 16], [0; 16]] {
            assert_eq!(by_uuid.admit(with_uuid(Some(other)), of(8, 512), false), Err(PathRefusal::OtherNamespace));
        }
        let blocks = PathRefusal::BlockBytes { ours: 512, theirs: 4096 };
        assert_eq!(agreement.admit(named(1), of(8, 4096), true), Err(blocks));
        let size = PathRefusal::Blocks { ours: 8, theirs: 9 };
        assert_eq!(agreement.admit(named(1), of(9, 512), false), Err(size));
        assert!(!size.is_final() && blocks.is_final());
        agreement.resized(of(9, 512));
        assert_eq!(agreement.admit(named(1), of(9, 512), false), Ok(()));
        assert_eq!(agreement.admit(named(1), of(10, 512), true), Ok(()), "nobody says otherwise");
        assert_eq!(agreement.geometry(), Some(of(10, 512)));
    }
}
