//! The outcome of a run as a table and as JSON.

use super::figure::{Figure, readable};
use super::goal::goals_text;
use super::judge::{Boots, Verdict, headline, judge, over_boots, row_met};
use super::measuring::Results;
use super::quantity::{Group, Quantity};
use super::rows::{Case, Row};
use super::table::Table;
use serde_json::{Value, json};

/// A row with what the run says of it.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Which.
    pub(super) row: &'static Row,
    /// All cases of the row.
    pub(super) cases: Vec<(&'static Case, Verdict)>,
    /// Of several boots of the virtual machine: in how many all that was measured there was met, and how many there were.
    pub(super) boots: Option<(usize, usize)>,
}

const HEADING: [&str; 11] = ["row", "what", "unit", "ours", "peer", "", "ratio", "floor", "goal", "met", "spread"];

impl Outcome {
    /// Judges a row by what was measured, boot by boot of the virtual machine; there is at least one.
    pub(super) fn new(row: &'static Row, boots: &[Results]) -> Self {
        let verdict = |case: &Case, results: &Results| {
            judge(case.goals, results.of(&case.ours), case.peer.as_ref().map(|peer| results.of(peer)))
        };
        let over = |case: &'static Case| {
            // What this machine shows is the same in all of them.
            let boots = if case.ours.group() == Group::Guest { boots } else { boots.get(..1).unwrap_or(boots) };
            Some((case, over_boots(boots.iter().map(|results| verdict(case, results)).collect())?))
        };
        let whole = |results: &&Results| {
            let in_guest = row.cases.iter().filter(|case| case.ours.group() == Group::Guest);
            let verdicts: Vec<_> = in_guest.map(|case| (case, verdict(case, results))).collect();
            row_met(verdicts.iter().map(|(case, verdict)| (*case, verdict))) == Some(true)
        };
        let several = boots.len() > 1 && row.belongs_to(Group::Guest);
        Self {
            row,
            cases: row.cases.iter().filter_map(over).collect(),
            boots: several.then(|| (boots.iter().filter(whole).count(), boots.len())),
        }
    }

    /// Whether all of it is met; nothing where something is not known.
    pub(super) fn met(&self) -> Option<bool> {
        row_met(self.cases.iter().map(|(case, verdict)| (*case, verdict)))
    }

    fn json(&self) -> Value {
        let mut value = match headline(&self.cases) {
            Some((case, verdict)) => case_json(case, verdict),
            None => json!({}),
        };
        value["row"] = json!(self.row.id);
        value["what"] = json!(self.row.what);
        value["met"] = json!(self.met());
        value["boots"] = self.boots.map_or(Value::Null, |(met, of)| json!({ "met": met, "of": of }));
        value["cases"] = self.cases.iter().map(|(case, verdict)| case_json(case, verdict)).collect();
        value
    }
}

/// A case without a goal is met in no boot and missed in none.
fn boots_json(case: &Case, boots: Option<Boots>) -> Value {
    let met = |met| (!case.goals.is_empty()).then_some(met);
    boots.map_or(Value::Null, |boots| json!({ "met": met(boots.met), "of": boots.of, "range": boots.range }))
}

fn case_json(case: &Case, verdict: &Verdict) -> Value {
    let value = |figure: &Figure| figure.value;
    json!({
        "case": case.name,
        "unit": case.unit,
        // Of such figures only the ratio says something.
        "emulated": is_time_of_guest(case),
        "ours": verdict.ours.as_ref().ok().map(value),
        "peer": verdict.peer.as_ref().and_then(|peer| peer.as_ref().ok()).map(value),
        "peer_name": case.peer_name,
        "ratio": verdict.ratio,
        "floor": case.floor,
        "goal": goals_text(case.goals),
        "stretch": case.stretch,
        "met": verdict.met,
        "boots": boots_json(case, verdict.boots),
        "why": why(case, verdict),
        "spread": verdict.spread(),
        "measured": case.ours.text(),
        "peer_measured": case.peer.as_ref().map(Quantity::text),
    })
}

/// Where the numbers of peers that are not measured come from; also the reason of their rows, where there is no other.
const STATED: &str = "by the research behind the goals, not measured: the kernel's host posts a registration and its message in \
    one call, and signals each message since commit b4b591c87f2b of Linux; a LOCAL_INV is a post and a signal more";
/// Ends the name of such a peer.
const STATED_MARK: &str = "(stated)";

fn why(case: &Case, verdict: &Verdict) -> String {
    if verdict.why.is_empty() && case.peer_name.ends_with(STATED_MARK) {
        return format!("peer {}: {STATED}", case.peer_name);
    }
    verdict.why.clone()
}

/// The object that the last line of `--json` is.
pub(super) fn json(outcomes: &[Outcome]) -> Value {
    json!({ "rows": outcomes.iter().map(Outcome::json).collect::<Vec<_>>() })
}

/// All cases, a line each.
pub(super) fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(&HEADING);
    for outcome in outcomes {
        for (at, (case, verdict)) in outcome.cases.iter().enumerate() {
            table.row(cells(outcome.row, case, verdict, at == 0));
        }
    }
    table
}

