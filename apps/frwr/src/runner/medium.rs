//! The medium below a namespace, whichever it is, as the main thread looks at it.

use super::{memory_medium::MemoryMedium, namespace_plan::NamespacePlan};
use crate::Error;
use frwr_nvmf::storage::{
    AnyStorage, Backing, FileMedium, Geometry, MediumFault, NbdMedium, RbdLock, RbdLook, RbdMedium,
};

/// Operations that the storage of one file or block device holds at most: more than the queue of any disk.
const MAX_FILE_DEPTH: usize = 1024;

/// The same of who may have so many.
pub(super) fn file_depth(depth: usize) -> usize {
    depth.clamp(1, MAX_FILE_DEPTH)
}

/// What a namespace lives in, open.
#[derive(Debug)]
pub(super) enum Lives {
    /// Memory, which is as it was made.
    Memory(MemoryMedium),
    /// What somebody else may change, and is looked at.
    Watched(Medium),
}

/// How further cores come to what a namespace lives in.
pub(super) enum Ways {
    /// Memory that all have.
    Memory(MemoryMedium),
    /// A file or block device.
    File(FileMedium, Backing),
    /// An export, to which each has a connection of its own.
    Nbd(NbdMedium),
    /// Ways that are made already.
    Made(Vec<AnyStorage>),
}

impl Ways {
    /// The next core's, of `depth` operations at a time where it has some of its own. May block for a file, or a server.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn next(&mut self, depth: usize) -> Result<NamespacePlan, Error> {
        match self {
            Self::Memory(memory) => Ok(NamespacePlan::Memory(memory.clone())),
            Self::File(medium, backing) => {
                let (storage, _) = medium.storage(*backing, file_depth(depth))?;
                Ok(NamespacePlan::Open { storage, alignment: medium.alignment() })
            }
            Self::Nbd(medium) => Ok(NamespacePlan::Open { storage: medium.storage(file_depth(depth))?, alignment: 1 }),
            Self::Made(ways) => {
                let storage = ways.pop().ok_or_else(Error::lost)?;
                Ok(NamespacePlan::Open { storage, alignment: 1 })
            }
        }
    }
}

/// A file, a block device, an export of a server, or an image of a cluster.
#[derive(Debug)]
pub(super) enum Medium {
    /// A file or block device.
    File(FileMedium),
    /// An export of an NBD server.
    Nbd(NbdMedium),
    /// An image of a Ceph cluster.
    Rbd(RbdMedium),
}

/// A look at how large a medium is, which takes as long as its file system or cluster does.
#[derive(Debug)]
pub(super) enum Measuring {
    /// By this clone.
    File(FileMedium),
    /// By the image's own thread.
    Rbd(RbdLook),
}

impl Measuring {
    /// Looks; [`Medium::measured`] has what is found. Nothing for the main thread.
    ///
    /// # Errors
    /// It cannot be measured.
    pub(super) fn finish(self) -> Result<(), Error> {
        match self {
            Self::File(mut medium) => {
                medium.measure()?;
            }
            Self::Rbd(look) => look.wait()?,
        }
        Ok(())
    }
}

impl Medium {
    /// Somebody else has it, who may go, or be asked by others.
    pub(super) const fn has_server(&self) -> bool {
        !matches!(self, Self::File(_))
    }

    /// It is a block device.
    pub(super) fn is_device(&self) -> bool {
        matches!(self, Self::File(medium) if medium.is_device())
    }

    /// What is wrong with it for good.
    pub(super) fn fault(&self) -> Option<MediumFault> {
        match self {
            Self::File(medium) => medium.fault(),
            Self::Nbd(medium) => medium.fault(),
            Self::Rbd(medium) => medium.fault(),
        }
    }

    /// The same after a look at it, which costs a system call.
    pub(super) fn look(&self) -> Option<MediumFault> {
        match self {
            Self::File(medium) => medium.look(),
            Self::Nbd(medium) => medium.fault(),
            // A thread of its own looks: its cluster may take long.
            Self::Rbd(medium) => medium.fault(),
        }
    }

