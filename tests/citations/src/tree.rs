//! The files of the repository, and whether a path leads to one of them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::Path,
    process::Command,
};

/// What a path may leave out at its end.
const ENDINGS: [&str; 4] = ["", ".rs", "/mod.rs", ".sh"];
/// Names that are not placeholders although they are in capitals.
const FILES_IN_CAPITALS: [&str; 3] = ["README", "CHANGELOG", "LICENSE"];

/// Names and texts.
pub(crate) struct Tree {
    /// The text of each file, empty where it is none.
    texts: BTreeMap<String, String>,
    folders: BTreeSet<String>,
    /// Paths by their last component, files and folders.
    by_name: HashMap<String, Vec<String>>,
}

impl Tree {
    /// Files that git has, and new ones that it does not ignore.
    pub(crate) fn of(root: &Path) -> io::Result<Self> {
        let mut git = Command::new("git");
        git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = git.output()?;
        if !listed.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&listed.stderr).into_owned()));
        }
        let names = String::from_utf8_lossy(&listed.stdout).into_owned();
        let there = names.split('\0').filter(|name| root.join(name).is_file());
        Ok(Self::new(there.map(|name| (name.to_owned(), std::fs::read_to_string(root.join(name)).unwrap_or_default()))))
    }

    pub(crate) fn new(files: impl Iterator<Item = (String, String)>) -> Self {
        let texts: BTreeMap<_, _> = files.collect();
        let above = |name: &String| name.match_indices('/').map(|(at, _)| name[..at].to_owned()).collect::<Vec<_>>();
        let folders: BTreeSet<String> = texts.keys().flat_map(above).collect();
        let mut by_name: HashMap<String, Vec<String>> = HashMap::new();
        for path in texts.keys().chain(&folders) {
            by_name.entry(last(path).to_owned()).or_default().push(path.clone());
        }
        Self { texts, folders, by_name }
    }

    /// Each file with its text.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// The text of a file; nothing where there is none.
    pub(crate) fn text(&self, file: &str) -> &str {
        self.texts.get(file).map_or("", String::as_str)
    }

    /// Whether a folder of this name is at the root.
    pub(crate) fn has_at_root(&self, name: &str) -> bool {
        self.folders.contains(name)
    }

    /// The file or folder that a path names exactly: from a folder, `../` and `./` followed.
    pub(crate) fn exactly(&self, folder: &str, path: &str) -> Option<String> {
        let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()?),
                _ => parts.push(part),
            }
        }
        let joined = parts.join("/");
        (joined.is_empty() || self.texts.contains_key(&joined) || self.folders.contains(&joined)).then_some(joined)
    }

    /// The file or folder whose path ends with what is cited, whose ending may be left out. A component in capitals, as `NAME`, and `*`
    /// stand for anything.
    pub(crate) fn ending_with(&self, cited: &str) -> Option<&str> {
        let cited = cited.trim_end_matches('/');
        let pattern = pattern(cited);
        if pattern.contains('*') {
            return self.texts.keys().chain(&self.folders).map(String::as_str).find(|path| matches_end(path, &pattern));
        }
        let ends = |path: &String, wanted: &str| {
            path.strip_suffix(wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        };
        ENDINGS.iter().find_map(|ending| {
            let wanted = format!("{cited}{ending}");
            self.by_name.get(last(&wanted))?.iter().find(|path| ends(path, &wanted)).map(String::as_str)
        })
    }
}

/// The folder that a file is in.
pub(crate) fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A path with a star for each word in capitals, such as NAME: it stands for any name.
fn pattern(cited: &str) -> String {
    let parts = cited.split('/').map(|part| {
        let words = part.split_inclusive(|letter: char| !letter.is_alphanumeric());
        words.map(|word| {
            let name = word.trim_end_matches(|letter: char| !letter.is_alphanumeric());
            let stands_for_any = name.len() > 2 && name.chars().all(|letter| letter.is_ascii_uppercase());
            if stands_for_any && !FILES_IN_CAPITALS.contains(&name) { word.replace(name, "*") } else { word.to_owned() }
        })
    });
    parts.map(Iterator::collect::<String>).collect::<Vec<_>>().join("/")
}

/// Whether the last components of a path are those of a pattern.
fn matches_end(path: &str, pattern: &str) -> bool {
    let (mut path, mut pattern) = (path.rsplit('/'), pattern.rsplit('/'));
    pattern.all(|wanted| path.next().is_some_and(|part| matches(part, wanted)))
}

fn matches(part: &str, wanted: &str) -> bool {
    match wanted.split_once('*') {
        None => part == wanted,
        Some((before, after)) => {
            part.len() >= before.len() + after.len() && part.starts_with(before) && part.ends_with(after)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_whole_by_their_ends_and_by_patterns() {
        let tree = Tree::new(
            ["a/src/run/mod.rs", "a/src/go.rs", "a/jobs/kernel_go.sh", "b/c.toml"]
                .map(|name| (name.to_owned(), String::new()))
                .into_iter(),
        );
        assert_eq!(tree.exactly("a/src", "../jobs").as_deref(), Some("a/jobs"));
        assert_eq!(tree.exactly("a", "../../b/c.toml"), None, "above the repository");
        for cited in [
            "a/src/run",
            "src/run",
            "run",
            "src/go.rs",
            "go",
            "a/jobs/kernel_*.sh",
            "jobs/NAME.sh",
            "jobs/kernel_NAME.sh",
            "a/FOLDER/",
            "src/run/",
        ] {
            assert!(tree.ending_with(cited).is_some(), "{cited}");
        }
        for cited in ["b/run", "o.rs", "a/jobs/*.rs", "c"] {
            assert_eq!(tree.ending_with(cited), None, "{cited}");
        }
    }
}
