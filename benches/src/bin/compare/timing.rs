//! Times on this machine: programs of one row take turns, so that a slow minute hits all of them.

use super::callgrind::printed;
use super::figure::{Best, Figure, Measured};
use super::programs::{Places, run};
use super::quantity::{Program, Quantity};

/// Turns of each program. The goals ask for the minimum of at least five.
const TURNS: usize = 7;

/// Measures these quantities, which are compared with each other.
pub(super) fn measure(places: &Places, quantities: &[Quantity]) -> Vec<(Quantity, Measured)> {
    let mut samples: Vec<(Quantity, Result<Vec<f64>, String>)> =
        quantities.iter().map(|quantity| (*quantity, Ok(Vec::new()))).collect();
    for turn in 1..=TURNS {
        for (quantity, samples) in &mut samples {
            // One that failed is not tried again.
            let Ok(taken) = samples else { continue };
            eprintln!("turn {turn} of {TURNS}: {}", quantity.text());
            match sample(places, quantity) {
                Ok(sample) => taken.push(sample),
                Err(reason) => *samples = Err(reason),
            }
        }
    }
    samples.into_iter().map(|(quantity, samples)| (quantity, best(&quantity, samples))).collect()
}

fn best(quantity: &Quantity, samples: Result<Vec<f64>, String>) -> Measured {
    let Quantity::Timed(_, best) = quantity else { return Err(format!("{} is no time", quantity.text())) };
    Figure::best_of(&samples?, *best).ok_or_else(|| format!("{}: no sample", quantity.text()))
}

fn sample(places: &Places, quantity: &Quantity) -> Result<f64, String> {
    let Quantity::Timed(program, best) = quantity else { return Err(format!("{} is no time", quantity.text())) };
    let path = places.program(program.source)?;
    let output = run(&[], &path, program, program.iterations.1)?;
    number(program, *best, &String::from_utf8_lossy(&output.stdout))
}

/// A timing program's last line: "ns 123.4", "per_second 123.4" or "ratio 1.95".
fn number(program: &Program, best: Best, stdout: &str) -> Result<f64, String> {
    let names: &[&str] = match best {
        Best::Least => &["ns"],
        Best::Most => &["per_second"],
        Best::Middle => &["ratio", "ns"],
    };
    let number = names.iter().find_map(|name| printed(stdout, name));
    let number = number.filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("{} prints no \"{}\"", program.text(), names.join("\" or \"")))
}

#[cfg(test)]
mod tests {
    use super::super::quantity::Source;
    use super::*;

    #[test]
    fn a_timing_program_prints_one_number() {
        let program = Program { source: Source::Ours("ping-pong"), arguments: &["raw"], iterations: (1, 2) };
        assert_eq!(number(&program, Best::Least, "ns 492.5\n"), Ok(492.5));
        assert_eq!(number(&program, Best::Most, "per_second 9\n"), Ok(9.0));
        assert_eq!(number(&program, Best::Middle, "9 rounds, the middle half from 1.8 to 2.0, ratio 1.95\n"), Ok(1.95));
        assert_eq!(number(&program, Best::Middle, "ns 95.7\n"), Ok(95.7));
        for (best, text) in [(Best::Least, ""), (Best::Most, "ns 5"), (Best::Least, "ns NaN"), (Best::Least, "ns 0")] {
            assert!(number(&program, best, text).is_err(), "{text}");
        }
    }
}
