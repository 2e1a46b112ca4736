//! Which lines were changed, and since when.

use crate::git::Git;
use crate::record::Record;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::path::Path;

/// Lines of each file that are new since a commit; also what is not committed.
pub(crate) struct Changed {
    /// Since when, for who reads what is printed.
    pub(crate) since: String,
    lines: HashMap<String, Vec<RangeInclusive<usize>>>,
}

impl Changed {
    /// Of each file since its baseline: where the branch left the commit of which the record says that all its mutants were judged;
    /// without one, or where git does not know it, the commit before this one; and in a clone without history, this one. `None` where
    /// there is no git.
    pub(crate) fn since<'a>(root: &Path, record: &Record, files: impl Iterator<Item = &'a str>) -> Option<Self> {
        let git = Git { root };
        let fallback = match git.parent() {
            Some(parent) => (parent, "the commit before this one"),
            None => (git.head()?, "this commit, for git has none before it here"),
        };
        let mut baselines: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
        for file in files {
            let judged = record.commit(file).and_then(|commit| git.left(commit));
            let baseline = judged.map_or_else(|| fallback.clone(), |commit| (commit, "when all mutants were judged"));
            baselines.entry(baseline).or_default().push(file);
        }
        let mut changed = Self { since: String::new(), lines: HashMap::new() };
        let alone = baselines.len() == 1;
        for ((commit, why), files) in baselines {
            changed.add(&git, &commit, &files)?;
            changed.tell(&commit, why, if alone { 0 } else { files.len() });
        }
        Some(changed)
    }

    fn add(&mut self, git: &Git<'_>, commit: &str, files: &[&str]) -> Option<()> {
        let diff = ["diff", "--unified=0", "--no-color", "--no-ext-diff", commit, "--"];
        self.lines.extend(parse(&git.says(&[&diff, files].concat())?));
        Some(())
    }

    fn tell(&mut self, commit: &str, why: &str, files: usize) {
        let short = commit.get(..10).unwrap_or(commit);
        let of = if files == 0 { String::new() } else { format!(" ({files} files)") };
        let comma = if self.since.is_empty() { "" } else { "; " };
        self.since += &format!("{comma}{short}, {why}{of}");
    }

    pub(crate) fn is_changed(&self, file: &str, first: usize, last: usize) -> bool {
        self.lines.get(file).is_some_and(|all| all.iter().any(|lines| *lines.start() <= last && first <= *lines.end()))
    }

    pub(crate) fn has(&self, file: &str) -> bool {
        self.lines.contains_key(file)
    }
}

