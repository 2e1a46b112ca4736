//! What a change consists of, and what it is planned by.

use super::{
    super::{
        change::Change,
        media_watch::MediaWatch,
        namespaces::{Identity, NamespaceReport},
        start::unit,
        stock::Stock,
        survey::Findings,
        trace::{Core, Trace},
    },
    Facts,
    deadlines::{DEFAULT_WITHIN, MAX_WITHIN, STEP_TIME},
    parameters::nqn,
};
use crate::control::{Caller, Failure, INVALID_PARAMS, TIMED_OUT};
use core::time::Duration;
use frwr_nvmf::{
    controller::{HOME_CORE, Inventory, NamespaceState, SubsystemState},
    wire::Nqn,
};
use serde_json::Value;
use std::collections::VecDeque;

/// Who has something done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// Somebody at the control socket.
    Client(Caller),
    /// Nobody: what a device's failure brings with it.
    Nobody,
    /// Who sent a signal for the file to be read again.
    Signal,
    /// A file that is applied, for one of its changes.
    Application,
    /// A change that was not made on all devices, for what undoes it on those that have done it.
    Undo,
}

/// What a method wants to have changed; `None` where it is so already.
pub(super) type Plan = Option<Box<Planned>>;

/// What a change is planned by.
pub(super) struct Known<'a> {
    /// What the main thread knows.
    pub(super) facts: &'a Facts,
    /// What the cores have just told.
    pub(super) findings: &'a Findings,
    /// What namespaces live in.
    pub(super) media: &'a mut MediaWatch,
    /// What else there may be.
    pub(super) stock: &'a mut Stock,
}

/// A change: what each core is told, one after the other.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) steps: VecDeque<Step>,
    /// What cores say for themselves when they have nothing left of it: once for each of them and each namespace.
    pub(super) parts: usize,
    /// What a step has done cannot be undone.
    pub(super) for_good: bool,
    /// Steps that were made before.
    pub(super) made: usize,
    /// What is answered where it is not that it was done.
    pub(super) answers: Option<Value>,
    pub(super) behind: Option<Behind>,
    /// What undoes its steps needs the order that they have: each behind the answer of the one before.
    pub(super) in_order: bool,
}

/// What the main thread has to do behind a change.
#[derive(Debug)]
pub(super) enum Behind {
    /// The medium of a namespace has so many blocks, in place of those that it had before.
    Resized { namespace: Identity, blocks: u64, before: u64 },
    /// There is this namespace.
    Added(Identity, NamespaceReport),
    /// The cores tell this trace of keys.
    KeyTraceBegun(Box<Trace>),
    /// They do so no longer; where they do all the same, by these.
    KeyTraceEnded(Vec<Core>),
    /// Hosts connect elsewhere.
    Listeners,
    /// The device of this place has had its time: cores give it up.
    Departs(usize),
}

impl Behind {
    /// The namespace that has another size.
    pub(super) fn resized(&self) -> Option<Identity> {
        match self {
            Self::Resized { namespace, .. } => Some(*namespace),
            Self::Added(..) | Self::Listeners | Self::Departs(_) => None,
            Self::KeyTraceBegun(_) | Self::KeyTraceEnded(_) => None,
        }
    }

    /// What is to be done behind what undoes it.
    pub(super) fn undone(&self) -> Option<Self> {
        match self {
            Self::Resized { namespace, before, .. } => {
                Some(Self::Resized { namespace: *namespace, blocks: *before, before: *before })
            }
            Self::Added(..) | Self::Listeners | Self::Departs(_) => None,
            Self::KeyTraceBegun(_) | Self::KeyTraceEnded(_) => None,
        }
    }
}

/// What one core is told for one device, and what undoes it where a later one cannot.
#[derive(Debug)]
pub(super) struct Step {
    /// As [`unit`] numbers them.
    pub(super) unit: usize,
    pub(super) change: Change,
    pub(super) undo: Option<Change>,
}

impl Planned {
    /// These steps.
    pub(super) fn steps(steps: VecDeque<Step>) -> Self {
        Self { steps, parts: 0, for_good: false, made: 0, answers: None, behind: None, in_order: false }
    }

    /// What the home core does for all cores, on each device; and what undoes it.
    pub(super) fn at_homes(
        findings: &Findings,
        change: impl Fn() -> Change,
        undo: impl Fn() -> Option<Change>,
    ) -> Plan {
        let step = |device| Step { unit: home(findings, device), change: change(), undo: undo() };
        Some(Box::new(Self::steps(findings.devices().map(step).collect())))
    }

