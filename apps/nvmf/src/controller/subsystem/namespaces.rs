//! The namespaces of one subsystem, by their identifiers: which there are, in which ANA group, and whether they take commands.

use super::super::change::ChangeError;
use super::ana::{AnaGroups, DEFAULT_ANA_GROUP, MAX_ANA_GROUPS};
use crate::wire::AnaState;

/// In place of the storage of a namespace that takes no commands: no core has so many.
const NOWHERE: u32 = u32::MAX;

/// How a namespace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    /// There is none of this identifier.
    Vacant,
    /// This core has its storage, and no host knows of it yet.
    Supplied,
    /// It is listed and takes commands.
    Active,
    /// It is listed nowhere, and its commands fail, until it is active again.
    Inactive,
    /// It was removed: commands that came before still end.
    Leaving,
}

/// What there is of an identifier.
#[derive(Clone, Copy, Debug)]
struct Entry {
    condition: Condition,
    /// Where its storage stands among all of this core.
    place: u32,
    /// NGUID.
    nguid: [u8; 16],
    /// ANAGRPID.
    group: u32,
    /// Members that were not told whether it is active, a bit each.
    untold: u64,
}

impl Entry {
    const VACANT: Self =
        Self { condition: Condition::Vacant, place: NOWHERE, nguid: [0; 16], group: DEFAULT_ANA_GROUP, untold: 0 };

    fn is_listed(&self) -> bool {
        matches!(self.condition, Condition::Active | Condition::Inactive)
    }

    /// Where commands find its storage.
    fn usable(&self, groups: &AnaGroups) -> u32 {
        if self.condition == Condition::Active && groups.is_accessible(self.group) { self.place } else { NOWHERE }
    }

    /// Its storage, if it has one that hosts' commands may have reached.
    fn reached(&self) -> Option<usize> {
        let is_reached = self.is_listed() || self.condition == Condition::Leaving;
        is_reached.then_some(self.place as usize)
    }
}

/// All identifiers of one subsystem.
#[derive(Debug)]
pub(in super::super) struct Namespaces {
    /// What every command looks at: of each identifier, from 1, the place of its storage where it takes commands, since it is active and
    /// its group can be reached.
    usable: Vec<u32>,
    entries: Vec<Entry>,
    groups: AnaGroups,
}

impl Namespaces {
    /// Identifiers from 1 to this, none of which there is.
    pub(super) fn new(identifiers: usize) -> Self {
        Self { usable: vec![NOWHERE; identifiers], entries: vec![Entry::VACANT; identifiers], groups: AnaGroups::new() }
    }

    /// There is none of them any more.
    pub(super) fn clear(&mut self) {
        self.usable.fill(NOWHERE);
        self.entries.fill(Entry::VACANT);
        self.groups = AnaGroups::new();
    }

    /// The place of the storage of a namespace that is listed and takes commands where it can be reached.
    pub(in super::super) fn active(&self, identifier: u32) -> Option<usize> {
        let entry = self.entry(identifier).filter(|entry| entry.condition == Condition::Active);
        entry.map(|entry| entry.place as usize)
    }

    /// The place of the storage of a namespace that takes commands.
    #[inline]
    pub(in super::super) fn usable(&self, identifier: u32) -> Option<usize> {
        // 0 is none. A place that no core has stands for none.
        self.usable.get(identifier.wrapping_sub(1) as usize).map(|place| *place as usize)
    }

    /// The highest identifier that there may be.
    pub(in super::super) fn highest(&self) -> u32 {
        // At most MAX_NAMESPACES.
        self.entries.len() as u32
    }

    fn entry(&self, identifier: u32) -> Option<&Entry> {
        self.entries.get(identifier.wrapping_sub(1) as usize)
    }

    /// There may be one of this identifier.
    pub(in super::super) fn is_valid(&self, identifier: u32) -> bool {
        self.entry(identifier).is_some()
    }

    pub(in super::super) fn is_active(&self, identifier: u32) -> bool {
        self.entry(identifier).is_some_and(|entry| entry.condition == Condition::Active)
    }

    /// It is there, and takes no commands for now.
    pub(in super::super) fn is_inactive(&self, identifier: u32) -> bool {
        self.entry(identifier).is_some_and(|entry| entry.condition == Condition::Inactive)
    }