    /// How large it is.
    pub(super) fn geometry(&self) -> Geometry {
        match self {
            Self::File(medium) => medium.geometry(),
            Self::Nbd(medium) => medium.geometry(),
            Self::Rbd(medium) => medium.geometry(),
        }
    }

    /// Begins with a look at how large it is, where that may be something else than before.
    pub(super) fn measure(&self) -> Option<Measuring> {
        match self {
            Self::File(medium) => Some(Measuring::File(medium.clone())),
            Self::Nbd(_) => None,
            Self::Rbd(medium) => Some(Measuring::Rbd(medium.look())),
        }
    }

    /// What the last such look found.
    pub(super) fn measured(&mut self) -> Result<Geometry, String> {
        match self {
            Self::File(medium) => medium.measured().map_err(|error| error.to_string()),
            Self::Rbd(medium) => medium.looked().map_err(|error| error.to_string()),
            Self::Nbd(_) => {
                let text = "an NBD export has one size for ever here; remove the namespace, and add it again";
                Err(text.to_owned())
            }
        }
    }

    /// What is known of it now without asking anybody.
    pub(super) fn looked(&mut self) -> Result<Geometry, String> {
        match self {
            Self::File(medium) => medium.looked().map_err(|error| error.to_string()),
            Self::Rbd(_) | Self::Nbd(_) => self.measured(),
        }
    }

    /// Has so many blocks, of those that it was measured with.
    pub(super) fn resize(&mut self, blocks: u64) {
        // What a change of the namespace was told that was measured.
        let _ = match self {
            Self::File(medium) => medium.resize(blocks),
            Self::Rbd(medium) => medium.resize(blocks),
            Self::Nbd(_) => Ok(()),
        };
    }

    /// Ways for so many further cores; `backing` is that of a file. Waits for nobody.
    ///
    /// # Errors
    /// It has no more, and what can be done about that.
    pub(super) fn ways(&self, backing: Backing, depth: usize, cores: usize) -> Result<Ways, String> {
        match self {
            Self::File(medium) => Ok(Ways::File(medium.clone(), backing)),
            Self::Rbd(medium) => {
                let ways = (0..cores).map(|_| medium.storage(file_depth(depth)));
                ways.collect::<Result<_, _>>().map(Ways::Made).map_err(|error| error.to_string())
            }
            Self::Nbd(medium) if medium.is_durable() => Ok(Ways::Nbd(medium.clone())),
            // Whether its server is still the same nobody knows once something was written and not flushed.
            Self::Nbd(_) => {
                let text = "all connections to an NBD server are made before hosts write to it, unless it flushes each write; remove \
                            the namespace, and add it again behind this, or with x-write-through=1";
                Err(text.to_owned())
            }
        }
    }

    /// Whose its lock is, where it is served by who has that.
    pub(super) fn lock(&self) -> Option<RbdLock> {
        self.image()?.lock()
    }

    /// The image that it is.
    pub(super) const fn image(&self) -> Option<&RbdMedium> {
        match self {
            Self::Rbd(image) => Some(image),
            Self::File(_) | Self::Nbd(_) => None,
        }
    }

    /// Whether some core has no server now, and how often one has lost it by now.
    pub(super) fn losses(&self) -> (bool, u64) {
        match self {
            Self::File(_) | Self::Rbd(_) => (false, 0),
            Self::Nbd(medium) => medium.losses(),
        }
    }
}

/// What is wrong with a medium for good.
pub(super) fn fault_text(fault: MediumFault) -> String {
    match fault {
        MediumFault::Shrunk { found, wanted } => format!("has {found} bytes, and the namespace {wanted}"),
        MediumFault::Unflushed => "a flush failed".to_owned(),
        MediumFault::Interrupted => "a connection ended between writes and their flush".to_owned(),
        MediumFault::Unanswered => "a connection was given up with writes unanswered".to_owned(),
        MediumFault::Breach => "its server does not keep to the protocol".to_owned(),
        MediumFault::Changed => "its server came back with an export that can do less".to_owned(),
        MediumFault::Removed => "somebody removed it".to_owned(),
    }
}
