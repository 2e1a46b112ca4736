//! An image as a medium: opened once, checked, and then used by every core that serves it.

use super::super::{AnyStorage, Geometry, GeometryError, MAX_STORAGE_DEPTH, MediumFault, ResizeError};
use super::{
    RbdLibraryError, RbdOptions,
    cluster::{Access, BLOCKLIST_OPTION, Connection, NoConnection},
    lock::{Lock, RbdLock, RbdLockTaken},
    shared::Shared,
    storage::RbdStorage,
    sys::{Errno, Image, NoHandle, NotOpened, Way},
};
use core::{ffi::CStr, time::Duration};
use std::{
    ffi::CString,
    io,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
};

/// How long OSDs may take until an image is open, behind what monitors may: placement groups that an OSD has left are served by others
/// within some twenty seconds.
const OPEN_LIMIT: Duration = Duration::from_secs(60);
/// How long a look at the size may take that somebody waits for.
const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// How long the last one that has an image waits until it is closed. One that is not keeps its watch and its lock for half a minute more.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// Options that images may have of their own, and what they have to be.
const CACHES: [(&CStr, &str); 2] = [(c"rbd_cache", "false"), (c"rbd_persistent_cache_mode", "disabled")];

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RbdError {
    /// Ceph's libraries cannot be loaded.
    #[error("{image}: {source}")]
    Library {
        /// Which.
        image: String,
        /// Why.
        source: RbdLibraryError,
    },
    /// Its configuration cannot be read.
    #[error(
        "{image}: Ceph's configuration {conf:?} cannot be read ({source}); name another one by ?conf=PATH, CEPH_CONF or CEPH_ARGS"
    )]
    Conf {
        /// Which.
        image: String,
        /// Its file; empty where it is the usual one.
        conf: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An option that librados does not take.
    #[error("{image}: librados does not take {option} ({source}); correct it")]
    Option {
        /// Which.
        image: String,
        /// The option, or the variable of the environment.
        option: &'static str,
        /// Why.
        source: io::Error,
    },
    /// No monitor has answered in time.
    #[error(
        "{image}: no monitor of its cluster has answered in time (client_mount_timeout, 30 s where the configuration does not say it); \
         see whether they run, and that mon_host leads to them: ceph -s"
    )]
    Monitors {
        /// Which.
        image: String,
    },
    /// Its cluster cannot be reached.
    #[error("{image}: its cluster cannot be reached as {user} ({source}); {remedy}")]
    Connect {
        /// Which.
        image: String,
        /// As whom.
        user: String,
        /// Why.
        source: io::Error,
        /// What may help.
        remedy: &'static str,
    },
    /// Its pool cannot be used.
    #[error("{image}: its pool cannot be used ({source}); see `ceph osd pool ls`, and what {user} may")]
    Pool {
        /// Which.
        image: String,
        /// As whom.
        user: String,
        /// Why.
        source: io::Error,
    },
    /// It is not there, or not for us.
    #[error("{image} cannot be opened ({source}); {remedy}")]
    Open {
        /// Which.
        image: String,
        /// Why.
        source: io::Error,
        /// What may help.
        remedy: &'static str,
    },
    /// Its cluster has not answered in time.
    #[error(
        "{image}: its cluster has not answered within {seconds} s; see whether its OSDs are up: ceph -s, ceph osd tree"
    )]
    Silent {
        /// Which.
        image: String,
        /// How long was waited.
        seconds: u64,
    },
    /// It has a cache, by an option of its own or of its pool.
    #[error(
        "{image}: {option} is {value:?} for this image, and cores share no cache of librbd; \
         rbd config image rm IMAGE {option}, rbd config pool rm POOL {option}"
    )]
    Cache {
        /// Which.
        image: String,
        /// The option.
        option: String,
        /// Its value.
        value: String,
    },
    /// It cannot be one that the owner of its lock serves.
    #[error("{image}: exclusive=1 {reason}")]
    Exclusive {
        /// Which.
        image: String,
        /// Why not, and what may help.
        reason: &'static str,
    },
    /// It cannot be asked.
    #[error("{image}: cannot be asked for {what} ({source}); see ceph -s")]
    Ask {
        /// Which.
        image: String,
        /// For what.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It was removed.
    #[error("{image} is not there any more; somebody removed it")]
    Removed {
        /// Which.
        image: String,
    },
    /// Its size is no size of a namespace.
    #[error("{image} has {bytes} bytes, in blocks of {block_bytes}: {source}")]
    Geometry {
        /// Which.
        image: String,
        /// Its bytes.
        bytes: u64,
        /// Bytes of a block.
        block_bytes: u32,
        /// Why.
        source: GeometryError,
    },
    /// A depth that no storage has.
    #[error("storage depth {0}: must be from 1 to {MAX_STORAGE_DEPTH}; choose a value inside")]
    Depth(usize),
    /// A thread did not start.
    #[error("{image}: no thread ({source}); raise the limit of processes (ulimit -u)")]
    Thread {
        /// Which.
        image: String,
        /// Why.
        source: io::Error,
    },
}

