//! Documents whose lists name tests and code, read so that tests can hold them against what is there.

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

/// An item of a document's lists that has items of its own: `* **ID** (NOTE): what it is`, and `  * PART` below it. Lines that go on are
/// joined.
#[derive(Default)]
pub struct Entry {
    /// What stands between `**` at its beginning; empty where nothing does.
    pub id: String,
    /// What stands in brackets behind the id.
    pub note: String,
    /// What it is.
    pub what: String,
    /// The items below it.
    pub parts: Vec<String>,
}

impl Entry {
    /// The part that begins so, without its beginning; nothing where there is none.
    #[must_use]
    pub fn part(&self, begins: &str) -> &str {
        self.parts.iter().find_map(|part| part.strip_prefix(begins)).unwrap_or_default()
    }

    fn of(said: &str) -> Self {
        let (id, rest) = said.strip_prefix("**").and_then(|said| said.split_once("**")).unwrap_or(("", said));
        let (note, what) = rest.strip_prefix(" (").and_then(|rest| rest.split_once(')')).unwrap_or(("", rest));
        let what = what.strip_prefix(':').unwrap_or(what).trim();
        Self { id: id.to_owned(), note: note.to_owned(), what: what.to_owned(), parts: Vec::new() }
    }
}

/// The entries of a document below its first second-level heading. Whatever begins like an item there is one.
#[must_use]
pub fn entries(document: &str) -> Vec<Entry> {
    entries_of(&text(document))
}

fn entries_of(text: &str) -> Vec<Entry> {
    let (_, text) = text.split_once("\n## ").unwrap_or_default();
    // Items of both levels, as whole lines.
    let mut items: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let begins = line.starts_with("* ") || line.starts_with("  * ");
        if begins {
            items.push(line.trim_end().to_owned());
        } else if let Some(item) = items.last_mut().filter(|_| open && line.starts_with("  ")) {
            *item += " ";
            *item += line.trim();
        }
        open = begins || open && line.starts_with("  ");
    }
    let mut entries: Vec<Entry> = Vec::new();
    for item in items {
        match (item.strip_prefix("  * "), entries.last_mut()) {
            (Some(part), Some(entry)) => entry.parts.push(part.to_owned()),
            _ => entries.push(Entry::of(item.trim_start_matches("* "))),
        }
    }
    entries
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
    use super::{declares, entries_of, item_exists, quoted, test_exists};

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
    fn entries_are_read_with_their_parts_and_lines_that_go_on() {
        let text = "# A\n* **X**: no entry\n\n## B\n\nText.\n\n* **S1** (both): one\n  two: (three)\n  * code: `a`,\n    `b c`\n  * d\n\n\
            ## C\n* e\n  * f\n\n    g\n";
        let entries = entries_of(text);
        let told: Vec<_> = entries.iter().map(|entry| (&*entry.id, &*entry.note, &*entry.what)).collect();
        assert_eq!(told, [("S1", "both", "one two: (three)"), ("", "", "e")]);
        assert_eq!(entries[0].parts, ["code: `a`, `b c`", "d"]);
        assert_eq!((entries[0].part("code: "), entries[0].part("tests: ")), ("`a`, `b c`", ""));
        assert_eq!(entries[1].parts, ["f"]);
    }

    #[test]
    fn tests_are_found_in_their_files() {
        assert!(test_exists("tests/src/documents.rs::tests_are_found_in_their_files"));
        assert!(!test_exists("tests/src/documents.rs::asleep::tests_are_found_in_their_files"));
        assert!(!test_exists("tests/src/documents.rs"));
        assert_eq!(quoted("a `b` c `d`").collect::<Vec<_>>(), ["b", "d"]);
    }
}
