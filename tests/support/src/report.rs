//! What is printed of many runs, and of one that failed.

use crate::{Cut, Run, Simulation, seeds::Tally, shrink::shrink};
use std::process::Command;

/// One line for the totals, one for what struck.
pub(crate) fn totals(name: &str, tally: &Tally) {
    let total = &tally.total;
    let list = |counts: &std::collections::BTreeMap<&str, u64>| {
        let parts: Vec<_> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        parts.join(", ")
    };
    let Tally { seeds, failed, .. } = tally;
    println!("{name}: {seeds} seeds, {} requests, {} faults, {} failed", total.requests, total.struck(), failed.len());
    if !total.counts.is_empty() {
        println!("  counted: {}", list(&total.counts));
    }
    if !total.faults.is_empty() {
        println!("  faults: {}", list(&total.faults));
    }
}

/// Whatever the sources are of: git may be missing, or the sources no checkout.
fn commit() -> String {
    let said = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    let said = said.ok().filter(|said| said.status.success()).map(|said| said.stdout);
    said.and_then(|text| String::from_utf8(text).ok()).map_or("unknown".to_owned(), |text| text.trim().to_owned())
}

fn again(simulation: &Simulation, seed: u64, cut: &Cut) -> String {
    let name = simulation.name;
    let cut = if *cut == Cut::default() { String::new() } else { format!(" --cut \"{cut}\"") };
    format!("tests/run sim --of {name} --seed {seed}{cut}")
}

/// What failed, with all that is needed to look at it again.
pub(crate) fn failure(simulation: &Simulation, seed: u64, cut: &Cut, what: &str) {
    println!("first failing seed: {seed}");
    println!("{}: seed {seed} of commit {} failed: {what}", simulation.name, commit());
    let run = Run::new(seed, cut.clone(), false);
    if simulation.attempt(&run).is_ok() {
        println!("  it did not fail again: the simulation is not repeatable, or the system is not what it was");
        return;
    }
    let shrunk = shrink(seed, run.drawn(), cut.clone(), what.to_owned(), &|run| simulation.attempt(run));
    let told = Run::new(seed, shrunk.cut.clone(), true);
    let _ = simulation.attempt(&told);
    println!("  again: {}", again(simulation, seed, cut));
    println!("  shrunk to {} faults and {} requests:", told.outcome().struck(), told.outcome().requests);
    println!("  {}", shrunk.what.replace('\n', "\n  "));
    println!("  last events:");
    for event in told.events() {
        println!("    {event}");
    }
    println!("  again, shrunk: {}", again(simulation, seed, &shrunk.cut));
}
