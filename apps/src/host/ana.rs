//! Asymmetric namespace access (Base 8.1): how the namespace can be reached, as the controller says it.

use super::request::IoError;
use super::{Host, State};
use crate::nvmf::{AnaGroup, AnaLogHeader, AnaState, IDENTIFY_BYTES, Status};
use core::time::Duration;
use frwr_engine::provider::Port;
use zerocopy::FromBytes;

/// LSP bit 0, RGO: groups without their namespaces (Base 5.16.1.13); Identify Namespace says which group is ours.
pub(super) const ANA_GROUPS_ONLY: u8 = 1;
/// How often the log page is read while the namespace cannot be reached: a notice may be lost with a session.
pub(super) const ANA_PERIOD: Duration = Duration::from_secs(1);

/// What is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ana {
    /// ANAGRPID of the namespace; 0 for none.
    pub(super) group: u32,
    state: AnaState,
    /// Since when the namespace cannot be reached.
    pub(super) since: Option<Duration>,
}

impl Ana {
    pub(super) fn state(&self) -> AnaState {
        self.state
    }

    /// The controller does not report states.
    pub(super) fn unknown(&mut self) {
        (self.state, self.since) = (AnaState::Optimized, None);
    }

    /// Commands to the namespace are executed.
    pub(super) fn is_accessible(&self) -> bool {
        matches!(self.state, AnaState::Optimized | AnaState::NonOptimized)
    }

    pub(super) fn set(&mut self, state: AnaState, now: Duration) {
        self.state = state;
        let since = self.since.unwrap_or(now);
        self.since = (!self.is_accessible()).then_some(since);
    }
}

impl<P: Port> Host<P> {
    /// Reads the state of the namespace's group out of the log page in the admin data.
    pub(super) fn take_ana(&mut self, success: bool) {
        let mut bytes = [0; IDENTIFY_BYTES];
        // The memory holds ADMIN_DATA_BYTES, as many.
        let _ = self.admin_data.read(0, &mut bytes);
        self.statistics.ana_reads += u64::from(success);
        match state_of(&bytes, self.ana.group) {
            Some(state) if success => self.ana.set(state, self.now),
            // A group that is not listed, or a page that cannot be read, says nothing against the namespace.
            _ => self.ana.unknown(),
        }
    }

    /// The state by which the controller refused a command because of the path; the log page has to say what next. Where there is none,
    /// nothing would ever say that the path is back, and the status is an answer like any other.
    pub(super) fn ana_refused(&mut self, status: Status) -> Option<AnaState> {
        if !self.controller.reports_ana {
            return None;
        }
        let state = match status.code() {
            code if code == Status::ANA_INACCESSIBLE.code() => AnaState::Inaccessible,
            code if code == Status::ANA_PERSISTENT_LOSS.code() => AnaState::PersistentLoss,
            code if code == Status::ANA_TRANSITION.code() => AnaState::Change,
            _ => return None,
        };
        self.ana.set(state, self.now);
        self.followers.update();
        if let Some(following) = &mut self.following {
            following.refused(state);
        }
        Some(state)
    }

    /// Ends requests that have waited for the namespace for too long.
    pub(super) fn bound_inaccessible(&mut self) {
        let (State::Ready, Some(since)) = (self.state, self.ana.since) else { return };
        let state = self.ana.state;
        let waited = self.now.saturating_sub(since) >= self.options.inaccessible_timeout;
        if waited || state == AnaState::PersistentLoss {
            self.end_queued(IoError::Inaccessible(state));
        }
    }
}

/// The state of a group in a log page.
fn state_of(page: &[u8], group: u32) -> Option<AnaState> {
    let (header, mut rest) = AnaLogHeader::read_from_prefix(page).ok()?;
    for _ in 0..header.groups.get() {
        let (descriptor, behind) = AnaGroup::read_from_prefix(rest).ok()?;
        if descriptor.group.get() == group {
            return AnaState::from_wire(descriptor.state);
        }
        // Controllers may list namespaces although they were not asked for.
        let skip = usize::try_from(descriptor.namespaces.get()).ok()?.checked_mul(size_of::<u32>())?;
        rest = behind.get(skip..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::state_of;
    use crate::nvmf::AnaState;

    fn page(groups: &[(u32, u8, u32)]) -> Vec<u8> {
        let mut page = vec![0; 16];
        page[8] = groups.len() as u8;
        for &(group, state, namespaces) in groups {
            let mut descriptor = [0; 32];
            descriptor[..4].copy_from_slice(&group.to_le_bytes());
            descriptor[4..8].copy_from_slice(&namespaces.to_le_bytes());
            descriptor[16] = state;
            page.extend(descriptor);
            page.extend(vec![0xaa; namespaces as usize * 4]);
        }
        page
    }

    #[test]
    fn the_state_of_a_group_is_found_and_nothing_a_page_says_is_trusted() {
        let listed = page(&[(1, 1, 0), (3, 3, 2), (7, 15, 0), (9, 6, 0)]);
        for (group, state) in [
            (1, Some(AnaState::Optimized)),
            (3, Some(AnaState::Inaccessible)),
            (7, Some(AnaState::Change)),
            (9, None),
            (2, None),
        ] {
            assert_eq!(state_of(&listed, group), state);
        }
        for length in 0..listed.len() {
            let _ = state_of(&listed[..length], 9);
        }
        assert_eq!(state_of(&page(&[(1, 1, 0)]).iter().map(|_| 0xff).collect::<Vec<u8>>(), 5), None);
    }
}
