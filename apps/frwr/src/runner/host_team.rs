//! Host cores that share one controller and one job: what they tell each other, by the reactors' inboxes.
//!
//! The first has the admin queue and the job. It writes the file, flushes and reads everything back alone; of the load that
//! follows every core with a queue gets a share. It stays until all others are done: they need its session.

use super::messages::{Message, News};
use crate::job::{Job, Share};
use frwr_engine::provider::Port;
use frwr_nvmf::host::Host;
use frwr_reactor::{CoreIndex, Outbox, SendError};
use std::collections::VecDeque;

/// Who has been told that the job is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Nobody,
    /// Those that have no part of the load.
    Idle,
    /// Something is wrong.
    Everyone,
}

/// A core's place among those that share a job. Members are counted from 0, which is the first.
#[derive(Debug)]
pub(super) struct Team {
    /// The reactor of member 0; the others follow it.
    first_core: u16,
    /// Which of the jobs that these cores have.
    job: u16,
    member: u16,
    members: u16,
    outgoing: VecDeque<(u16, News)>,
    /// What this core is to do, and has not begun.
    share: Option<Share>,
    finish: bool,
    /// Of the first: who has a part of the load.
    shares: Vec<u16>,
    /// Of the first: which followers were told that the job is over.
    told: Told,
    /// Of the first: who is done.
    done: Vec<bool>,
}

impl Team {
    pub(super) fn new(first_core: u16, job: u16, member: u16, members: u16) -> Self {
        let followers = usize::from(members.saturating_sub(1));
        // A few for each: what is to be said alternates with answers.
        let outgoing = VecDeque::with_capacity(4 * followers.max(1));
        Self {
            first_core,
            job,
            member,
            members,
            outgoing,
            share: None,
            finish: false,
            shares: Vec::with_capacity(followers),
            told: Told::Nobody,
            done: vec![false; followers],
        }
    }

    /// This core's number.
    pub(super) fn member(&self) -> u16 {
        self.member
    }

    pub(super) fn is_first(&self) -> bool {
        self.member == 0
    }

    /// News of another member.
    pub(super) fn hear<P: Port>(&mut self, from: u16, news: News, host: &mut Host<P>) {
        match news {
            News::Order(order) => host.follow(order),
            News::Report(report) => host.heard(from.saturating_sub(1), report),
            News::Begin(share) => self.share = Some(share),
            News::Finish => self.finish = true,
            News::Done { failed } => {
                if let Some(done) = usize::from(from).checked_sub(1).and_then(|at| self.done.get_mut(at)) {
                    *done = true;
                }
                self.finish |= failed;
            }
        }
    }

    /// Somebody wants this core's part to end: the first because the job is over, or a follower that found something wrong.
    pub(super) fn wants_end(&self) -> bool {
        self.finish
    }

    /// A follower was told its part of the load, and has not taken it.
    pub(super) fn has_share(&self) -> bool {
        self.share.is_some()
    }

    /// What a follower is to do.
    pub(super) fn take_share(&mut self) -> Option<Share> {
        self.share.take()
    }

    /// The load begins: every other member with a queue, counted from 0 behind the first, gets a part of it.
    pub(super) fn divide(&mut self, job: &mut Job, has_queue: impl Fn(u16) -> bool) {
        if !self.is_first() || self.members == 1 {
            return;
        }
        let with_queue: Vec<u16> = (1..self.members).filter(|member| has_queue(member - 1)).collect();
        let shares = job.divide(with_queue.len());
        for (member, share) in with_queue.into_iter().zip(shares) {
            self.shares.push(member);
            self.outgoing.push_back((member, News::Begin(share)));
        }
    }

    /// This core's part is over; asked until it says that the core may leave the session.
    pub(super) fn may_leave(&mut self, failed: bool) -> bool {
        if !self.is_first() {
            self.outgoing.push_back((0, News::Done { failed }));
            return true;
        }
        // Who has a part of the load comes to its end without being told, which by bytes may be later than ours.
        let told = if failed || self.finish { Told::Everyone } else { Told::Idle };
        if told > self.told {
            let shares = &self.shares;
            let finish = (1..self.members).filter(|member| told == Told::Everyone || !shares.contains(member));
            self.outgoing.extend(finish.map(|member| (member, News::Finish)));
            self.told = told;
        }
        self.done.iter().all(|done| *done)
    }

    /// Says what there is to say. A lane without room keeps it for the next iteration.
    pub(super) fn carry<P: Port>(&mut self, host: &mut Host<P>, outbox: &mut Outbox<Message>) {
        if self.members == 1 {
            return;
        }
        while let Some((to, news)) = self.outgoing.pop_front().or_else(|| self.next(host)) {
            let message = Message::Host { job: self.job, from: self.member, news };
            match outbox.send(CoreIndex(self.first_core + to), message) {
                Err(SendError::Full(Message::Host { news, .. })) => return self.outgoing.push_front((to, news)),
                // A core that is gone has ended the run; what comes back is what was sent.
                Ok(()) | Err(SendError::Full(_) | SendError::Closed(_) | SendError::NoSuchReactor(_)) => {}
            }
        }
    }

    fn next<P: Port>(&self, host: &mut Host<P>) -> Option<(u16, News)> {
        if self.is_first() {
            host.next_order().map(|(follower, order)| (follower + 1, News::Order(order)))
        } else {
            host.next_report().map(|report| (0, News::Report(report)))
        }
    }
}
