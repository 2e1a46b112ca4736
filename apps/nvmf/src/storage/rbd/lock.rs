//! RBD's exclusive lock of an image that several processes have open, of which one serves it: who has the lock. What librbd is asked for
//! is asked by the keeper of the connection ([`Lock::attend`]), since it may block; cores only look whether this process may serve.

use super::sys::{Errno, Image};
use core::{
    ffi::CStr,
    sync::atomic::{
        AtomicBool, AtomicU8, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What this process is to an image whose lock it takes and gives back explicitly.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RbdLock {
    /// It has the lock, and serves.
    Owner {
        /// Whom it had it from.
        from: RbdLockFrom,
    },
    /// It serves nothing, and takes the lock once nobody has it, or the watch of who has it is gone.
    Standby {
        /// The address of the client that has it, as Ceph's tools tell it.
        owner: Option<String>,
        /// Why the lock could not be taken, or nobody could be asked for it.
        trouble: Option<String>,
    },
    /// It was told to give the lock back: it serves nothing any more, and waits for what was begun.
    Releasing {
        /// Why the lock could not be given back, which is tried once a second.
        trouble: Option<String>,
    },
    /// It was told to give the lock back, and takes it no more until another client has had it, or it is told to.
    Released,
    /// The cluster listens to this client no more, since another one took the lock: for good, until the image is opened again.
    Lost,
}

/// Whom the lock was had from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RbdLockFrom {
    /// Nobody had it.
    Nobody,
    /// This client, whose watch was gone; it is on the cluster's blocklist.
    Gone(String),
    /// This client, whether it lived or not, since somebody asked for that; it is on the cluster's blocklist.
    Alive(String),
}

/// How often this process took a lock, by whom it had it from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RbdLockTaken {
    /// Nobody had it.
    pub free: u64,
    /// A client that was gone had it, and is on the cluster's blocklist since.
    pub taken_over: u64,
    /// The same of one that may have lived, since somebody asked for that.
    pub forced: u64,
}

/// As a number, for cores.
mod state {
    pub(super) const STANDBY: u8 = 0;
    pub(super) const OWNER: u8 = 1;
    /// Nothing more is begun, and then the lock is given back.
    pub(super) const RELEASING: u8 = 2;
    pub(super) const RELEASED: u8 = 3;
    pub(super) const LOST: u8 = 4;
}

/// That of one image.
#[derive(Debug)]
pub(super) struct Lock {
    state: AtomicU8,
    /// Somebody wants it, whoever has it.
    is_wanted: AtomicBool,
    /// As it is told: changed by the keeper alone.
    told: Mutex<RbdLock>,
    /// See [`RbdLockTaken`]: counted by the keeper alone.
    taken: [AtomicU64; 3],
}

impl Lock {
    /// Of an image that was just opened.
    pub(super) fn new() -> Self {
        let told = Mutex::new(RbdLock::Standby { owner: None, trouble: None });
        Self {
            state: AtomicU8::new(state::STANDBY),
            is_wanted: AtomicBool::new(false),
            told,
            taken: Default::default(),
        }
    }

    /// This process has it, and may begin with operations.
    #[inline]
    pub(super) fn serves(&self) -> bool {
        self.state.load(Acquire) == state::OWNER
    }

    /// How it is.
    pub(super) fn told(&self) -> RbdLock {
        match self.state.load(Acquire) {
            // Found by a core, of which the keeper may not have heard.
            state::LOST => RbdLock::Lost,
            // Begun by another thread than the keeper's.
            state::RELEASING => match &*self.news() {
                told @ RbdLock::Releasing { .. } => told.clone(),
                _ => RbdLock::Releasing { trouble: None },
            },
            _ => self.news().clone(),
        }
    }

    /// How often it was taken.
    pub(super) fn taken(&self) -> RbdLockTaken {
        let [free, taken_over, forced] = self.taken.each_ref().map(|count| count.load(Relaxed));
        RbdLockTaken { free, taken_over, forced }
    }

    /// An operation ended since the cluster listens to this client no more.
    pub(super) fn is_lost(&self) {
        self.state.store(state::LOST, Release);
    }