    /// ANAGRPID of one that there is.
    pub(in super::super) fn group(&self, identifier: u32) -> Option<u32> {
        self.entry(identifier).filter(|entry| entry.is_listed()).map(|entry| entry.group)
    }

    /// How groups can be reached, each by its identifier from 1, those without namespaces included.
    pub(in super::super) fn ana_states(&self) -> impl Iterator<Item = AnaState> {
        self.groups.states()
    }

    /// How one that is active can be reached.
    pub(in super::super) fn ana_state(&self, identifier: u32) -> Option<AnaState> {
        self.active(identifier)?;
        self.group(identifier).map(|group| self.groups.state(group))
    }

    /// Groups that have namespaces, in ascending order: each with its state, how often what is said of it changed, and how many
    /// namespaces it has.
    pub(in super::super) fn groups(&self) -> impl Iterator<Item = (u32, AnaState, u64, usize)> {
        let mut counts = [0; MAX_ANA_GROUPS as usize];
        for entry in self.entries.iter().filter(|entry| entry.is_listed()) {
            if let Some(count) = counts.get_mut(entry.group.wrapping_sub(1) as usize) {
                *count += 1;
            }
        }
        let groups = (1..).zip(counts).filter(|(_, count)| *count > 0);
        groups.map(|(group, count)| (group, self.groups.state(group), self.groups.changes_of(group), count))
    }

    /// The identifiers of a group's namespaces, in ascending order.
    pub(in super::super) fn in_group(&self, group: u32) -> impl Iterator<Item = u32> {
        let all = (1..).zip(&self.entries);
        let is_in = move |(_, entry): &(u32, &Entry)| entry.is_listed() && entry.group == group;
        all.filter(is_in).map(|(identifier, _)| identifier)
    }

    /// How often what is said of any group changed.
    pub(in super::super) fn ana_changes(&self) -> u64 {
        self.groups.changes()
    }

    /// How well a group, or all of them, can be reached from now on; false where that was so already. `untold`: the members that are to
    /// be told.
    pub(super) fn set_ana(&mut self, group: Option<u32>, state: AnaState, untold: u64) -> bool {
        if !self.groups.set(group, state, untold) {
            return false;
        }
        let Self { usable, entries, groups } = self;
        for (usable, entry) in usable.iter_mut().zip(entries) {
            *usable = entry.usable(groups);
        }
        true
    }

    /// The group of a namespace has one more, or one less.
    pub(super) fn group_changed(&mut self, identifier: u32) {
        if let Some(group) = self.entry(identifier).map(|entry| entry.group) {
            self.groups.is_changed(group);
        }
    }

    /// NGUID of one that there is.
    pub(in super::super) fn nguid(&self, identifier: u32) -> Option<[u8; 16]> {
        self.entry(identifier).filter(|entry| entry.is_listed()).map(|entry| entry.nguid)
    }

    /// The place of the storage of one that is listed.
    pub(in super::super) fn listed(&self, identifier: u32) -> Result<usize, ChangeError> {
        let entry = self.entry(identifier).filter(|entry| entry.is_listed());
        let found = entry.map(|entry| entry.place as usize);
        found.ok_or(ChangeError::Namespace { identifier, count: self.identifiers().count() as u32 })
    }

    /// The identifiers of those that there are, in ascending order.
    pub(in super::super) fn identifiers(&self) -> impl Iterator<Item = u32> {
        (1..).zip(&self.entries).filter(|(_, entry)| entry.is_listed()).map(|(identifier, _)| identifier)
    }

    /// The places of storages that commands may have reached.
    pub(in super::super) fn places(&self) -> impl Iterator<Item = usize> + Clone {
        self.entries.iter().filter_map(Entry::reached)
    }

    /// The identifier of the one whose storage stands there.
    pub(in super::super) fn identifier_at(&self, place: usize) -> Option<u32> {
        let at = self.entries.iter().position(|entry| entry.reached() == Some(place))?;
        // At most MAX_NAMESPACES.
        Some(at as u32 + 1)
    }

