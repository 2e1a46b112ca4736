//! Which change comes next.

use super::{Ana, Change, Medium, Model, Namespace, Second, model::BLOCK};
use crate::Random;

/// Files that namespaces may live in.
const FILES: usize = 4;
/// The highest identifier that namespaces are given.
const IDENTIFIERS: u64 = 5;
/// Of a namespace that comes.
const FEWEST_BYTES: u64 = 64 << 10;
const MOST_BYTES: u64 = 1 << 20;
/// ANA groups that are given states of their own, one of them without namespaces.
const ANA_GROUPS: u64 = 3;
/// Ports behind that of the listener that stays.
const LISTENERS: u64 = 3;
/// Beside the one that stays.
const OTHERS: [&str; 2] = ["nqn.2026-11.invalid.frwr:other-0", "nqn.2026-11.invalid.frwr:other-1"];

type Draw = fn(&Model, &mut Random) -> Option<Change>;

/// How likely each is, and how it is drawn; `None` where there is nothing to change in that way.
const TABLE: &[(u64, Draw)] = &[
    (16, add_namespace),
    (8, remove_namespace),
    (14, resize_namespace),
    (8, set_namespace_active),
    (5, add_subsystem),
    (3, remove_subsystem),
    (7, set_allowed_hosts),
    (12, set_ana_state),
    (7, drain),
    (4, resume),
    (3, set_log_level),
    (5, listener),
    // Only where the world has a second one to give.
    (6, device),
    (5, what_cannot_be),
];

/// The next change of a target that is as the model says.
pub fn draw(model: &Model, random: &mut Random) -> Change {
    if let Some(change) = model.overdue() {
        return change;
    }
    let weights: Vec<_> = TABLE.iter().map(|(weight, _)| *weight).collect();
    loop {
        if let Some(at) = random.weighted(&weights)
            && let Some(change) = TABLE[at].1(model, random)
        {
            return change;
        }
    }
}

fn subsystem(model: &Model, random: &mut Random) -> String {
    if random.one_in(2) {
        return model.first.clone();
    }
    let all: Vec<_> = model.subsystems.keys().collect();
    random.of(&all).clone()
}

fn bytes(random: &mut Random) -> u64 {
    FEWEST_BYTES + BLOCK * random.below((MOST_BYTES - FEWEST_BYTES) / BLOCK)
}

fn add_namespace(model: &Model, random: &mut Random) -> Option<Change> {
    let (subsystem, namespace) = (subsystem(model, random), 1 + random.below(IDENTIFIERS) as u32);
    let medium = match random.below(FILES as u64 + 2) as usize {
        number @ 1..FILES => Medium::File(number),
        _ => Medium::Memory(model.new_memory()),
    };
    let is_free = model.namespace(&subsystem, namespace).is_none() && !model.is_used(medium);
    let (bytes, read_only) = (bytes(random), random.one_in(8));
    is_free.then_some(Change::AddNamespace { subsystem, namespace, medium, bytes, read_only })
}

/// One that need not stay.
fn any<'a>(model: &'a Model, random: &mut Random) -> Option<(&'a str, u32, &'a Namespace)> {
    let all: Vec<_> = model.namespaces().filter(|one| !is_kept(model, one.0, one.1)).collect();
    (!all.is_empty()).then(|| random.of(&all))
}

fn is_kept(model: &Model, subsystem: &str, namespace: u32) -> bool {
    subsystem == model.first && namespace == 1
}

fn remove_namespace(model: &Model, random: &mut Random) -> Option<Change> {
    let (subsystem, namespace, _) = any(model, random)?;
    Some(Change::RemoveNamespace { subsystem: subsystem.to_owned(), namespace })
}

fn resize_namespace(model: &Model, random: &mut Random) -> Option<Change> {
    let all: Vec<_> = model.namespaces().collect();
    let (subsystem, namespace, found) = random.of(&all);
    let bytes = if is_kept(model, subsystem, namespace) {
        model.kept_bytes + BLOCK * random.below(model.kept_bytes / BLOCK)
    } else {
        bytes(random).min(found.most)
    };
    Some(Change::ResizeNamespace { subsystem: subsystem.to_owned(), namespace, bytes })
}

fn set_namespace_active(model: &Model, random: &mut Random) -> Option<Change> {
    let (subsystem, namespace, found) = any(model, random)?;
    // Now and then as it is already.
    let active = !found.active ^ random.one_in(8);
    Some(Change::SetNamespaceActive { subsystem: subsystem.to_owned(), namespace, active })
}

