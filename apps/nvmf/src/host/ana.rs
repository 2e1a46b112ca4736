//! Asymmetric namespace access (Base 8.1): how the namespace can be reached, as the controller says it.

use super::admin_data::Asked;
use crate::wire::{AnaGroup, AnaLogHeader, AnaState, IDENTIFY_BYTES, log_page};
use core::time::Duration;
use zerocopy::FromBytes;

/// LSP bit 0, RGO: groups without their namespaces (Base 5.16.1.13); Identify Namespace says which group is ours.
const ANA_GROUPS_ONLY: u8 = 1;
/// Parts of a log page that are read at most: twice what a page of groups alone can be, whose number is 16 bit, since one that changes
/// meanwhile is read again. Pages of namespaces may be longer; there has to be an end whatever a controller lists.
const MAX_PARTS: u32 = 2 * ((1 << 16) * size_of::<AnaGroup>() as u32).div_ceil(IDENTIFY_BYTES as u32);

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Ana {
    /// ANAGRPID of the namespace; 0 for none.
    group: u32,
    state: AnaState,
    since: Option<Duration>,
    read: AnaRead,
    reads: u64,
}

impl Ana {
    pub(super) fn state(&self) -> AnaState {
        self.state
    }

    /// Since when the namespace cannot be reached, in watched time; `None` where it can.
    pub(super) fn since(&self) -> Option<Duration> {
        self.since
    }

    /// Log pages read.
    pub(super) fn reads(&self) -> u64 {
        self.reads
    }

    /// The controller does not report states.
    pub(super) fn unknown(&mut self) {
        (self.state, self.since) = (AnaState::Optimized, None);
    }

    /// Commands to the namespace are executed.
    pub(super) fn is_accessible(&self) -> bool {
        matches!(self.state, AnaState::Optimized | AnaState::NonOptimized)
    }

    /// `now`: watched time.
    pub(super) fn set(&mut self, state: AnaState, now: Duration) {
        self.state = state;
        let since = self.since.unwrap_or(now);
        self.since = (!self.is_accessible()).then_some(since);
    }

    /// The next part of the log page.
    pub(super) fn asked(&self) -> Asked {
        Asked::log_page(log_page::ANA, ANA_GROUPS_ONLY, self.read.offset)
    }

    /// A session begins, with the namespace in this group: what was read of a page in a former one is nothing.
    pub(super) fn begin(&mut self, group: u32) {
        (self.group, self.read) = (group, AnaRead::default());
    }

    /// The group that the namespace is in by now.
    pub(super) fn regroup(&mut self, group: u32) {
        if group != 0 && group != self.group {
            self.begin(group);
        }
    }

    /// The namespace's Identify named its group again.
    pub(super) fn group(&mut self, group: u32) {
        self.group = group;
    }

    /// Takes a part of the log page, `None` where it was refused; true where that is all that has to be read to know the
    /// state of the namespace's group. Only controllers with `offsets` have more than one part to give. `now`: watched time.
    pub(super) fn take(&mut self, part: Option<&[u8; IDENTIFY_BYTES]>, offsets: bool, now: Duration) -> bool {
        match part.map_or(Found::Nothing, |part| self.read.take(part, self.group)) {
            Found::Continues if offsets => return false,
            Found::State(state) => self.set(state, now),
            // A group that is not listed, or a page that cannot be read, says nothing against the namespace.
            Found::Nothing | Found::Continues => self.unknown(),
        }
        self.reads += u64::from(part.is_some());
        self.read = AnaRead::default();
        true
    }
}

/// What a part of the page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    State(AnaState),
    /// No such group, a state that is not defined, or no end.
    Nothing,
    /// The part at the new offset has to be read.
    Continues,
}

/// How far the log page was read. Parts begin with a descriptor, or with the header.
#[derive(Clone, Copy, Debug, Default)]
struct AnaRead {
    /// Of the page; `None` before its header was seen.
    change_count: Option<u64>,
    /// Descriptors behind `offset`.
    groups: u16,
    offset: u64,
    parts: u32,
    /// What parts behind the first one said, which counts where the header is still the same: states that change move
    /// descriptors.
    confirming: Option<Found>,
}

impl AnaRead {
    fn take(&mut self, part: &[u8], group: u32) -> Found {
        self.parts += 1;
        let (begins, mut rest) = (self.offset == 0, part);
        if begins {
            let Ok((header, behind)) = AnaLogHeader::read_from_prefix(part) else { return Found::Nothing };
            let before = self.change_count.replace(header.change_count.get());
            if let Some(found) = self.confirming.take()
                && before == self.change_count
            {
                return found;
            }
            (self.groups, self.offset, rest) = (header.groups.get(), size_of::<AnaLogHeader>() as u64, behind);
        }
        match self.walk(rest, group) {
            // One read, which is of one page.
            found @ (Found::State(_) | Found::Nothing) if begins => found,
            _ if self.parts >= MAX_PARTS => Found::Nothing,
            Found::Continues => Found::Continues,
            found => {
                (self.confirming, self.offset) = (Some(found), 0);
                Found::Continues
            }
        }
    }

    /// Looks at the descriptors of a part.
    fn walk(&mut self, mut rest: &[u8], group: u32) -> Found {
        while self.groups > 0 {
            let Ok((descriptor, behind)) = AnaGroup::read_from_prefix(rest) else { return Found::Continues };
            if descriptor.group.get() == group {
                return AnaState::from_wire(descriptor.state).map_or(Found::Nothing, Found::State);
            }
            // Controllers may list namespaces although they were not asked for.
            let listed = u64::from(descriptor.namespaces.get()) * size_of::<u32>() as u64;
            self.groups -= 1;
            self.offset += size_of::<AnaGroup>() as u64 + listed;
            rest = usize::try_from(listed).ok().and_then(|skip| behind.get(skip..)).unwrap_or(&[]);
        }
        Found::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::{AnaRead, Found, MAX_PARTS};
    use crate::wire::AnaState;

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
        for (group, found) in [
            (1, Found::State(AnaState::Optimized)),
            (3, Found::State(AnaState::Inaccessible)),
            (7, Found::State(AnaState::Change)),
            (9, Found::Nothing),
            (2, Found::Nothing),
        ] {
            assert_eq!(AnaRead::default().take(&listed, group), found);
        }
        for length in 0..listed.len() {
            let _ = AnaRead::default().take(&listed[..length], 9);
        }
    }

    /// What becomes of a page that is read in parts of at most so many bytes.
    fn in_parts(page: &[u8], bytes: usize, group: u32) -> Found {
        let mut read = AnaRead::default();
        for _ in 0..MAX_PARTS {
            let rest = page.get(read.offset as usize..).unwrap_or(&[]);
            match read.take(&rest[..rest.len().min(bytes)], group) {
                Found::Continues => {}
                found => return found,
            }
        }
        panic!("no end");
    }

    #[test]
    fn a_page_says_the_same_in_parts_of_any_size() {
        let listed = page(&[(1, 1, 0), (3, 3, 2), (7, 15, 100), (9, 6, 0), (11, 2, 1)]);
        for group in [1, 2, 3, 7, 9, 11] {
            for bytes in 48..listed.len() {
                let whole = AnaRead::default().take(&listed, group);
                assert_eq!(in_parts(&listed, bytes, group), whole, "group {group} in parts of {bytes} bytes");
            }
        }
        let nonsense = vec![0xff; 4096];
        assert_eq!(in_parts(&nonsense, 4096, 5), Found::Nothing);
    }
}
