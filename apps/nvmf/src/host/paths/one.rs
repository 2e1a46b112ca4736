//! One path: its host, whether it serves, and since when the controllers of its former sessions are over.

use super::super::Host;
use super::super::failure::HostFailure;
use super::agreement::{Agreement, PathRefusal};
use super::options::PathsOptions;
use super::statistics::PathStatistics;
use super::table::Fence;
use crate::storage::Geometry;
use crate::wire::AnaState;
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_mempool::mutant;
use std::net::SocketAddr;

/// How a path is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathState {
    /// It has had no session yet, and none of its attempts has failed.
    Connecting,
    /// It has a session, and the namespace can be reached so by it.
    Connected(AnaState),
    /// Its session ended, or an attempt at one failed; others follow.
    Lost(HostFailure),
    /// It has a session with something else than the other paths.
    Refused(PathRefusal),
    /// It has given up.
    Failed(HostFailure),
    /// It was shut down.
    Stopped,
    /// It leads nowhere ([`super::Paths::retire_path`]).
    Vacant,
}

impl PathState {
    /// Requests may take it.
    #[must_use]
    pub fn serves(self) -> bool {
        matches!(self, Self::Connected(AnaState::Optimized | AnaState::NonOptimized))
    }

    /// It will not serve again.
    pub(super) fn is_final(self) -> bool {
        match self {
            Self::Connected(state) => state == AnaState::PersistentLoss,
            Self::Refused(refusal) => refusal.is_final(),
            Self::Failed(_) | Self::Stopped => true,
            Self::Connecting | Self::Lost(_) | Self::Vacant => false,
        }
    }

    /// Nothing that somebody would want to be told once more.
    fn is_like(self, other: Self) -> bool {
        match (self, other) {
            // One attempt after the other fails, each for its own reason.
            (Self::Lost(_), Self::Lost(_)) => true,
            (one, other) => one == other,
        }
    }
}

/// A path came, went, or is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// Which, counted from 0.
    pub path: u16,
    /// What it was when it was told of last.
    pub before: PathState,
    /// What it is.
    pub now: PathState,
    /// Changes of the medium that wait until its controller is over.
    pub waiting: u64,
}

/// Whether a path is to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It is tried whenever it has no session.
    Wanted,
    /// It serves while its session lasts, and is tried again only for what waits until its controller is over.
    Leaving,
    /// It leads nowhere.
    Vacant,
}

/// A host, and what others have to know of it.
pub(super) struct OnePath<P: Port> {
    host: Host<P>,
    used: Use,
    state: PathState,
    told: PathState,
    /// What was judged last, the session and the size, and what it came to.
    judged: Option<(u64, Geometry)>,
    refusal: Option<PathRefusal>,
    /// The session that lost a request, and so ends.
    ending: u64,
    statistics: PathStatistics,
}

impl<P: Port> OnePath<P> {
    pub(super) fn new(host: Host<P>) -> Self {
        let (state, statistics) = (PathState::Connecting, PathStatistics::default());
        Self { host, used: Use::Wanted, state, told: state, judged: None, refusal: None, ending: 0, statistics }
    }

    pub(super) fn is_vacant(&self) -> bool {
        self.used == Use::Vacant
    }

    /// It is to be had, and not had.
    pub(super) fn start(&mut self) {
        if self.used == Use::Wanted {
            self.host.start();
        }
    }

    /// A vacant one leads there from now on. What it counted for another address is nothing of this one's.
    pub(super) fn connect(&mut self, address: SocketAddr) {
        if self.host.address() != address {
            self.statistics = PathStatistics::default();
        }
        (self.used, self.state, self.told) = (Use::Wanted, PathState::Connecting, PathState::Connecting);
        (self.judged, self.refusal) = (None, None);
        self.host.start_at(address);
    }

    /// It is to be had no longer than its session lasts.
    pub(super) fn retire(&mut self) {
        if self.used == Use::Wanted {
            self.used = Use::Leaving;
        }
        if self.state == PathState::Connecting && self.host.is_stopped() {
            // It was not started: nobody has heard of it.
            self.told = PathState::Vacant;
        }
        self.leave();
    }

