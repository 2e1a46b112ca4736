//! Whether the table, the list of names and the code say the same.

use super::table::{PATH, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Where the names are listed for the compiler.
const NAMES: &str = "mempool/src/mutant/names.rs";
/// Where conditions may stand.
const SOURCES: &[&str] = &["mempool/src", "engine/src", "reactor/src", "apps/nvmf/src", "apps/frwr/src"];
/// What stands in front of the name of a condition.
const CONDITION: &str = "mutant!(";
/// The historic bugs of the field, each of which is a mutant or has a reason why not: a letter, and how many there are.
const HISTORIC: &[(char, u32)] = &[('K', 21), ('S', 10), ('F', 20)];

/// What differs.
pub(super) fn differences(root: &Path, table: &Table) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let code = in_code(root)?;
    let listed = listed(root)?;
    let mut names = BTreeSet::new();
    for mutant in &table.mutants {
        if !names.insert(mutant.name.as_str()) {
            found.push(format!("{PATH} has {} twice", mutant.name));
        }
        let at: BTreeSet<_> = mutant.at.iter().cloned().collect();
        match code.get(&mutant.name) {
            None => found.push(format!("{} stands in {PATH} and not in the code", mutant.name)),
            Some(files) if *files != at => {
                found.push(format!("{} stands in {files:?}, and {PATH} says {at:?}", mutant.name));
            }
            Some(_) => {}
        }
        if mutant.what.is_empty() || mutant.breaks.is_empty() {
            found.push(format!("{PATH} does not say what {} is, and what it breaks", mutant.name));
        }
    }
    for name in code.keys().filter(|name| !names.contains(name.as_str())) {
        found.push(format!("{name} stands in the code and not in {PATH}"));
    }
    let in_code: BTreeSet<_> = code.into_keys().collect();
    if listed != in_code {
        let differing: Vec<_> = listed.symmetric_difference(&in_code).collect();
        found.push(format!("{NAMES} and the code differ in {differing:?}"));
    }
    found.extend(
        table.absent.iter().filter(|absent| absent.why.is_empty()).map(|absent| format!("{}: why?", absent.name)),
    );
    found.extend(unaccounted(table).map(|name| format!("{PATH} has neither a mutant of {name} nor a reason why not")));
    Ok(found)
}

/// Historic bugs that the table says nothing of.
fn unaccounted(table: &Table) -> impl Iterator<Item = String> {
    let all = HISTORIC.iter().flat_map(|(letter, count)| (1..=*count).map(move |at| format!("{letter}{at}")));
    all.filter(|bug| {
        let face = format!("{bug}_");
        let is_there = table.mutants.iter().any(|mutant| mutant.name == *bug || mutant.name.starts_with(&face));
        !is_there && !table.absent.iter().any(|absent| absent.name == *bug)
    })
}

/// The conditions of the code, with their files.
fn in_code(root: &Path) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in SOURCES {
        visit(&root.join(source), &mut |path| {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let file = path.strip_prefix(root).unwrap_or(path).display().to_string();
            for rest in text.split(CONDITION).skip(1) {
                let name: String =
                    rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
                if !name.is_empty() {
                    found.entry(name).or_default().insert(file.clone());
                }
            }
            Ok(())
        })?;
    }
    Ok(found)
}

fn visit(folder: &Path, each: &mut impl FnMut(&Path) -> Result<(), String>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            visit(&path, each)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            each(&path)?;
        }
    }
    Ok(())
}

/// The names that the compiler knows: a line each, in the only block of its kind.
fn listed(root: &Path) -> Result<BTreeSet<String>, String> {
    let text = std::fs::read_to_string(root.join(NAMES)).map_err(|error| format!("{NAMES}: {error}"))?;
    let lines = text.lines().skip_while(|line| *line != "mutants! {").skip(1);
    Ok(lines.take_while(|line| *line != "}").map(|line| line.trim().to_owned()).collect())
}
