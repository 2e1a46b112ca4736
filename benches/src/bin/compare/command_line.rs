//! Arguments to output.

use super::documents;
use super::guard;
use super::machine::Machine;
use super::measuring::{self, needed};
use super::programs::Places;
use super::quantity::{Group, Quantity, Source, VERBS_PROGRAM, VERBS_WRITE_PROGRAM};
use super::report::{Outcome, json, reasons, summary, table};
use super::result_files;
use super::rows::{self, Row};
use super::standard_output::line;
use clap::Parser;
use std::ffi::OsString;
use std::process::ExitCode;

/// Exit code of wrong usage; of a guard that fails, and of results that could not be kept or printed, it is 1, and of everything else 0.
const USAGE: u8 = 2;

/// Boots of one run at most: each takes some eight minutes.
const MAX_BOOTS: u16 = 20;

/// Options that say something of rows, of which `--guard` and `--renew-counts` measure none.
const OF_ROWS: [&str; 3] = ["json", "write_docs", "boots"];

/// Measures frwr beside what people would use instead, and prints a table.
#[derive(Debug, Parser)]
#[command(name = "benches/run", version)]
struct Arguments {
    /// Rows (A1, A2...) or groups (count, cores, guest); without one, all of them.
    #[arg(value_name = "ROW|GROUP")]
    wanted: Vec<String>,
    /// The last line of standard output is one object with all rows.
    #[arg(long)]
    json: bool,
    /// Renews the tables and the picture in README.md and docs/ from this run, which has to be of all rows.
    #[arg(long, conflicts_with = "wanted")]
    write_docs: bool,
    /// Boots of the virtual machine: its rows are measured in each, and met where all of them say so.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_BOOTS)))]
    boots: u16,
    /// Runs nothing: prints the groups that these rows need, and `verbs` where they need a program that is built with that feature.
    #[arg(long, hide = true)]
    needs: bool,
    /// Instead of rows: compares what is counted of our own programs with benches/counts.toml; exit code 1 if it is worse.
    #[arg(long, conflicts_with_all = OF_ROWS)]
    guard: bool,
    /// Writes benches/counts.toml anew from what is counted now.
    #[arg(long, conflicts_with_all = OF_ROWS, conflicts_with = "guard")]
    renew_counts: bool,
}

/// What a command line asks for.
#[derive(Debug)]
struct Selection {
    rows: Vec<&'static Row>,
    groups: Vec<Group>,
}

/// Runs `compare` with these arguments, the program's name included.
pub(super) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) if !error.use_stderr() => {
            return printed(error.to_string().trim_end());
        }
        Err(error) => return usage(error.to_string().lines().next().unwrap_or_default()),
    };
    if !arguments.wanted.is_empty() && (arguments.guard || arguments.renew_counts) {
        return usage("--guard and --renew-counts count all rows; leave ROW out");
    }
    let selection = match select(&arguments.wanted) {
        Ok(selection) => selection,
        Err(message) => return usage(&message),
    };
    if arguments.needs {
        return printed(&needs(&selection).join(" "));
    }
    match Places::find() {
        Ok(places) if arguments.guard => guarded(&places),
        Ok(places) if arguments.renew_counts => renewed(&places),
        Ok(places) if compare(&places, &selection, &arguments) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("benches/run: {message}");
            ExitCode::FAILURE
        }
    }
}

fn printed(text: &str) -> ExitCode {
    match line(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("benches/run: {message}");
            ExitCode::FAILURE
        }
    }
}

fn usage(message: &str) -> ExitCode {
    eprintln!("benches/run: {}", message.trim_start_matches("error: "));
    ExitCode::from(USAGE)
}

fn guarded(places: &Places) -> ExitCode {
    match guard::check(places) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            let _ = line(&format!("FAILED: {message}"));
            ExitCode::FAILURE
        }
    }
}

