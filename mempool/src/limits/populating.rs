//! Who populates memory now: regions of several cores are made at the same time, and what each finds free is the same memory.

use super::{Limits, MemoryRoom};
use std::sync::{Condvar, Mutex, PoisonError};

/// Bytes that threads of this process are populating, and who waits for them.
static UNDER_WAY: Mutex<u64> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// A promise of memory to one thread, until it has populated it.
#[derive(Debug)]
pub(crate) struct Reservation(u64);

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
        *under_way = under_way.saturating_sub(self.0);
        ENDED.notify_all();
    }
}

/// Promises `bytes` that are to be populated next. While others populate, and what they leave is not known yet to suffice, it waits
/// for them.
///
/// # Errors
/// What there is, where that is less: populating more would end the process by SIGKILL.
pub(crate) fn reserve(bytes: u64) -> Result<Reservation, MemoryRoom> {
    reserve_in(bytes, || Limits::of_process().memory())
}

fn reserve_in(bytes: u64, mut room: impl FnMut() -> Option<MemoryRoom>) -> Result<Reservation, MemoryRoom> {
    let mut under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    // Where nobody says, the kernel is asked by doing it.
    while let Some(room) = room() {
        // What others have populated of theirs already is counted twice: that only makes this one wait.
        if under_way.saturating_add(bytes) <= room.bytes {
            break;
        }
        if *under_way == 0 {
            return Err(room);
        }
        under_way = ENDED.wait(under_way).unwrap_or_else(PoisonError::into_inner);
    }
    *under_way = under_way.saturating_add(bytes);
    Ok(Reservation(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryBound, MemoryRoom};
    use super::reserve_in;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    /// Two threads that both see room for one: one of them waits, sees what the other has left, and is refused. Neither is killed.
    #[test]
    fn two_that_find_the_same_memory_do_not_both_take_it() {
        const EACH: u64 = 60;
        let left = AtomicU64::new(100);
        let room = || Some(MemoryRoom { bytes: left.load(SeqCst), bound: MemoryBound::Machine });
        let taken = std::thread::scope(|scope| {
            let populate = || {
                let reservation = reserve_in(EACH, room)?;
                left.fetch_sub(EACH, SeqCst);
                drop(reservation);
                Ok::<_, MemoryRoom>(())
            };
            let threads = [scope.spawn(populate), scope.spawn(populate)];
            threads.map(|thread| thread.join().unwrap())
        });
        let refused: Vec<_> = taken.iter().filter_map(|taken| taken.as_ref().err()).collect();
        assert_eq!(refused.len(), 1, "{taken:?}");
        assert_eq!(refused[0].bytes, 40);
        // Where nobody says how much there is, nothing is refused.
        assert!(reserve_in(u64::MAX, || None).is_ok());
        assert!(reserve_in(40, room).is_ok() && reserve_in(41, room).is_err());
    }
}
