//! Which of the hosts of one controller this one is.

use super::failure::HostFailure;
use super::followers::Followers;
use super::following::Following;
use crate::wire::AnaState;

/// It has the admin queue, and maybe others that follow it; or it follows the one that has.
#[derive(Debug)]
pub(super) enum Role {
    Leads(Followers),
    Follows(Following),
}

impl Role {
    pub(super) fn follows(&self) -> bool {
        matches!(self, Self::Follows(_))
    }

    /// No follower has anything left of the session.
    pub(super) fn all_detached(&self) -> bool {
        if let Self::Leads(followers) = self { followers.all_detached() } else { true }
    }

    /// Every follower that takes part in the session is up.
    pub(super) fn is_settled(&self) -> bool {
        if let Self::Leads(followers) = self { followers.is_settled() } else { true }
    }

    /// A session is ready.
    pub(super) fn begin(&mut self) {
        match self {
            Self::Leads(followers) => followers.begin(),
            Self::Follows(following) => following.attached(),
        }
    }

    /// What the others know of the session has changed.
    pub(super) fn update(&mut self) {
        if let Self::Leads(followers) = self {
            followers.update();
        }
    }

    /// The controller refused a command because of the path.
    pub(super) fn refused(&mut self, state: AnaState) {
        match self {
            Self::Leads(followers) => followers.update(),
            Self::Follows(following) => following.refused(state),
        }
    }

    /// The session failed here.
    pub(super) fn failed(&mut self, failure: HostFailure) {
        if let Self::Follows(following) = self {
            following.failed(failure);
        }
    }

    /// The session ends.
    pub(super) fn end(&mut self) {
        if let Self::Leads(followers) = self {
            followers.end();
        }
    }

    /// All connections of this host are gone. `last`: there will be no other session.
    pub(super) fn closed(&mut self, last: bool) {
        match self {
            Self::Leads(followers) if last => followers.give_up(),
            Self::Leads(_) => {}
            Self::Follows(following) => following.closed(),
        }
    }
}
