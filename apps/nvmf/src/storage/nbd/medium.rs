//! An export as a medium: reached once, checked, and then used by every core that serves it.

use super::super::{AnyStorage, Geometry, GeometryError, MAX_STORAGE_DEPTH, MediumFault};
use super::{
    MAX_NBD_CONNECTIONS, NbdOptions, NbdRefusal,
    access::Access,
    connection::{Connection, NoConnection},
    handshake::{Export, HANDSHAKE_LIMIT},
    shared::{Entered, Shared},
    socket::Place,
    storage::NbdStorage,
};
use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

/// Why an export cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NbdError {
    /// Its server cannot be reached.
    #[error("{export} cannot be reached ({source}); start its server, or name another one")]
    Unreachable {
        /// Which.
        export: String,
        /// Why.
        source: io::Error,
    },
    /// Its server does not say in time what has to be said.
    #[error(
        "{export}: not opened within {} seconds; see whether its server hangs, takes as many connections (qemu-nbd --shared=0), \
         or speaks another protocol",
        HANDSHAKE_LIMIT.as_secs()
    )]
    Silent {
        /// Which.
        export: String,
    },
    /// Its server does not let us.
    #[error("{export}: {source}")]
    Refused {
        /// Which.
        export: String,
        /// Why.
        source: NbdRefusal,
    },
    /// Its size is no size of a namespace.
    #[error("{export} has {bytes} bytes, in blocks of {block_bytes}: {source}")]
    Geometry {
        /// Which.
        export: String,
        /// Its bytes.
        bytes: u64,
        /// Bytes of a block.
        block_bytes: u32,
        /// Why.
        source: GeometryError,
    },
    /// Blocks that the server does not take.
    #[error(
        "{export}: blocks of {block_bytes} bytes, and its server takes requests of {minimum} to {maximum} bytes; choose blocks in \
         that range"
    )]
    BlockBytes {
        /// Which.
        export: String,
        /// Bytes of a block.
        block_bytes: u32,
        /// Minimum block size.
        minimum: u32,
        /// Maximum payload.
        maximum: u32,
    },
    /// Several connections, where its server does not promise that they see one cache.
    #[error(
        "{export}: its server does not say CAN_MULTI_CONN, so all cores and connections together may be 1; serve it by one core with \
         x-connections=1, or by a server that says so (nbdkit's file plugin does, qemu-nbd with --shared=0)"
    )]
    OneConnection {
        /// Which.
        export: String,
    },
    /// A number of connections that nobody has.
    #[error("{0} connections: must be from 1 to {MAX_NBD_CONNECTIONS}; choose a value inside")]
    Connections(u8),
    /// Write-through without FUA.
    #[error(
        "{export}: its server has no FUA, which write-through needs; leave x-write-through out, or use nbdkit --filter=fua"
    )]
    NoFua {
        /// Which.
        export: String,
    },
    /// Its server has become another one since it was opened.
    #[error(
        "{export}: its server says other things of it than when it was opened (its size, its abilities, its blocks); serve the \
         export that it was, or open it again"
    )]
    Changed {
        /// Which.
        export: String,
    },
    /// A depth that no storage has.
    #[error("storage depth {0}: must be from 1 to {MAX_STORAGE_DEPTH}; choose a value inside")]
    Depth(usize),
}

/// An export whose server was reached. Clones are the same one.
#[derive(Clone, Debug)]
pub struct NbdMedium {
    shared: Arc<Shared>,
    access: Access,
    /// The connection that it was reached by, for the first storage: some servers end with their first client.
    first: Arc<Mutex<Option<Connection>>>,
}

