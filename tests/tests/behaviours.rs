//! `docs/behaviours.md` maps every id to the tests that prove it, or says why it does not apply, and promises that were
//! broken by hand to the tests that failed by it. This test keeps both honest: every id is there, and every test and file named exists.

use frwr_tests::documents::{Entry, entries, quoted, root, test_exists};
use std::collections::BTreeMap;

const DOCUMENT: &str = "docs/behaviours.md";

/// Highest number of each kind of id.
const IDS: [(&str, u32); 7] = [("S", 140), ("D", 29), ("U", 26), ("I", 35), ("E", 20), ("F", 20), ("T", 4)];

/// Ids and what the map says of them.
fn map() -> BTreeMap<String, String> {
    let entries = entries(DOCUMENT).into_iter().filter(|entry| !entry.id.is_empty());
    let mapped: Vec<_> = entries.map(|entry| (entry.id, entry.parts.join(", "))).collect();
    let map: BTreeMap<_, _> = mapped.iter().cloned().collect();
    assert_eq!(map.len(), mapped.len(), "an id is there twice");
    map
}

/// What each promise is, how it was broken, and the tests that failed by it: entries without an id.
fn promises() -> Vec<[String; 3]> {
    let entries = entries(DOCUMENT).into_iter().filter(|entry| entry.id.is_empty());
    let promise = |entry: Entry| [entry.part("broken: ").to_owned(), entry.part("killed by: ").to_owned(), entry.what];
    entries.map(promise).map(|[broken, killed_by, what]| [what, broken, killed_by]).collect()
}

#[test]
fn every_promise_names_what_was_broken_and_tests_that_exist() {
    let promises = promises();
    assert!(!promises.is_empty());
    for [promise, broken, killed_by] in promises {
        let missing: Vec<_> = quoted(&broken).filter(|file| !root().join(file).is_file()).collect();
        assert!(missing.is_empty() && broken.contains('`'), "{promise}: files {missing:?}");
        let wrong: Vec<_> = quoted(&killed_by).filter(|name| !test_exists(name)).collect();
        assert!(wrong.is_empty() && killed_by.contains(".rs::"), "{promise}: tests that do not exist: {wrong:?}");
    }
}

#[test]
fn every_id_is_mapped() {
    let map = map();
    let missing: Vec<String> = IDS
        .iter()
        .flat_map(|(kind, most)| (1..=*most).map(move |number| format!("{kind}{number}")))
        .filter(|id| map.get(id).is_none_or(|said| said.is_empty()))
        .collect();
    assert!(missing.is_empty(), "docs/behaviours.md says nothing of {missing:?}");
}

#[test]
fn every_named_test_exists() {
    let mut wrong = Vec::new();
    for (id, said) in map() {
        for name in said.split('`').filter(|part| part.contains(".rs::")) {
            if !test_exists(name) {
                wrong.push(format!("{id}: {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "tests that do not exist: {wrong:#?}");
}

#[test]
fn an_id_without_a_test_says_why() {
    let bare: Vec<_> = map().into_iter().filter(|(_, said)| !said.contains(".rs::") && !said.contains("n/a")).collect();
    assert!(bare.is_empty(), "neither a test nor a reason: {bare:?}");
}
