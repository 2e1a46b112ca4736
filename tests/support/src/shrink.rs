//! From a run that fails to the fewest faults and requests that still fail (delta debugging).

use crate::{Cut, Run};
use std::collections::BTreeSet;

/// Runs that are spent on one failure at most.
const ATTEMPTS: u32 = 400;

/// What is left of a failing run when it was shrunk.
#[derive(Debug)]
pub(crate) struct Shrunk {
    pub(crate) cut: Cut,
    pub(crate) what: String,
}

struct Search<'a> {
    seed: u64,
    run: &'a dyn Fn(&Run) -> Result<(), String>,
    attempts: u32,
    best: Shrunk,
}

/// Makes less of the run of `seed` that failed as `what` says and drew `drawn` faults. Whatever still fails counts: a smaller run often
/// shows the same mistake by another symptom.
pub(crate) fn shrink(
    seed: u64,
    drawn: u64,
    cut: Cut,
    what: String,
    run: &dyn Fn(&Run) -> Result<(), String>,
) -> Shrunk {
    let faults = cut.faults.clone().unwrap_or_else(|| (0..drawn).collect());
    let mut search = Search { seed, run, attempts: ATTEMPTS, best: Shrunk { cut, what } };
    search.faults(faults);
    search.requests();
    // With fewer requests some faults have nothing left to hit.
    if let Some(faults) = search.best.cut.faults.clone() {
        search.faults(faults);
    }
    search.best
}

impl Search<'_> {
    /// Whether what is left by `cut` fails; if so it is the best so far.
    fn fails(&mut self, cut: Cut) -> bool {
        if self.attempts == 0 {
            return false;
        }
        self.attempts -= 1;
        let run = Run::new(self.seed, cut.clone(), false);
        match (self.run)(&run) {
            Ok(()) => false,
            Err(what) => {
                self.best = Shrunk { cut, what };
                true
            }
        }
    }

    /// Leaves out parts of the faults, ever smaller ones.
    fn faults(&mut self, all: BTreeSet<u64>) {
        let mut left: Vec<u64> = all.into_iter().collect();
        let mut part = left.len();
        while part > 0 && !left.is_empty() {
            let mut at = 0;
            let mut less = false;
            while at < left.len() {
                let end = (at + part).min(left.len());
                let rest: Vec<u64> = [&left[..at], &left[end..]].concat();
                if self.fails(Cut { faults: Some(rest.iter().copied().collect()), ..self.best.cut.clone() }) {
                    (left, less) = (rest, true);
                } else {
                    at = end;
                }
            }
            if !less || part > left.len() {
                part /= 2;
            }
        }
    }

    /// The fewest requests, by halves: fails(n) need not be monotonous, so that this is a small number and not the least.
    fn requests(&mut self) {
        let run = Run::new(self.seed, self.best.cut.clone(), false);
        let _ = (self.run)(&run);
        let (mut good, mut bad) = (0, run.outcome().requests);
        while good + 1 < bad {
            let middle = good + (bad - good) / 2;
            if self.fails(Cut { requests: Some(middle), ..self.best.cut.clone() }) {
                bad = middle;
            } else {
                good = middle;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shrink;
    use crate::{Cut, Run};

    /// Fails once faults 7 and 31 of 64 struck, and 10 requests of 100 were submitted.
    fn run(run: &Run) -> Result<(), String> {
        let mut struck = Vec::new();
        for number in 0..64 {
            if run.strikes("a fault") {
                struck.push(number);
            }
        }
        let mut submitted = 0;
        while run.takes_requests() && submitted < 100 {
            run.submitted();
            submitted += 1;
        }
        let fails = struck.contains(&7) && struck.contains(&31) && submitted >= 10;
        if fails { Err("it failed".to_owned()) } else { Ok(()) }
    }

    #[test]
    fn what_is_left_is_the_least_that_fails() {
        let shrunk = shrink(1, 64, Cut::default(), "it failed".to_owned(), &run);
        assert_eq!(shrunk.cut.to_string(), "faults=7,31 requests=10");
    }
}
