//! What cores tell each other, by the reactors' inboxes.

use crate::job::Share;
use frwr_nvmf::{
    controller::TargetMessage,
    host::{FollowerOrder, FollowerReport},
};

/// What cores tell each other; data goes through the wire only.
#[derive(Debug)]
pub(super) enum Message {
    /// Between the cores of one target, whose numbers are those of their reactors.
    Target {
        /// Of which of its devices.
        device: u16,
        /// What.
        message: TargetMessage,
    },
    /// Between cores that share a host's controller and job.
    Host {
        /// In which of the jobs that such cores have.
        job: u16,
        /// Which of them says it.
        from: u16,
        /// What.
        news: News,
    },
}

/// From one host core to another.
#[derive(Debug)]
pub(super) enum News {
    /// To a follower, about the session.
    Order(FollowerOrder),
    /// To the first, about the session.
    Report(FollowerReport),
    /// To a follower: its part of the load begins.
    Begin(Share),
    /// To a follower: the job is over.
    Finish,
    /// To the first: a follower's part is over, and whether something was wrong.
    Done { failed: bool },
}