    /// A new one may have this identifier and this NGUID.
    pub(in super::super) fn check_new(&self, identifier: u32, nguid: &[u8; 16]) -> Result<(), ChangeError> {
        let limit = self.highest();
        let entry = self.entry(identifier).ok_or(ChangeError::Identifier { identifier, limit })?;
        match entry.condition {
            Condition::Vacant => {}
            Condition::Leaving => return Err(ChangeError::Leaving { identifier }),
            Condition::Supplied | Condition::Active | Condition::Inactive => {
                return Err(ChangeError::Taken { identifier });
            }
        }
        let alike = (1..).zip(&self.entries).find(|(_, other)| other.reached().is_some() && other.nguid == *nguid);
        alike.map_or(Ok(()), |(other, _)| Err(ChangeError::Identity { identifier, other }))
    }

    /// This core has the storage of a new one, which [`Namespaces::check_new`] has let in.
    pub(in super::super) fn supply(&mut self, identifier: u32, place: usize, nguid: [u8; 16]) {
        if let Some(entry) = self.entries.get_mut(identifier.wrapping_sub(1) as usize) {
            // There are far fewer places.
            let (condition, place) = (Condition::Supplied, place as u32);
            *entry = Entry { condition, place, nguid, group: DEFAULT_ANA_GROUP, untold: 0 };
        }
    }

    /// The place of a storage that no host knows of, and that may go; it is none of this namespace's any more.
    pub(in super::super) fn withdraw(&mut self, identifier: u32, may_go: impl Fn(usize) -> bool) -> Option<usize> {
        let entry = self.entries.get_mut(identifier.wrapping_sub(1) as usize)?;
        let place = entry.place as usize;
        if entry.condition != Condition::Supplied || !may_go(place) {
            return None;
        }
        *entry = Entry::VACANT;
        Some(place)
    }

    /// One whose storage is here is in this group, and takes commands from now on where it is active. False where there is none.
    pub(in super::super) fn list(&mut self, identifier: u32, group: u32, active: bool) -> bool {
        let entry = self.entries.get_mut(identifier.wrapping_sub(1) as usize);
        let Some(entry) = entry.filter(|entry| entry.condition == Condition::Supplied) else { return false };
        entry.group = group;
        self.set(identifier, if active { Condition::Active } else { Condition::Inactive }, 0)
    }

    /// Whether one that there is takes commands. False where that is so already. `untold`: the members that are to be told.
    pub(super) fn set_active(&mut self, identifier: u32, active: bool, untold: u64) -> bool {
        let (from, to) = match active {
            true => (Condition::Inactive, Condition::Active),
            false => (Condition::Active, Condition::Inactive),
        };
        let changes = self.entry(identifier).is_some_and(|entry| entry.condition == from);
        changes && self.set(identifier, to, untold)
    }

    /// One takes no commands any more, and is gone once those that it has have ended: the place of its storage.
    pub(in super::super) fn begin_removal(&mut self, identifier: u32) -> Option<usize> {
        let entry = *self.entry(identifier)?;
        let is_there = entry.is_listed() || entry.condition == Condition::Supplied;
        (is_there && self.set(identifier, Condition::Leaving, 0)).then_some(entry.place as usize)
    }

    /// One that was removed is gone, and its identifier free, if its storage stood there.
    pub(in super::super) fn end_removal(&mut self, identifier: u32, place: usize) {
        if let Some(entry) = self.entries.get_mut(identifier.wrapping_sub(1) as usize)
            && entry.condition == Condition::Leaving
            && entry.place as usize == place
        {
            *entry = Entry::VACANT;
        }
    }

    fn set(&mut self, identifier: u32, condition: Condition, untold: u64) -> bool {
        let at = identifier.wrapping_sub(1) as usize;
        let (Some(entry), Some(usable)) = (self.entries.get_mut(at), self.usable.get_mut(at)) else { return false };
        (entry.condition, entry.untold) = (condition, untold);
        *usable = entry.usable(&self.groups);
        true
    }

    /// A group of which a member, by its bit, was not told, and is now; `None` for all of them.
    pub(super) fn next_untold_group(&mut self, member: u64) -> Option<(Option<u32>, AnaState)> {
        self.groups.next_untold(member)
    }

    /// One of which a member, by its bit, was not told whether it is active, and is now.
    pub(super) fn next_untold(&mut self, member: u64) -> Option<(u32, bool)> {
        let (identifier, entry) = (1..).zip(&mut self.entries).find(|(_, entry)| entry.untold & member != 0)?;
        entry.untold &= !member;
        Some((identifier, entry.condition == Condition::Active))
    }
}
