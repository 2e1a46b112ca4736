//! The table and the picture in the documents, renewed from a run.

use super::machine::Machine;
use super::plot::svg;
use super::report::{Outcome, reasons, summary, table};
use super::result_files::put;
use super::table::Table;
use std::fs;
use std::path::Path;

/// Where the generated part of a document begins and ends.
const BEGIN: &str = "<!-- benches/run --write-docs begins here -->";
const END: &str = "<!-- benches/run --write-docs ends here -->";
/// The picture, and how README names it.
const PICTURE: &str = "docs/benches.svg";

/// Renews docs/performance.md, README.md and the picture.
pub(super) fn write(root: &Path, outcomes: &[Outcome], machine: &Machine) -> Result<(), String> {
    put(&root.join(PICTURE), &svg(outcomes, &machine.line()))?;
    renew(&root.join("docs/performance.md"), &whole(outcomes, machine))?;
    renew(&root.join("README.md"), &short(outcomes, machine))
}

fn renew(path: &Path, part: &str) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let renewed = replaced(&text, part).ok_or_else(|| format!("{} has no lines {BEGIN} and {END}", path.display()))?;
    put(path, &renewed)
}

/// The text with another part between the marks.
fn replaced(text: &str, part: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n{END}{after}", part.trim_end()))
}

fn whole(outcomes: &[Outcome], machine: &Machine) -> String {
    let reasons: String = reasons(outcomes).iter().map(|line| format!("* {line}\n")).collect();
    format!(
        "{}. {}. `*`: a time in the virtual machine, of which only the ratio says something.\n\n{}\n{reasons}",
        machine.line(),
        summary(outcomes),
        table(outcomes).markdown()
    )
}

/// A row each, by the case that decides it.
fn short(outcomes: &[Outcome], machine: &Machine) -> String {
    let mut table = Table::new(&["row", "what", "ours", "beside", "ratio", "goal", "met"]);
    for outcome in outcomes {
        let Some((case, verdict)) = super::judge::headline(&outcome.cases) else { continue };
        let ours = verdict.ours.as_ref().ok().filter(|_| !super::report::is_time_of_guest(case));
        let ours = ours.map(|ours| format!("{} {}", super::figure::readable(ours.value), case.unit));
        let name = if case.name.is_empty() { String::new() } else { format!(", {}", case.name) };
        table.row([
            outcome.row.id.to_owned(),
            format!("{}{name}", outcome.row.what),
            ours.unwrap_or_default(),
            case.peer_name.to_owned(),
            verdict.ratio.map(super::figure::readable).unwrap_or_default(),
            super::goal::goals_text(case.goals),
            super::report::met_word(case, verdict),
        ]);
    }
    format!("{}: {}.\n\n{}\n![goals]({PICTURE})\n", machine.date, summary(outcomes), table.markdown())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_renewed() {
        let text = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let expected = format!("before\n{BEGIN}\nnew\n{END}\nafter\n");
        assert_eq!(replaced(&text, "new\n\n"), Some(expected.clone()));
        assert_eq!(replaced(&expected, "new"), Some(expected.clone()));
        assert_eq!(replaced("no marks", "new"), None);
    }
}
