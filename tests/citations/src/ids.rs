//! Ids (a letter and a number), and where they are defined.

use crate::tree::Tree;
use std::collections::BTreeSet;

/// Documents that define ids: where a row of a table, an item of a list or a heading begins with one.
const DOCUMENTS: [&str; 4] = ["docs/behaviours.md", "docs/clauses.md", "docs/hardware.md", "docs/performance.md"];
/// Historic mutants, whose names begin with an id.
const MUTANTS: &str = "tests/mutants/historic.toml";
/// What looks like an id and is none: network cards, and sections of the InfiniBand Architecture Specification.
const NONE: [&str; 4] = ["E810", "X722", "C9", "C10"];

/// All ids that are defined.
pub(crate) fn defined(tree: &Tree) -> BTreeSet<String> {
    let begins = |line: &str| {
        let rest = ["| ", "* ", "### "].iter().find_map(|begin| line.strip_prefix(begin))?.trim_start_matches("**");
        ids(rest).next().filter(|id| rest.starts_with(id.as_str()))
    };
    let documents = DOCUMENTS.iter().flat_map(|document| tree.text(document).lines().filter_map(begins));
    let named = |line: &str| {
        let name = line.strip_prefix("name = \"")?.split(['_', '"']).next()?;
        ids(name).next()
    };
    documents.chain(tree.text(MUTANTS).lines().filter_map(named)).collect()
}

/// What looks like an id in a text: a capital and up to three digits, neither part of a word nor behind a hyphen.
pub(crate) fn ids(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|letter: char| !(letter.is_alphanumeric() || "_-.".contains(letter)));
    words
        .map(|word| word.trim_end_matches(['.', '-']))
        .filter(|word| is_id(word) && !NONE.contains(word))
        .map(str::to_owned)
}

fn is_id(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(|first| first.is_ascii_uppercase())
        && (2..=4).contains(&word.len())
        && letters.all(|letter| letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_words_of_their_own() {
        assert_eq!(
            ids("S37, (D2); `-O3` A1.5 K9: xF3 F_3 C9-88 E810 A4.").collect::<Vec<_>>(),
            ["S37", "D2", "K9", "A4"]
        );
    }

    #[test]
    fn rows_items_and_names_define_them() {
        let files = [
            ("docs/behaviours.md", "| S1 | a |\nS2\n* **S3**: b\n| a S4 |\n### S5: c\n"),
            (MUTANTS, "name = \"K7_x\"\nwhat = \"K8\"\n"),
        ];
        let tree = Tree::new(files.map(|(name, text)| (name.to_owned(), text.to_owned())).into_iter());
        assert_eq!(defined(&tree).into_iter().collect::<Vec<_>>(), ["K7", "S1", "S3", "S5"]);
    }
}