    /// The same on those devices on which it is not so already, each of which is as it was before where it is undone: `before` says how it
    /// is on a device, or that it is so.
    pub(super) fn where_else<T>(
        findings: &Findings,
        before: impl Fn(usize) -> Option<T>,
        change: impl Fn() -> Change,
        undo: impl Fn(T) -> Option<Change>,
    ) -> Plan {
        let step = |device| {
            let before = before(device)?;
            Some(Step { unit: home(findings, device), change: change(), undo: undo(before) })
        };
        let steps: VecDeque<_> = findings.devices().filter_map(step).collect();
        (!steps.is_empty()).then(|| Box::new(Self::steps(steps)))
    }

    /// The same for good, on those devices where it is not done already; each core says for so many parts when it has nothing left of
    /// them.
    pub(super) fn for_good(
        findings: &Findings,
        parts: usize,
        is_done: impl Fn(usize) -> bool,
        change: impl Fn() -> Change,
    ) -> Plan {
        let devices = findings.devices().filter(|device| !is_done(*device));
        let step = |device| Step { unit: home(findings, device), change: change(), undo: None };
        let steps: VecDeque<_> = devices.map(step).collect();
        let parts = parts * steps.len() * findings.cores.len();
        Some(Box::new(Self { parts, for_good: true, ..Self::steps(steps) }))
    }

    /// What the home core does on one device.
    pub(super) fn at_home_of(findings: &Findings, device: usize, change: Change) -> Self {
        Self::steps(VecDeque::from([Step { unit: home(findings, device), change, undo: None }]))
    }
}

/// The unit that changes are told for one device.
pub(super) fn home(findings: &Findings, device: usize) -> usize {
    unit(device, usize::from(HOME_CORE), findings.cores.len())
}

/// All units of the devices that are served, those of the first device first.
pub(super) fn units(findings: &Findings) -> Vec<usize> {
    let cores = findings.cores.len();
    findings.devices().flat_map(|device| (0..cores).map(move |core| unit(device, core, cores))).collect()
}

/// Until when a change shall be complete, or is told by what holds it up.
pub(super) fn within(seconds: Option<u32>) -> Result<Duration, Failure> {
    let (seconds, most) = (seconds.unwrap_or(DEFAULT_WITHIN), MAX_WITHIN.as_secs());
    if u64::from(seconds) <= most {
        return Ok(Duration::from_secs(seconds.into()));
    }
    let text =
        format!("params: within_seconds is {seconds}: must be {most} at most; the change goes on behind it anyway");
    Err(Failure::new(INVALID_PARAMS, text))
}

/// Why nothing was changed.
pub(super) fn stands_still(core: usize) -> Failure {
    let text = format!(
        "reactor {core} has not answered in {} s: it stands still; nothing was changed; `cores` says more, try again when it goes on",
        STEP_TIME.as_secs()
    );
    Failure::new(TIMED_OUT, text)
}

/// The subsystem as it is: on the first device that has it, since what goes for good may be gone on others already.
pub(super) fn subsystem<'a>(findings: &'a Findings, text: &str) -> Result<(Nqn, &'a SubsystemState), Failure> {
    let name = nqn("subsystem", text)?;
    findings.home().ok_or_else(|| stands_still(0))?;
    let mut there = findings.homes().flat_map(|home| &home.inventory.subsystems);
    let found = there.find(|subsystem| subsystem.name == name);
    let missing = || {
        let text = format!("params: there is no subsystem {text:?}; `subsystems` lists those that there are");
        Failure::new(INVALID_PARAMS, text)
    };
    found.map(|state| (name, state)).ok_or_else(missing)
}

/// A namespace as it is, as [`subsystem`].
pub(super) fn listed<'a>(
    findings: &'a Findings,
    of: &SubsystemState,
    identifier: u32,
) -> Result<&'a NamespaceState, Failure> {
    let found = findings.homes().find_map(|home| {
        let there = &home.inventory;
        there.namespaces.iter().find(|one| is_it(there, one, of.name, identifier))
    });
    found.ok_or_else(|| {
        let text =
            format!("params: namespace is {identifier}, which the subsystem has not; `namespaces` lists its own");
        Failure::new(INVALID_PARAMS, text)
    })
}

/// A namespace as it is on one device, which may have taken a change that others did not.
pub(super) fn listed_on(findings: &Findings, device: usize, of: Nqn, identifier: u32) -> Option<&NamespaceState> {
    let there = &findings.home_of(device)?.inventory;
    there.namespaces.iter().find(|one| is_it(there, one, of, identifier))
}

/// A namespace that a core has is the one of this name.
pub(super) fn is_it(of: &Inventory, one: &NamespaceState, subsystem: Nqn, identifier: u32) -> bool {
    let name = of.subsystems.get(one.subsystem).map(|subsystem| subsystem.name);
    (name, one.identifier) == (Some(subsystem), identifier)
}