/// An open image of a Ceph cluster. When it is dropped behind its last storage the image is closed, which takes ten seconds at most.
#[derive(Debug)]
pub struct RbdMedium {
    options: RbdOptions,
    geometry: Geometry,
    /// `None` while it is dropped.
    shared: Option<Arc<Shared>>,
    /// Has no other end any more when the image and all else is closed.
    closed: Receiver<()>,
}

impl RbdMedium {
    /// Reaches its cluster, and opens it. Blocks while they answer, for a minute and what monitors may take; nothing for a reactor.
    ///
    /// # Errors
    /// [`RbdError`].
    pub fn open(options: RbdOptions) -> Result<Self, RbdError> {
        let connection = reach(&options, &Access::of(&options))?;
        let of_monitors = Duration::try_from_secs_f64(connection.monitor_limit()).unwrap_or_default();
        Self::open_by(options, OPEN_LIMIT + of_monitors, |_, _| Ok(connection))
    }

    /// The same, which blocks for so long at most: what its cluster answers later is closed, and nothing is left of it.
    ///
    /// # Errors
    /// [`RbdError`].
    pub fn open_within(options: RbdOptions, limit: Duration) -> Result<Self, RbdError> {
        Self::open_by(options, limit, reach)
    }

    fn open_by(
        options: RbdOptions,
        limit: Duration,
        reach: impl FnOnce(&RbdOptions, &Access) -> Result<Arc<Connection>, RbdError> + Send + 'static,
    ) -> Result<Self, RbdError> {
        let (closing, closed) = mpsc::channel();
        let asked = options.clone();
        let shared = within(&options, limit, move || {
            let access = Access::of(&asked);
            let connection = reach(&asked, &access)?;
            let shared = Arc::new(open(&asked, &access.user(), connection, closing)?);
            shared.connection().keep(&shared);
            Ok(shared)
        })?;
        let geometry = geometry(&options, shared.bytes())?;
        Ok(Self { options, geometry, shared: Some(shared), closed })
    }

    fn shared(&self) -> &Arc<Shared> {
        self.shared.as_ref().expect("taken by drop alone")
    }

    /// Size of the namespace.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Nothing changes it: it was asked for so, or is a snapshot.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.options.is_read_only()
    }

    /// What is wrong with it for good, as its storages, on any core, and looks at its size have found by now. It is looked at once a second.
    #[must_use]
    pub fn fault(&self) -> Option<MediumFault> {
        let wanted = self.geometry.bytes();
        self.shared().check_size(wanted);
        self.shared().fault(wanted)
    }

    /// Measures it again, once somebody has made it longer, or has cut what no namespace has any more. Its storages can have as many
    /// blocks from then on ([`Storage::resize`](super::super::Storage::resize)). Blocks for ten seconds at most, and is nothing for a
    /// reactor.
    ///
    /// # Errors
    /// [`RbdError::Silent`], [`RbdError::Removed`], [`RbdError::Geometry`].
    pub fn measure(&mut self) -> Result<Geometry, RbdError> {
        self.look().wait()?;
        self.looked()
    }

    /// Has its size looked at now, for [`RbdMedium::looked`]. Does not block.
    #[must_use]
    pub fn look(&self) -> RbdLook {
        RbdLook { image: self.options.to_string(), looked: self.shared().connection().keeper().look() }
    }

    /// As [`RbdMedium::measure`], by the last look, which is a second old at most where its cluster answers. Does not block.
    ///
    /// # Errors
    /// [`RbdError::Removed`], [`RbdError::Geometry`].
    pub fn looked(&mut self) -> Result<Geometry, RbdError> {
        if self.shared().fault(0) == Some(MediumFault::Removed) {
            return Err(RbdError::Removed { image: self.options.to_string() });
        }
        self.geometry = geometry(&self.options, self.shared().bytes())?;
        Ok(self.geometry)
    }

    /// Has so many blocks from now on, of those that it had when it was measured last: what [`RbdMedium::fault`] asks for, and storages
    /// that are made of it begin with.
    ///
    /// # Errors
    /// [`ResizeError`]; nothing has changed then.
    pub fn resize(&mut self, blocks: u64) -> Result<(), ResizeError> {
        self.geometry = self.shared().resized(self.geometry, blocks)?;
        Ok(())
    }

    /// Whose its lock is; `None` where it is served without regard to that. What changes is found once a second, a loss by operations
    /// as well. What this process does not own it does not serve: operations end with
    /// [`StorageError::NotOwner`](super::super::StorageError::NotOwner).
    #[must_use]
    pub fn lock(&self) -> Option<RbdLock> {
        self.shared().lock().map(Lock::told)
    }

    /// How often this process took it since the image was opened; `None` as of [`Self::lock`].
    #[must_use]
    pub fn lock_taken(&self) -> Option<RbdLockTaken> {
        self.shared().lock().map(Lock::taken)
    }

    /// Takes the lock, also from a client that lives, which is blocklisted first; [`Self::lock`] tells what came of it. False where this
    /// process has it already, has lost it for good, or needs none. Blocks for nothing.
    pub fn acquire_lock(&self) -> bool {
        let asked = self.shared().lock().is_some_and(Lock::ask);
        if asked {
            // Nobody waits for that.
            drop(self.shared().connection().keeper().look());
        }
        asked
    }

    /// Gives the lock back: nothing more is begun from now on, and behind what was begun, within a second where the cluster answers,
    /// another client may have it. False where this process does not have it. Blocks for nothing.
    pub fn release_lock(&self) -> bool {
        self.shared().lock().is_some_and(Lock::begin_release)
    }

    /// One core's way to it, of `depth` operations at a time.
    ///
    /// # Errors
    /// [`RbdError::Depth`].
    pub fn storage(&self, depth: usize) -> Result<AnyStorage, RbdError> {
        if !(1..=MAX_STORAGE_DEPTH).contains(&depth) {
            return Err(RbdError::Depth(depth));
        }
        let way = Way::new(Arc::clone(self.shared()), depth);
        Ok(AnyStorage::Rbd(Box::new(RbdStorage::new(way, self.geometry, self.is_read_only(), depth))))
    }
}

