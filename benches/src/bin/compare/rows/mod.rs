//! The rows as data: what is measured, beside what, and what it has to be. A row is added here and nowhere else.
//!
//! Goals were set before anything was built (docs/performance.md); stretches and floors go with them.

mod engine;
mod guest;
mod memory;
mod nvmf;

use super::figure::Best;
use super::goal::Goal;
use super::quantity::{Group, ITERATIONS, Program, Quantity, Source};

/// One line of the table: a figure of ours, and the peer's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    /// What distinguishes it within its row; empty where the row has one case.
    pub(super) name: &'static str,
    /// Unit of both figures.
    pub(super) unit: &'static str,
    /// Our figure.
    pub(super) ours: Quantity,
    /// The peer's.
    pub(super) peer: Option<Quantity>,
    /// Who the peer is.
    pub(super) peer_name: &'static str,
    /// What physics or the counted minimum allows: of our figure, or of the ratio where the first goal is one.
    pub(super) floor: Option<f64>,
    /// All have to hold. A case without a goal is shown and not judged.
    pub(super) goals: &'static [Goal],
    /// What would be better still, in the first goal's terms.
    pub(super) stretch: Option<f64>,
}

/// A row: what is measured, and what it has to be.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// "A1".
    pub(super) id: &'static str,
    /// In a few words.
    pub(super) what: &'static str,
    /// At least one.
    pub(super) cases: &'static [Case],
}

impl Row {
    /// Whether some of its cases are measured there.
    pub(super) fn belongs_to(&self, group: Group) -> bool {
        self.cases.iter().any(|case| case.ours.group() == group)
    }
}

/// All rows in the order of their numbers.
pub(super) fn all() -> Vec<&'static Row> {
    let mut rows: Vec<_> = memory::ROWS.iter().chain(engine::ROWS).chain(nvmf::ROWS).chain(guest::ROWS).collect();
    rows.sort_by_key(|row| row.id[1..].parse::<u32>().unwrap_or(u32::MAX));
    rows
}

const NONE: Case = Case {
    name: "",
    unit: "",
    ours: Quantity::Stated(0.0),
    peer: None,
    peer_name: "",
    floor: None,
    goals: &[],
    stretch: None,
};

const fn ours(name: &'static str, arguments: &'static [&'static str]) -> Program {
    Program { source: Source::Ours(name), arguments, iterations: ITERATIONS }
}

const fn dpdk(name: &'static str, arguments: &'static [&'static str]) -> Program {
    Program { source: Source::Peer(name, &["libdpdk"]), arguments, iterations: ITERATIONS }
}

/// A program in C that is told nothing but the number of iterations.
const fn peer(name: &'static str, packages: &'static [&'static str]) -> Program {
    Program { source: Source::Peer(name, packages), arguments: &[], iterations: ITERATIONS }
}

const fn instructions(program: Program) -> Quantity {
    Quantity::Instructions(program)
}

const fn least(key: &'static str) -> Quantity {
    Quantity::Guest(key, Best::Least)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row that `benches/storage` measures.
    const ELSEWHERE: u32 = 28;

    #[test]
    fn every_row_of_the_goals_is_there_once() {
        let ids: Vec<_> = all().iter().map(|row| row.id.to_owned()).collect();
        let numbers = (1..).filter(|number| *number != ELSEWHERE);
        let expected: Vec<_> = numbers.take(ids.len()).map(|number| format!("A{number}")).collect();
        assert_eq!(ids, expected);
    }

    /// Rows of the table "by hand": "A7", "A10 to A12", or "A14".
    fn numbers(cell: &str) -> Vec<u32> {
        let number = |word: &str| word.trim().strip_prefix('A').and_then(|digits| digits.parse().ok());
        match cell.split_once(" to ") {
            Some((first, last)) => {
                number(first).zip(number(last)).map_or_else(Vec::new, |(from, to)| (from..=to).collect())
            }
            None => number(cell).into_iter().collect(),
        }
    }

    #[test]
    fn the_readme_says_how_each_counted_line_is_checked_by_hand() {
        let readme = include_str!("../../../../README.md");
        let lines = readme.lines().filter_map(|line| line.strip_prefix("| A")?.split_once(" | "));
        let by_hand: Vec<_> = lines.map(|(first, rest)| (numbers(&format!("A{first}")), rest)).collect();
        for row in all() {
            let number: u32 = row.id[1..].parse().expect("a number");
            let told: String =
                by_hand.iter().filter(|(rows, _)| rows.contains(&number)).map(|(_, rest)| *rest).collect();
            assert!(!told.is_empty(), "{} is not there", row.id);
            let mut leaves = Vec::new();
            row.cases
                .iter()
                .flat_map(|case| core::iter::once(&case.ours).chain(&case.peer))
                .for_each(|of| of.leaves(&mut leaves));
            for program in leaves.iter().filter_map(Quantity::program) {
                assert!(told.contains(program.source.name()), "{}: {} is not there", row.id, program.text());
            }
        }
    }

    #[test]
    fn cases_can_be_told_apart_and_judged() {
        for row in all() {
            assert!(row.cases.iter().any(|case| !case.goals.is_empty()), "{} has no goal", row.id);
            for (at, case) in row.cases.iter().enumerate() {
                let same = row.cases[at + 1..].iter().any(|other| other.name == case.name);
                assert!(!same, "{} has two cases {:?}", row.id, case.name);
                let needs_peer =
                    case.goals.iter().any(|goal| matches!(goal, Goal::RatioAtMost(_) | Goal::RatioAtLeast(_)));
                assert!(case.peer.is_some() || !needs_peer, "{} {:?} has a ratio and no peer", row.id, case.name);
                assert_eq!(case.peer.is_some(), !case.peer_name.is_empty(), "{} {:?}", row.id, case.name);
                assert!(!case.unit.is_empty(), "{} {:?} has no unit", row.id, case.name);
                let stretched = case.stretch.is_none() || !case.goals.is_empty();
                assert!(stretched, "{} {:?} has a stretch and no goal", row.id, case.name);
            }
        }
    }
}
