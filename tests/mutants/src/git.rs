//! What git says of the repository.

use std::path::Path;
use std::process::Command;

/// A folder that may be a repository.
pub(crate) struct Git<'a> {
    pub(crate) root: &'a Path,
}

impl Git<'_> {
    /// What it prints; `None` where it fails, or there is none.
    pub(crate) fn says(&self, arguments: &[&str]) -> Option<String> {
        let output = Command::new("git").args(arguments).current_dir(self.root).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// The newest commit.
    pub(crate) fn head(&self) -> Option<String> {
        self.says(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])
    }

    /// The commit before the newest; there is none in a clone without history.
    pub(crate) fn parent(&self) -> Option<String> {
        self.says(&["rev-parse", "--verify", "--quiet", "HEAD~1^{commit}"])
    }

    /// Where the branch left a commit; `None` where git does not know it.
    pub(crate) fn left(&self, commit: &str) -> Option<String> {
        self.says(&["merge-base", "--end-of-options", commit, "HEAD"]).filter(|base| !base.is_empty())
    }

    /// Whether a file is as the newest commit has it.
    pub(crate) fn is_committed(&self, file: &str) -> bool {
        self.says(&["diff", "--quiet", "HEAD", "--", file]).is_some()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A repository in a folder of its own with so many commits of one file, of which each adds a line.
    pub(crate) fn repository(name: &str, commits: u32) -> PathBuf {
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

    /// What git prints, which has to succeed.
    pub(crate) fn git(root: &Path, arguments: &[&str]) -> String {
        let output = Command::new("git").args(arguments).current_dir(root).output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}
