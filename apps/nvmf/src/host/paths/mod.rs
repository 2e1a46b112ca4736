//! Several paths to one namespace: a host for each, and the rule of what is sent again where.
//!
//! Requests take a path by how the namespace can be reached by it, and by the room in its queues. What a path has not answered when its
//! session ends comes back here. Reads go to another path at once: the keys of their memory died with the connection. Changes of the medium
//! wait until the controller that was sent them executes them no more ([`PathsOptions`]).
//!
//! Poll-style as [`Host`], with time as an argument; nothing is allocated once it was made.

mod agreement;
mod calls;
mod choice;
mod failover;
mod one;
mod options;
mod places;
mod questions;
mod statistics;
mod table;

pub use agreement::PathRefusal;
pub use one::{PathChange, PathState};
pub use options::{MAX_PATHS, PathPolicy, PathsError, PathsOptions};
pub use statistics::PathStatistics;

use super::{Host, ReauthenticateError};
use agreement::Agreement;
use core::time::Duration;
use frwr_engine::gather::MemoryId;
use frwr_engine::provider::Port;
use frwr_engine::{MemoryAccess, WatchedClock};
use frwr_mempool::DeviceMemory;
use one::OnePath;
use table::Table;

/// Several paths to one namespace, or one. One core owns them.
///
/// One path is its host and nothing beside it: that sends again by itself what it lost, and all calls go there as they are.
pub struct Paths<P: Port> {
    paths: Vec<OnePath<P>>,
    table: Table,
    agreement: Agreement,
    options: PathsOptions,
    clock: WatchedClock,
    now: Duration,
    /// Since when no path serves, in watched time.
    none_since: Option<Duration>,
    /// The path that was taken last.
    last: usize,
    /// Whose turn it is, where vacant paths are polled.
    turn: usize,
    stopping: bool,
}

impl<P: Port> Paths<P> {
    /// Paths over hosts that were not started, all made for the same namespace of the same subsystem under the same name, each with its own
    /// address and its own engine, of which the depth of the deepest is that of all together. Memory for reads and writes is declared by
    /// [`Paths::add_memory`], to all of them.
    ///
    /// # Errors
    /// [`PathsError`].
    pub fn new(hosts: Vec<Host<P>>, options: PathsOptions) -> Result<Self, PathsError> {
        check(&hosts)?;
        let mut paths: Vec<_> = hosts.into_iter().map(OnePath::new).collect();
        let alone = paths.len() == 1;
        let depth = paths.iter().map(|path| path.host().context.options.io_commands()).max();
        if !alone {
            paths.iter_mut().for_each(|path| path.host_mut().io.give_back());
        }
        Ok(Self {
            paths,
            table: Table::new(if alone { 0 } else { depth.unwrap_or_default() }),
            agreement: Agreement::default(),
            options,
            clock: WatchedClock::new(WatchedClock::STANDSTILL),
            now: Duration::ZERO,
            none_since: None,
            last: 0,
            turn: 0,
            stopping: false,
        })
    }

    /// Declares memory to all paths, by one name.
    ///
    /// # Errors
    /// [`PathsError`].
    pub fn add_memory(&mut self, memory: &DeviceMemory, access: MemoryAccess) -> Result<MemoryId, PathsError> {
        let mut name = None;
        for (path, one) in (0..).zip(&mut self.paths) {
            let given = one.host_mut().engine_mut().add_memory(memory.clone(), access)?;
            if *name.get_or_insert(given) != given {
                return Err(PathsError::MemoryName { path });
            }
        }
        name.ok_or(PathsError::Count(0))
    }

    /// Starts to connect on all paths that are not vacant.
    pub fn start(&mut self) {
        (self.stopping, self.none_since) = (false, None);
        self.paths.iter_mut().for_each(OnePath::start);
    }

    /// One iteration of all paths, as [`Host::poll`].
    pub fn poll(&mut self, now: Duration) -> u32 {
        if let Some(host) = self.alone() {
            return host.poll(now);
        }
        self.now = now.max(self.now);
        let looks = self.clock.is_due(self.now);
        if self.table.fences() {
            self.begin_silence();
        }
        let mut work = 0;
        for path in 0..self.paths.len() {
            if self.paths.get(path).is_some_and(|one| !one.is_vacant()) {
                work += self.poll_one(path, now);
            }
        }
        work += self.poll_vacant(now);
        if self.table.fences() {
            work += self.end_fences();
        }
        work += self.send_waiting();
        if looks || self.stopping {
            self.end_waiting();
        }
        if self.stopping && self.table.is_empty() {
            self.paths.iter_mut().for_each(|path| path.host_mut().shut_down());
        }
        work
    }

