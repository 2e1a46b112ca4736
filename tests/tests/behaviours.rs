//! `docs/behaviours.md` maps every id of the specification to the tests that prove it, or says why it does not apply.
//! This test keeps the map honest: every id is there, and every test that it names exists.

use std::{collections::BTreeMap, path::Path};

/// Highest number of each kind of id.
const IDS: [(&str, u32); 7] = [("S", 140), ("D", 29), ("U", 26), ("I", 35), ("E", 20), ("F", 20), ("T", 4)];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Ids and what the map says of them.
fn map() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(root().join("docs/behaviours.md")).expect("docs/behaviours.md");
    let rows = text.lines().filter_map(|line| {
        let (id, said) = line.strip_prefix("| ")?.split_once(" | ")?;
        let (kind, number) = id.split_at_checked(1)?;
        let known = IDS.iter().any(|(name, _)| *name == kind) && number.parse::<u32>().is_ok();
        known.then(|| (id.to_owned(), said.trim_end_matches(" |").to_owned()))
    });
    rows.collect()
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
            let Some((file, test)) = name.split_once("::") else { continue };
            let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
            let function = test.rsplit("::").next().unwrap_or(test);
            if !text.contains(&format!("fn {function}(")) {
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
