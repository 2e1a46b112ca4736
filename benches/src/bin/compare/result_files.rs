//! Files that a run leaves: JSON for machines, HTML with the picture for people.

use super::machine::Machine;
use super::plot::{escaped, svg};
use super::report::{Outcome, json, reasons, summary, table};
use std::fs;
use std::path::{Path, PathBuf};

/// Where results go, below the source tree; git ignores what nobody chose.
const FOLDER: &str = "benches/results";

/// Makes the folder, and finds out whether it takes files.
pub(super) fn prepare(root: &Path) -> Result<(), String> {
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let trial = folder.join(format!(".trial-{}", std::process::id()));
    put(&trial, "")?;
    fs::remove_file(&trial).map_err(|error| format!("{}: {error}", trial.display()))
}

/// Writes all files of a run and returns their common path, without an ending.
pub(super) fn write(root: &Path, outcomes: &[Outcome], machine: &Machine) -> Result<PathBuf, String> {
    prepare(root)?;
    let folder = root.join(FOLDER);
    let dirty = if machine.dirty { "-changed" } else { "" };
    let path = folder.join(format!("{}-{}{dirty}", machine.date.replace(':', ""), machine.commit));
    let mut value = json(outcomes);
    value["machine"] = machine.json();
    put(&path.with_extension("json"), &(value.to_string() + "\n"))?;
    let picture = svg(outcomes, &machine.line());
    put(&path.with_extension("html"), &html(outcomes, machine, &picture))?;
    put(&path.with_extension("svg"), &picture)?;
    Ok(path)
}

/// Writes a file; the error names it.
pub(super) fn put(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn html(outcomes: &[Outcome], machine: &Machine, picture: &str) -> String {
    let packages: Vec<_> = machine.packages.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let reasons: String = reasons(outcomes).iter().map(|line| format!("<li>{}</li>\n", escaped(line))).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>frwr beside its peers</title>\n\
         <style>body{{font-family:sans-serif;max-width:72em;margin:2em auto}}pre{{overflow-x:auto;font-size:12px}}</style>\n\
         </head><body>\n<h1>frwr beside its peers</h1>\n<p>{}</p>\n<p>{}</p>\n{picture}\n<pre>{}</pre>\n\
         <p>* a figure of an emulated machine: only its ratio says something.</p>\n<ul>\n{reasons}</ul>\n<p>{}</p>\n\
         </body></html>\n",
        escaped(&machine.line()),
        escaped(&packages.join(", ")),
        escaped(&table(outcomes).text()),
        escaped(&summary(outcomes)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_takes_no_results_is_told_before_the_run() {
        let root = std::env::temp_dir().join(format!("frwr-results-{}", std::process::id()));
        assert_eq!(prepare(&root), Ok(()));
        assert_eq!(fs::read_dir(root.join(FOLDER)).map(Iterator::count).ok(), Some(0), "nothing is left");
        fs::remove_dir_all(&root).expect("it is ours");
        // A file in the place of the tree.
        fs::write(&root, "").expect("it is ours");
        let message = prepare(&root).expect_err("it is no folder");
        fs::remove_file(&root).expect("it is ours");
        assert!(message.starts_with(&root.display().to_string()), "{message}");
    }
}