/// A look at the size of an image, for whoever has the time to wait for it, on whichever thread.
#[derive(Debug)]
pub struct RbdLook {
    image: String,
    /// Has no other end any more when it is over.
    looked: Receiver<()>,
}

impl RbdLook {
    /// Until it is over. Blocks for ten seconds at most.
    ///
    /// # Errors
    /// [`RbdError::Silent`].
    pub fn wait(self) -> Result<(), RbdError> {
        match self.looked.recv_timeout(LOOK_LIMIT) {
            Err(RecvTimeoutError::Timeout) => {
                Err(RbdError::Silent { image: self.image, seconds: LOOK_LIMIT.as_secs() })
            }
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Ok(()),
        }
    }
}

impl Drop for RbdMedium {
    /// Where nobody else has the image it is closed now, by whoever keeps it.
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        // Of the two that are left one is the keeper's.
        let is_last = Arc::strong_count(&shared) <= 2;
        let keeper = shared.connection().keeper();
        drop(shared);
        let looked = keeper.look();
        drop(keeper);
        if is_last && looked.recv_timeout(CLOSE_LIMIT) != Err(RecvTimeoutError::Timeout) {
            let _ = self.closed.recv_timeout(CLOSE_LIMIT);
        }
    }
}

fn geometry(options: &RbdOptions, bytes: u64) -> Result<Geometry, RbdError> {
    let block_bytes = options.block_bytes;
    let blocks = bytes.checked_div(block_bytes.into()).unwrap_or(0);
    Geometry::new(blocks, block_bytes).map_err(|source| RbdError::Geometry {
        image: options.to_string(),
        bytes,
        block_bytes,
        source,
    })
}

/// What a thread of its own comes to: calls of librbd cannot be taken back, and may never return. What comes too late is dropped there.
fn within<T: Send + 'static>(
    options: &RbdOptions,
    limit: Duration,
    call: impl FnOnce() -> Result<T, RbdError> + Send + 'static,
) -> Result<T, RbdError> {
    let image = || options.to_string();
    let (done, waits) = mpsc::channel();
    let run = move || {
        let _ = done.send(call());
    };
    let spawned = thread::Builder::new().name("frwr-rbd-open".to_owned()).spawn(run);
    spawned.map_err(|source| RbdError::Thread { image: image(), source })?;
    waits.recv_timeout(limit).unwrap_or_else(|_| Err(RbdError::Silent { image: image(), seconds: limit.as_secs() }))
}

