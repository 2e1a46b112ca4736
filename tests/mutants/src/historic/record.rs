//! Writes the seeds that a search found into the table, and leaves the rest of it as it is.

use super::judge::Verdict;
use super::table::PATH;
use std::collections::BTreeMap;
use std::path::Path;

/// What a line of a mutant's name begins with, and one of its seeds.
const NAME: &str = "name = \"";
const SEEDS: &str = "seeds = ";

/// `verdicts`: by the names of their mutants, of which others keep the seeds that they have.
pub(super) fn record(root: &Path, verdicts: &BTreeMap<String, Verdict>) -> Result<(), String> {
    let path = root.join(PATH);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{PATH}: {error}"))?;
    std::fs::write(&path, with_seeds(&text, verdicts)).map_err(|error| format!("{PATH}: {error}"))
}

fn with_seeds(text: &str, verdicts: &BTreeMap<String, Verdict>) -> String {
    let (mut lines, mut searched) = (Vec::new(), false);
    for line in text.lines() {
        if line.starts_with("[[") {
            searched = false;
        }
        if line.starts_with(SEEDS) && searched {
            continue;
        }
        lines.push(line.to_owned());
        let name = line.strip_prefix(NAME).and_then(|rest| rest.strip_suffix('"'));
        if let Some(verdict) = name.and_then(|name| verdicts.get(name)) {
            searched = true;
            lines.extend(seeds_of(verdict));
        }
    }
    lines.join("\n") + "\n"
}

/// The line of its seeds, if it has any.
fn seeds_of(verdict: &Verdict) -> Option<String> {
    let seeds: Vec<_> = verdict
        .seeds
        .iter()
        .filter_map(|(simulation, seed)| seed.map(|seed| format!("{simulation} = {seed}")))
        .collect();
    (!seeds.is_empty()).then(|| format!("{SEEDS}{{ {} }}", seeds.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::{Verdict, with_seeds};
    use std::collections::BTreeMap;

    #[test]
    fn seeds_of_those_that_were_searched_for_are_written_and_nothing_else() {
        let text = "[[mutant]]\nname = \"a\"\nwhat = \"x\"\nseeds = { swarm = 1 }\n\n[[mutant]]\nname = \"b\"\nseeds = { swarm = 2 }\n";
        let found = |seeds: &[(&str, u64)]| Verdict {
            seeds: seeds.iter().map(|(simulation, seed)| (simulation.to_string(), Some(*seed))).collect(),
            ..Verdict::default()
        };
        let verdicts = BTreeMap::from([("a".to_owned(), found(&[("swarm", 7), ("other", 9)]))]);
        let expected =
            text.replace("what = \"x\"\nseeds = { swarm = 1 }", "seeds = { swarm = 7, other = 9 }\nwhat = \"x\"");
        assert_eq!(with_seeds(text, &verdicts), expected);
        assert_eq!(with_seeds(&expected, &verdicts), expected);
        let verdicts = BTreeMap::from([("a".to_owned(), found(&[]))]);
        assert_eq!(with_seeds(text, &verdicts), text.replace("seeds = { swarm = 1 }\n", ""));
    }
}