    /// It becomes vacant where nothing keeps it: no session, no request, and no change that waits until its controller is over. That its
    /// session is another one than the change's is what such a change goes by, so that its place is nobody else's before.
    pub(super) fn leave(&mut self) {
        let PathStatistics { waiting, outstanding, .. } = self.statistics;
        if self.used != Use::Leaving || self.host.is_ready() || waiting + outstanding > 0 {
            return;
        }
        self.host.shut_down();
        if self.host.is_stopped() {
            (self.used, self.state) = (Use::Vacant, PathState::Vacant);
        }
    }

    pub(super) fn host(&self) -> &Host<P> {
        &self.host
    }

    pub(super) fn host_mut(&mut self) -> &mut Host<P> {
        &mut self.host
    }

    pub(super) fn state(&self) -> PathState {
        self.state
    }

    pub(super) fn serves(&self) -> bool {
        self.state.serves() && self.ending != self.host.session()
    }

    /// A request was lost with a connection: the session ends, whether its host has heard of that or not. Returns what a change waits for.
    pub(super) fn ends(&mut self, path: u16) -> Fence {
        self.statistics.lost += 1;
        self.ending = self.host.session();
        // The next session begins by asking its controller for other limits: until then these are of the one that ends.
        Fence { path, session: self.ending, silence: self.host.session.found().limits().silence, since: None }
    }

    pub(super) fn statistics(&self) -> PathStatistics {
        self.statistics
    }

    pub(super) fn statistics_mut(&mut self) -> &mut PathStatistics {
        &mut self.statistics
    }

    /// Looks at what its host has come to. `alone`: no other path is connected.
    pub(super) fn look(&mut self, agreement: &mut Agreement, alone: bool) {
        if self.host.is_ready() {
            self.judge(agreement, alone);
        }
        let now = self.state_of_host();
        let before = core::mem::replace(&mut self.state, now);
        match (before.serves(), self.state.serves()) {
            (false, true) => self.statistics.came += 1,
            (true, false) if now != PathState::Stopped => self.statistics.went += 1,
            _ => {}
        }
    }

    /// What its host has come to.
    pub(super) fn state_of_host(&self) -> PathState {
        let lost = self.host.last_failure();
        match (self.refusal, self.host.failure()) {
            (Some(refusal), _) if refusal.is_final() || self.host.is_ready() => PathState::Refused(refusal),
            (_, Some(failure)) => PathState::Failed(failure),
            _ if self.host.is_ready() => PathState::Connected(self.host.ana_state()),
            _ if self.host.session.is_stopping() => PathState::Stopped,
            _ => lost.map_or(PathState::Connecting, PathState::Lost),
        }
    }

    /// It has a session: whether that is with the same namespace. Where a path that is used says that the size is another one, the others
    /// go by that.
    fn judge(&mut self, agreement: &mut Agreement, alone: bool) {
        let Some(geometry) = self.host.geometry() else { return };
        let (session, found) = (self.host.session(), self.host.session.found());
        let last = self.judged.replace((session, geometry));
        let refused_for_size = self.refusal.is_some_and(|refusal| !refusal.is_final());
        if last == Some((session, geometry)) && !refused_for_size {
            return;
        }
        let goes_on = last.is_some_and(|(before, _)| before == session) && self.refusal.is_none();
        if goes_on {
            return agreement.resized(geometry);
        }
        self.refusal = agreement.admit(found.namespace().identity(), geometry, alone).err();
        if self.refusal.is_some_and(PathRefusal::is_final) {
            self.host.shut_down();
        }
    }

    /// Nothing of ours can reach the controller of a lost session any more.
    pub(super) fn is_silent(&self, fence: &Fence) -> bool {
        self.host.session.has_ended(fence.session)
    }

    /// The rule: the controller of a session, which was sent a change of the medium and did not answer, executes it no more.
    pub(super) fn is_over(&self, fence: &Fence, options: &PathsOptions, now: Duration) -> bool {
        let is_back = options.reconnect_ends_former && self.host.session() > fence.session;
        let silenced = || fence.over_at(options.quiesce_margin).is_some_and(|at| now >= at);
        // Mutant: what was lost goes to another path while the controller may still execute it.
        options.storage_fences || is_back || silenced() || mutant!(host_paths_fence)
    }

    /// What it was told as, and what it is.
    pub(super) fn change(&mut self, path: u16) -> Option<PathChange> {
        if self.told.is_like(self.state) {
            return None;
        }
        let before = core::mem::replace(&mut self.told, self.state);
        Some(PathChange { path, before, now: self.state, waiting: self.statistics.waiting })
    }
}
