//! The guard: what is counted exactly must not become worse than `benches/counts.toml` says it is.

use super::counting;
use super::figure::{Figure, Measured, readable};
use super::guarded_rows::{self, Standings};
use super::machine::Machine;
use super::programs::Places;
use super::quantity::{Program, Quantity, Source};
use super::rows;
use super::standard_output::line;
use serde::Deserialize;
use std::fs;

/// The file, below the source tree.
const FILE: &str = "benches/counts.toml";

/// What the file holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    /// The compiler that the figures are of.
    rustc: String,
    /// With another compiler, this many percent more are allowed.
    other_compiler_percent: f64,
    count: Vec<Count>,
    /// Goals of the rows that these figures make.
    row: Vec<RowGoal>,
}

/// What a line of a row has to be. It stands here for who reads the file; `rows` says it, and both have to agree.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct RowGoal {
    /// The row and the line's name.
    pub(super) line: String,
    /// What it is made of.
    pub(super) of: String,
    /// As the table shows it.
    pub(super) goal: String,
}

/// One figure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    /// As `Quantity::text` names it.
    what: String,
    current: f64,
    /// A figure may be this much worse, in percent; 0 for what has to be exact.
    tolerance_percent: f64,
}

/// What a new figure may be worse, in percent: where the compiler decides, and where it has no say.
const COMPILED_TOLERANCE: f64 = 2.0;
const EXACT_TOLERANCE: f64 = 0.0;
const HEAD: &str = "\
# What our own programs count: `tests/run counts` fails where a figure is worse by more than its tolerance, and says where one is
# better, so that it is renewed here: `compare --renew-counts` does, and keeps tolerances. Below the figures are the goals of the
# rows that they make; `tests/run counts` shows how far each row is from them.
";

/// How a figure stands to the file.
#[derive(Clone, Debug, PartialEq)]
enum Standing {
    Same,
    Better,
    Worse,
}

/// Checks all of our counts. Prints a line for each, and returns whether all hold.
pub(super) fn check(places: &Places) -> Result<bool, String> {
    let counts = read(places)?;
    let rustc = Machine::ask(&places.root).rustc;
    let more = if rustc == counts.rustc { 0.0 } else { counts.other_compiler_percent };
    if more > 0.0 {
        line(&format!("counts are of {}, this is {rustc}: {more} % more are allowed", counts.rustc))?;
    }
    let measured = counting::measure(places, &ours());
    let (mut held, mut missed) = (0, 0);
    for (quantity, measured) in &measured {
        let (holds, text) = verdict(&counts, quantity, measured, more);
        line(&text)?;
        if holds { held += 1 } else { missed += 1 }
    }
    for count in counts.count.iter().filter(|count| !measured.iter().any(|(q, _)| q.text() == count.what)) {
        line(&format!("FAILED: {FILE} has a figure that nothing counts: {}", count.what))?;
        missed += 1;
    }
    for difference in differences(&counts.row) {
        line(&format!("FAILED: {difference}"))?;
        missed += 1;
    }
    let now = |leaf: &Quantity| {
        let found = measured.iter().find(|(quantity, _)| quantity == leaf).map(|(_, figure)| figure.clone());
        found.unwrap_or_else(|| Err(format!("{} is not counted here", leaf.text())))
    };
    let Standings { lines, met, missed: behind } = guarded_rows::standings(&now, &|leaf| counts.current(leaf));
    lines.iter().try_for_each(|text| line(text))?;
    line(&format!("goals: {met} of these lines are met, {behind} are not"))?;
    line(&format!("counts: {held} hold, {missed} do not"))?;
    Ok(missed == 0)
}

impl Counts {
    /// What the file says of one figure.
    fn current(&self, leaf: &Quantity) -> Measured {
        let count = self.count.iter().find(|count| count.what == leaf.text());
        count.map(|count| Figure::exact(count.current)).ok_or_else(|| format!("{FILE} has no {}", leaf.text()))
    }
}

/// Where the file's goals are not those of the rows.
fn differences(written: &[RowGoal]) -> Vec<String> {
    let goals = guarded_rows::goals();
    let missing = goals.iter().filter(|goal| !written.contains(goal)).map(|goal| format!("{FILE} lacks {goal:?}"));
    let foreign = written.iter().filter(|goal| !goals.contains(goal)).map(|goal| format!("no row has {goal:?}"));
    missing.chain(foreign).collect()
}