    /// Somebody wants the lock for this process, whoever has it; false where it has it, or can have it no more.
    pub(super) fn ask(&self) -> bool {
        let may_have = !matches!(self.state.load(Acquire), state::OWNER | state::LOST);
        self.is_wanted.store(may_have, Release);
        may_have
    }

    /// Nothing more is begun from now on, and the lock is given back behind what was; false where it is not this process's.
    pub(super) fn begin_release(&self) -> bool {
        self.steps(state::OWNER, state::RELEASING)
    }

    /// Does what is to be done, by the keeper.
    pub(super) fn attend(&self, image: &Image) {
        let state = self.state.load(Acquire);
        // Who wants it while it is given back has it behind that.
        let wanted = state != state::RELEASING && self.is_wanted.swap(false, Acquire);
        let done = match state {
            state::LOST => return,
            state::OWNER => self.look(image),
            state::RELEASING => self.release(image),
            state::RELEASED if !wanted => self.stand_by_again(image),
            _ => {
                self.waits_for_it();
                self.take(image, wanted)
            }
        };
        match done {
            Ok(()) => {}
            Err(Errno(libc::ESHUTDOWN)) => self.is_lost(),
            Err(errno) => self.trouble(errno),
        }
    }

    /// Whether the lock is still this process's.
    fn look(&self, image: &Image) -> Result<(), Errno> {
        match image.is_lock_owner() {
            // librbd has no watch, and takes it again, or not.
            Ok(false) => self.becomes(state::OWNER, state::STANDBY, RbdLock::Standby { owner: None, trouble: None }),
            Ok(true) => {}
            Err(Errno(libc::ESHUTDOWN)) => return Err(Errno(libc::ESHUTDOWN)),
            // Its OSD says nothing: so it does to whoever would take the lock.
            Err(_) => {}
        }
        Ok(())
    }

    fn release(&self, image: &Image) -> Result<(), Errno> {
        match image.release_lock() {
            // It has not got it any more.
            Ok(()) | Err(Errno(libc::EINVAL)) => {}
            Err(errno) => return Err(errno),
        }
        self.becomes(state::RELEASING, state::RELEASED, RbdLock::Released);
        Ok(())
    }

    /// Somebody wants the lock that was given back: it is waited for from now on, and told why it cannot be had.
    fn waits_for_it(&self) {
        if self.state.load(Acquire) == state::RELEASED {
            self.becomes(state::RELEASED, state::STANDBY, RbdLock::Standby { owner: None, trouble: None });
        }
    }

    /// Once another client has the lock it is waited for as before.
    fn stand_by_again(&self, image: &Image) -> Result<(), Errno> {
        if let Some(owner) = image.lock_owner()? {
            self.becomes(state::RELEASED, state::STANDBY, standby(&owner));
        }
        Ok(())
    }

    /// Takes the lock where it may be had: from nobody, from who is gone, and where somebody wants that from who lives.
    fn take(&self, image: &Image, by_force: bool) -> Result<(), Errno> {
        let from = self.state.load(Acquire);
        // librbd may have taken it again by itself.
        let is_owner = image.is_lock_owner()?;
        let taken = match image.lock_owner()? {
            _ if is_owner => RbdLockFrom::Nobody,
            None => RbdLockFrom::Nobody,
            Some(owner) if by_force => {
                match image.break_lock(&owner) {
                    // It is another one's by now, which is asked about next time.
                    Err(Errno(libc::EBUSY | libc::EAGAIN)) => {
                        self.is_wanted.store(true, Release);
                        return Ok(());
                    }
                    Ok(()) | Err(Errno(libc::ENOENT)) => {}
                    Err(errno) => return Err(errno),
                }
                RbdLockFrom::Alive(text(&owner))
            }
            Some(owner) if image.is_watched_by(&owner)? => {
                self.becomes(from, state::STANDBY, standby(&owner));
                return Ok(());
            }
            Some(owner) => RbdLockFrom::Gone(text(&owner)),
        };
        match image.acquire_lock() {
            // Somebody else was faster.
            Err(Errno(libc::EROFS | libc::EBUSY | libc::EAGAIN)) => return Ok(()),
            acquired => acquired?,
        }
        // The OSD has the last word, whatever librbd believes.
        if image.is_lock_owner()? {
            self.counts(&taken);
            self.becomes(from, state::OWNER, RbdLock::Owner { from: taken });
        } else {
            // What it believes is made true, so that the next time takes it.
            let _ = image.release_lock();
        }
        Ok(())
    }

