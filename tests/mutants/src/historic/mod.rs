//! Table, build, runs and report.

mod build;
mod judge;
mod process;
mod record;
mod report;
mod source;
mod table;

use build::Binaries;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use table::Table;

/// What every mutant has to die within, unless a named test kills it.
pub(crate) const MOST_SEEDS: u64 = 1000;
/// A simulation of so many seeds takes a fraction of it; what takes longer hangs.
pub(crate) const SEARCH_LIMIT_SECONDS: u64 = 120;
/// Mutants that are judged at a time.
const AT_A_TIME: usize = 2;

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) check: bool,
    pub(crate) search: bool,
    pub(crate) record: bool,
    pub(crate) seeds: u64,
    pub(crate) limit: u64,
    pub(crate) only: String,
    pub(crate) root: PathBuf,
    pub(crate) work: PathBuf,
}

/// True where the table agrees with the code, and every mutant was killed.
pub(crate) fn run(wish: &Wish) -> Result<bool, String> {
    let table = Table::read(&wish.root)?;
    let differences = source::differences(&wish.root, &table)?;
    for difference in &differences {
        println!("FAILED: {difference}");
    }
    if differences.is_empty() {
        println!("ok: {} mutants of the code are those of the table", table.mutants.len());
    }
    if wish.check {
        return Ok(differences.is_empty());
    }
    let binaries = Binaries::build(wish, &table)?;
    let asked: Vec<_> = table.mutants.iter().filter(|mutant| mutant.name.contains(&wish.only)).collect();
    let verdicts = judge_all(wish, &table, &asked, &binaries);
    let enough = report::totals(wish, &verdicts);
    let killed = verdicts.len() == asked.len() && verdicts.values().all(judge::Verdict::is_killed);
    Ok(killed && enough && differences.is_empty())
}

/// By the names of the mutants.
fn judge_all(
    wish: &Wish,
    table: &Table,
    asked: &[&table::Mutant],
    binaries: &Binaries,
) -> BTreeMap<String, judge::Verdict> {
    let (next, verdicts) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(mutant) = asked.get(next.fetch_add(1, Relaxed)) {
                    let verdict = judge::judge(wish, table, binaries, mutant);
                    report::line(mutant, &verdict);
                    if let Ok(mut verdicts) = verdicts.lock() {
                        verdicts.insert(mutant.name.clone(), verdict);
                        // At once, so that a search that is ended has not been for nothing.
                        if wish.record
                            && let Err(error) = record::record(&wish.root, &verdicts)
                        {
                            println!("{error}");
                        }
                    }
                }
            });
        }
    });
    verdicts.into_inner().unwrap_or_default()
}
