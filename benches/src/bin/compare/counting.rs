//! Exact numbers: instructions, locked ones among them, and allocations by valgrind, and what counting programs print.

use super::callgrind::{self, Run, allocations, instructions, locked, objects, per_object, printed};
use super::figure::{Figure, Measured};
use super::programs::{Places, run};
use super::quantity::{Program, Quantity};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

/// Which of valgrind's tools counts, and how its total is read.
struct Counter {
    wrapper: &'static [&'static str],
    total: fn(&str) -> Result<u64, String>,
}

/// Callgrind wants to write a profile; the total is all that is asked for.
const INSTRUCTIONS: Counter =
    Counter { wrapper: &["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"], total: instructions };
/// A bus event is whatever keeps other cores from a line while it executes.
const LOCKED: Counter = Counter {
    wrapper: &["valgrind", "--tool=callgrind", "--collect-bus=yes", "--callgrind-out-file=/dev/null"],
    total: locked,
};
const ALLOCATIONS: Counter =
    Counter { wrapper: &["valgrind", "--tool=memcheck", "--undef-value-errors=no"], total: allocations };

/// Measures all of them on as many threads as there are processors: counts do not mind company.
pub(super) fn measure(places: &Places, quantities: &[Quantity]) -> Vec<(Quantity, Measured)> {
    let queue: Mutex<VecDeque<Quantity>> = Mutex::new(quantities.iter().copied().collect());
    let done = Mutex::new(Vec::new());
    let next = || queue.lock().ok().and_then(|mut queue| queue.pop_front());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(quantity) = next() {
                    eprintln!("counting {}", quantity.text());
                    let measured = one(places, &quantity);
                    if let Ok(mut done) = done.lock() {
                        done.push((quantity, measured));
                    }
                }
            });
        }
    });
    done.into_inner().unwrap_or_default()
}

fn one(places: &Places, quantity: &Quantity) -> Measured {
    match quantity {
        Quantity::Instructions(program) => counted(places, program, &INSTRUCTIONS),
        Quantity::Locked(program) => counted(places, program, &LOCKED),
        Quantity::Allocations(program) => counted(places, program, &ALLOCATIONS),
        Quantity::Printed(program, name) => said(places, program, name, |stdout| printed(stdout, name)),
        Quantity::Told(program, words) => said(places, program, words, |stdout| callgrind::counted(stdout, words)),
        other => Err(format!("{} is not counted here", other.text())),
    }
}

/// A number that a program prints in one run without valgrind.
fn said(places: &Places, program: &Program, name: &str, number: impl Fn(&str) -> Option<f64>) -> Measured {
    let path = places.program(program.source)?;
    let output = run(&[], &path, program, program.iterations.1)?;
    let value = number(&String::from_utf8_lossy(&output.stdout)).filter(|value| value.is_finite());
    value.map(Figure::exact).ok_or_else(|| format!("{} prints no \"{name}\"", program.text()))
}

fn counted(places: &Places, program: &Program, counter: &Counter) -> Measured {
    let path = places.program(program.source)?;
    let (few, _) = under_valgrind(&path, program, counter, program.iterations.0)?;
    let (many, stdout) = under_valgrind(&path, program, counter, program.iterations.1)?;
    per_object(few, many, objects(&stdout)).map(Figure::exact)
}

fn under_valgrind(path: &Path, program: &Program, counter: &Counter, iterations: u64) -> Result<(Run, String), String> {
    let output = run(counter.wrapper, path, program, iterations)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let total = (counter.total)(&stderr).map_err(|error| format!("{}: {error}", program.text()))?;
    Ok((Run { iterations, total }, String::from_utf8_lossy(&output.stdout).into_owned()))
}