impl NbdMedium {
    /// Reaches its server. Blocks while names are resolved and it answers; nothing for a reactor.
    ///
    /// # Errors
    /// [`NbdError`].
    pub fn open(options: NbdOptions) -> Result<Self, NbdError> {
        let export = || options.to_string();
        if !(1..=MAX_NBD_CONNECTIONS).contains(&options.connections) {
            return Err(NbdError::Connections(options.connections));
        }
        let unreachable = |source| NbdError::Unreachable { export: export(), source };
        let places = Place::all(&options.address).map_err(unreachable)?;
        let (connection, found) = reach(&places, &options)?;
        let block_bytes = options.block_bytes;
        let blocks = found.bytes.checked_div(block_bytes.into()).unwrap_or(0);
        let geometry = Geometry::new(blocks, block_bytes);
        let geometry = geometry.map_err(|source| NbdError::Geometry {
            export: export(),
            bytes: found.bytes,
            block_bytes,
            source,
        })?;
        let (minimum, maximum) = (found.blocks.minimum, found.blocks.maximum);
        if block_bytes < minimum || block_bytes > maximum {
            return Err(NbdError::BlockBytes { export: export(), block_bytes, minimum, maximum });
        }
        if options.connections > 1 && !found.can_multi_conn() {
            return Err(NbdError::OneConnection { export: export() });
        }
        if options.write_through && !found.can_fua() && !found.is_read_only() {
            return Err(NbdError::NoFua { export: export() });
        }
        let access = Access { options, places, export: found, geometry };
        Ok(Self { shared: Arc::new(Shared::new()), access, first: Arc::new(Mutex::new(Some(connection))) })
    }

    /// Size of the namespace.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.access.geometry
    }

    /// Nothing changes it: it was asked for so, or its server lets nobody.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.access.is_read_only()
    }

    /// What was acknowledged is durable: no server can lose it, and a connection may be made at any time.
    #[must_use]
    pub const fn is_durable(&self) -> bool {
        self.access.is_read_only() || self.access.is_write_through()
    }

    /// What is wrong with it for good, as its storages, on any core, have found by now.
    #[must_use]
    pub fn fault(&self) -> Option<MediumFault> {
        self.shared.fault(self.access.bytes())
    }

    /// Whether some core has no connection to its server now, and how often one has lost its last by now.
    #[must_use]
    pub fn losses(&self) -> (bool, u64) {
        self.shared.losses()
    }

    /// One core's way to it, of `depth` operations at a time. Blocks as [`NbdMedium::open`]. All ways are to be made before the first
    /// one writes, unless [it is durable](Self::is_durable): a connection that is made while something is not flushed is one of which nobody knows whether its server is still
    /// the same ([`MediumFault::Interrupted`]).
    ///
    /// # Errors
    /// [`NbdError::Depth`], [`NbdError::OneConnection`], [`NbdError::Changed`], and what keeps it from connecting.
    pub fn storage(&self, depth: usize) -> Result<AnyStorage, NbdError> {
        if !(1..=MAX_STORAGE_DEPTH).contains(&depth) {
            return Err(NbdError::Depth(depth));
        }
        let options = &self.access.options;
        let entered = Entered::new(&self.shared);
        if entered.others > 0 && !self.access.export.can_multi_conn() {
            return Err(NbdError::OneConnection { export: options.to_string() });
        }
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut connections: Vec<_> = first.into_iter().collect();
        while connections.len() < options.connections.into() {
            let (connection, found) = reach(&self.access.places, options)?;
            if found.bytes < self.access.bytes() || !self.access.is_kept_by(&found) {
                return Err(NbdError::Changed { export: options.to_string() });
            }
            connections.push(connection);
        }
        Ok(AnyStorage::Nbd(Box::new(NbdStorage::new(entered, self.access.clone(), connections, depth))))
    }
}

/// A connection to the first address that has the export.
fn reach(places: &[Place], options: &NbdOptions) -> Result<(Connection, Export), NbdError> {
    let export = || options.to_string();
    let missing = io::Error::from(io::ErrorKind::NotFound);
    let mut error = NbdError::Unreachable { export: export(), source: missing };
    for place in places {
        match reach_one(place, &options.export) {
            Ok(Some(reached)) => return Ok(reached),
            Ok(None) => error = NbdError::Silent { export: export() },
            Err(NoConnection::Unreachable(errno)) => {
                error = NbdError::Unreachable { export: export(), source: errno.into() };
            }
            Err(NoConnection::Refused(source)) => error = NbdError::Refused { export: export(), source },
        }
    }
    Err(error)
}

#[allow(clippy::disallowed_methods, reason = "an export is opened before anything polls it, and may never answer")]
fn reach_one(place: &Place, export: &str) -> Result<Option<(Connection, Export)>, NoConnection> {
    let (mut connection, began) = (Connection::new(), Instant::now());
    connection.connect(place)?;
    // Each turn but the first has a part of a message, of which a handshake takes so many.
    while connection.wait(HANDSHAKE_LIMIT.saturating_sub(began.elapsed())).map_err(NoConnection::Unreachable)? {
        if let Some(found) = connection.negotiate(export)? {
            return Ok(Some((connection, found)));
        }
    }
    Ok(None)
}
