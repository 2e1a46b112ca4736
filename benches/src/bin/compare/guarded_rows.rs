//! Lines of rows whose figure is made of what the guard counts, sums included: what they are, what they have to be, and how far that
//! is. A goal that is missed fails no run; a figure that becomes worse does.

use super::figure::{Measured, readable};
use super::goal::{Goal, goals_text};
use super::guard::{RowGoal, is_guarded};
use super::quantity::Quantity;
use super::rows::{self, Case};

/// How all lines stand.
pub(super) struct Standings {
    /// One for each.
    pub(super) lines: Vec<String>,
    /// Lines whose known goals all hold.
    pub(super) met: usize,
    /// Lines of which one does not.
    pub(super) missed: usize,
}

/// Lines with a goal whose figure the guard knows, with their row and their name.
fn cases() -> impl Iterator<Item = (&'static str, String, &'static Case)> {
    let all = rows::all().into_iter().flat_map(|row| row.cases.iter().map(move |case| (row.id, case)));
    all.filter(|(_, case)| !case.goals.is_empty() && is_known(case)).map(|(id, case)| {
        let name = if case.name.is_empty() { id.to_owned() } else { format!("{id} {}", case.name) };
        (id, name, case)
    })
}

fn is_known(case: &Case) -> bool {
    let mut leaves = Vec::new();
    case.ours.leaves(&mut leaves);
    !leaves.is_empty() && leaves.iter().all(is_guarded)
}

/// The goals as the file has them.
pub(super) fn goals() -> Vec<RowGoal> {
    cases().map(|(_, line, case)| RowGoal { line, of: case.ours.text(), goal: goals_text(case.goals) }).collect()
}

/// How the lines stand, by what was counted now and by what the file says.
pub(super) fn standings(now: &impl Fn(&Quantity) -> Measured, file: &impl Fn(&Quantity) -> Measured) -> Standings {
    let mut standings = Standings { lines: Vec::new(), met: 0, missed: 0 };
    for (id, name, case) in cases() {
        let figure = match case.ours.value(now) {
            Ok(figure) => figure.value,
            Err(reason) => {
                standings.lines.push(format!("goal: {name}: {reason}"));
                continue;
            }
        };
        // A peer of ours is counted as well; any other is for benches/run.
        let peer = case.peer.and_then(|peer| peer.value(now).ok()).filter(|peer| peer.value > 0.0);
        let ratio = peer.map(|peer| figure / peer.value);
        let current = case.ours.value(file).map_or_else(|_| "none".to_owned(), |figure| readable(figure.value));
        let told: Vec<_> = case.goals.iter().map(|goal| told(*goal, id, case, figure, ratio)).collect();
        let holds: Vec<_> = case.goals.iter().filter_map(|goal| goal.holds(figure, ratio)).collect();
        if holds.contains(&false) {
            standings.missed += 1;
        } else if !holds.is_empty() {
            standings.met += 1;
        }
        standings.lines.push(format!("goal: {name}: {} ({current}); {}", readable(figure), told.join("; ")));
    }
    standings
}

/// One goal, whether it holds, and how much of what it allows is used.
fn told(goal: Goal, id: &str, case: &Case, figure: f64, ratio: Option<f64>) -> String {
    let share = goal.used(figure, ratio).map_or_else(String::new, |used| format!(", {} of it", readable(used)));
    match goal.holds(figure, ratio) {
        Some(true) => format!("{goal}: met{share}"),
        Some(false) => format!("{goal}: MISSED{share}"),
        None => format!("{goal} of {}: benches/run {id}", case.peer_name),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::Figure;
    use super::*;

    #[test]
    fn every_line_that_is_counted_shows_its_figure_its_goal_and_how_far_that_is() {
        // A difference of two is nothing here.
        let now = |leaf: &Quantity| if is_guarded(leaf) { Ok(Figure::exact(500.0)) } else { Err("a peer".to_owned()) };
        let standings = standings(&now, &|_| Ok(Figure::exact(400.0)));
        for expected in [
            "goal: A6 each further queue: 0 (0); <=15: met, 0 of it",
            "goal: A7 static key: 500 (400); <=410: MISSED, 1.22 of it",
            "goal: A23 per MR: 500 (400); <=64: MISSED, 7.81 of it",
        ] {
            assert!(standings.lines.iter().any(|line| line == expected), "{expected}: {:#?}", standings.lines);
        }
        assert!(
            standings.lines.iter().any(|line| line.contains("<=0.5x of rte_mempool: benches/run A1; <=23: MISSED"))
        );
        assert_eq!(standings.lines.len(), goals().len());
    }

    #[test]
    fn what_could_not_be_counted_says_why() {
        let standings = standings(&|_| Err("no valgrind".to_owned()), &|_| Ok(Figure::exact(1.0)));
        assert!(standings.lines.iter().all(|line| line.ends_with(": no valgrind")), "{:#?}", standings.lines);
        assert_eq!((standings.met, standings.missed), (0, 0));
    }
}
