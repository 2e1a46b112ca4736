//! Row A21's ratio: what two cores do at the same time, beside what each of them does alone right before or behind it.
//!
//! A round has three blocks of a few milliseconds: core 0 alone, core 1 alone, both. What two cores are worth is the sum of their rates
//! while both work, by the mean of what each does alone; a run's figure is the median of its rounds. So a host that is slow for a
//! second is slow for both sides of some ratios, and one block that was lucky or not decides nothing, unlike with the best
//! of two separate runs. Two processors of a guest may be two threads of one core for a while: how far they were from each other is
//! measured around each round, and told with the ratio of those rounds.

use std::fmt::Write;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use crate::{
    cores::on_each,
    scaling::{Load, open},
};

/// A core works for a part of its block before that is timed: what slept comes back with cold caches.
const WARM_UP: u64 = 4;
/// Whoever is done first goes on by such parts of a block, so that the other's is worked beside to its end.
const COMPANY: u64 = 64;

/// Round trips of a line that are timed as one, and how often: some tens of microseconds each.
const TRIPS: usize = 200;
const TRIP_BLOCKS: usize = 4;

/// How far from each other the cores were in a round, by the round trip of a line between them: a host may move a guest's processors
/// from one second to the next. The limits, in nanoseconds, stand between the 55, 125 and 540 of the machine that this was written on.
const DISTANCES: [(&str, f64); 3] =
    [("threads of one core", 85.0), ("cores with one cache", 300.0), ("cores far apart", f64::INFINITY)];

/// Rounds of two cores decide where they are at least one in so many.
const FEWEST: usize = 5;

/// The cores of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Only(usize),
    Both,
}

/// The blocks of a round. Every other one has them in the opposite order, so that what gets faster or slower with time does
/// nothing to the median.
const ROUND: [Who; 3] = [Who::Only(0), Who::Only(1), Who::Both];

/// Where both cores meet: right before a block of both, and at its end.
#[derive(Default)]
struct Meeting {
    begun: CachePadded<AtomicUsize>,
    done: CachePadded<AtomicUsize>,
    /// What each core wrote last, for the round trip between them.
    lines: [CachePadded<AtomicUsize>; 2],
}

impl Meeting {
    /// Nanoseconds of a round trip of a line between the cores, the fastest of some. Both call it.
    fn round_trip(&self, core: usize) -> f64 {
        let (written, read) = (&self.lines[core], &self.lines[1 - core]);
        let (mut least, mut message) = (f64::MAX, written.load(Ordering::Relaxed));
        for _ in 0..TRIP_BLOCKS {
            let began = Instant::now();
            for _ in 0..TRIPS {
                message += 1;
                if core == 0 {
                    written.store(message, Ordering::Release);
                }
                while read.load(Ordering::Acquire) != message {}
                if core == 1 {
                    written.store(message, Ordering::Release);
                }
            }
            least = least.min(began.elapsed().as_secs_f64() * 1e9 / TRIPS as f64);
        }
        least
    }

    /// Begins when both are there.
    fn begin(&self, blocks: usize) {
        self.begun.fetch_add(1, Ordering::AcqRel);
        while self.begun.load(Ordering::Acquire) < 2 * blocks {
            core::hint::spin_loop();
        }
    }
}

/// Rates of one core in a round: alone, and beside the other.
#[derive(Clone, Copy, Default)]
struct Rates {
    alone: f64,
    beside: f64,
    /// Of a line between the cores in front of the round and behind it, in nanoseconds.
    trips: [f64; 2],
}

/// What two cores are worth to a load, or to one beside what they are worth to another in the same rounds ("engine/wide").
///
/// # Errors
/// A text: a name that is none, cores that cannot be had, or what the engine refuses.
pub fn run(what: &str, rounds: u64) -> Result<String, String> {
    let names: Vec<&str> = what.split('/').collect();
    let rounds = usize::try_from(rounds).unwrap_or(usize::MAX).max(1);
    let meeting = Meeting::default();
    let of_cores = on_each(2, |core, barrier| play(&names, core, rounds, barrier, &meeting))?;
    let of_cores = of_cores.into_iter().collect::<Result<Vec<_>, String>>()?;
    let trips = |round: usize| of_cores[0][round * names.len()].trips;
    let all: Vec<Round> = (0..rounds).map(|round| (trips(round), ratio(&names, round, &of_cores))).collect();
    let counted = of_two_cores(&all);
    let at = |quarter: usize| counted[(counted.len() * quarter / 4).min(counted.len() - 1)];
    Ok(format!(
        "{}{} of {rounds} rounds count, the middle half from {:.3} to {:.3}, ratio {:.4}",
        by_distance(&all),
        counted.len(),
        at(1),
        at(3),
        at(2)
    ))
}

/// The round trips of a line in front of a round and behind it, and the round's ratio.
type Round = ([f64; 2], f64);

/// The ratios that count, in order: of rounds that had two cores all the time, for two threads of one core are worth little more than
/// one, whatever runs on them. Where these are fewer than one in [`FEWEST`] all count.
fn of_two_cores(rounds: &[Round]) -> Vec<f64> {
    let [(_, threads), ..] = DISTANCES;
    let is_of_two = |(trips, _): &&Round| trips.iter().all(|trip| *trip >= threads);
    let mut ratios: Vec<f64> = rounds.iter().filter(is_of_two).map(|(_, ratio)| *ratio).collect();
    if ratios.len() * FEWEST < rounds.len() {
        ratios = rounds.iter().map(|(_, ratio)| *ratio).collect();
    }
    ratios.sort_by(f64::total_cmp);
    ratios
}

