//! A target in a process of its own that is changed at random, through its control socket, under the load of hosts.
//!
//! [`Change`] is what can be changed, [`Model`] what should hold, [`Ctl`] who types it, and [`Users`] the hosts: `frwr load` over the
//! software NIC (apps/frwr/tests/two_processes/changes.rs), or the Linux kernel (tests/src/kernel_host). Behind each change the target has
//! to say what the model knows, and to be what it is saved as; and hosts have to see it. A seed makes the same choices; when what is done
//! is not.

mod change;
mod ctl;
mod draw;
mod model;
mod reader;

pub use change::{Ana, Change, Medium, ana_group};
pub use ctl::{Ctl, Refusal};
pub use draw::draw;
pub use model::{Model, Namespace, Second, Subsystem};
pub use reader::HostileReader;

use crate::Random;
use core::{fmt, time::Duration};
use std::{path::PathBuf, thread};

/// How often is looked, at most, whether something has come: of pauses, since the machine may be busy.
const LOOKS: u32 = 3000;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks until something is as wanted.
///
/// # Errors
/// It never was; `what`.
pub fn until(what: &dyn fmt::Display, mut seen: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    for _ in 0..LOOKS {
        if seen()? {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    Err(format!("in {LOOKS} looks it was not seen that {what}"))
}

/// The hosts of a target that is changed.
pub trait Users {
    /// A change is about to be asked for: from now on it explains what it explains.
    ///
    /// # Errors
    /// Something is wrong with a host.
    fn before(&mut self, change: &Change, model: &Model) -> Result<(), String>;

    /// It was made, as the model says by now: looks until all hosts see it.
    ///
    /// # Errors
    /// What a host never saw, or an error that nothing explains.
    fn after(&mut self, change: &Change, model: &Model, ctl: &mut Ctl) -> Result<(), String>;
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of all choices.
    pub seed: u64,
    /// How many changes.
    pub changes: u32,
    /// Where the files are that namespaces live in.
    pub folder: PathBuf,
    /// Told each change.
    pub tell: fn(&str),
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Changes that were made.
    pub changed: u32,
    /// That were so already, or could not be, as the model knew.
    pub unchanged: u32,
    /// That were answered before they were complete.
    pub late: u32,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { changed, unchanged, late } = self;
        write!(f, "{changed} changes made, {unchanged} that changed nothing, {late} complete behind their answer")
    }
}

/// Changes the target so often, and leaves it so that each host reaches what it has.
///
/// # Errors
/// What was wrong, with the seed and the number of the change.
pub fn run(plan: &Plan, model: &mut Model, ctl: &mut Ctl, users: &mut dyn Users) -> Result<Summary, String> {
    let (mut random, mut summary) = (Random::new(plan.seed), Summary::default());
    let mut number = 0;
    loop {
        let change = if number < plan.changes {
            draw(model, &mut random)
        } else if let Some(change) = model.restoring() {
            change
        } else {
            return Ok(summary);
        };
        number += 1;
        (plan.tell)(&format!("{number}: {change:?}"));
        one(plan, model, ctl, users, &change, &mut summary)
            .map_err(|error| format!("seed {}, change {number}, {change:?}: {error}", plan.seed))?;
    }
}

fn one(
    plan: &Plan,
    model: &mut Model,
    ctl: &mut Ctl,
    users: &mut dyn Users,
    change: &Change,
    summary: &mut Summary,
) -> Result<(), String> {
    users.before(change, model)?;
    change.prepare(&plan.folder, model).map_err(|error| format!("its medium: {error}"))?;
    let (method, parameters) = change.call(&plan.folder);
    let expected = model.expects(change);
    let mut answered = ctl.change(method, &parameters);
    until(&"what was changed before is complete", || {
        let is_early = answered.as_ref().is_err_and(Refusal::is_early);
        if is_early {
            answered = ctl.change(method, &parameters);
        }
        Ok(!is_early)
    })?;
    match (&answered, expected) {
        (Ok(answer), Some(changed)) if answer["changed"] == changed => {
            if answer["complete"] == false {
                summary.late += 1;
                (plan.tell)(&format!("not complete: {answer}"));
            }
            summary.changed += u32::from(changed);
            summary.unchanged += u32::from(!changed);
        }
        (Err(refusal), None) if refusal.is_explained() => summary.unchanged += 1,
        _ => return Err(format!("answered {answered:?}, and expected is {expected:?}")),
    }
    if expected == Some(true) {
        model.make(change);
    }
    until(&"the target says what was changed", || model.is_told(ctl))
        .map_err(|error| format!("{error}: {}", model.difference(ctl)))?;
    Model::is_as_saved(ctl)?;
    if answered.is_ok_and(|answer| answer["complete"] == true) {
        change.behind(&plan.folder, model).map_err(|error| format!("its medium: {error}"))?;
    }
    users.after(change, model, ctl)
}