/// A connection to its cluster: librados itself gives up by the limits that its configuration has.
fn reach(options: &RbdOptions, access: &Access) -> Result<Arc<Connection>, RbdError> {
    let (image, user) = (options.to_string(), access.user());
    Connection::get(access).map_err(|reason| match reason {
        NoConnection::Handle(NoHandle::Library(source)) => RbdError::Library { image, source },
        NoConnection::Handle(NoHandle::Refused(errno)) => {
            RbdError::Option { image, option: "id", source: error(errno) }
        }
        NoConnection::Conf(conf, errno) => {
            RbdError::Conf { image, conf: conf.unwrap_or_default(), source: error(errno) }
        }
        NoConnection::Option(option, errno) => RbdError::Option { image, option, source: error(errno) },
        NoConnection::Connect(Errno(libc::ETIMEDOUT)) => RbdError::Monitors { image },
        NoConnection::Connect(errno) => {
            let remedy = match errno.0 {
                libc::EACCES | libc::EPERM | libc::EINVAL => {
                    "name the user and its key: ?id=USER&keyring=PATH, or CEPH_ARGS"
                }
                _ => "see that Ceph's configuration names its monitors (mon_host), and the user's keyring: ?conf=PATH",
            };
            RbdError::Connect { image, user, source: error(errno), remedy }
        }
        NoConnection::Thread(source) => RbdError::Thread { image, source },
    })
}

fn open(
    options: &RbdOptions,
    user: &str,
    connection: Arc<Connection>,
    closing: mpsc::Sender<()>,
) -> Result<Shared, RbdError> {
    let name = || options.to_string();
    let text =
        |part: &str| CString::new(part).map_err(|_| not_opened(options, user, NotOpened::Image(Errno(libc::EINVAL))));
    let names = [text(&options.pool)?, text(&options.namespace)?, text(&options.image)?];
    let snapshot = options.snapshot.as_deref().map(text).transpose()?;
    let names = names.each_ref().map(CString::as_c_str);
    let opened = Image::open(connection.handle(), names, snapshot.as_deref(), options.is_read_only());
    let image = opened.map_err(|reason| not_opened(options, user, reason))?;
    let unasked = |what| move |errno| RbdError::Ask { image: options.to_string(), what, source: error(errno) };
    for (option, wanted) in CACHES {
        let value = image.option(option).map_err(unasked("its options"))?;
        if let Some(value) = value.filter(|value| value != wanted) {
            return Err(RbdError::Cache { image: name(), option: option.to_string_lossy().into_owned(), value });
        }
    }
    let bytes = image.size().map_err(unasked("its size"))?;
    let lock = options.exclusive.then(|| lock_of(options, &image)).transpose()?;
    Ok(Shared::new(image, connection, bytes, lock, closing))
}

/// The lock of an image that fences who loses it.
fn lock_of(options: &RbdOptions, image: &Image) -> Result<Lock, RbdError> {
    let refused = |reason| Err(RbdError::Exclusive { image: options.to_string(), reason });
    let unasked = |what| move |errno| RbdError::Ask { image: options.to_string(), what, source: error(errno) };
    if options.is_read_only() {
        return refused("is of images that are written, and this one is not; leave it out, or read_only");
    }
    if !image.has_lock().map_err(unasked("its features"))? {
        return refused("needs the feature exclusive-lock; rbd feature enable POOL/IMAGE exclusive-lock");
    }
    let blocklists = image.option(BLOCKLIST_OPTION).map_err(unasked("its options"))?;
    if blocklists.is_some_and(|value| value != "true") {
        return refused(
            "needs rbd_blocklist_on_break_lock, which is false for this image or its pool: who lost the lock could still write; \
             rbd config image rm POOL/IMAGE rbd_blocklist_on_break_lock, rbd config pool rm POOL rbd_blocklist_on_break_lock",
        );
    }
    Ok(Lock::new())
}

fn not_opened(options: &RbdOptions, user: &str, reason: NotOpened) -> RbdError {
    let image = options.to_string();
    let (NotOpened::Pool(errno) | NotOpened::Image(errno)) = reason;
    let source = error(errno);
    match (reason, errno.0) {
        (NotOpened::Pool(_), _) => RbdError::Pool { image, user: user.to_owned(), source },
        (_, libc::ENOENT) => RbdError::Open { image, source, remedy: "see `rbd ls POOL` and `rbd snap ls POOL/IMAGE`" },
        (_, libc::EPERM | libc::EACCES) => {
            RbdError::Open { image, source, remedy: "see what its user may (ceph auth get), or set read_only" }
        }
        _ => RbdError::Open { image, source, remedy: "see `rbd info POOL/IMAGE`" },
    }
}

fn error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_too_late_is_an_error_and_dropped() {
        let ((answer, asked), (dropped, is_dropped)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
        let options = RbdOptions::new("pool", "image");
        let late = within(&options, Duration::ZERO, move || {
            let _ = asked.recv();
            Ok(dropped)
        });
        assert!(matches!(late, Err(RbdError::Silent { .. })), "{late:?}");
        drop(answer);
        assert!(is_dropped.recv().is_err());
    }
}
