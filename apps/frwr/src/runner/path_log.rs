//! Paths of a load as the main thread has them: what it says of them, and which of them come and go as a discovery service lists them
//! ([decision 211](../../../../docs/decisions/211-a-discovery-log-is-followed-by-places.md)).

use super::{
    host_waits::WaitNews,
    load_paths::{LoadedWaits, state_name},
    path_places::PathPlaces,
    progress::Progress,
};
use frwr_mempool::lane;
use frwr_nvmf::host::{MAX_PATHS, PathChange, PathState};
use std::net::SocketAddr;

/// Changes on their way to the main thread: paths, and a few for each. One that finds no room is told with the next.
const CHANGES: usize = 8 * MAX_PATHS;
/// Orders on their way to a core: one for each place, which has no other before the core has said that it is vacant, and the one that
/// made it so.
const ORDERS: usize = 2 * MAX_PATHS;

/// What requests wait for, on its way: there is one a second at most, and the main thread looks more often.
const WAITS: usize = 8;

/// What a core does with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathOrder {
    /// Which.
    pub(super) path: u16,
    /// Where it leads from now on; `None`: it is not to be tried again.
    pub(super) to: Option<SocketAddr>,
}

/// A core's ends of its lanes, of one of its namespaces.
#[derive(Debug)]
pub(super) struct PathDesk {
    pub(super) changes: lane::Sender<PathChange>,
    pub(super) orders: lane::Receiver<PathOrder>,
    pub(super) waits: lane::Sender<WaitNews>,
}

/// The main thread's.
struct Namespace {
    /// What its lines begin with.
    begins: String,
    changes: lane::Receiver<PathChange>,
    orders: lane::Sender<PathOrder>,
    waits: lane::Receiver<WaitNews>,
}

/// What the main thread says of paths, and has cores do with them.
#[derive(Default)]
pub(super) struct PathLog {
    /// Of each core.
    namespaces: Vec<Namespace>,
    places: PathPlaces,
    /// Where the only path leads.
    only: Option<SocketAddr>,
    limits: LoadedWaits,
}

impl PathLog {
    /// Paths to these addresses, and places for others; requests wait for them no longer than that.
    pub(super) fn new(addresses: &[SocketAddr], places: usize, limits: LoadedWaits) -> Self {
        let only = addresses.first().copied().filter(|_| places == 1);
        Self { namespaces: Vec::new(), places: PathPlaces::new(addresses, places), only, limits }
    }

    /// One more namespace of a core, each of which is named where there are several.
    pub(super) fn follow(&mut self, core: Option<usize>, nsid: Option<u32>) -> PathDesk {
        let core = core.map_or_else(String::new, |core| format!("core {core}, "));
        let namespace = nsid.map_or_else(String::new, |nsid| format!("namespace {nsid}, "));
        let ((of_core, changes), (orders, of_main)) = (lane::bounded(CHANGES), lane::bounded(ORDERS));
        let (waiting, waits) = lane::bounded(WAITS);
        self.namespaces.push(Namespace { begins: core + &namespace, changes, orders, waits });
        PathDesk { changes: of_core, orders: of_main, waits: waiting }
    }

    /// The service that lists them lists these by now: a line for each that came or went.
    pub(super) fn list(&mut self, service: SocketAddr, listed: &[SocketAddr], say: &mut dyn FnMut(&str)) {
        for address in self.places.list(listed) {
            let what = if listed.contains(&address) {
                format!("lists {address} now")
            } else {
                format!("lists {address} no longer; the path is used while its connection lasts")
            };
            say(&format!("{service} {what}"));
        }
    }

    /// A line for each change, and for what requests wait for. What follows from it, and from what is listed, is ordered.
    pub(super) fn tell(&mut self, progress: &Progress, say: &mut dyn FnMut(&str)) {
        let cores = self.namespaces.len();
        for Namespace { begins, changes, waits, .. } in &mut self.namespaces {
            while let Some(PathChange { path, now, waiting, .. }) = changes.pop() {
                let address = self.places.address(path).map_or_else(String::new, |address| address.to_string());
                let waits = match waiting {
                    0 => String::new(),
                    _ => format!("; {waiting} writes wait until its controller is over"),
                };
                say(&format!("{begins}path {address}: {}{waits}", state_name(now)));
                if now == PathState::Vacant {
                    self.places.vacated(path);
                }
            }
            while let Some(news) = waits.pop() {
                let line = match news {
                    WaitNews::Waits(stood, wait) => wait.line(stood, self.only, &self.limits),
                    WaitNews::GoesOn(stood) => {
                        format!("requests end again: none had for {:.1} s", stood.as_secs_f64())
                    }
                };
                say(&format!("{begins}{line}"));
            }
        }
        while let Some(order) = self.places.next_order(cores) {
            for namespace in &mut self.namespaces {
                // It has room for all that there may be.
                let _ = namespace.orders.push(order);
            }
            progress.ask();
        }
        if let Some(address) = self.places.takes_no_more() {
            say(&format!("path {address}: there are {MAX_PATHS} already; it is taken when one of them is gone"));
        }
    }
}
