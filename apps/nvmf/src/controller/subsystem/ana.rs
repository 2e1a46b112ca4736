//! ANA groups of one subsystem (Base 8.1.2): how well the namespaces of each can be reached here.

use crate::wire::AnaState;

/// ANA groups of a subsystem: identifiers 1 to this, as many as Linux's target has. Hosts keep room for the descriptors of all.
pub const MAX_ANA_GROUPS: u32 = 128;

/// The group of a namespace to which nobody gave another one.
pub const DEFAULT_ANA_GROUP: u32 = 1;

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    state: AnaState,
    /// How often what is said of it changed.
    changes: u64,
    /// Members that were not told of its state, a bit each.
    untold: u64,
}

/// All groups of one subsystem, whether they have namespaces or not.
#[derive(Debug)]
pub(super) struct AnaGroups {
    groups: Vec<Group>,
    changes: u64,
    /// What all of them were last given at once, and the members that were not told: a message for each group would be many.
    at_once: AnaState,
    untold: u64,
}

impl AnaGroups {
    pub(super) fn new() -> Self {
        let groups = vec![Group::default(); MAX_ANA_GROUPS as usize];
        Self { groups, changes: 0, at_once: AnaState::default(), untold: 0 }
    }

    /// There may be a group of this identifier.
    pub(super) fn may_have(group: u32) -> bool {
        (1..=MAX_ANA_GROUPS).contains(&group)
    }

    fn get(&self, group: u32) -> Option<&Group> {
        self.groups.get(group.wrapping_sub(1) as usize)
    }

    fn get_mut(&mut self, group: u32) -> Option<&mut Group> {
        self.groups.get_mut(group.wrapping_sub(1) as usize)
    }

    pub(super) fn state(&self, group: u32) -> AnaState {
        self.get(group).map_or(AnaState::default(), |group| group.state)
    }

    /// The states of all groups, whether they have namespaces or not, by their identifiers from 1.
    pub(super) fn states(&self) -> impl Iterator<Item = AnaState> {
        self.groups.iter().map(|group| group.state)
    }

    /// How often what is said of a group changed.
    pub(super) fn changes_of(&self, group: u32) -> u64 {
        self.get(group).map_or(0, |group| group.changes)
    }

    /// The same of any group.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Commands to namespaces of a group are executed.
    pub(super) fn is_accessible(&self, group: u32) -> bool {
        matches!(self.state(group), AnaState::Optimized | AnaState::NonOptimized)
    }

    /// A group, or all of them, have this state from now on; false where that is so already. `untold`: the members that are to be told.
    pub(super) fn set(&mut self, group: Option<u32>, state: AnaState, untold: u64) -> bool {
        let mut is_changed = false;
        for (identifier, known) in (1..).zip(&mut self.groups) {
            if group.is_none_or(|group| group == identifier) && known.state != state {
                known.state = state;
                known.changes += 1;
                is_changed = true;
            }
        }
        match group.and_then(|group| self.get_mut(group)) {
            Some(known) => known.untold |= if is_changed { untold } else { 0 },
            None if is_changed => {
                self.groups.iter_mut().for_each(|known| known.untold = 0);
                (self.at_once, self.untold) = (state, untold);
            }
            None => {}
        }
        self.changes += u64::from(is_changed);
        is_changed
    }

    /// A group has other namespaces.
    pub(super) fn is_changed(&mut self, group: u32) {
        if let Some(known) = self.get_mut(group) {
            known.changes += 1;
            self.changes += 1;
        }
    }

    /// A group of which a member, by its bit, was not told, and is now; `None` for all of them.
    pub(super) fn next_untold(&mut self, member: u64) -> Option<(Option<u32>, AnaState)> {
        if self.untold & member != 0 {
            self.untold &= !member;
            return Some((None, self.at_once));
        }
        let (identifier, group) = (1..).zip(&mut self.groups).find(|(_, group)| group.untold & member != 0)?;
        group.untold &= !member;
        Some((Some(identifier), group.state))
    }
}
