//! What commands of all cores look at: one word while nothing is held, and a table of hosts otherwise. It has one writer at a time, who
//! holds the lock of the book, and readers that wait for nobody.

use super::rules::{Access, Standing, permits};
use super::state::{HostId, MAX_REGISTRANTS, State};
use crate::wire::ReservationType;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// A host takes two words.
const WORDS: usize = 2;
/// Of one table.
const TABLE: usize = WORDS * MAX_REGISTRANTS;
/// In place of the holder's number.
const NO_HOLDER: u8 = u8::MAX;
const _: () = assert!(MAX_REGISTRANTS < NO_HOLDER as usize);

/// The reservation of one namespace, as it is in force on all cores.
///
/// The word says the type in its lowest byte (0: nothing is held), then how many hosts are registered, then which of them is the holder,
/// and in its upper half a version. There are two tables, and the version says which one counts: the other one is written first. So a
/// reader that finds the same word behind a table as before it has read what belonged together, and one that does not has another one to
/// read already.
#[derive(Debug, Default)]
pub(in super::super) struct Published {
    word: AtomicU64,
    /// Two tables, or nothing where nothing is ever held.
    tables: Box<[AtomicU64]>,
}

fn halves(host: &HostId) -> [u64; WORDS] {
    let whole = u128::from_le_bytes(*host);
    // The lower and the upper half.
    [whole as u64, (whole >> 64) as u64]
}

impl Published {
    pub(super) fn new() -> Self {
        Self { word: AtomicU64::new(0), tables: (0..2 * TABLE).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Somebody holds a reservation. This is all that commands of other namespaces look at; a command that arrives behind the answer to
    /// the one that acquired it finds it, since the answer left behind the store.
    #[inline]
    pub(in super::super) fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) & 0xff != 0
    }

    fn table(&self, version: u64) -> &[AtomicU64] {
        let (even, odd) = self.tables.split_at(self.tables.len() / 2);
        if version & 1 == 0 { even } else { odd }
    }

    /// A command of this host may be executed.
    #[cold]
    pub(in super::super) fn permits(&self, host: &HostId, access: Access) -> bool {
        loop {
            let word = self.word.load(Ordering::Acquire);
            let permitted = self.permits_by(word, host, access);
            fence(Ordering::Acquire);
            if self.word.load(Ordering::Relaxed) == word {
                return permitted;
            }
        }
    }

    fn permits_by(&self, word: u64, host: &HostId, access: Access) -> bool {
        let [kind, count, holder, ..] = word.to_le_bytes();
        let Some(kind) = ReservationType::from_wire(kind) else { return true };
        let wanted = halves(host);
        let (known, _) = self.table(word >> 32).as_chunks::<WORDS>();
        let is_it =
            |[low, high]: &[AtomicU64; WORDS]| [low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)] == wanted;
        let standing = match known.iter().take(count.into()).position(is_it) {
            None => Standing::Other,
            Some(at) if kind.is_held_by_all() || at == usize::from(holder) => Standing::Holder,
            Some(_) => Standing::Registrant,
        };
        permits(kind, access, standing)
    }

    /// This is in force on all cores from now on. For who has the lock.
    pub(super) fn publish(&self, state: &State) {
        let version = (self.word.load(Ordering::Relaxed) >> 32).wrapping_add(1) & u64::from(u32::MAX);
        // Who reads something of what follows finds another word than before.
        fence(Ordering::Release);
        let (places, _) = self.table(version).as_chunks::<WORDS>();
        for (place, registrant) in places.iter().zip(&state.registrants) {
            for (word, half) in place.iter().zip(halves(&registrant.host)) {
                word.store(half, Ordering::Relaxed);
            }
        }
        let kind = state.held.map_or(0, |held| held.kind as u8);
        let is_holder =
            |held: super::state::Held| state.registrants.iter().position(|registrant| registrant.host == held.holder);
        // Numbers are below MAX_REGISTRANTS.
        let holder = state.held.and_then(is_holder).map_or(NO_HOLDER, |at| at as u8);
        let count = state.registrants.len() as u8;
        let word = u64::from_le_bytes([kind, count, holder, 0, 0, 0, 0, 0]) | version << 32;
        self.word.store(word, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::Access;
    use super::super::state::{HostId, Request, State};
    use super::Published;
    use crate::wire::{AcquireAction, PersistChange, RegisterAction, ReservationType};
    use std::sync::atomic::{AtomicBool, Ordering};

    fn reserved(first: HostId, second: HostId, kind: ReservationType) -> State {
        let mut state = State::default();
        for host in [first, second] {
            let (action, persist) = (RegisterAction::Register, PersistChange::None);
            state.apply(&host, Request::Register { action, ignore_key: false, persist }, (0, 1), false).unwrap();
        }
        let acquire = Request::Acquire { action: AcquireAction::Acquire, kind };
        state.apply(&first, acquire, (1, 0), false).unwrap();
        state
    }

    #[test]
    fn what_is_published_permits_what_the_state_does() {
        let (published, hosts) = (Published::new(), [[1; 16], [2; 16], [3; 16]]);
        assert!(!published.is_held());
        for kind in ReservationType::ALL {
            let state = reserved(hosts[0], hosts[1], kind);
            published.publish(&state);
            assert!(published.is_held());
            for host in &hosts {
                for access in [Access::Read, Access::Write] {
                    assert_eq!(published.permits(host, access), state.permits(host, access), "{kind:?} {access:?}");
                }
            }
        }
        published.publish(&State::default());
        assert!(!published.is_held() && published.permits(&hosts[2], Access::Write));
        assert!(!Published::default().is_held());
    }

    /// Two reservations in turn: one host may write in both of them, another one in none.
    #[test]
    fn readers_see_no_mixture_of_two_reservations() {
        let (both, other) = ([1; 16], [9; 16]);
        let turns = [
            reserved(both, [2; 16], ReservationType::ExclusiveAccess),
            reserved([3; 16], both, ReservationType::ExclusiveAccessRegistrants),
        ];
        let (published, ends) = (Published::new(), AtomicBool::new(false));
        published.publish(&turns[0]);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut asked = 0_u32;
                while !ends.load(Ordering::Relaxed) || asked < 1000 {
                    assert!(published.permits(&both, Access::Write));
                    assert!(!published.permits(&other, Access::Read));
                    asked += 1;
                }
            });
            for turn in 0..20_000 {
                published.publish(&turns[turn % 2]);
            }
            ends.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
    }
}
