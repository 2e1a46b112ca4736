//! Namespaces that one of several gateways serves, by RBD's exclusive lock: their ANA groups follow it, and operators take it and give it
//! back.

use super::{
    super::{
        change::Change, lock_line::lock_name, media_watch::MediaWatch, namespaces::Identity, orders::Orders,
        stock::Stock,
    },
    changes,
    parameters::read,
    planned::{Known, listed, subsystem},
};
use crate::control::{Failure, INVALID_PARAMS, NOT_DONE};
use frwr_nvmf::{
    controller::HOME_CORE,
    storage::{RbdLock, RbdMedium},
    wire::AnaState,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A namespace whose ANA group follows a lock, that group, and whether this process has the lock.
type Locked = (Identity, u32, bool);

/// What the targets of devices were told of whose locks are.
#[derive(Debug, Default)]
pub(super) struct LockedGroups {
    /// A namespace, the unit that was told, and whether this process has the lock.
    told: Vec<(Identity, usize, bool)>,
    /// Groups that follow locks, with the namespaces that they are of.
    groups: Vec<(Identity, u32)>,
}

impl LockedGroups {
    /// Each target is told what has changed. A core that takes no orders now is told later: until then the storage refuses what it may
    /// not do.
    pub(super) fn follow(&mut self, media: &MediaWatch, stock: &Stock, orders: &mut Orders) {
        let of = |(namespace, is_owner)| Some((namespace, stock.config(namespace)?.ana_group, is_owner));
        let locks: Vec<Locked> = media.locks().filter_map(of).collect();
        if locks.is_empty() && self.groups.is_empty() {
            return;
        }
        let is_home = |unit: &usize| orders.has(*unit) && orders.reactor_of(*unit) == usize::from(HOME_CORE);
        let homes: Vec<usize> = orders.numbers().filter(is_home).collect();
        self.tell(&locks, &homes, |unit, change| orders.give(unit, changes::unasked(change)));
    }

    /// The same of these, by what tells a unit, which may fail.
    fn tell(&mut self, locks: &[Locked], homes: &[usize], mut tell: impl FnMut(usize, Change) -> bool) {
        let is_locked = |namespace| locks.iter().any(|(other, ..)| *other == namespace);
        self.told.retain(|(namespace, ..)| is_locked(*namespace));
        // What has the group of one that is gone is served as anything else. A core that hears nothing of that keeps it inaccessible.
        for (namespace, group) in self.groups.extract_if(.., |(namespace, _)| !is_locked(*namespace)) {
            for unit in homes {
                tell(*unit, Change::Ana { subsystem: namespace.0, group: Some(group), state: AnaState::Optimized });
            }
        }
        for &(namespace, group, is_owner) in locks {
            if !self.groups.contains(&(namespace, group)) {
                self.groups.push((namespace, group));
            }
            let state = if is_owner { AnaState::Optimized } else { AnaState::Inaccessible };
            for unit in homes {
                let told = (namespace, *unit, is_owner);
                let change = Change::Ana { subsystem: namespace.0, group: Some(group), state };
                if !self.told.contains(&told) && tell(*unit, change) {
                    self.told.retain(|(other, of, _)| (*other, of) != (namespace, unit));
                    self.told.push(told);
                }
            }
        }
    }

    /// A change may have set their states otherwise: all are told again.
    pub(super) fn tell_again(&mut self) {
        self.told.clear();
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfNamespace {
    subsystem: String,
    namespace: u32,
}

pub(super) fn acquire_lock(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Value, Failure> {
    let (image, lock) = image(known, parameters)?;
    if lock == RbdLock::Lost {
        let text = "the cluster listens to this client no more, so that it cannot have the lock; nothing was changed; open the \
                    image again: remove_namespace and add_namespace, or start serve again";
        return Err(Failure::new(NOT_DONE, text));
    }
    Ok(asked(image.acquire_lock(), image))
}

pub(super) fn release_lock(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Value, Failure> {
    let (image, _) = image(known, parameters)?;
    Ok(asked(image.release_lock(), image))
}

/// A lock that is asked for is had, or given back, later.
fn asked(changed: bool, image: &RbdMedium) -> Value {
    json!({ "changed": changed, "complete": !changed, "lock": image.lock().as_ref().map(lock_name) })
}

/// The image of a namespace that is served by who has its lock.
fn image<'a>(known: &'a Known<'_>, parameters: Map<String, Value>) -> Result<(&'a RbdMedium, RbdLock), Failure> {
    let OfNamespace { subsystem: of, namespace } = read(parameters)?;
    let (name, state) = subsystem(known.findings, &of)?;
    listed(known.findings, state, namespace)?;
    known.media.locked((name, namespace)).ok_or_else(|| {
        let text =
            format!("params: namespace is {namespace}, which has no lock; name one of an image with exclusive=1");
        Failure::new(INVALID_PARAMS, text)
    })
}

#[cfg(test)]
mod tests {
    use super::{super::parameters::nqn, *};

    #[test]
    fn a_group_follows_the_lock_of_its_namespace_and_nothing_when_that_is_gone() {
        let subsystem = nqn("subsystem", "nqn.2026-11.invalid.frwr:a").unwrap();
        let namespace = (subsystem, 1);
        let mut groups = LockedGroups::default();
        let mut told = |locks: &[Locked], takes: bool, again: bool| {
            let mut states = Vec::new();
            if again {
                groups.tell_again();
            }
            groups.tell(locks, &[0, 3], |unit, change| {
                let Change::Ana { group: Some(5), state, .. } = change else { panic!("{change:?}") };
                states.push((unit, state));
                takes
            });
            states
        };
        let (away, here) = (AnaState::Inaccessible, AnaState::Optimized);
        let (lost, owned) = ([(namespace, 5, false)], [(namespace, 5, true)]);
        // Who takes no orders is told again.
        assert_eq!(told(&lost, false, false), [(0, away), (3, away)]);
        assert_eq!(told(&lost, true, false), [(0, away), (3, away)]);
        assert_eq!(told(&lost, true, false), []);
        assert_eq!(told(&owned, true, false), [(0, here), (3, here)]);
        assert_eq!(told(&lost, true, false), [(0, away), (3, away)]);
        assert_eq!(told(&lost, true, true), [(0, away), (3, away)], "behind a change");
        // What comes into its group is reached.
        assert_eq!(told(&[], true, true), [(0, here), (3, here)]);
        assert_eq!(told(&[], true, true), []);
    }
}
