//! `docs/clauses.md` maps what NVMe demands of what is implemented to code and tests, or says why it is not implemented. This test keeps it
//! honest.

use frwr_tests::documents::{Entry, entries, item_exists, quoted, test_exists};
use std::collections::BTreeSet;

const DOCUMENT: &str = "docs/clauses.md";
/// What code and tests of a clause begin with.
const CODE: &str = "code: ";
const TESTS: &str = "tests: ";
/// What a clause says in place of both.
const NOT_IMPLEMENTED: &str = "not implemented: ";
/// Kinds of clauses: fabrics, the RDMA transport, the NVM command set, and whatever else of the base specification fabrics rely on.
const KINDS: [&str; 4] = ["F", "R", "N", "B"];
/// Fewer would be lists that lost their entries.
const LEAST: usize = 100;
/// Of a reason in characters, so that it says something.
const SHORTEST_REASON: usize = 20;

#[test]
fn every_clause_has_a_name_of_its_own_and_somebody_whose_duty_it_is() {
    let (clauses, mut seen) = (entries(DOCUMENT), BTreeSet::new());
    assert!(clauses.len() >= LEAST, "{} clauses", clauses.len());
    for Entry { id, note: duty, what, .. } in &clauses {
        let number = KINDS.iter().find_map(|kind| id.strip_prefix(kind)?.parse::<u32>().ok());
        assert!(number.is_some(), "{id} ({what}): a letter of {KINDS:?} and a number");
        assert!(seen.insert(id.clone()), "{id} is there twice");
        assert!(!what.is_empty() && ["host", "controller", "both"].contains(&duty.as_str()), "{id}: {duty}");
    }
}

#[test]
fn every_clause_has_code_and_a_test_or_says_why_not() {
    let is_whole = |clause: &Entry| {
        let has = |part: &str| quoted(clause.part(part)).next().is_some();
        let reason = clause.part(NOT_IMPLEMENTED).len() >= SHORTEST_REASON;
        // What is refused may have a test that shows it.
        match clause.parts.len() {
            1 => reason,
            parts => parts == 2 && has(TESTS) && (has(CODE) || reason),
        }
    };
    let bare: Vec<_> =
        entries(DOCUMENT).into_iter().filter(|clause| !is_whole(clause)).map(|clause| clause.id).collect();
    assert!(bare.is_empty(), "neither code and test, nor a reason: {bare:?}");
}

#[test]
fn all_code_and_every_test_that_is_named_exists() {
    let mut wrong = Vec::new();
    for clause in entries(DOCUMENT) {
        let (id, code, tests) = (&clause.id, clause.part(CODE), clause.part(TESTS));
        wrong.extend(quoted(code).filter(|name| !item_exists(name)).map(|name| format!("{id}: code {name}")));
        wrong.extend(quoted(tests).filter(|name| !test_exists(name)).map(|name| format!("{id}: test {name}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