    /// As [`Host::flush`], of all paths.
    pub fn flush(&mut self) -> u32 {
        self.paths.iter_mut().map(|path| path.host_mut().flush()).sum()
    }

    /// As [`Host::shut_down`]: outstanding requests first, then all paths. A change that a lost controller may still execute is not waited
    /// for ([`IoError::Abandoned`](super::IoError::Abandoned)), and where no path serves, nothing is.
    pub fn shut_down(&mut self) {
        self.stopping = true;
        if self.paths.len() == 1 || self.table.is_empty() {
            self.paths.iter_mut().for_each(|path| path.host_mut().shut_down());
        }
    }

    /// As [`Host::poll_at`], of all paths.
    #[must_use]
    pub fn poll_at(&self) -> Option<Duration> {
        let of_hosts = self.paths.iter().filter_map(|path| path.host().poll_at()).min();
        if self.paths.len() == 1 {
            return of_hosts;
        }
        let fences = self.table.fenced().filter_map(|(_, fence)| self.ends_at(&fence));
        let at = of_hosts.into_iter().chain(fences.min()).chain(self.gives_up_at()).min();
        self.clock.announce(at.unwrap_or(Duration::MAX));
        at
    }

    /// As [`Host::reauthenticate`], of each path that has a session.
    ///
    /// # Errors
    /// No path does so: why the first one does not.
    pub fn reauthenticate(&mut self) -> Result<(), ReauthenticateError> {
        let mut first = Err(ReauthenticateError::NoSession);
        for (at, path) in self.paths.iter_mut().enumerate() {
            let asked = path.host_mut().reauthenticate();
            if at == 0 || asked.is_ok() {
                first = first.or(asked);
            }
        }
        first
    }

    /// The host, where there is one path.
    fn alone(&mut self) -> Option<&mut Host<P>> {
        if let [one] = &mut *self.paths { Some(one.host_mut()) } else { None }
    }

    /// A vacant path has nothing to do but what its port may have to do for the others', which share a device with it: one of them with
    /// each poll is soon enough for that.
    fn poll_vacant(&mut self, now: Duration) -> u32 {
        self.turn = if self.turn + 1 < self.paths.len() { self.turn + 1 } else { 0 };
        let vacant = self.paths.get_mut(self.turn).filter(|one| one.is_vacant());
        vacant.map_or(0, |one| one.host_mut().poll(now))
    }

    fn poll_one(&mut self, path: usize, now: Duration) -> u32 {
        let others = self.paths.iter().enumerate().filter(|(at, _)| *at != path);
        let alone = !others.into_iter().any(|(_, other)| matches!(other.state(), PathState::Connected(_)));
        let Some(one) = self.paths.get_mut(path) else { return 0 };
        let mut work = one.host_mut().poll(now);
        one.look(&mut self.agreement, alone);
        while let Some(completion) = self.paths.get_mut(path).and_then(|one| one.host_mut().next_completion()) {
            self.came_back(path, completion);
            work += 1;
        }
        if let Some(one) = self.paths.get_mut(path) {
            one.leave();
        }
        work
    }
}

/// All hosts go to the same namespace under the same name, each alone.
fn check<P: Port>(hosts: &[Host<P>]) -> Result<(), PathsError> {
    let [first, ..] = hosts else { return Err(PathsError::Count(0)) };
    if hosts.len() > MAX_PATHS {
        return Err(PathsError::Count(hosts.len()));
    }
    let names = |host: &Host<P>| {
        let options = &host.context.options;
        (options.subsystem, options.namespace, options.host, options.host_id)
    };
    for (path, host) in (0..).zip(hosts) {
        if names(host) != names(first) {
            return Err(PathsError::Names { path });
        }
        if hosts.len() > 1 && (host.role.follows() || host.context.options.followers > 0) {
            return Err(PathsError::Cores { path });
        }
    }
    Ok(())
}