/// The median ratio of the rounds of each distance, of those that began and ended with it.
fn by_distance(rounds: &[Round]) -> String {
    let of = |trip: f64| DISTANCES.iter().position(|(_, below)| trip < *below).unwrap_or(DISTANCES.len() - 1);
    let mut ratios = DISTANCES.map(|_| Vec::new());
    for ([before, after], ratio) in rounds {
        if of(*before) == of(*after) {
            ratios[of(*before)].push(*ratio);
        }
    }
    let mut said = String::new();
    for ((name, _), ratios) in DISTANCES.iter().zip(&mut ratios) {
        ratios.sort_by(f64::total_cmp);
        if let Some(median) = ratios.get(ratios.len() / 2) {
            let _ = write!(said, "{} as {name} {median:.3}, ", ratios.len());
        }
    }
    said
}

/// The ratio of one round: of the first load, divided by those of the others.
fn ratio(names: &[&str], round: usize, of_cores: &[Vec<Rates>]) -> f64 {
    let worth = |load: usize| {
        let rates = of_cores.iter().map(|rates| rates[round * names.len() + load]);
        let (alone, beside) = rates.fold((0.0, 0.0), |sum, core| (sum.0 + core.alone, sum.1 + core.beside));
        beside / (alone / of_cores.len() as f64)
    };
    (1..names.len()).fold(worth(0), |ratio, load| ratio / worth(load))
}

/// One core's part of all rounds: its rates by round and load.
fn play(
    names: &[&str],
    core: usize,
    rounds: usize,
    barrier: &Barrier,
    meeting: &Meeting,
) -> Result<Vec<Rates>, String> {
    let mut loads = names.iter().map(|name| open(name)).collect::<Result<Vec<_>, String>>();
    let mut all = Vec::with_capacity(rounds * names.len());
    let mut blocks = 0;
    barrier.wait();
    let mut before = meeting.round_trip(core);
    for round in 0..rounds {
        for at in 0..names.len() {
            let mut rates = Rates::default();
            for step in 0..ROUND.len() {
                let who = ROUND[if round % 2 == 0 { step } else { ROUND.len() - 1 - step }];
                blocks += usize::from(who == Who::Both);
                // Whoever has no part in a block sleeps here. One that failed comes here all the same: the other waits for it.
                barrier.wait();
                if who == Who::Only(1 - core) {
                    continue;
                }
                let rate = if let Ok(loads) = &mut loads {
                    block(&mut loads[at], (who == Who::Both).then_some((meeting, blocks)))
                } else {
                    // The other's block shall end.
                    absent(meeting, who == Who::Both);
                    continue;
                };
                match (rate, who) {
                    (Ok(rate), Who::Both) => rates.beside = rate,
                    (Ok(rate), Who::Only(_)) => rates.alone = rate,
                    (Err(error), _) => loads = Err(error),
                }
            }
            barrier.wait();
            let after = meeting.round_trip(core);
            rates.trips = [core::mem::replace(&mut before, after), after];
            all.push(rates);
        }
    }
    loads.map(|_| all)
}

/// A block of both in which this core does nothing.
fn absent(meeting: &Meeting, both: bool) {
    meeting.begun.fetch_add(usize::from(both), Ordering::AcqRel);
    meeting.done.fetch_add(usize::from(both), Ordering::AcqRel);
}

/// A block; of both, if it is the so-manieth of those. Returns its objects per second.
fn block(load: &mut Load, meeting: Option<(&Meeting, usize)>) -> Result<f64, String> {
    let objects = load.block();
    let warm = load.run(objects / WARM_UP);
    if let Some((meeting, blocks)) = meeting {
        meeting.begin(blocks);
    }
    let began = Instant::now();
    let ran = load.run(objects);
    let seconds = began.elapsed().as_secs_f64();
    let mut kept_company = Ok(());
    if let Some((meeting, blocks)) = meeting {
        meeting.done.fetch_add(1, Ordering::AcqRel);
        while kept_company.is_ok() && meeting.done.load(Ordering::Acquire) < 2 * blocks {
            kept_company = load.run(objects / COMPANY);
        }
    }
    warm.and(ran).and(kept_company)?;
    Ok(objects as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cores_are_worth_the_sum_of_their_rates_by_what_each_does_alone() {
        let of_core = |alone, beside| {
            vec![Rates { alone, beside, trips: [0.0; 2] }, Rates { alone: 10.0, beside: 9.5, trips: [0.0; 2] }]
        };
        let of_cores = [of_core(100.0, 90.0), of_core(300.0, 270.0)];
        assert!((ratio(&["engine"], 0, &of_cores) - 1.8).abs() < 1e-9);
        assert!((ratio(&["engine", "wide"], 0, &of_cores) - 1.8 / 1.9).abs() < 1e-9, "beside the other load");
    }

    #[test]
    fn rounds_are_told_by_how_far_the_cores_were_before_and_behind_them() {
        let rounds = [([55.0, 56.0], 1.1), ([120.0, 130.0], 1.9), ([120.0, 130.0], 2.0), ([130.0, 540.0], 1.5)];
        assert_eq!(by_distance(&rounds), "1 as threads of one core 1.100, 2 as cores with one cache 2.000, ");
        assert_eq!(of_two_cores(&rounds), [1.5, 1.9, 2.0], "threads of one core are no two");
        assert_eq!(of_two_cores(&[rounds[0]; 9]), [1.1; 9], "unless there is nothing else");
    }
}
