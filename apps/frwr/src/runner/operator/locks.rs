//! Namespaces that one of several gateways serves, by RBD's exclusive lock: their ANA groups follow it, and operators take it and give it
//! back.

use super::{
    super::{
        change::Change,
        lock_line::lock_name,
        media_watch::{Identity, MediaWatch},
        orders::Orders,
        stock::Stock,
    },
    answers, changes,
    parameters::{nqn, read},
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

/// What the targets of devices were told of whose locks are.
#[derive(Debug, Default)]
pub(super) struct LockedGroups {
    /// A namespace, the unit that was told, and whether this process has the lock.
    told: Vec<(Identity, usize, bool)>,
}

impl LockedGroups {
    /// Each target is told what has changed. A core that takes no orders now is told later: until then the storage refuses what it may
    /// not do.
    pub(super) fn follow(&mut self, media: &MediaWatch, stock: &Stock, orders: &mut Orders) {
        let homes = (0..orders.units()).filter(|unit| orders.reactor_of(*unit) == usize::from(HOME_CORE));
        let homes: Vec<_> = if media.locks().next().is_some() { homes.collect() } else { Vec::new() };
        self.told.retain(|(namespace, ..)| media.locks().any(|(other, _)| other == *namespace));
        for (namespace, is_owner) in media.locks() {
            let Some(group) = stock.config(namespace).map(|config| config.ana_group) else { continue };
            let state = if is_owner { AnaState::Optimized } else { AnaState::Inaccessible };
            for unit in &homes {
                let told = (namespace, *unit, is_owner);
                let change = Change::Ana { subsystem: namespace.0, group: Some(group), state };
                if !self.told.contains(&told) && orders.give(*unit, changes::unasked(change)) {
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

/// Namespaces, with whose the locks are.
pub(super) fn namespaces(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Value, Failure> {
    let mut all = answers::namespaces(known.facts, known.findings, parameters)?;
    for one in all["namespaces"].as_array_mut().into_iter().flatten() {
        let lock = identity(one).and_then(|identity| known.media.locked(identity));
        let owner = match &lock {
            Some((_, RbdLock::Standby { owner, .. })) => owner.clone(),
            _ => None,
        };
        one["lock"] = lock.as_ref().map(|(_, lock)| lock_name(lock)).into();
        one["lock_owner"] = owner.into();
    }
    Ok(all)
}

fn identity(namespace: &Value) -> Option<Identity> {
    let name = nqn("subsystem", namespace["subsystem"].as_str()?).ok()?;
    Some((name, namespace["namespace"].as_u64()?.try_into().ok()?))
}
