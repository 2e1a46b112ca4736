//! `docs/faults.md` says of each of the forty faults what has to hold, and which tests and which drawn faults of the simulations show that.
//! This test keeps it honest.

use frwr_tests::documents::{is_said_below, quoted, rows, test_exists};

const DOCUMENT: &str = "docs/faults.md";
const FAULTS: usize = 40;
/// In front of the name of a fault that a simulation draws.
const DRAWN: &str = "simulation: ";
/// Where faults are drawn.
const SIMULATIONS: [&str; 3] = ["tests/src/simulation", "tests/support/src", "tests/src/engine_world"];
/// What may have to hold.
const INVARIANTS: &str = "EFHSCQGKOLI";

#[test]
fn every_fault_has_a_row_and_each_row_says_what_has_to_hold() {
    let rows = rows::<4>(DOCUMENT);
    let numbers: Vec<_> = rows.iter().map(|[number, ..]| number.parse::<usize>().unwrap_or(0)).collect();
    assert!(numbers.iter().copied().eq(1..=FAULTS), "{numbers:?}");
    for [number, fault, invariants, _] in rows {
        assert!(!fault.is_empty(), "{number}");
        let known = |invariant: &str| invariant.len() == 1 && INVARIANTS.contains(invariant);
        assert!(!invariants.is_empty() && invariants.split(' ').all(known), "{number}: {invariants}");
    }
}

#[test]
fn every_fault_has_a_test_or_is_drawn_and_all_that_is_named_exists() {
    let mut wrong = Vec::new();
    for [number, _, _, shown] in rows::<4>(DOCUMENT) {
        let exists = |name: &str| match name.strip_prefix(DRAWN) {
            Some(drawn) => is_said_below(&SIMULATIONS, &format!("name: \"{drawn}\"")),
            None => test_exists(name),
        };
        wrong.extend(quoted(&shown).filter(|name| !exists(name)).map(|name| format!("{number}: {name}")));
        if quoted(&shown).next().is_none() {
            wrong.push(format!("{number}: nothing shows it"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A drawn fault alone meets what a seed happens to meet.
#[test]
fn every_fault_has_a_test_that_draws_nothing() {
    let rows = rows::<4>(DOCUMENT);
    let drawn_only = rows.iter().filter(|[.., shown]| quoted(shown).all(|name| name.starts_with(DRAWN)));
    let drawn_only: Vec<_> = drawn_only.map(|[number, ..]| number).collect();
    assert!(drawn_only.is_empty(), "{drawn_only:?}");
}
