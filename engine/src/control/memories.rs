//! The memories of each core: registered in every domain that one of its queue pairs is in, and withdrawn from all of them.

use super::{
    Control, Pending,
    connecting::{Link, Stage},
    domain::Base,
};
use crate::{
    gather::MemoryId,
    link::{BaseKey, DeclaredMemory, ToCore},
    provider::{Command, CommandError, Device},
};
use std::collections::BTreeSet;

/// How far a memory has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Connections have it.
    Declared,
    /// Those that have it may still use it; no other one is given it.
    Withdrawn,
    /// Nothing uses it: it goes as soon as its last base registration has.
    Released,
}

/// A memory of a core.
pub(super) struct Memory {
    name: MemoryId,
    declared: DeclaredMemory,
    standing: Standing,
}

impl Memory {
    /// What connections are to have.
    pub(super) fn wanted(&self) -> Option<&DeclaredMemory> {
        (self.standing == Standing::Declared).then_some(&self.declared)
    }
}

impl<D: Device> Control<D> {
    pub(super) fn add_memory(&mut self, core: usize, name: MemoryId, declared: DeclaredMemory) {
        let (memories, place) = (&mut self.cores[core].memories, usize::from(name.place()));
        if memories.len() <= place {
            memories.resize_with(place + 1, || None);
        }
        debug_assert!(memories[place].is_none(), "a place is given again when its memory is gone");
        memories[place] = Some(Memory { name, declared, standing: Standing::Declared });
        self.register_for_open(core);
    }

    /// The memory in a place of a core.
    fn memory(&self, core: usize, place: u16) -> Option<&Memory> {
        self.cores[core].memories.get(usize::from(place))?.as_ref()
    }

    fn set_standing(&mut self, core: usize, name: MemoryId, to: Standing) {
        let memory = self.cores[core].memories.get_mut(usize::from(name.place())).and_then(Option::as_mut);
        if let Some(memory) = memory.filter(|memory| memory.name == name) {
            memory.standing = to;
        }
    }

    /// Whether connections are to have the memory in this place.
    pub(super) fn is_wanted(&self, core: usize, place: u16) -> bool {
        self.memory(core, place).is_some_and(|memory| memory.wanted().is_some())
    }

    /// Queue pairs that are to be made do not wait for it any more.
    pub(super) fn withdraw_memory(&mut self, core: usize, name: MemoryId) {
        self.set_standing(core, name, Standing::Withdrawn);
        for at in 0..self.links.len() {
            if self.links[at].as_ref().is_some_and(|link| link.core == core && link.stage == Stage::Domain) {
                self.advance(at);
            }
        }
    }

    /// Its base registrations go, in all domains.
    pub(super) fn release_memory(&mut self, core: usize, name: MemoryId) {
        self.set_standing(core, name, Standing::Released);
        for domain in 0..self.domains.len() {
            self.release_base(domain, core, name.place());
        }
        self.forget_memory(core, name.place());
    }

    /// The base registration of a memory in a domain goes, where that is made and the memory is to go. What is asked for follows when it is
    /// answered.
    pub(super) fn release_base(&mut self, at: usize, core: usize, place: u16) {
        if self.memory(core, place).is_none_or(|memory| memory.standing != Standing::Released) {
            return;
        }
        let entry = self.domains[at].as_mut().and_then(|domain| domain.bases.get_mut(&(core, place)));
        if let Some(entry) = entry
            && let Base::Made { base, .. } = *entry
        {
            *entry = Base::Going;
            let pending = Pending::BaseGone { domain: at, core, memory: place, base, again: false };
            self.command(Command::DeregisterMemory { base }, pending);
        }
    }

    /// Tells a core that a memory is gone which is to go and has no base registration any more.
    pub(super) fn forget_memory(&mut self, core: usize, place: u16) {
        let released = self.memory(core, place).filter(|memory| memory.standing == Standing::Released);
        let Some(name) = released.map(|memory| memory.name) else { return };
        if self.domains.iter().flatten().any(|domain| domain.bases.contains_key(&(core, place))) {
            return;
        }
        self.cores[core].memories[usize::from(place)] = None;
        self.tell(core, ToCore::MemoryRemoved { memory: name });
    }

    /// A core declared a memory: the domains of its queue pairs have it as well, each asked once however many they are. Those whose queue
    /// pair is not being made yet ask by themselves.
    fn register_for_open(&mut self, core: usize) {
        let has = |link: &&Link| link.core == core && (link.has_bases() || link.stage == Stage::QueuePair);
        let domains: BTreeSet<usize> = self.links.iter().flatten().filter(has).map(|link| link.domain).collect();
        for domain in domains {
            self.prepare_domain(domain, core);
        }
    }

    /// The queue pairs of a core in a domain hear of a memory; those that are being made find it when they are.
    pub(super) fn tell_of_memory(
        &mut self,
        domain: usize,
        core: usize,
        place: u16,
        made: Result<BaseKey, CommandError>,
    ) {
        let wanted = self.memory(core, place).filter(|memory| memory.wanted().is_some());
        let Some(memory) = wanted.map(|memory| memory.name) else { return };
        for at in 0..self.links.len() {
            let Some(link) = self.links[at].as_ref() else { continue };
            if link.core == core && link.domain == domain && link.has_bases() {
                let connection = link.connection;
                self.tell(core, ToCore::Memory { connection, memory, made });
            }
        }
    }

    /// The names and keys of a core's memories in a domain, that of the engine's own first.
    pub(super) fn bases_of(&self, at: usize, core: usize) -> impl Iterator<Item = (MemoryId, BaseKey)> {
        let domain = self.domains[at].as_ref();
        let all = domain.into_iter().flat_map(move |domain| domain.bases.range((core, 0)..=(core, u16::MAX)));
        all.filter_map(move |(&(_, place), base)| match *base {
            Base::Made { base, lkey } => Some((self.memory(core, place)?.name, BaseKey { base, lkey })),
            _ => None,
        })
    }
}
