//! The one kernel of the process, under one lock, and the thread that moves its card.

use crate::{
    files::{self, Kind},
    kernel::Kernel,
    rdma_cm::{ConnectionManager, Outcome, Settings},
};
use std::{
    os::fd::RawFd,
    sync::{
        LazyLock, Mutex, Once, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

/// The card's only port.
pub(crate) const PORT: u8 = 1;

/// Steps of the card while its thread has the lock.
const STEPS_PER_TURN: usize = 32;

/// All that there is.
pub(crate) struct World {
    pub(crate) kernel: Kernel,
    manager: ConnectionManager,
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| {
    let settings = Settings {
        address: files::address(),
        node_guid: u64::from_ne_bytes(files::NODE_GUID),
        port: PORT,
        gid: files::gid(),
        gid_index: files::GID_INDEX,
    };
    Mutex::new(World { kernel: Kernel::new(), manager: ConnectionManager::new(settings) })
});

/// Threads of the program that want the lock: the card's thread, which has it nearly always, stands back for them.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Runs something with the world to itself.
pub(crate) fn with<T>(run: impl FnOnce(&mut World) -> T) -> T {
    WAITING.fetch_add(1, Ordering::AcqRel);
    let mut world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    WAITING.fetch_sub(1, Ordering::AcqRel);
    run(&mut world)
}

/// A program opens the card.
pub(crate) fn open_verbs() -> Result<RawFd, i32> {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        // SAFETY: the function lives as long as the process; atexit(3) asks no more.
        unsafe { libc::atexit(at_exit) };
        let _ = std::thread::Builder::new().name("connectx".to_owned()).spawn(run_card);
    });
    let descriptor = with(|world| world.kernel.open())?;
    files::set_kind(descriptor, Some(Kind::Verbs));
    Ok(descriptor)
}

/// A program opens the connection manager.
pub(crate) fn open_connection_manager() -> Result<RawFd, i32> {
    let descriptor = with(|world| world.manager.open())?;
    files::set_kind(descriptor, Some(Kind::ConnectionManager));
    Ok(descriptor)
}

/// A program closes a descriptor of ours. Whether it is closed by that.
pub(crate) fn close(kind: Kind, descriptor: RawFd) -> bool {
    with(|world| match kind {
        Kind::Verbs => world.kernel.close(descriptor),
        Kind::Events => {}
        Kind::ConnectionManager => world.manager.close(descriptor),
    });
    kind == Kind::ConnectionManager
}

/// One command to the connection manager; waits for an event where it asks for one.
pub(crate) fn connection_manager_write(descriptor: RawFd, command: &[u8]) -> Result<(), i32> {
    loop {
        match with(|world| world.manager.write(descriptor, command)) {
            Outcome::Done => return Ok(()),
            Outcome::Error(errno) => return Err(errno),
            Outcome::WaitForEvent => wait(descriptor)?,
        }
    }
}

/// Waits until a descriptor has an event, as read(2) does.
///
/// # Errors
/// EAGAIN where it is told not to wait; what poll(2) says.
pub(crate) fn wait(descriptor: RawFd) -> Result<(), i32> {
    // SAFETY: no memory is named.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    if flags < 0 {
        return Err(libc::EBADF);
    }
    if flags & libc::O_NONBLOCK != 0 {
        return Err(libc::EAGAIN);
    }
    let mut waited = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, as is said.
    match unsafe { libc::poll(&raw mut waited, 1, -1) } {
        -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINTR)),
        _ => Ok(()),
    }
}

fn run_card() {
    loop {
        let mut worked = false;
        if WAITING.load(Ordering::Acquire) == 0 {
            let mut world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
            for _ in 0..STEPS_PER_TURN {
                let step = world.kernel.step();
                worked |= step;
                if !step || WAITING.load(Ordering::Acquire) != 0 {
                    break;
                }
            }
        }
        if !worked {
            std::thread::yield_now();
        }
    }
}

extern "C" fn at_exit() {
    files::clean_up();
}