    fn counts(&self, from: &RbdLockFrom) {
        let at = match from {
            RbdLockFrom::Nobody => 0,
            RbdLockFrom::Gone(_) => 1,
            RbdLockFrom::Alive(_) => 2,
        };
        self.taken[at].fetch_add(1, Relaxed);
    }

    /// The lock cannot be asked for, taken or given back, which is told.
    fn trouble(&self, errno: Errno) {
        let is_releasing = self.state.load(Acquire) == state::RELEASING;
        match &mut *self.news() {
            RbdLock::Standby { trouble, .. } => *trouble = Some(errno.to_string()),
            told if is_releasing => *told = RbdLock::Releasing { trouble: Some(errno.to_string()) },
            _ => {}
        }
    }

    /// What it has become is told before cores go by it.
    fn becomes(&self, from: u8, to: u8, told: RbdLock) {
        *self.news() = told;
        self.steps(from, to);
    }

    /// False where a core has found meanwhile that it is lost.
    fn steps(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Release, Relaxed).is_ok()
    }

    fn news(&self) -> MutexGuard<'_, RbdLock> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn standby(owner: &CStr) -> RbdLock {
    RbdLock::Standby { owner: Some(text(owner)), trouble: None }
}

fn text(address: &CStr) -> String {
    address.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_core_finds_lost_stays_lost_whatever_its_keeper_believes() {
        let lock = Lock::new();
        assert!(!lock.serves() && !lock.begin_release() && lock.ask());
        lock.becomes(state::STANDBY, state::OWNER, RbdLock::Owner { from: RbdLockFrom::Nobody });
        assert!(lock.serves() && !lock.ask(), "it has it");
        lock.is_lost();
        lock.becomes(state::OWNER, state::STANDBY, RbdLock::Standby { owner: None, trouble: None });
        assert!(!lock.serves() && !lock.ask() && !lock.begin_release());
        assert_eq!(lock.told(), RbdLock::Lost);
    }

    #[test]
    fn each_way_to_the_lock_is_counted_apart() {
        let lock = Lock::new();
        let client = || "10.0.0.1:0/1".to_owned();
        lock.counts(&RbdLockFrom::Nobody);
        (0..2).for_each(|_| lock.counts(&RbdLockFrom::Gone(client())));
        (0..3).for_each(|_| lock.counts(&RbdLockFrom::Alive(client())));
        assert_eq!(lock.taken(), RbdLockTaken { free: 1, taken_over: 2, forced: 3 });
    }

    #[test]
    fn what_is_given_back_is_not_served_from_then_on() {
        let lock = Lock::new();
        lock.becomes(state::STANDBY, state::OWNER, RbdLock::Owner { from: RbdLockFrom::Nobody });
        assert!(lock.begin_release() && !lock.serves() && !lock.begin_release());
        // Whoever goes by what is told sends nobody here any more, however long what was begun takes.
        assert_eq!(lock.told(), RbdLock::Releasing { trouble: None });
        lock.trouble(Errno(libc::ETIMEDOUT));
        assert!(matches!(lock.told(), RbdLock::Releasing { trouble: Some(_) }));
        lock.becomes(state::RELEASING, state::RELEASED, RbdLock::Released);
        assert_eq!((lock.told(), lock.serves(), lock.ask()), (RbdLock::Released, false, true));
    }

    #[test]
    fn who_is_told_to_take_back_what_it_gave_back_tells_why_it_cannot() {
        let lock = Lock::new();
        lock.becomes(state::STANDBY, state::RELEASED, RbdLock::Released);
        lock.trouble(Errno(libc::EPERM));
        assert_eq!(lock.told(), RbdLock::Released, "nobody wants it");
        lock.waits_for_it();
        lock.trouble(Errno(libc::EPERM));
        assert!(matches!(lock.told(), RbdLock::Standby { owner: None, trouble: Some(_) }));
        assert!(!lock.serves());
    }
}
