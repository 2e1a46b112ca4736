//! Hosts on several cores with queues in one controller. The one with the admin queue gives the others their part of a
//! session, and calls them back at its end; they take requests, cut, bounce and send them as every host, and ask it for what
//! needs the admin queue.
//!
//! A session ends when the queues of all cores have: only then is the next one begun, as if one core had them all. The
//! controller never sees a host with two sessions, and no command of the old one can be executed behind its repetition.

use super::Host;
use super::attachment::{Attachment, FollowerOrder, FollowerReport};
use super::followers::ToAbort;
use super::following::Following;
use super::options::{HostError, HostOptions};
use super::role::Role;
use super::session::After;
use frwr_engine::Engine;
use frwr_engine::provider::Port;
use frwr_mempool::DeviceMemory;

impl<P: Port> Host<P> {
    /// A host without an admin queue, which takes part in the sessions of another one, made with
    /// [`HostOptions::followers`]. Memory and options as in [`Host::new`]; address, names, identifier, namespace and depths
    /// have to be those of the other one. It brings its queues up when [`Host::follow`] tells it of a session.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn follower(engine: Engine<P>, memory: DeviceMemory, options: HostOptions) -> Result<Self, HostError> {
        Self::with_role(engine, memory, options.followers(0), Role::Follows(Following::default()))
    }

    /// Takes an order of the host that has the admin queue. Nothing happens where this host has an admin queue itself.
    pub fn follow(&mut self, order: FollowerOrder) {
        match order {
            FollowerOrder::Attach(attachment) => self.attach(&attachment),
            FollowerOrder::Detach { session } => self.detach(session),
            FollowerOrder::Aborting { session, queue_id, command_id } => {
                if self.session() == session {
                    self.io.abort_told((queue_id, command_id), self.session.queues(), &self.context);
                }
            }
            FollowerOrder::GiveUp(failure) => {
                if self.role.follows() && !self.session.is_over() {
                    self.session.give_up(failure, &mut self.context);
                }
            }
        }
    }

    /// The next report to the host that has the admin queue. To be asked for after every poll; each has to reach the other's
    /// [`Host::heard`].
    pub fn next_report(&mut self) -> Option<FollowerReport> {
        if let Role::Follows(following) = &mut self.role { following.next_report() } else { None }
    }

    /// It was told of a session in which the controller granted no queue for it.
    #[must_use]
    pub fn has_no_queue(&self) -> bool {
        self.role.follows() && self.session() > 0 && self.session.found().limits().queues == 0
    }

    fn attach(&mut self, attachment: &Attachment) {
        let Role::Follows(following) = &mut self.role else { return };
        if following.session() == attachment.session {
            // Its queues may be gone already; then the other host hears of it.
            if following.is_engaged() {
                self.session.learn(attachment, &self.context);
            }
            return;
        }
        let engaged = self.session.is_detached() && attachment.limits.queues > 0;
        following.begin(attachment.session, engaged);
        self.session.learn(attachment, &self.context);
        if engaged && let Err(failure) = self.session.attach(attachment, &mut self.context) {
            self.fail(failure);
        }
    }

    fn detach(&mut self, session: u64) {
        let Role::Follows(following) = &self.role else { return };
        if following.is_engaged() && following.session() == session && !self.session.is_closing() {
            self.session.ended_elsewhere();
            self.close(if self.session.is_stopping() { After::Stop } else { After::Retry });
        }
    }

    /// The next order for a follower, and for which, counted from 0. To be asked for after every poll where there are
    /// followers; each order has to reach its follower's [`Host::follow`].
    pub fn next_order(&mut self) -> Option<(u16, FollowerOrder)> {
        let session = self.session();
        let Role::Leads(followers) = &mut self.role else { return None };
        if let Some(ToAbort { follower, queue_id, command_id }) = followers.tell_abort() {
            return Some((follower, FollowerOrder::Aborting { session, queue_id, command_id }));
        }
        let index = followers.next()?;
        let order = match self.session.failure() {
            Some(failure) => FollowerOrder::GiveUp(failure),
            None if self.session.is_ready() => {
                let found = self.session.found();
                let (first_queue, queues) = followers.share(found.granted(), index);
                FollowerOrder::Attach(Attachment {
                    session,
                    limits: found.limits().with_queues(queues),
                    geometry: found.namespace().geometry()?,
                    ana: found.ana().state(),
                    first_queue,
                })
            }
            None => FollowerOrder::Detach { session },
        };
        Some((index, order))
    }

    /// I/O queues of a follower in the session that goes on, or did last.
    #[must_use]
    pub fn follower_queues(&self, follower: u16) -> u16 {
        match &self.role {
            Role::Leads(followers) if follower < followers.count() => {
                followers.share(self.session.found().granted(), follower).1
            }
            _ => 0,
        }
    }

    /// Takes a follower's report.
    pub fn heard(&mut self, follower: u16, report: FollowerReport) {
        let (current, ready) = (self.session(), self.session.is_ready());
        let Role::Leads(followers) = &mut self.role else { return };
        if follower >= followers.count() {
            return;
        }
        match report {
            FollowerReport::Attached { session } if session == current && ready => {
                followers.attached(follower);
                self.settle();
            }
            FollowerReport::Detached { session } if session == current => {
                followers.detached(follower);
                if ready {
                    self.settle();
                }
            }
            // As if the queue were this host's.
            FollowerReport::Failed { session, failure } if session == current && ready => {
                self.session.ended_elsewhere();
                self.fail(failure);
            }
            FollowerReport::Path { session, state } if session == current && ready => {
                followers.update();
                self.session.told(state, &self.context);
            }
            FollowerReport::Abort { session, queue_id, command_id } if session == current && ready => {
                followers.abort(ToAbort { follower, queue_id, command_id });
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
}
