//! What a text cites, and whether it is there.

use crate::{
    comments::{Kind, Said},
    ids,
    tree::{Tree, folder},
};
use std::{
    collections::{BTreeSet, HashSet},
    fmt,
};

/// Endings of files that are ours wherever they are named, beside documents.
const OURS: [&str; 4] = [".rs", ".sh", ".toml", ".py"];
/// Folders at the root of a machine that are somebody's own.
const OUTSIDE: [&str; 3] = ["work", "home", "root"];
/// How the names of libraries' functions begin.
const FOREIGN: [&str; 4] = ["ibv_", "rdma_", "mlx5", "spdk_"];
/// Underscores that make a name in back-quotes one of ours, and none of a system's. One of several parts (`a::b`) is ours in any case.
const OF_A_NAME: usize = 3;
/// What has sections and tables with numbers that a comment may name.
const PARTS: [&str; 2] = ["section ", "table "];
/// One of these says of what they are: standards with names, and documents.
const WHOLES: [&str; 7] = ["RFC", "IB specification", "InfiniBand", "Base", "RDMA", "NVM", ".md"];
/// What looks like a path of ours and is none: a mode of a bench.
const NO_PATHS: [&str; 1] = ["engine/wide"];
/// A citation that leads nowhere.
pub(crate) struct Found {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) cited: String,
    why: &'static str,
}

impl fmt::Display for Found {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}: {}", self.file, self.line, self.cited, self.why)
    }
}

