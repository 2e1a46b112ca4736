//! `docs/faults.md` says of each of the forty faults what has to hold, and which tests and which drawn faults of the simulations show that.
//! This test keeps it honest.

use frwr_tests::documents::{Entry, entries, is_said_below, quoted, test_exists};

const DOCUMENT: &str = "docs/faults.md";
const FAULTS: usize = 40;
/// In front of the name of a fault that a simulation draws.
const DRAWN: &str = "simulation: ";
/// Where faults are drawn.
const SIMULATIONS: [&str; 3] = ["tests/src/simulation", "tests/support/src", "tests/src/engine_world"];
/// What may have to hold.
const INVARIANTS: &str = "EFHSCQGKOLI";

#[test]
fn every_fault_has_an_entry_and_each_says_what_has_to_hold() {
    let entries = entries(DOCUMENT);
    let numbers: Vec<_> = entries.iter().map(|fault| fault.id.parse::<usize>().unwrap_or(0)).collect();
    assert!(numbers.iter().copied().eq(1..=FAULTS), "{numbers:?}");
    for Entry { id, note: invariants, what, .. } in entries {
        assert!(!what.is_empty(), "{id}");
        let known = |invariant: &str| invariant.len() == 1 && INVARIANTS.contains(invariant);
        assert!(!invariants.is_empty() && invariants.split(' ').all(known), "{id}: {invariants}");
    }
}

/// Tests and drawn faults of an entry.
fn shown(fault: &Entry) -> Vec<&str> {
    fault.parts.iter().flat_map(|part| quoted(part)).collect()
}

#[test]
fn every_fault_has_a_test_or_is_drawn_and_all_that_is_named_exists() {
    let mut wrong = Vec::new();
    for fault in entries(DOCUMENT) {
        let exists = |name: &str| match name.strip_prefix(DRAWN) {
            Some(drawn) => is_said_below(&SIMULATIONS, &format!("name: \"{drawn}\"")),
            None => test_exists(name),
        };
        let shown = shown(&fault);
        wrong.extend(shown.iter().filter(|name| !exists(name)).map(|name| format!("{}: {name}", fault.id)));
        if shown.is_empty() {
            wrong.push(format!("{}: nothing shows it", fault.id));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A drawn fault alone meets what a seed happens to meet.
#[test]
fn every_fault_has_a_test_that_draws_nothing() {
    let entries = entries(DOCUMENT);
    let drawn_only = entries.iter().filter(|fault| shown(fault).iter().all(|name| name.starts_with(DRAWN)));
    let drawn_only: Vec<_> = drawn_only.map(|fault| &fault.id).collect();
    assert!(drawn_only.is_empty(), "{drawn_only:?}");
}
