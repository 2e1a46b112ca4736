//! Protection domains and the base registrations in them: each memory of a core is registered once per domain that one
//! of the core's connections uses.

use super::{Control, Pending, memories::Memory};
use crate::{
    link::DeclaredMemory,
    provider::{BaseId, Command, Device, DomainId},
};
use frwr_mempool::mutant;
use std::collections::BTreeMap;

/// A base registration on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Asked,
    Made {
        base: BaseId,
        lkey: u32,
    },
    /// It is being deregistered.
    Going,
}

/// A protection domain.
#[derive(Debug, Default)]
pub(super) struct Domain {
    pub(super) id: Option<DomainId>,
    pub(super) asked: bool,
    /// Its last connection is gone: it goes as soon as nothing of it is being made.
    leaving: bool,
    /// By core and place of the memory.
    pub(super) bases: BTreeMap<(usize, u16), Base>,
}

impl<D: Device> Control<D> {
    /// A new domain, or the one that connections share.
    pub(super) fn domain_for(&mut self, own: bool) -> usize {
        if !own && let Some(shared) = self.shared {
            return shared;
        }
        let vacant = self.domains.iter().position(Option::is_none);
        let at = vacant.unwrap_or_else(|| {
            self.domains.push(None);
            self.domains.len() - 1
        });
        self.domains[at] = Some(Domain::default());
        if !own {
            self.shared = Some(at);
        }
        at
    }

    /// Whether a domain has everything that a connection of this core needs; asks the device for what is missing.
    pub(super) fn prepare_domain(&mut self, at: usize, core: usize) -> bool {
        let memories = self.cores[core].memories.len();
        let Some(domain) = self.domains[at].as_mut() else { return false };
        let Some(id) = domain.id else {
            if !core::mem::replace(&mut domain.asked, true) {
                self.command(Command::AllocateDomain, Pending::Domain { domain: at });
            }
            return false;
        };
        let mut ready = true;
        for memory in 0..memories {
            // An engine declares at most MAX_MEMORIES.
            let name = (core, memory as u16);
            let wanted = self.cores[core].memories[memory].as_ref().and_then(Memory::wanted).cloned();
            let Some(DeclaredMemory { bytes, access }) = wanted else { continue };
            let Some(domain) = self.domains[at].as_mut() else { return false };
            match domain.bases.get(&name) {
                Some(Base::Made { .. }) => {}
                Some(Base::Asked | Base::Going) => ready = false,
                None => {
                    domain.bases.insert(name, Base::Asked);
                    let local_write = access.permits_write();
                    self.command(
                        Command::RegisterMemory { domain: id, memory: bytes, local_write },
                        Pending::Base { domain: at, core, memory: memory as u16 },
                    );
                    ready = false;
                }
            }
        }
        ready
    }

    /// A connection is gone: a domain of its own goes with it.
    pub(super) fn leave_domain(&mut self, at: usize) {
        if self.shared == Some(at) {
            return;
        }
        if let Some(domain) = self.domains[at].as_mut() {
            domain.leaving = true;
        }
        self.dismantle(at);
    }

    /// Destroys a domain that nobody uses: its base registrations, and when they are gone itself. Nothing is begun before
    /// every answer about it is in: a late one would be taken for the next domain in its place, and its object be lost.
    pub(super) fn dismantle(&mut self, at: usize) {
        let Some(domain) = self.domains[at].as_mut().filter(|domain| domain.leaving) else { return };
        if !mutant!(S6_unanswered)
            && ((domain.asked && domain.id.is_none()) || domain.bases.values().any(|base| *base == Base::Asked))
        {
            return;
        }
        let mut going = Vec::new();
        for (name, base) in &mut domain.bases {
            if let Base::Made { base, .. } = core::mem::replace(base, Base::Going) {
                going.push((*name, base));
            }
        }
        // S6: the domain goes with what is registered in it.
        if domain.bases.is_empty() || mutant!(S6_bases) {
            let id = domain.id;
            self.domains[at] = None;
            if let Some(domain) = id {
                self.command(Command::FreeDomain { domain }, Pending::FreeDomain { domain, again: false });
            }
        }
        for ((core, memory), base) in going {
            let pending = Pending::BaseGone { domain: at, core, memory, base, again: false };
            self.command(Command::DeregisterMemory { base }, pending);
        }
    }
}
