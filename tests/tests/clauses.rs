//! `docs/clauses.md` maps what NVMe demands of what is implemented to code and tests, or says why it is not implemented. This test keeps it
//! honest.

use frwr_tests::documents::{item_exists, quoted, rows, test_exists};
use std::collections::BTreeSet;

const DOCUMENT: &str = "docs/clauses.md";
/// What a clause says in place of code and test.
const NOT_IMPLEMENTED: &str = "not implemented: ";
/// Kinds of clauses: fabrics, the RDMA transport, the NVM command set, and whatever else of the base specification fabrics rely on.
const KINDS: [&str; 4] = ["F", "R", "N", "B"];
/// Fewer would be a table that lost its rows.
const LEAST: usize = 100;
/// Of a reason in characters, so that it says something.
const SHORTEST_REASON: usize = 20;

/// Identifier, clause, whose duty it is, code, tests.
type Row = [String; 5];

fn table() -> Vec<Row> {
    rows(DOCUMENT)
}

#[test]
fn every_clause_has_a_name_of_its_own_and_somebody_whose_duty_it_is() {
    let (table, mut seen) = (table(), BTreeSet::new());
    assert!(table.len() >= LEAST, "{} clauses", table.len());
    for [id, clause, duty, ..] in &table {
        let number = KINDS.iter().find_map(|kind| id.strip_prefix(kind)?.parse::<u32>().ok());
        assert!(number.is_some(), "{id}: a letter of {KINDS:?} and a number");
        assert!(seen.insert(id.clone()), "{id} is there twice");
        assert!(!clause.is_empty() && ["host", "controller", "both"].contains(&duty.as_str()), "{id}: {duty}");
    }
}

#[test]
fn every_clause_has_code_and_a_test_or_says_why_not() {
    let has = |cell: &str| quoted(cell).next().is_some();
    let reason = |cell: &str| cell.strip_prefix(NOT_IMPLEMENTED).is_some_and(|why| why.len() >= SHORTEST_REASON);
    let bare = table().into_iter().filter(|[.., code, tests]| !(has(code) && has(tests) || reason(code)));
    let bare: Vec<_> = bare.map(|[id, ..]| id).collect();
    assert!(bare.is_empty(), "neither code and test, nor a reason: {bare:?}");
}

#[test]
fn all_code_and_every_test_that_is_named_exists() {
    let mut wrong = Vec::new();
    for [id, _, _, code, tests] in table() {
        wrong.extend(quoted(&code).filter(|name| !item_exists(name)).map(|name| format!("{id}: code {name}")));
        wrong.extend(quoted(&tests).filter(|name| !test_exists(name)).map(|name| format!("{id}: test {name}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
