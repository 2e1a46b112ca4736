//! Connections to clusters: one for all images of a process that reach theirs in the same way, since each brings threads of its own.

use super::{
    environment::Early,
    name::RbdOptions,
    shared::Shared,
    sys::{Errno, Handle, NoHandle},
};
use core::{ffi::CStr, time::Duration};
use std::{
    ffi::CString,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
};

/// What waits for monitors waits so long, unless the configuration says something else: they answer in milliseconds, and elect another
/// leader within some ten seconds.
const MONITOR_LIMIT: &CStr = c"30";
/// Options that say so, with what they are where nobody has said it: five minutes, and for ever.
const MONITOR_LIMITS: [(&CStr, f64); 2] = [(c"client_mount_timeout", 300.0), (c"rados_mon_op_timeout", 0.0)];
/// Whether a client that loses its lock is put on the cluster's blocklist; images may have a value of their own.
pub(super) const BLOCKLIST_OPTION: &CStr = c"rbd_blocklist_on_break_lock";
/// Between two looks at how large images are, and whose.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// How a cluster is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Access {
    conf: Option<PathBuf>,
    id: String,
    keyring: Option<PathBuf>,
    /// By a connection of its own: the cluster's blocklist has whole clients, with all their images.
    alone: bool,
}

impl Access {
    pub(super) fn of(options: &RbdOptions) -> Self {
        let early = Early::of_environment();
        Self {
            conf: options.conf.clone().or(early.conf.map(PathBuf::from)),
            id: options.id.clone().or(early.id).unwrap_or_else(|| "admin".to_owned()),
            keyring: options.keyring.clone(),
            alone: options.exclusive,
        }
    }

    /// As people know it.
    pub(super) fn user(&self) -> String {
        format!("client.{}", self.id)
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NoConnection {
    Handle(NoHandle),
    /// The configuration: of this file, or of nothing that is one.
    Conf(Option<PathBuf>, Errno),
    /// This option.
    Option(&'static str, Errno),
    Connect(Errno),
    /// No thread.
    Thread(std::io::Error),
}

/// A connected cluster. The last one that has it waits until it is closed.
#[derive(Debug)]
pub(super) struct Connection {
    handle: Arc<Handle>,
    keeper: Keeper,
    /// How long its monitors may take, in seconds.
    monitor_limit: f64,
}

/// What the keeper of images is told.
#[derive(Debug)]
enum Order {
    /// Keeps an image until nobody else has it, and closes it then: that may take long, and nobody else has the time.
    Keep(Arc<Shared>),
    /// Looks at all images, and drops this.
    Look(Option<Sender<()>>),
}

/// All that there are.
static CONNECTIONS: Mutex<Vec<(Access, Weak<Connection>)>> = Mutex::new(Vec::new());

impl Connection {
    /// The one that there is, or a new one. Blocks for as long as monitors may take.
    pub(super) fn get(access: &Access) -> Result<Arc<Self>, NoConnection> {
        let mut all = CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        if access.alone {
            return Self::new(access).map(Arc::new);
        }
        all.retain(|(_, connection)| connection.strong_count() > 0);
        let there = all.iter().find(|(other, _)| other == access).and_then(|(_, connection)| connection.upgrade());
        if let Some(connection) = there {
            return Ok(connection);
        }
        let connection = Arc::new(Self::new(access)?);
        all.push((access.clone(), Arc::downgrade(&connection)));
        Ok(connection)
    }

    fn new(access: &Access) -> Result<Self, NoConnection> {
        let user = CString::new(access.user()).unwrap_or_default();
        let mut handle = Handle::new(&user).map_err(NoConnection::Handle)?;
        configure(&mut handle, access)?;
        // What only its configuration says.
        let limits: Vec<_> = MONITOR_LIMITS.iter().filter_map(|(name, _)| handle.value(name)?.parse().ok()).collect();
        handle.connect().map_err(NoConnection::Connect)?;
        let (orders, received) = mpsc::channel();
        thread::Builder::new()
            .name("frwr-rbd".to_owned())
            .spawn(move || keep(&received))
            .map_err(NoConnection::Thread)?;
        Ok(Self {
            handle: Arc::new(handle),
            keeper: Keeper(orders),
            monitor_limit: limits.first().copied().unwrap_or(0.0),
        })
    }

    pub(super) const fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Seconds that its monitors may take.
    pub(super) const fn monitor_limit(&self) -> f64 {
        self.monitor_limit
    }

    /// From now on an image is looked at, and closed when nobody else has it.
    pub(super) fn keep(&self, image: &Arc<Shared>) {
        // The keeper ends behind the last connection.
        let _ = self.keeper.0.send(Order::Keep(Arc::clone(image)));
    }

    pub(super) fn keeper(&self) -> Keeper {
        self.keeper.clone()
    }
}

/// Who looks at images and closes them; ends behind the last of these.
#[derive(Clone, Debug)]
pub(super) struct Keeper(Sender<Order>);

impl Keeper {
    /// All images are looked at soon, and closed where nobody has them; the other end of this is gone when that is done.
    pub(super) fn look(&self) -> Receiver<()> {
        let (done, waits) = mpsc::channel();
        let _ = self.0.send(Order::Look(Some(done)));
        waits
    }
}

/// As Ceph's tools are: a file, the environment, what was said with the name; and what is ours.
fn configure(handle: &mut Handle, access: &Access) -> Result<(), NoConnection> {
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    let conf = access.conf.as_deref().map(text);
    match handle.read_file(conf.as_deref()) {
        // Where nobody named one CEPH_ARGS may say all.
        Err(Errno(libc::ENOENT)) if conf.is_none() => {}
        read => read.map_err(|errno| NoConnection::Conf(access.conf.clone(), errno))?,
    }
    handle.parse_environment().map_err(|errno| NoConnection::Option("CEPH_ARGS", errno))?;
    if let Some(keyring) = access.keyring.as_deref() {
        handle.set(c"keyring", &text(keyring)).map_err(|errno| NoConnection::Option("keyring", errno))?;
    }
    // Several cores read what others wrote, and nothing is acknowledged that a lost process could lose.
    handle.set(c"rbd_cache", c"false").map_err(|errno| NoConnection::Option("rbd_cache", errno))?;
    for (name, usual) in MONITOR_LIMITS {
        let is_usual = handle.value(name).and_then(|value| value.parse().ok()).is_none_or(|value: f64| value == usual);
        // An option that this librados does not have limits nothing.
        let _ = is_usual.then(|| handle.set(name, MONITOR_LIMIT));
    }
    if access.alone {
        let refused = |errno| NoConnection::Option("rbd_blocklist_on_break_lock", errno);
        handle.set(BLOCKLIST_OPTION, c"true").map_err(refused)?;
    }
    Ok(())
}

/// The keeper of a connection: looks at images, and closes those that nobody has.
fn keep(orders: &Receiver<Order>) {
    let mut images: Vec<Arc<Shared>> = Vec::new();
    loop {
        let order = if images.is_empty() {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            orders.recv_timeout(LOOK_PERIOD)
        };
        let asked = match order {
            Ok(Order::Keep(image)) => {
                // Its lock is not waited for longer than it has to be.
                image.look();
                images.push(image);
                continue;
            }
            Ok(Order::Look(asked)) => asked,
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        images.retain(|image| Arc::strong_count(image) > 1);
        images.iter().for_each(|image| image.look());
        drop(asked);
    }
}