fn renewed(places: &Places) -> ExitCode {
    match guard::renew(places) {
        Ok(reasons) => {
            reasons.iter().for_each(|reason| eprintln!("benches/run: not counted: {reason}"));
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("benches/run: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Rows by name with all their groups; groups by name with all their rows.
fn select(wanted: &[String]) -> Result<Selection, String> {
    let all = rows::all();
    let every_group = Group::ALL.map(|(_, group)| group).to_vec();
    if wanted.is_empty() {
        return Ok(Selection { rows: all, groups: every_group });
    }
    let group_of = |word: &String| Group::ALL.iter().find(|(name, _)| name == word).map(|(_, group)| *group);
    let known = |word: &&String| group_of(word).is_some() || all.iter().any(|row| row.id == word.as_str());
    if let Some(unknown) = wanted.iter().find(|word| !known(word)) {
        let groups = Group::ALL.map(|(name, _)| name).join(", ");
        let rows: Vec<_> = all.iter().map(|row| row.id).collect();
        return Err(format!("there is no row or group \"{unknown}\"; rows: {}; groups: {groups}", rows.join(" ")));
    }
    let groups: Vec<_> = wanted.iter().filter_map(group_of).collect();
    let named = |row: &&Row| wanted.iter().any(|word| word == row.id);
    let rows =
        all.iter().copied().filter(|row| named(row) || groups.iter().any(|group| row.belongs_to(*group))).collect();
    // A row by name is measured wherever it has to be.
    let any_row = all.iter().any(named);
    Ok(Selection { rows, groups: if any_row { every_group } else { groups } })
}

/// What `benches/run` has to bring about.
fn needs(selection: &Selection) -> Vec<&'static str> {
    let counted = selection.groups.contains(&Group::Count).then(|| needed(&selection.rows, Group::Count));
    let with_verbs = [VERBS_PROGRAM, VERBS_WRITE_PROGRAM].map(Source::Ours);
    let is_verbs = |quantity: &Quantity| matches!(quantity, Quantity::Instructions(program) if with_verbs.contains(&program.source));
    let verbs = counted.is_some_and(|counted| counted.iter().any(is_verbs)).then_some("verbs");
    groups_that_run(selection).into_iter().chain(verbs).collect()
}

/// Names of the groups in which something has to be measured.
fn groups_that_run(selection: &Selection) -> Vec<&'static str> {
    let runs = |group: &&Group| !needed(&selection.rows, **group).is_empty();
    selection.groups.iter().filter(runs).map(|group| group.name()).collect()
}

/// Measures, keeps and prints. Returns whether all of it was kept and printed.
fn compare(places: &Places, selection: &Selection, arguments: &Arguments) -> bool {
    // Before anything is measured: what is built may be another commit's by the end, and a place that takes no results is to be known
    // of now.
    let machine = Machine::ask(&places.root);
    if let Err(message) = result_files::prepare(&places.root) {
        eprintln!("benches/run: results will be printed and not kept: {message}");
    }
    let first = measuring::measure(places, &selection.rows, &selection.groups);
    let mut boots = vec![first];
    if selection.groups.contains(&Group::Guest) && !needed(&selection.rows, Group::Guest).is_empty() {
        for boot in 2..=arguments.boots {
            eprintln!("guest: boot {boot} of {}", arguments.boots);
            boots.push(measuring::measure_again(places, &selection.rows, &boots[0]));
        }
    }
    let outcomes: Vec<_> = selection.rows.iter().map(|row| Outcome::new(row, &boots)).collect();
    // Files first: a run of twenty minutes is not to be lost with whoever reads what it prints.
    let mut kept = Vec::new();
    let files = result_files::write(&places.root, &outcomes, &machine);
    if arguments.write_docs {
        kept.extend(documents::write(&places.root, &outcomes, &machine).err());
    }
    let mut lines = vec![
        format!("{}\n\n{}", machine.line(), table(&outcomes).text()),
        "* a time of an emulated machine: only its ratio says something.".to_owned(),
    ];
    lines.extend(reasons(&outcomes));
    lines.push(summary(&outcomes));
    match files {
        Ok(path) => lines.push(format!("results: {}.json, .html, .svg", path.display())),
        Err(message) => kept.push(message),
    }
    if arguments.json {
        lines.push(json(&outcomes).to_string());
    }
    kept.extend(lines.iter().find_map(|text| line(text).err()));
    kept.iter().for_each(|message| eprintln!("benches/run: {message}"));
    kept.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(wanted: &[&str]) -> Vec<String> {
        wanted.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn rows_and_groups_are_selected() {
        for (wanted, rows, groups) in [
            (&[][..], rows::all().len(), "count cores guest"),
            (&["A1"], 1, "count"),
            (&["A1", "A2", "A1"], 2, "count"),
            (&["A10"], 1, "count guest"),
            (&["cores"], 4, "cores"),
            (&["A27"], 1, "count cores"),
        ] {
            let selection = select(&words(wanted)).expect("they exist");
            assert_eq!(selection.rows.len(), rows, "{wanted:?}");
            assert_eq!(groups_that_run(&selection).join(" "), groups, "{wanted:?}");
        }
    }

    #[test]
    fn the_verbs_provider_is_built_for_rows_that_count_it() {
        for (wanted, expected) in [
            (&[][..], true),
            (&["A1"], false),
            (&["A7"], true),
            (&["A18"], true),
            (&["count"], true),
            (&["cores"], false),
        ] {
            let needs = needs(&select(&words(wanted)).expect("they exist"));
            assert_eq!(needs.contains(&"verbs"), expected, "{wanted:?}: {needs:?}");
        }
    }

    #[test]
    fn a_name_that_is_none_is_told() {
        let error = select(&words(&["A1", "A0"])).expect_err("there is none");
        let ids: Vec<_> = rows::all().iter().map(|row| row.id).collect();
        let rows = ids.join(" ");
        assert_eq!(error, format!("there is no row or group \"A0\"; rows: {rows}; groups: count, cores, guest"));
        for arguments in [&["run", "A0"][..], &["run", "--jsonn"]] {
            let code = run(arguments.iter().map(OsString::from));
            assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(USAGE)), "{arguments:?}");
        }
    }
}
