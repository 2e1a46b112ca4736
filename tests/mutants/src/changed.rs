//! Which lines were changed, and since when.

use serde::Deserialize;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

/// What a whole run wrote down; the rest of it is for readers.
#[derive(Deserialize)]
struct Record {
    commit: String,
}

/// Lines of each file that are new since a commit; also what is not committed.
pub(crate) struct Changed {
    /// Since when, for who reads what is printed.
    pub(crate) since: String,
    lines: HashMap<String, Vec<RangeInclusive<usize>>>,
}

impl Changed {
    /// Since the baseline: where the branch left the commit of the last whole run; without a record, or where git does not know its
    /// commit, the commit before this one; and in a clone without history, this one. `None` where there is no git.
    pub(crate) fn since(root: &Path, record: &Path) -> Option<Self> {
        let git = Git { root };
        let head = git.says(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?;
        let baseline = git.last_whole_run(record).or_else(|| {
            let parent = git.says(&["rev-parse", "--verify", "--quiet", "HEAD~1^{commit}"])?;
            Some((parent, "the commit before this one"))
        });
        let (commit, why) = baseline.unwrap_or((head, "this commit, for git has none before it here"));
        let diff = git.says(&["diff", "--unified=0", "--no-color", "--no-ext-diff", &commit, "--", "*.rs"])?;
        let short = commit.get(..10).unwrap_or(&commit);
        Some(Self { since: format!("{short}, {why}"), lines: parse(&diff) })
    }

    pub(crate) fn is_changed(&self, file: &str, first: usize, last: usize) -> bool {
        self.lines.get(file).is_some_and(|all| all.iter().any(|lines| *lines.start() <= last && first <= *lines.end()))
    }

    pub(crate) fn has(&self, file: &str) -> bool {
        self.lines.contains_key(file)
    }
}

struct Git<'a> {
    root: &'a Path,
}

impl Git<'_> {
    /// What it prints; `None` where it fails, or there is none.
    fn says(&self, arguments: &[&str]) -> Option<String> {
        let output = Command::new("git").args(arguments).current_dir(self.root).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn last_whole_run(&self, record: &Path) -> Option<(String, &'static str)> {
        let Record { commit } = toml::from_str(&std::fs::read_to_string(record).ok()?).ok()?;
        let base = self.says(&["merge-base", "--end-of-options", &commit, "HEAD"]).filter(|base| !base.is_empty())?;
        Some((base, "the last whole run"))
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
    use std::path::PathBuf;

    /// A repository in a folder of its own with so many commits of one file, of which each adds a line.
    fn repository(name: &str, commits: u32) -> PathBuf {
        let root = std::env::temp_dir().join(format!("frwr-mutants-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        git(&root, &["init", "-q"]);
        for commit in 1..=commits {
            let text: String = (1..=commit).map(|line| format!("// {line}\n")).collect();
            std::fs::write(root.join("a.rs"), text).unwrap();
            git(&root, &["add", "a.rs"]);
            git(&root, &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "c"]);
        }
        root
    }

    fn git(root: &Path, arguments: &[&str]) -> String {
        let output = Command::new("git").args(arguments).current_dir(root).output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Which of the lines 1 to 9 are changed.
    fn changed(root: &Path, record: Option<&str>) -> (String, Vec<usize>) {
        let path = root.join("record.toml");
        match record {
            Some(commit) => std::fs::write(&path, format!("commit = \"{commit}\"\nkilled = 3\n")).unwrap(),
            None => drop(std::fs::remove_file(&path)),
        }
        let changed = Changed::since(root, &path).unwrap();
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
        assert_eq!(changed(&root, Some(&commit)), ("the last whole run".to_owned(), vec![3, 4]));
    }

    #[test]
    fn a_record_of_a_branch_counts_from_where_it_was_left() {
        let root = repository("branch", 2);
        let main = git(&root, &["rev-parse", "HEAD"]);
        git(&root, &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "aside"]);
        let aside = git(&root, &["rev-parse", "HEAD"]);
        git(&root, &["reset", "-q", "--hard", &main]);
        std::fs::write(root.join("a.rs"), "// 1\n// 2\n// 3\n").unwrap();
        assert_eq!(changed(&root, Some(&aside)), ("the last whole run".to_owned(), vec![3]));
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
        assert!(Changed::since(&root, &root.join("record.toml")).is_none());
    }

    #[test]
    fn where_lines_were_taken_away_the_ones_around_count() {
        let lines = parse("+++ b/x.rs\n@@ -5,2 +4,0 @@ fn\n");
        assert_eq!(lines["x.rs"], [4..=5]);
    }
}
