//! Which lines were changed since the last whole run.

use std::collections::HashMap;
use std::error::Error;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

/// Lines of each file that are new since a commit; also what is not committed.
pub(crate) struct Changed {
    lines: HashMap<String, Vec<RangeInclusive<usize>>>,
}

impl Changed {
    /// Since the last commit that changed `record`; `None` where git knows of none, as in a clone without history.
    pub(crate) fn since(root: &Path, record: &str) -> Result<Option<(String, Self)>, Box<dyn Error>> {
        let git = |arguments: &[&str]| -> Result<String, Box<dyn Error>> {
            let output = Command::new("git").args(arguments).current_dir(root).output()?;
            if !output.status.success() {
                return Err(format!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)).into());
            }
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let commit = git(&["log", "-1", "--format=%H", "--", record])?.trim().to_owned();
        if commit.is_empty() {
            return Ok(None);
        }
        let diff = git(&["diff", "--unified=0", "--no-color", "--no-ext-diff", &commit, "--", "*.rs"])?;
        Ok(Some((commit, Self { lines: parse(&diff) })))
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
            lines
                .entry(file.clone())
                .or_default()
                .push(first..=first + count.saturating_sub(1).max(usize::from(count == 0)));
        }
    }
    lines
}
