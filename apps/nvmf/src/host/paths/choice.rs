//! Which path a request takes, and how it gets there.

use super::Paths;
use super::one::{OnePath, PathState};
use super::options::PathPolicy;
use super::table::Refused;
use crate::host::error::RequestError;
use crate::host::requests::Kind;
use crate::wire::AnaState;
use frwr_engine::provider::Port;

/// Requests that one poll passes over because the only path that has not refused them has no room.
const MAX_PASSED_OVER: usize = 16;

impl<P: Port> Paths<P> {
    /// A path serves that a request is to be tried on before one that refused it lately.
    pub(super) fn is_untried(&self, refused: &Refused) -> bool {
        self.paths.iter().enumerate().any(|(at, path)| path.serves() && refused.is_untried(at))
    }

    /// The path that a request takes: of those that serve as well as any, as the policy says. Those that refused it lately are taken where
    /// there is no other.
    fn choose(&self, refused: &Refused) -> Option<usize> {
        let is_optimized = |state| state == PathState::Connected(AnaState::Optimized);
        let untried = !refused.is_empty() && self.is_untried(refused);
        let is_open = |at: usize, path: &OnePath<P>| path.serves() && (!untried || refused.is_untried(at));
        let serving = || self.paths.iter().enumerate().filter(|(at, path)| is_open(*at, path));
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
            let Some(refused) = self.table.get(slot).map(|entry| entry.refused) else { break };
            let Some(path) = self.choose(&refused) else {
                // Others take the path that has refused this one, while another path has no room.
                if refused.is_empty() || passed_over == MAX_PASSED_OVER {
                    break;
                }
                passed_over += 1;
                continue;
            };
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
        let (cookie, given_back, detour) = (slot.into(), entry.given_back, entry.refused.detour(path));
        match (entry.request.kind, self.table.ranges(slot)) {
            (Kind::Deallocate { .. }, Some(ranges)) => one.host_mut().hand_ranges(ranges, cookie, detour)?,
            _ => one.host_mut().hand(&entry.request.asked(cookie, detour))?,
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
