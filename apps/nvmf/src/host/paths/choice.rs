//! Which path a request takes, and how it gets there.

use super::Paths;
use super::one::PathState;
use super::options::PathPolicy;
use crate::host::error::RequestError;
use crate::host::requests::Kind;
use crate::wire::AnaState;
use frwr_engine::provider::Port;

impl<P: Port> Paths<P> {
    /// The path that a request takes: of those that serve as well as any, as the policy says.
    fn choose(&self) -> Option<usize> {
        let is_optimized = |state| state == PathState::Connected(AnaState::Optimized);
        let serving = || self.paths.iter().enumerate().filter(|(_, path)| path.serves());
        let best = serving().any(|(_, path)| is_optimized(path.state()));
        let equal = serving().filter(|(_, path)| is_optimized(path.state()) == best);
        let with_room = equal.filter(|(_, path)| path.host().free_requests() > 0);
        let chosen = match self.options.policy {
            PathPolicy::QueueRoom => with_room.min_by_key(|(_, path)| path.statistics().outstanding),
            PathPolicy::RoundRobin => {
                let behind = |at: usize| (at + self.paths.len() - self.last - 1) % self.paths.len();
                with_room.min_by_key(|(at, _)| behind(*at))
            }
        };
        chosen.map(|(at, _)| at)
    }

    /// Hands what waits to the paths, while there is room. Returns how many requests found it.
    pub(super) fn send_waiting(&mut self) -> u32 {
        let (mut sent, mut passed_over) = (0, 0);
        while let Some(slot) = self.table.to_send(passed_over) {
            let Some(path) = self.choose() else { break };
            match self.hand(slot, path) {
                Ok(()) => sent += 1,
                // A deallocation, which takes a bounce buffer of the host's: others need none.
                Err(RequestError::NoBounceBuffer) => passed_over += 1,
                Err(_) => break,
            }
        }
        sent
    }

    fn hand(&mut self, slot: u16, path: usize) -> Result<(), RequestError> {
        let (Some(one), Some(entry)) = (self.paths.get_mut(path), self.table.get(slot)) else { return Ok(()) };
        let (cookie, given_back) = (slot.into(), entry.given_back);
        match (entry.request.kind, self.table.ranges(slot)) {
            (Kind::Deallocate { .. }, Some(ranges)) => one.host_mut().hand_ranges(ranges, cookie)?,
            _ => one.host_mut().hand(entry.request.copy(cookie))?,
        }
        let counted = one.statistics_mut();
        counted.requests += 1;
        counted.resubmitted += u64::from(given_back);
        counted.outstanding += 1;
        // A place among MAX_PATHS.
        self.table.sent(slot, path as u16);
        self.last = path;
        Ok(())
    }
}