pub(crate) struct Judge<'a> {
    tree: &'a Tree,
    ids: BTreeSet<String>,
    /// Words of the code of all sources, comments apart.
    words: HashSet<&'a str>,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(tree: &'a Tree) -> Self {
        let sources =
            tree.files().filter(|(file, text)| matches!(Kind::of(file, text), Some(Kind::Slashes | Kind::Hashes)));
        let code = sources.flat_map(|(_, text)| text.lines()).filter(|line| !line.trim_start().starts_with(['/', '#']));
        let words = code.flat_map(|line| line.split(|letter: char| !is_of_name(letter))).collect();
        Self { tree, ids: ids::defined(tree), words }
    }

    /// Of all files.
    pub(crate) fn all(&self) -> Vec<Found> {
        self.tree.files().flat_map(|(file, text)| self.of(file, text)).collect()
    }

    fn of(&self, file: &str, text: &str) -> Vec<Found> {
        let Some(kind) = Kind::of(file, text) else { return Vec::new() };
        let mut found = Vec::new();
        for (line, said, piece) in kind.pieces(text) {
            let mut tell =
                |cited: &str, why| found.push(Found { file: file.to_owned(), line, cited: cited.to_owned(), why });
            self.documents(file, &piece, &mut tell);
            if said == Said::Comment {
                self.paths(file, &piece, &mut tell);
                self.names(&piece, &mut tell);
                self.decisions(&piece, &mut tell);
                self.parts(kind, &piece, &mut tell);
                ids::ids(&piece)
                    .filter(|id| !self.ids.contains(id))
                    .for_each(|id| tell(&id, "an id that no document defines"));
            }
            if matches!(kind, Kind::Document) {
                self.links(file, &piece, &mut tell);
            }
        }
        found
    }

    fn documents(&self, file: &str, piece: &str, tell: &mut impl FnMut(&str, &'static str)) {
        for path in paths(piece).filter(|path| path.ends_with(".md")) {
            // In code a path may go on from a folder that the compiler names.
            let from_the_root = path.trim_start_matches(['/', '.']);
            if self.file(file, path).or_else(|| self.file(file, from_the_root)).is_none() {
                tell(path, "no such document");
            }
        }
        let is_outside = |path: &&str| {
            let begins =
                |folder: &&str| path.strip_prefix('/').is_some_and(|path| path.starts_with(&format!("{folder}/")));
            OUTSIDE.iter().any(begins)
        };
        paths(piece).filter(is_outside).for_each(|path| tell(path, "outside of the repository"));
    }

    fn paths(&self, file: &str, piece: &str, tell: &mut impl FnMut(&str, &'static str)) {
        let ours = |path: &&str| {
            let (first, _) = path.split_once('/').unwrap_or_default();
            let ending = OURS.iter().any(|ending| path.ends_with(ending));
            !NO_PATHS.contains(path)
                && !path.ends_with(".md")
                && (self.tree.has_at_root(first)
                    || path.starts_with("../")
                    || (ending && !path.starts_with('/') && !path.ends_with(['/', '.'])))
        };
        for path in paths(piece).filter(ours) {
            if self.file(file, path).is_none() {
                tell(path, "no such file or folder");
            }
        }
        // A file and what it declares.
        for (at, _) in piece.match_indices(".rs::") {
            let Some(path) = paths(&piece[..at + 3]).last() else { continue };
            let Some(found) = self.file(file, path) else { continue };
            let name =
                piece[at + 5..].split(|letter: char| !is_of_name(letter) && letter != ':').next().unwrap_or_default();
            let text = self.tree.text(&found);
            if name.split("::").any(|part| !text.contains(part)) {
                tell(&format!("{path}::{name}"), "the file has no such name");
            }
        }
    }

    fn names(&self, piece: &str, tell: &mut impl FnMut(&str, &'static str)) {
        let quoted = piece.split('`').skip(1).step_by(2);
        let is_ours = |name: &&str| {
            let path = name.contains("::") && name.split("::").all(is_name);
            let long = is_name(name) && name.matches('_').count() >= OF_A_NAME && !name.contains(char::is_uppercase);
            path || long && !FOREIGN.iter().any(|begin| name.starts_with(begin))
        };
        let is_there = |name: &str| name.split("::").all(|part| self.words.contains(part));
        // A call as well as a name.
        let names = quoted.map(|name| name.split('(').next().unwrap_or(name)).filter(is_ours);
        for name in names.filter(|name| !is_there(name)) {
            tell(name, "no source has such a name");
        }
    }

    fn decisions(&self, piece: &str, tell: &mut impl FnMut(&str, &'static str)) {
        for (at, _) in piece.match_indices("decision ") {
            let number: String = piece[at + 9..].chars().take_while(char::is_ascii_digit).collect();
            if let Ok(number) = number.parse::<u32>() {
                let begins = format!("docs/decisions/{number:03}-");
                if !self.tree.files().any(|(file, _)| file.starts_with(&begins)) {
                    tell(&format!("decision {number}"), "no such decision");
                }
            }
        }
    }

    /// A numbered section or table is of a standard that is named, or of a document.
    fn parts(&self, kind: Kind, piece: &str, tell: &mut impl FnMut(&str, &'static str)) {
        for (at, part) in PARTS.iter().flat_map(|part| piece.match_indices(part)) {
            let number =
                piece[at + part.len()..].split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '.'));
            let number = number.map(|number| number.trim_end_matches('.')).next().unwrap_or_default();
            if !number.starts_with(|first: char| first.is_ascii_digit()) {
                continue;
            }
            let title = format!("## {number}. ");
            let is_there = match kind {
                // Which of them may stand on the line above.
                Kind::Document => self.tree.files().any(|(file, text)| file.ends_with(".md") && text.contains(&title)),
                _ => false,
            };
            if !is_there && !WHOLES.iter().any(|whole| piece.contains(whole)) {
                tell(&format!("{part}{number}"), "of nothing that is named or in the repository");
            }
        }
    }

    /// Links of a document are exact, from its folder, down to the heading.
    fn links(&self, file: &str, piece: &str, tell: &mut impl FnMut(&str, &'static str)) {
        for link in piece.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { Some(file.to_owned()) } else { self.tree.exactly(folder(file), path) };
            match target {
                None => tell(link, "the link leads nowhere"),
                Some(target)
                    if !heading.is_empty() && !headings(self.tree.text(&target)).any(|there| there == heading) =>
                {
                    tell(link, "the document has no such heading");
                }
                Some(_) => {}
            }
        }
    }

    /// The file or folder that a file cites: from the root, from its own folder, or by the end of its path.
    fn file(&self, from: &str, cited: &str) -> Option<String> {
        let exact = self.tree.exactly("", cited).filter(|_| !cited.starts_with("../"));
        let exact = exact.or_else(|| self.tree.exactly(folder(from), cited));
        exact.or_else(|| self.tree.ending_with(cited).map(str::to_owned))
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_of_name)
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// What may be a path, or the name of a file, without the stops behind it.
fn paths(piece: &str) -> impl Iterator<Item = &str> {
    let words = piece.split(|letter: char| !(letter.is_ascii_alphanumeric() || "_-./*".contains(letter)));
    let words = words.map(|word| word.trim_end_matches(['.', '-', '*']).trim_start_matches(['*', '-']));
    let is_ending = |word: &str| word.strip_prefix('.').is_some_and(|rest| !rest.contains(['/', '.']));
    words.filter(move |word| word.contains(['/', '.']) && !is_ending(word))
}

/// Headings as links name them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let titles = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim().to_lowercase());
    titles.map(|title| {
        let kept = title.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in a file of these lines, beside a small repository.
    fn cited(name: &str, lines: &str) -> Vec<String> {
        let files = [
            ("docs/behaviours.md", "# Behaviours\n\n## What is proven\n\n| S1 | what | proof |\n"),
            ("docs/decisions/004-a-batch-is-checked-by-its-type.md", "# One\n"),
            ("engine/src/engine/run.rs", "fn runs_as_it_is_told() {}\n"),
            (name, lines),
        ];
        let tree = Tree::new(files.map(|(name, text)| (name.to_owned(), text.to_owned())).into_iter());
        Judge::new(&tree).all().into_iter().map(|found| found.cited).collect()
    }

    #[test]
    fn what_is_there_may_be_cited() {
        let comment = "// docs/behaviours.md, `engine/run`, engine/src/engine/run.rs::runs_as_it_is_told, S1, decision 4, run.rs,\n\
            // `runs_as_it_is_told`, `fn::runs_as_it_is_told()`, I/O, `ibv_open_a_b_c`, RFC 1122, section 3.2, /proc/self/status, https://nowhere.invalid/engine/none, engine/src/*\n";
        assert_eq!(cited("engine/src/lib.rs", comment), [""; 0]);
        let document = "[a](behaviours.md#what-is-proven), [b](../engine/src), [c](https://nowhere.invalid)\n";
        assert_eq!(cited("docs/traps.md", document), [""; 0]);
        assert_eq!(cited("docs/traps.md", "## 1. One\nsection 1; section 2\n"), ["section 2"]);
    }

    #[test]
    fn whatever_is_not_there_is_told_by_its_kind() {
        let none = format!("nowhere{}", ".md");
        for said in [
            none.as_str(),
            &format!("docs/{none}"),
            "engine/src/none.rs",
            "engine/none",
            "../engine/none",
            "none.sh",
            "engine/src/engine/run.rs::none",
            &format!("/{}/me/it", OUTSIDE[1]),
            "S2",
            "section 4.1",
        ] {
            assert_eq!(cited("engine/src/lib.rs", &format!("fn a() {{}} // see {said}.\n")), [said], "{said}");
            assert_eq!(cited("tests/go", &format!("#!/bin/sh\n# see {said}.\n")), [said], "{said}");
        }
        assert_eq!(
            cited("engine/src/lib.rs", "// decision 8, `a_name_of_nothing`, `Tree::nothing(..)`\n"),
            ["a_name_of_nothing", "Tree::nothing", "decision 8"]
        );
        assert_eq!(
            cited("engine/src/lib.rs", &format!("const A: &str = \"docs/{none} S2 engine/none\";\n")),
            [format!("docs/{none}")]
        );
        let links = "[a](behaviours.md#nothing), [b](engine/src)\n";
        assert_eq!(cited("docs/traps.md", links), ["behaviours.md#nothing", "engine/src"]);
    }
}
