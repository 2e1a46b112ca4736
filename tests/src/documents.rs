//! Documents whose tables name tests and code, read so that tests can hold them against what is there.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What a declaration may begin with, in front of its name.
const KEYWORDS: [&str; 9] = ["fn", "struct", "enum", "const", "static", "type", "trait", "mod", "macro_rules!"];

/// The repository.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The text of a file of the repository; nothing where there is none.
#[must_use]
pub fn text(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_default()
}

/// The rows of all tables of a document, without those that say what the columns are, cell by cell.
///
/// # Panics
/// Where a row has another number of cells.
#[must_use]
pub fn rows<const CELLS: usize>(document: &str) -> Vec<[String; CELLS]> {
    let text = text(document);
    let lines: Vec<&str> = text.lines().collect();
    let is_rule = |line: &str| line.starts_with("|-");
    // A rule stands below what says what the columns are.
    let is_heading = |at: usize| lines.get(at + 1).is_some_and(|below| is_rule(below));
    let found = lines.iter().enumerate().filter(|(at, line)| !is_rule(line) && !is_heading(*at));
    found.filter_map(|(_, line)| Some(cells(line.strip_prefix("| ")?.strip_suffix(" |")?))).collect()
}

fn cells<const CELLS: usize>(row: &str) -> [String; CELLS] {
    let cells: Vec<String> = row.split(" | ").map(|cell| cell.trim().to_owned()).collect();
    cells.try_into().unwrap_or_else(|found| panic!("{CELLS} cells, not {found:?}"))
}

/// What stands between back-quotes.
pub fn quoted(said: &str) -> impl Iterator<Item = &str> {
    said.split('`').skip(1).step_by(2)
}

/// Whether a test exists, as `file::name`; one of a module `asleep` is named in that module's list as well.
#[must_use]
pub fn test_exists(name: &str) -> bool {
    let Some((file, test)) = name.split_once("::") else { return false };
    let text = text(file);
    let function = test.rsplit("::").next().unwrap_or(test);
    let sleeps = text.split_once("asleep! {").is_some_and(|(_, names)| names.contains(&format!("{function},")));
    text.contains(&format!("fn {function}(")) && (sleeps || !test.starts_with("asleep::"))
}

/// Whether an item exists, as `file::item`, `file::item::member` or `file` alone.
#[must_use]
pub fn item_exists(name: &str) -> bool {
    let mut parts = name.split("::");
    let text = text(parts.next().unwrap_or_default());
    !text.is_empty() && parts.all(|item| declares(&text, item))
}

/// A declaration of the name, or the line of a variant, a field, or an entry of a macro's list.
fn declares(text: &str, name: &str) -> bool {
    let ends = |rest: &str| rest.starts_with(|next: char| !next.is_alphanumeric() && next != '_');
    let declared = |line: &str| {
        KEYWORDS.iter().any(|keyword| {
            let (_, behind) = line.split_once(&format!("{keyword} {name}")).unwrap_or_default();
            ends(behind)
        })
    };
    let listed = |line: &str| line.trim_start().trim_start_matches("pub ").strip_prefix(name).is_some_and(ends);
    text.lines().any(|line| declared(line) || listed(line))
}

/// Whether a word stands in a source file below one of these folders.
#[must_use]
pub fn is_said_below(folders: &[&str], word: &str) -> bool {
    folders.iter().any(|folder| is_said(&root().join(folder), word))
}

fn is_said(folder: &Path, word: &str) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    let in_file = |path: &PathBuf| {
        path.extension().is_some_and(|kind| kind == "rs")
            && fs::read_to_string(path).is_ok_and(|text| text.contains(word))
    };
    paths.iter().any(|path| if path.is_dir() { is_said(path, word) } else { in_file(path) })
}

#[cfg(test)]
mod tests {
    use super::{declares, item_exists, quoted, test_exists};

    #[test]
    fn items_are_found_by_their_whole_names() {
        let text = "pub(super) fn parse(bytes: &[u8]) {}\npub struct Queue;\nenum Kind {\n    Read,\n    Name = 3, \"x\";\n}\n    pub id: u16,\n";
        for name in ["parse", "Queue", "Kind", "Read", "Name", "id"] {
            assert!(declares(text, name), "{name}");
        }
        for name in ["pars", "Que", "bytes", "Rea", "x"] {
            assert!(!declares(text, name), "{name}");
        }
        assert!(item_exists("tests/src/documents.rs::declares") && !item_exists("tests/src/documents.rs::nothing"));
        assert!(item_exists("tests/src/documents.rs") && !item_exists("tests/src/nowhere.rs"));
    }

    #[test]
    fn tests_are_found_in_their_files() {
        assert!(test_exists("tests/src/documents.rs::tests_are_found_in_their_files"));
        assert!(!test_exists("tests/src/documents.rs::asleep::tests_are_found_in_their_files"));
        assert!(!test_exists("tests/src/documents.rs"));
        assert_eq!(quoted("a `b` c `d`").collect::<Vec<_>>(), ["b", "d"]);
    }
}
