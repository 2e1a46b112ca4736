//! The guard: what is counted exactly must not become worse than `benches/counts.toml` says it is.

use super::counting;
use super::figure::{Measured, readable};
use super::machine::Machine;
use super::programs::Places;
use super::quantity::{Program, Quantity, Source};
use super::rows;
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
    /// What it should be one day; only shown.
    goal: f64,
}

/// How a figure stands to the file.
#[derive(Clone, Debug, PartialEq)]
enum Standing {
    Same,
    Better,
    Worse,
}

/// Checks all of our counts. Prints a line for each, and returns whether all hold.
pub(super) fn check(places: &Places) -> Result<bool, String> {
    let path = places.root.join(FILE);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let counts: Counts = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let rustc = Machine::ask(&places.root).rustc;
    let more = if rustc == counts.rustc { 0.0 } else { counts.other_compiler_percent };
    if more > 0.0 {
        println!("counts are of {}, this is {rustc}: {more} % more are allowed", counts.rustc);
    }
    let measured = counting::measure(places, &ours());
    let (mut held, mut missed) = (0, 0);
    for (quantity, measured) in &measured {
        let (holds, line) = verdict(&counts, quantity, measured, more);
        println!("{line}");
        if holds { held += 1 } else { missed += 1 }
    }
    for count in counts.count.iter().filter(|count| !measured.iter().any(|(q, _)| q.text() == count.what)) {
        println!("FAILED: {FILE} has a figure that nothing counts: {}", count.what);
        missed += 1;
    }
    println!("counts: {held} hold, {missed} do not");
    Ok(missed == 0)
}

/// All exact quantities of our own programs.
fn ours() -> Vec<Quantity> {
    let mut leaves = Vec::new();
    rows::all().iter().flat_map(|row| row.cases).for_each(|case| case.ours.leaves(&mut leaves));
    leaves.retain(|leaf| match leaf {
        Quantity::Instructions(program)
        | Quantity::Allocations(program)
        | Quantity::Printed(program, _)
        | Quantity::PerIteration(program, _) => is_ours(program),
        Quantity::Timed(..) | Quantity::Guest(..) | Quantity::Stated(_) | Quantity::Sum(_) => false,
    });
    leaves
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
    let (current, goal) = (readable(count.current), readable(count.goal));
    match standing(figure, count.current, percent) {
        Standing::Worse => {
            (false, format!("FAILED: {what}: {number}, {current} in {FILE} (+{percent} %), goal {goal}"))
        }
        Standing::Better => {
            (true, format!("better: {what}: {number}, {current} in {FILE}: write {figure:.3} there; goal {goal}"))
        }
        Standing::Same => (true, format!("ok: {what}: {number} ({current}), goal {goal}")),
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
    fn the_file_can_be_read() {
        let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/counts.toml")).expect("there is a file");
        let counts: Counts = toml::from_str(&text).expect("it is read");
        assert!(!counts.count.is_empty());
    }
}