fn add_subsystem(model: &Model, random: &mut Random) -> Option<Change> {
    let subsystem = random.of(&OTHERS).to_owned();
    let hosts = hosts(model, random);
    (!model.subsystems.contains_key(&subsystem)).then_some(Change::AddSubsystem { subsystem, hosts })
}

fn remove_subsystem(model: &Model, random: &mut Random) -> Option<Change> {
    let subsystem = subsystem(model, random);
    (subsystem != model.first).then_some(Change::RemoveSubsystem { subsystem })
}

/// All, or some of those that there are.
fn hosts(model: &Model, random: &mut Random) -> Option<Vec<String>> {
    let drawn = |random: &mut Random| model.hosts.iter().filter(|_| random.one_in(2)).cloned().collect();
    (!random.one_in(2)).then(|| drawn(random))
}

fn set_allowed_hosts(model: &Model, random: &mut Random) -> Option<Change> {
    let (subsystem, mut hosts) = (subsystem(model, random), hosts(model, random));
    let first = &model.hosts[0];
    if let Some(hosts) = hosts.as_mut().filter(|hosts| subsystem == model.first && !hosts.contains(first))
        && !(model.returns && random.one_in(2))
    {
        hosts.push(first.clone());
    }
    Some(Change::SetAllowedHosts { subsystem, hosts })
}

fn set_ana_state(model: &Model, random: &mut Random) -> Option<Change> {
    let (subsystem, state) = (subsystem(model, random), random.of(&Ana::ALL));
    let is_for_good = state == Ana::PersistentLoss && subsystem == model.first && !model.returns;
    let group = random.one_in(2).then(|| 1 + random.below(ANA_GROUPS) as u32);
    (!is_for_good).then_some(Change::SetAnaState { subsystem, group, state })
}

fn whom(model: &Model, random: &mut Random) -> Option<String> {
    (!random.one_in(4)).then(|| model.hosts[random.below(model.hosts.len() as u64) as usize].clone())
}

fn drain(model: &Model, random: &mut Random) -> Option<Change> {
    Some(Change::Drain { host: whom(model, random) })
}

fn resume(model: &Model, random: &mut Random) -> Option<Change> {
    Some(Change::Resume { host: whom(model, random) })
}

fn set_log_level(_: &Model, random: &mut Random) -> Option<Change> {
    Some(Change::SetLogLevel { level: random.of(&["info", "debug", "warn", "info"]) })
}

/// One beside the first, which comes or goes, and now and then is so already.
fn listener(model: &Model, random: &mut Random) -> Option<Change> {
    let mut address = *model.listeners.first()?;
    address.set_port(address.port() + 1 + random.below(LISTENERS) as u16);
    let comes = !model.listeners.contains(&address) ^ random.one_in(8);
    let device = model.second().map(|second| second.names[0].clone());
    Some(if comes { Change::AddListener { device, address } } else { Change::RemoveListener { address } })
}

/// The second one, which comes or goes, and now and then is so already.
fn device(model: &Model, random: &mut Random) -> Option<Change> {
    let Second { names: [_, device], address, serves } = model.second.clone()?;
    let comes = !serves ^ random.one_in(8);
    Some(if comes { Change::AddDevice { device, listen: address } } else { Change::RemoveDevice { device } })
}

/// A change that the target is to refuse.
fn what_cannot_be(model: &Model, random: &mut Random) -> Option<Change> {
    let (first, nowhere) = (model.first.clone(), "nqn.2026-11.invalid.frwr:nowhere".to_owned());
    let missing = (1..=IDENTIFIERS as u32 + 1).find(|one| model.namespace(&first, *one).is_none())?;
    Some(match random.below(6) {
        0 => Change::RemoveNamespace { subsystem: first, namespace: missing },
        1 => Change::ResizeNamespace { subsystem: nowhere, namespace: 1, bytes: BLOCK },
        2 => Change::AddSubsystem { subsystem: first, hosts: None },
        3 => Change::SetAnaState { subsystem: nowhere, group: None, state: Ana::Change },
        // Its file is another one's.
        4 => Change::AddNamespace {
            subsystem: first,
            namespace: missing,
            medium: Medium::File(0),
            bytes: FEWEST_BYTES,
            read_only: false,
        },
        _ => {
            let (subsystem, namespace, found) = any(model, random)?;
            let bytes = found.most.checked_add(BLOCK)?;
            Change::ResizeNamespace { subsystem: subsystem.to_owned(), namespace, bytes }
        }
    })
}