fn cells(row: &Row, case: &Case, verdict: &Verdict, first: bool) -> [String; HEADING.len()] {
    // Figures of an emulated machine say something beside each other only.
    let absolute = !is_time_of_guest(case);
    let figure = |figure: Option<&Figure>| match figure {
        Some(figure) if absolute => readable(figure.value),
        Some(_) => "*".to_owned(),
        None => String::new(),
    };
    let peer = verdict.peer.as_ref().and_then(|peer| peer.as_ref().ok());
    [
        if first { row.id.to_owned() } else { String::new() },
        what(row, case, first),
        case.unit.to_owned(),
        figure(verdict.ours.as_ref().ok()),
        figure(peer),
        case.peer_name.to_owned(),
        verdict.ratio.map(readable).unwrap_or_default(),
        case.floor.map(readable).unwrap_or_default(),
        goals_text(case.goals),
        met_word(case, verdict),
        verdict
            .spread()
            .filter(|spread| *spread > 0.0)
            .map(|spread| format!("{:.0}%", spread * 100.0))
            .unwrap_or_default(),
    ]
}

fn what(row: &Row, case: &Case, first: bool) -> String {
    match (first, case.name) {
        (true, "") => row.what.to_owned(),
        (true, name) => format!("{}: {name}", row.what),
        (false, name) => format!("  {name}"),
    }
}

/// Times and rates of the guest; counts are as good there as elsewhere.
pub(super) fn is_time_of_guest(case: &Case) -> bool {
    case.ours.group() == Group::Guest && matches!(case.unit, "us" | "1/s")
}

/// The word for the column, which also tells what is not judged.
pub(super) fn met_word(case: &Case, verdict: &Verdict) -> String {
    let word = match verdict.met {
        Some(true) => "yes",
        Some(false) => "NO",
        None if case.goals.is_empty() && verdict.ours.is_ok() => "-",
        None => "not run",
    };
    match (verdict.met, verdict.boots) {
        (Some(_), Some(Boots { met, of, range })) => {
            let absolute = verdict.ratio.is_none() && is_time_of_guest(case);
            let range = range.filter(|(least, most)| least < most && !absolute);
            let range = range.map(|(least, most)| format!(" ({} to {})", readable(least), readable(most)));
            format!("{word}, {met} of {of}{}", range.unwrap_or_default())
        }
        _ => word.to_owned(),
    }
}

/// A line for each case that is missed, not known, or judged with something missing.
pub(super) fn reasons(outcomes: &[Outcome]) -> Vec<String> {
    let mut lines = Vec::new();
    for outcome in outcomes {
        for (case, verdict) in &outcome.cases {
            let said = !verdict.why.is_empty() && (!case.goals.is_empty() || verdict.ours.is_err());
            if said {
                let name = if case.name.is_empty() { String::new() } else { format!(" {}", case.name) };
                lines.push(format!("{}{name}: {}: {}", outcome.row.id, met_word(case, verdict), verdict.why));
            }
        }
    }
    let stated = |outcome: &&Outcome| outcome.cases.iter().any(|(case, _)| case.peer_name.ends_with(STATED_MARK));
    let rows: Vec<_> = outcomes.iter().filter(stated).map(|outcome| outcome.row.id).collect();
    if !rows.is_empty() {
        lines.push(format!("{}: {STATED_MARK}: {STATED}", rows.join(", ")));
    }
    lines
}

/// How many rows are met, missed and not known; of several boots, in how many each row of the virtual machine was met.
pub(super) fn summary(outcomes: &[Outcome]) -> String {
    let count = |met| outcomes.iter().filter(|outcome| outcome.met() == met).count();
    let boots: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| outcome.boots.map(|(met, of)| format!("{} in {met} of {of}", outcome.row.id)))
        .collect();
    let boots = if boots.is_empty() { String::new() } else { format!("; met by boots: {}", boots.join(", ")) };
    format!("{} rows met, {} missed, {} not wholly run{boots}", count(Some(true)), count(Some(false)), count(None))
}

#[cfg(test)]
mod tests {
    use super::super::rows;
    use super::*;

    fn nothing_ran() -> Vec<Outcome> {
        rows::all().into_iter().map(|row| Outcome::new(row, &[Results::default()])).collect()
    }

    #[test]
    fn rows_that_did_not_run_are_in_the_json_with_their_reason() {
        let value = json(&nothing_ran());
        let rows = value["rows"].as_array().expect("a list");
        assert_eq!(rows.len(), rows::all().len());
        for row in rows {
            assert_eq!(row["met"], Value::Null, "{row}");
            assert!(row["ours"].is_null() && row["ratio"].is_null(), "{row}");
            assert!(row["why"].as_str().is_some_and(|why| why.contains("benches/run")), "{row}");
        }
    }

    #[test]
    fn a_case_without_a_goal_is_neither_met_nor_missed_in_a_boot() {
        let boots = [Results::default(), Results::default()];
        for row in rows::all() {
            let value = Outcome::new(row, &boots).json();
            for (case, told) in row.cases.iter().zip(value["cases"].as_array().expect("a list")) {
                let Some(boots) = told["boots"].as_object() else { continue };
                assert_eq!(boots["met"].is_null(), case.goals.is_empty(), "{} {}: {told}", row.id, case.name);
            }
        }
    }

    #[test]
    fn rows_that_did_not_run_are_in_the_table_with_their_reason() {
        let outcomes = nothing_ran();
        let text = table(&outcomes).text();
        assert_eq!(text.lines().count(), 1 + outcomes.iter().map(|outcome| outcome.cases.len()).sum::<usize>());
        assert!(text.contains("not run") && !text.contains("yes"));
        let (said, stated) = (reasons(&outcomes), "A10, A11, A12: (stated): by the research");
        assert_eq!(said.len(), text.lines().count());
        assert!(said.last().is_some_and(|line| line.starts_with(stated)), "{said:#?}");
        assert_eq!(summary(&outcomes), format!("0 rows met, 0 missed, {} not wholly run", outcomes.len()));
    }
}
