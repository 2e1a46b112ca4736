//! The side of the admin queue: followers on other cores are given their part of a session, and called back at its end.
//!
//! A session ends when the queues of all cores have: only then is the next one begun, as if one core had them all. The
//! controller never sees a host with two sessions, and no command of the old one can be executed behind its repetition.

use super::queues::FIRST_IO_QUEUE;
use std::collections::VecDeque;

/// How a follower stands to the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    /// It has no queue in it.
    #[default]
    Detached,
    /// An attachment waits to be taken by the caller.
    Offered,
    /// It was told, and has not answered.
    Attaching,
    /// Its queues are up.
    Attached,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    standing: Standing,
    /// An order is to be taken by the caller.
    ordered: bool,
}

/// A follower's command that is to be aborted.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToAbort {
    pub(super) follower: u16,
    pub(super) queue_id: u16,
    pub(super) command_id: u16,
}

/// The followers of a host.
#[derive(Debug)]
pub(super) struct Followers {
    places: Vec<Place>,
    /// In the order in which they were asked for: the admin queue has one Abort at a time. Bounded: a follower asks once for
    /// each of its commands.
    aborts: VecDeque<ToAbort>,
    /// The one that was sent last, until its follower is told.
    sent: Option<ToAbort>,
}

impl Followers {
    /// `commands`: of I/O, of each follower.
    pub(super) fn new(count: u16, commands: u16) -> Self {
        let aborts = usize::from(count) * usize::from(commands);
        Self { places: vec![Place::default(); count.into()], aborts: VecDeque::with_capacity(aborts), sent: None }
    }

    pub(super) fn count(&self) -> u16 {
        // Made from as many.
        self.places.len() as u16
    }

    /// No follower has anything left of the session.
    pub(super) fn all_detached(&self) -> bool {
        self.places.iter().all(|place| place.standing == Standing::Detached)
    }

    /// Every follower that takes part in the session is up.
    pub(super) fn is_settled(&self) -> bool {
        self.places.iter().all(|place| matches!(place.standing, Standing::Detached | Standing::Attached))
    }

    /// A session is ready.
    pub(super) fn begin(&mut self) {
        self.places.fill(Place { standing: Standing::Offered, ordered: true });
        self.forget_aborts();
    }

    /// What an attachment says has changed.
    pub(super) fn update(&mut self) {
        for place in self.places.iter_mut().filter(|place| place.standing != Standing::Detached) {
            place.ordered = true;
        }
    }

    /// The session ends: who was told of it is told.
    pub(super) fn end(&mut self) {
        for place in &mut self.places {
            if place.standing == Standing::Offered {
                place.standing = Standing::Detached;
            }
            place.ordered = place.standing != Standing::Detached;
        }
        self.forget_aborts();
    }

    fn forget_aborts(&mut self) {
        self.aborts.clear();
        self.sent = None;
    }

    /// There will be no other session.
    pub(super) fn give_up(&mut self) {
        self.places.iter_mut().for_each(|place| place.ordered = true);
    }

    /// Which I/O queues a follower gets of so many: the first one's identifier, and how many.
    pub(super) fn share(&self, granted: u16, follower: u16) -> (u16, u16) {
        share(granted, self.count() + 1, follower.saturating_add(1))
    }

    /// An order is to be taken, by which follower; one that was offered an attachment is told it now.
    pub(super) fn next(&mut self) -> Option<u16> {
        let (index, place) = (0..).zip(&mut self.places).find(|(_, place)| place.ordered)?;
        place.ordered = false;
        if place.standing == Standing::Offered {
            place.standing = Standing::Attaching;
        }
        Some(index)
    }

    /// All queues of a follower are up.
    pub(super) fn attached(&mut self, follower: u16) {
        if let Some(place) = self.places.get_mut(usize::from(follower)) {
            place.standing = Standing::Attached;
        }
    }

    /// A follower has nothing left of the session.
    pub(super) fn detached(&mut self, follower: u16) {
        if let Some(place) = self.places.get_mut(usize::from(follower)) {
            *place = Place::default();
        }
        self.aborts.retain(|abort| abort.follower != follower);
    }

    /// A follower wants a command aborted.
    pub(super) fn abort(&mut self, abort: ToAbort) {
        // There is room for every command; deadlines end the session where somebody asks for more.
        if self.aborts.len() < self.aborts.capacity() {
            self.aborts.push_back(abort);
        }
    }

    /// The next command that is to be aborted, unless a follower has to be told of another one first.
    pub(super) fn next_abort(&self) -> Option<ToAbort> {
        self.aborts.front().filter(|_| self.sent.is_none()).copied()
    }

    /// That Abort was sent.
    pub(super) fn abort_sent(&mut self) {
        self.sent = self.aborts.pop_front();
    }

    /// Takes the Abort that a follower is to be told of.
    pub(super) fn tell_abort(&mut self) -> Option<ToAbort> {
        self.sent.take()
    }
}

/// I/O queues of one of `hosts` hosts that share `granted`: as even as can be, the first ones get what is left over. The
/// first queue's identifier, and how many.
pub(super) fn share(granted: u16, hosts: u16, index: u16) -> (u16, u16) {
    let (each, over) = (granted / hosts.max(1), granted % hosts.max(1));
    (FIRST_IO_QUEUE + index * each + index.min(over), each + u16::from(index < over))
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn queues_are_shared_evenly_and_each_has_one_owner() {
        for (granted, hosts) in [(1, 1), (1, 3), (3, 2), (7, 3), (8, 4), (16, 1), (4096, 256)] {
            let mut next = 1;
            for index in 0..hosts {
                let (first, count) = share(granted, hosts, index);
                assert_eq!(first, next);
                assert!(count.abs_diff(granted / hosts) <= 1);
                next += count;
            }
            assert_eq!(next, granted + 1);
        }
    }
}
