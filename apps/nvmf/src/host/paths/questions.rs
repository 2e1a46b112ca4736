//! What a caller asks of its paths.

use super::Paths;
use super::one::{OnePath, PathChange, PathState};
use super::statistics::PathStatistics;
use crate::host::Host;
use crate::host::failure::HostFailure;
use crate::host::statistics::HostStatistics;
use crate::storage::Geometry;
use frwr_engine::provider::Port;

impl<P: Port> Paths<P> {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u16 {
        // At most MAX_PATHS.
        self.paths.len() as u16
    }

    /// Reads and writes go to a controller at once.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match &*self.paths {
            [one] => one.host().is_ready(),
            all => !self.stopping && all.iter().any(OnePath::serves),
        }
    }

    /// As [`Host::is_stopped`], of all of them.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.paths.iter().all(|path| path.host().is_stopped())
    }

    /// Why none of them will serve again, where a host says it; of one path, [`Host::failure`]. See [`Paths::serves_no_more`].
    #[must_use]
    pub fn failure(&self) -> Option<HostFailure> {
        if let [one] = &*self.paths {
            return one.host().failure();
        }
        let failure = |path: &OnePath<P>| path.host().failure().or(path.host().last_failure());
        self.paths.iter().find_map(failure).filter(|_| self.serves_no_more())
    }

    /// None of several paths will serve again: each has given up, was refused, or says that it has lost the namespace for ever.
    #[must_use]
    pub fn serves_no_more(&self) -> bool {
        self.paths.len() > 1 && !self.stopping && self.all_are_final()
    }

    /// Size of the namespace; `None` before the first session.
    #[must_use]
    pub fn geometry(&self) -> Option<Geometry> {
        match &*self.paths {
            [one] => one.host().geometry(),
            _ => self.agreement.geometry(),
        }
    }

    /// Requests that may be submitted now.
    #[must_use]
    pub fn free_requests(&self) -> usize {
        match &*self.paths {
            [one] => one.host().free_requests(),
            _ => self.table.available(),
        }
    }

    /// Requests in hand.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        match &*self.paths {
            // At most 2^16.
            [one] => one.host().statistics().outstanding as usize,
            _ => self.table.outstanding(),
        }
    }

    /// How a path is doing, the only one too; `None` behind the last.
    #[must_use]
    pub fn state(&self, path: u16) -> Option<PathState> {
        // What has no other beside it is compared with none, and its host says all.
        let state = if self.paths.len() == 1 { OnePath::state_of_host } else { OnePath::state };
        self.paths.get(usize::from(path)).map(state)
    }

    /// The next path that is another one than it was told of last, where there are several. What changed more than once since then is told
    /// once.
    pub fn next_change(&mut self) -> Option<PathChange> {
        if self.paths.len() == 1 {
            return None;
        }
        (0..).zip(&mut self.paths).find_map(|(at, path)| path.change(at))
    }

    /// What a path has done, where there are several.
    #[must_use]
    pub fn path_statistics(&self, path: u16) -> PathStatistics {
        self.paths.get(usize::from(path)).map_or(PathStatistics::default(), OnePath::statistics)
    }

    /// What the hosts of all paths counted together. Their requests are those that paths were handed.
    #[must_use]
    pub fn statistics(&self) -> HostStatistics {
        let of_hosts = self.paths.iter().map(|path| path.host().statistics());
        of_hosts.reduce(|sum, one| sum + one).unwrap_or_default()
    }

    /// The hosts, for tools.
    pub fn hosts(&self) -> impl Iterator<Item = &Host<P>> {
        self.paths.iter().map(OnePath::host)
    }

    /// The host of a path, for what is its own: its engine, and its followers on other cores where it is the only path. Its requests and
    /// completions are those of the paths.
    pub fn host_mut(&mut self, path: u16) -> Option<&mut Host<P>> {
        self.paths.get_mut(usize::from(path)).map(OnePath::host_mut)
    }
}
