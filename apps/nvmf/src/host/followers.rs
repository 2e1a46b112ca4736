//! The side of the admin queue: followers on other cores are given their part of a session, and called back at its end.
//!
//! A session ends when the queues of all cores have: only then is the next one begun, as if one core had them all. The
//! controller never sees a host with two sessions, and no command of the old one can be executed behind its repetition.

use super::attachment::{Attachment, FollowerOrder, FollowerReport};
use super::limits::Limits;
use super::options::Admin;
use super::queues::{FIRST_IO_QUEUE, QueueOf};
use super::{Host, State};
use crate::wire::{Abort, Command};
use frwr_engine::provider::Port;
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
struct Abortion {
    follower: u16,
    queue_id: u16,
    command_id: u16,
}

/// The followers of a host.
#[derive(Debug)]
pub(super) struct Followers {
    places: Vec<Place>,
    /// In the order in which they were asked for: the admin queue has one Abort at a time. Bounded: a follower asks once for
    /// each of its commands.
    aborts: VecDeque<Abortion>,
    /// The one that was sent last, until its follower is told.
    sent: Option<Abortion>,
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
    fn is_settled(&self) -> bool {
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

    fn abort(&mut self, abortion: Abortion) {
        // There is room for every command; deadlines end the session where somebody asks for more.
        if self.aborts.len() < self.aborts.capacity() {
            self.aborts.push_back(abortion);
        }
    }
}

/// I/O queues of one of `hosts` hosts that share `granted`: as even as can be, the first ones get what is left over. The
/// first queue's identifier, and how many.
pub(super) fn share(granted: u16, hosts: u16, index: u16) -> (u16, u16) {
    let (each, over) = (granted / hosts.max(1), granted % hosts.max(1));
    (FIRST_IO_QUEUE + index * each + index.min(over), each + u16::from(index < over))
}

impl<P: Port> Host<P> {
    /// The next order for a follower, and for which, counted from 0. To be asked for after every poll where there are
    /// followers; each order has to reach its follower's [`Host::follow`].
    pub fn next_order(&mut self) -> Option<(u16, FollowerOrder)> {
        if let Some(Abortion { follower, queue_id, command_id }) = self.followers.sent.take() {
            return Some((follower, FollowerOrder::Aborting { session: self.session(), queue_id, command_id }));
        }
        let index = self.followers.places.iter().position(|place| place.ordered)?;
        let place = self.followers.places.get_mut(index)?;
        place.ordered = false;
        if place.standing == Standing::Offered {
            place.standing = Standing::Attaching;
        }
        // Followers are counted in 16 bit.
        let index = index as u16;
        let order = match self.state {
            State::Failed(failure) => FollowerOrder::GiveUp(failure),
            State::Ready => FollowerOrder::Attach(self.attachment(index)?),
            _ => FollowerOrder::Detach { session: self.session() },
        };
        Some((index, order))
    }

    /// I/O queues of a follower in the session that goes on, or did last.
    #[must_use]
    pub fn follower_queues(&self, follower: u16) -> u16 {
        let (_, queues) = share(self.granted, self.followers.count() + 1, follower.saturating_add(1));
        if follower < self.followers.count() { queues } else { 0 }
    }

    /// Takes a follower's report.
    pub fn heard(&mut self, follower: u16, report: FollowerReport) {
        let (current, ready) = (self.session(), self.state == State::Ready);
        let Some(place) = self.followers.places.get_mut(usize::from(follower)) else { return };
        match report {
            FollowerReport::Attached { session } if session == current && ready => {
                place.standing = Standing::Attached;
                self.settle();
            }
            FollowerReport::Detached { session } if session == current => {
                *place = Place::default();
                self.followers.aborts.retain(|abortion| abortion.follower != follower);
                if ready {
                    self.settle();
                }
            }
            // As if the queue were this host's.
            FollowerReport::Failed { session, failure } if session == current && ready => {
                self.ends_elsewhere = true;
                self.fail(failure);
            }
            FollowerReport::Path { session, state } if session == current && ready => {
                self.ana.set(state, self.context.time.watched());
                self.followers.update();
            }
            FollowerReport::Abort { session, queue_id, command_id } if session == current && ready => {
                self.followers.abort(Abortion { follower, queue_id, command_id });
                self.step_follower_aborts();
            }
            // Of a session that ends or has ended.
            FollowerReport::Attached { .. }
            | FollowerReport::Detached { .. }
            | FollowerReport::Failed { .. }
            | FollowerReport::Path { .. }
            | FollowerReport::Abort { .. } => {}
        }
    }

    /// The session, counted from 1; 0 before the first. A follower's is the one that it was told of last.
    #[must_use]
    pub fn session(&self) -> u64 {
        self.following.as_ref().map_or(self.statistics.sessions, |following| following.session())
    }

    /// Where all queues of all cores are up, earlier failures count no more, but for the pause behind the next one
    /// ([`Host::back_off`]).
    pub(super) fn settle(&mut self) {
        if self.followers.is_settled() {
            self.attempts = 0;
            self.lost_at = None;
            // Followers may leave a session that goes on.
            self.settled_at.get_or_insert(self.context.time.now());
        }
    }

    fn attachment(&self, follower: u16) -> Option<Attachment> {
        let (first_queue, queues) = share(self.granted, self.followers.count() + 1, follower + 1);
        Some(Attachment {
            session: self.session(),
            limits: Limits { queues, ..self.limits },
            geometry: self.geometry?,
            ana: self.ana.state(),
            first_queue,
        })
    }

    /// Sends the next Abort of a follower; where there is no room, the next poll tries again.
    pub(super) fn step_follower_aborts(&mut self) {
        if self.followers.sent.is_none()
            && let Some(&Abortion { queue_id, command_id, .. }) = self.followers.aborts.front()
            && self.send_abort_of(queue_id, command_id)
        {
            self.followers.sent = self.followers.aborts.pop_front();
        }
    }

    /// Asks the controller to abort a command; false where that cannot be said now.
    pub(super) fn send_abort_of(&mut self, queue_id: u16, command_id: u16) -> bool {
        let slot = self.admin_slot(Admin::Abort);
        if self.context.transport.commands().is_in_flight(slot) {
            return false;
        }
        let sent = self.send(QueueOf::Admin, slot, Command::Abort(Abort { queue_id, command_id }), None).is_ok();
        if sent {
            self.statistics.aborts += 1;
            // The command itself has half of it, wherever its queue is, and says better what was wrong.
            self.chores.abort_by =
                Some(self.context.time.deadline_in(self.context.options.step_timeout.saturating_mul(2)));
        }
        sent
    }
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
