//! The namespaces of one subsystem, by their identifiers: which there are, and whether they take commands.

use super::super::change::ChangeError;

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
    /// Members that were not told whether it is active, a bit each.
    untold: u64,
}

impl Entry {
    const VACANT: Self = Self { condition: Condition::Vacant, place: NOWHERE, nguid: [0; 16], untold: 0 };

    fn is_listed(&self) -> bool {
        matches!(self.condition, Condition::Active | Condition::Inactive)
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
    /// What every command looks at: of each identifier, from 1, the place of its storage where it takes commands.
    usable: Vec<u32>,
    entries: Vec<Entry>,
}

impl Namespaces {
    /// Identifiers from 1 to this, none of which there is.
    pub(super) fn new(identifiers: usize) -> Self {
        Self { usable: vec![NOWHERE; identifiers], entries: vec![Entry::VACANT; identifiers] }
    }

    /// There is none of them any more.
    pub(super) fn clear(&mut self) {
        self.usable.fill(NOWHERE);
        self.entries.fill(Entry::VACANT);
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
            *entry = Entry { condition: Condition::Supplied, place: place as u32, nguid, untold: 0 };
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

    /// One whose storage is here takes commands from now on. False where there is none.
    pub(in super::super) fn list(&mut self, identifier: u32) -> bool {
        let is_supplied = |entry: &&Entry| entry.condition == Condition::Supplied;
        self.entry(identifier).filter(is_supplied).is_some() && self.set(identifier, Condition::Active, 0)
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
        *usable = if condition == Condition::Active { entry.place } else { NOWHERE };
        true
    }

    /// One of which a member, by its bit, was not told whether it is active, and is now.
    pub(super) fn next_untold(&mut self, member: u64) -> Option<(u32, bool)> {
        let (identifier, entry) = (1..).zip(&mut self.entries).find(|(_, entry)| entry.untold & member != 0)?;
        entry.untold &= !member;
        Some((identifier, entry.condition == Condition::Active))
    }
}