fn read(places: &Places) -> Result<Counts, String> {
    let path = places.root.join(FILE);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Counts everything and writes the file anew. A figure that could not be counted keeps what the file says; the reason is
/// returned.
pub(super) fn renew(places: &Places) -> Result<Vec<String>, String> {
    let counts = read(places)?;
    let (mut text, mut reasons) = (HEAD.to_owned(), Vec::new());
    let rustc = Machine::ask(&places.root).rustc;
    text += &format!("rustc = {rustc:?}\nother_compiler_percent = {:?}\n", counts.other_compiler_percent);
    let measured = counting::measure(places, &ours());
    for quantity in ours() {
        let what = quantity.text();
        let known = counts.count.iter().find(|count| count.what == what);
        let figure = measured.iter().find(|(of, _)| *of == quantity).map(|(_, figure)| figure);
        let current = match (figure, known) {
            (Some(Ok(figure)), _) => (figure.value * 1000.0).round() / 1000.0,
            (other, known) => {
                reasons.extend(other.and_then(|figure| figure.as_ref().err()).cloned());
                let Some(known) = known else { continue };
                known.current
            }
        };
        let usual = if matches!(quantity, Quantity::Instructions(_)) { COMPILED_TOLERANCE } else { EXACT_TOLERANCE };
        let tolerance = known.map_or(usual, |count| count.tolerance_percent);
        text += &format!("\n[[count]]\nwhat = {what:?}\ncurrent = {current:?}\ntolerance_percent = {tolerance:?}\n");
    }
    for RowGoal { line, of, goal } in guarded_rows::goals() {
        text += &format!(
            "
[[row]]
line = {line:?}
of = {of:?}
goal = {goal:?}
"
        );
    }
    let path = places.root.join(FILE);
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(reasons)
}

/// All exact quantities of our own programs.
fn ours() -> Vec<Quantity> {
    let mut leaves = Vec::new();
    rows::all().iter().flat_map(|row| row.cases).for_each(|case| case.ours.leaves(&mut leaves));
    leaves.retain(is_guarded);
    leaves
}

/// Whether it is counted exactly, and of a program of ours.
pub(super) fn is_guarded(leaf: &Quantity) -> bool {
    match leaf {
        Quantity::Instructions(program)
        | Quantity::Locked(program)
        | Quantity::Allocations(program)
        | Quantity::Printed(program, _)
        | Quantity::Told(program, _) => is_ours(program),
        Quantity::Timed(..) | Quantity::Guest(..) | Quantity::Stated(_) | Quantity::Sum(_) | Quantity::Quotient(..) => {
            false
        }
    }
}

fn is_ours(program: &Program) -> bool {
    matches!(program.source, Source::Ours(_))
}

fn verdict(counts: &Counts, quantity: &Quantity, measured: &Measured, more: f64) -> (bool, String) {
    let what = quantity.text();
    let figure = match measured {
        Ok(figure) => figure.value,
        Err(reason) => return (false, format!("FAILED: {what}: {reason}")),
    };
    let number = readable(figure);
    let Some(count) = counts.count.iter().find(|count| count.what == what) else {
        return (false, format!("FAILED: {what}: {figure:.3}, and {FILE} has no figure for it"));
    };
    // An exact count stays exact whatever the compiler.
    let percent = if count.tolerance_percent > 0.0 { count.tolerance_percent + more } else { 0.0 };
    let current = readable(count.current);
    match standing(figure, count.current, percent) {
        Standing::Worse => (false, format!("FAILED: {what}: {number}, {current} in {FILE} (+{percent} %)")),
        Standing::Better => (true, format!("better: {what}: {number}, {current} in {FILE}: write {figure:.3} there")),
        Standing::Same => (true, format!("ok: {what}: {number} ({current})")),
    }
}

/// Numbers are printed with three digits behind the point.
const ROUNDING: f64 = 0.001;

fn standing(figure: f64, current: f64, percent: f64) -> Standing {
    let room = current * percent / 100.0 + ROUNDING;
    if figure > current + room {
        Standing::Worse
    } else if figure < current - room {
        Standing::Better
    } else {
        Standing::Same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_stands_to_the_file() {
        for (figure, current, percent, expected) in [
            (100.0, 100.0, 0.0, Standing::Same),
            (101.0, 100.0, 0.0, Standing::Worse),
            (99.0, 100.0, 0.0, Standing::Better),
            (102.0, 100.0, 2.0, Standing::Same),
            (102.1, 100.0, 2.0, Standing::Worse),
            (97.9, 100.0, 2.0, Standing::Better),
            (0.0, 0.0, 0.0, Standing::Same),
            (0.063, 0.0625, 0.0, Standing::Same),
        ] {
            assert_eq!(standing(figure, current, percent), expected, "{figure} {current} {percent}");
        }
    }

    #[test]
    fn the_file_can_be_read_and_has_the_goals_of_the_rows() {
        let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/counts.toml")).expect("there is a file");
        let counts: Counts = toml::from_str(&text).expect("it is read");
        assert!(!counts.count.is_empty());
        assert_eq!(differences(&counts.row), Vec::<String>::new());
    }
}