/// Lines "+++ b/path" and "@@ -1,2 +3,4 @@" of a diff without context.
fn parse(diff: &str) -> HashMap<String, Vec<RangeInclusive<usize>>> {
    let mut lines: HashMap<String, Vec<RangeInclusive<usize>>> = HashMap::new();
    let mut file = None;
    for line in diff.lines() {
        if let Some(path) = line.strip_prefix("+++ ") {
            file = path.strip_prefix("b/").map(str::to_owned);
        } else if let (Some(file), Some(hunk)) = (&file, line.strip_prefix("@@ ")) {
            let Some(new) = hunk.split(' ').find_map(|part| part.strip_prefix('+')) else { continue };
            let (first, count) = new.split_once(',').unwrap_or((new, "1"));
            let (Ok(first), Ok(count)) = (first.parse::<usize>(), count.parse::<usize>()) else { continue };
            // Where lines were only taken away, the ones around the place are looked at.
            let behind = count.saturating_sub(1).max(usize::from(count == 0));
            lines.entry(file.clone()).or_default().push(first..=first.saturating_add(behind));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::tests::{git, repository};

    /// Which of the lines 1 to 9 are changed, where the record has this commit.
    fn changed(root: &Path, commit: Option<&str>) -> (String, Vec<usize>) {
        let path = root.join("record.toml");
        if let Some(commit) = commit {
            let judged = "date = \"\"\nmutants = 3\nkilled = 3\nequivalent = 0\nopen = 0\n";
            std::fs::write(&path, format!("[files.\"a.rs\"]\ncommit = \"{commit}\"\n{judged}")).unwrap();
        }
        let changed = Changed::since(root, &Record::read(&path).unwrap(), ["a.rs"].into_iter()).unwrap();
        let lines = (1..=9).filter(|&line| changed.is_changed("a.rs", line, line)).collect();
        let since = changed.since.split_once(", ").unwrap().1.to_owned();
        std::fs::remove_dir_all(root).unwrap();
        (since, lines)
    }

    #[test]
    fn without_a_record_the_last_commit_counts() {
        assert_eq!(changed(&repository("none", 3), None), ("the commit before this one".to_owned(), vec![3]));
    }

    #[test]
    fn a_record_is_where_changes_begin() {
        let root = repository("record", 4);
        let commit = git(&root, &["rev-parse", "HEAD~2"]);
        assert_eq!(changed(&root, Some(&commit)), ("when all mutants were judged".to_owned(), vec![3, 4]));
    }

    #[test]
    fn each_file_is_asked_about_since_its_own_commit() {
        let root = repository("two", 3);
        std::fs::write(root.join("b.rs"), "// 1\n").unwrap();
        git(&root, &["add", "b.rs"]);
        git(&root, &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "c"]);
        let path = root.join("record.toml");
        let judged = "date = \"\"\nmutants = 3\nkilled = 3\nequivalent = 0\nopen = 0\n";
        let commit = git(&root, &["rev-parse", "HEAD~2"]);
        std::fs::write(&path, format!("[files.\"a.rs\"]\ncommit = \"{commit}\"\n{judged}")).unwrap();
        let changed = Changed::since(&root, &Record::read(&path).unwrap(), ["a.rs", "b.rs"].into_iter()).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        assert!(changed.is_changed("a.rs", 3, 3) && !changed.is_changed("a.rs", 2, 2), "{}", changed.since);
        assert!(changed.is_changed("b.rs", 1, 1), "{}", changed.since);
        assert!(changed.since.contains("when all mutants were judged (1 files)"), "{}", changed.since);
    }

    #[test]
    fn a_record_of_a_branch_counts_from_where_it_was_left() {
        let root = repository("branch", 2);
        let main = git(&root, &["rev-parse", "HEAD"]);
        git(&root, &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "aside"]);
        let aside = git(&root, &["rev-parse", "HEAD"]);
        git(&root, &["reset", "-q", "--hard", &main]);
        std::fs::write(root.join("a.rs"), "// 1\n// 2\n// 3\n").unwrap();
        assert_eq!(changed(&root, Some(&aside)), ("when all mutants were judged".to_owned(), vec![3]));
    }

    #[test]
    fn a_record_that_git_does_not_know_is_none() {
        let unknown = "0123456789012345678901234567890123456789";
        let root = repository("unknown", 2);
        assert_eq!(changed(&root, Some(unknown)), ("the commit before this one".to_owned(), vec![2]));
        let root = repository("option", 2);
        assert_eq!(changed(&root, Some("--all")), ("the commit before this one".to_owned(), vec![2]));
    }

    #[test]
    fn without_history_only_what_is_not_committed_counts() {
        let root = repository("shallow", 1);
        std::fs::write(root.join("a.rs"), "// 1\n// 2\n").unwrap();
        assert_eq!(changed(&root, None), ("this commit, for git has none before it here".to_owned(), vec![2]));
    }

    #[test]
    fn without_git_nothing_is_known() {
        let root = std::env::temp_dir().join(format!("frwr-mutants-nowhere-{}", std::process::id()));
        assert!(Changed::since(&root, &Record::default(), ["a.rs"].into_iter()).is_none());
    }

    #[test]
    fn where_lines_were_taken_away_the_ones_around_count() {
        let lines = parse("+++ b/x.rs\n@@ -5,2 +4,0 @@ fn\n");
        assert_eq!(lines["x.rs"], [4..=5]);
    }
}
