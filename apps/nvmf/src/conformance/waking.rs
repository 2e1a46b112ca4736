//! **Waking** of [`Storage`](crate::storage::Storage): a core that sleeps over operations.

use super::{
    outcome::{Outcome, broken, ensure, not_shown},
    trial::Trial,
    way::{TURN, Way},
};
use crate::storage::{Operation, Storage};
use core::{
    sync::atomic::{AtomicBool, Ordering},
    task::Waker,
};
use rustix::{
    event::{Timespec, epoll},
    io::Errno,
};
use std::{os::fd::OwnedFd, sync::Arc, task::Wake};

const ROUNDS: u64 = 64;
/// Operations of a round, at most.
const MANY: u64 = 8;

#[derive(Default)]
struct Called(AtomicBool);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// What a core hears while it sleeps.
struct Ears {
    called: Arc<Called>,
    /// Has the storage's descriptor, if it has one.
    epoll: Option<OwnedFd>,
}

impl Ears {
    /// Told to a storage, as a target does.
    fn of(storage: &mut dyn Storage) -> Outcome<Self> {
        let called = Arc::<Called>::default();
        storage.wakes(&Waker::from(Arc::clone(&called)));
        let epoll = || {
            let Some(descriptor) = storage.descriptor() else { return Ok(None) };
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET);
            epoll::add(&epoll, descriptor, data, flags)?;
            Ok(Some(epoll))
        };
        let epoll =
            epoll().map_err(|error: Errno| broken(&format!("its descriptor is nothing to wait for: {error}")))?;
        Ok(Self { called, epoll })
    }

    fn is_called(&self) -> bool {
        self.called.0.swap(false, Ordering::Acquire)
    }

    /// Without waiting for it.
    fn sees_descriptor(&self) -> bool {
        let mut told = Vec::with_capacity(1);
        let told = rustix::buffer::spare_capacity(&mut told);
        self.epoll.as_ref().is_some_and(|epoll| epoll::wait(epoll, told, Some(&Timespec::default())) != Ok(0))
    }

    /// Until it is woken; looking so many times.
    fn sleep(&self, patience: u64) -> Outcome {
        for turn in 0..patience {
            if self.is_called() {
                return Ok(());
            }
            if turn % TURN == TURN - 1 {
                if self.sees_descriptor() {
                    return Ok(());
                }
                std::thread::yield_now();
            }
        }
        Err(broken(&format!("who slept was not woken, in {patience} looks")))
    }
}

/// Armed, polled once more and flushed, as a reactor does it before it sleeps, and never polled while it sleeps.
pub(super) fn who_sleeps_is_woken_by_what_ends(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let ears = Ears::of(way.storage())?;
    let mut sleeps = false;
    for round in 0..ROUNDS {
        for lba in 0..=round % MANY {
            let buffer = lba as usize * way.block_bytes();
            if way.submit(Operation::Write { lba, blocks: 1, buffer }).is_none() {
                break;
            }
        }
        way.flush();
        sleeps |= sleep_over(&mut way, &ears)?;
    }
    if sleeps { Ok(()) } else { not_shown("it is polled while it has operations") }
}

/// Until all has ended. Whether it may sleep meanwhile.
fn sleep_over(way: &mut Way, ears: &Ears) -> Outcome<bool> {
    let (mut sleeps, mut silent) = (false, 0);
    while way.in_flight() > 0 {
        if !way.storage().arm() {
            way.finish()?;
            break;
        }
        sleeps = true;
        let ended = way.poll()?;
        way.flush();
        silent = if ended.is_empty() { silent + 1 } else { 0 };
        ensure!(silent < way.patience(), "{} operations never ended, woken {silent} times", way.in_flight());
        if ended.is_empty() && way.storage().rests() {
            ears.sleep(way.patience())?;
        }
    }
    Ok(sleeps)
}
