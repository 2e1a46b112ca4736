//! Paths against a plain model: random reads and writes through two gateways in front of one medium, while connections are cut, gateways are
//! killed and begin again, stand still, change their states, and keep writes back that their media execute later.
//!
//! One request at a time is in hand for each block, so that what a read returns is known: whatever a lost path executes late, or twice, and
//! behind a later write, is found by a read, or on the medium at the end.

use core::time::Duration;
use frwr_nvmf::host::{HostCompletion, PathsOptions};
use frwr_nvmf::wire::AnaState;
use frwr_support::Random;
use frwr_support::nvmf_harness::PROFILES;
use frwr_support::nvmf_harness::gated::Gate;
use frwr_support::nvmf_harness::gateways::{Gateways, Wanted};

const SECOND: Duration = Duration::from_secs(1);
/// Blocks that are written and read. Those behind them in the host's memory are read into.
const SLOTS: u64 = 24;
/// How long something random goes on: less than what the rule counts on, of a Keep Alive Timeout of 2 s, twice, and a margin of 2 s.
const LONGEST_MS: u64 = 4000;
const STEPS: u32 = 20_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    Writing(u8),
    Reading,
}

struct Model {
    contents: Vec<u8>,
    doing: Vec<Doing>,
    next: u8,
    ended: u64,
}

impl Model {
    fn end(&mut self, all: &Gateways, completion: HostCompletion) -> Result<(), String> {
        let slot = completion.cookie as usize;
        completion.result.map_err(|error| format!("block {slot}: {error}"))?;
        match core::mem::replace(&mut self.doing[slot], Doing::Nothing) {
            Doing::Nothing => return Err(format!("request {slot} ended twice")),
            Doing::Writing(byte) => self.contents[slot] = byte,
            Doing::Reading => {
                let (found, expected) = (all.byte(SLOTS + slot as u64), self.contents[slot]);
                if found != expected {
                    return Err(format!("block {slot} has {found:#x}, and {expected:#x} was written last"));
                }
            }
        }
        self.ended += 1;
        Ok(())
    }

    fn submit(&mut self, all: &mut Gateways, random: &mut Random) {
        let slot = random.below(SLOTS);
        if self.doing[slot as usize] != Doing::Nothing {
            return;
        }
        let (submitted, doing) = if random.one_in(2) {
            self.next = self.next.wrapping_add(1);
            all.fill(slot, self.next);
            (all.paths.write(slot, &[all.segment(slot)], slot), Doing::Writing(self.next))
        } else {
            (all.paths.read(slot, &[all.segment(SLOTS + slot)], slot), Doing::Reading)
        };
        if submitted.is_ok() {
            self.doing[slot as usize] = doing;
        }
    }

    fn ends(&mut self, all: &mut Gateways) -> Result<(), String> {
        let ended = core::mem::take(&mut all.completions);
        ended.into_iter().try_for_each(|completion| self.end(all, completion))
    }
}

/// What goes on at a gateway, and until when.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    Dead(Duration),
    Still(Duration),
    Gated(Duration),
}

fn trouble(all: &mut Gateways, at: usize, trouble: &mut Trouble, random: &mut Random) {
    let until = all.now + Duration::from_millis(random.below(LONGEST_MS));
    match *trouble {
        Trouble::Dead(over) if all.now >= over => all.start(at),
        Trouble::Still(over) if all.now >= over => all.gateways[at].polled = true,
        Trouble::Gated(over) if all.now >= over => all.gateways[at].switch.gate.set(Gate::Open),
        Trouble::None if random.one_in(700) => {
            *trouble = match random.below(3) {
                0 => Trouble::Dead(until),
                1 => Trouble::Still(until),
                _ => Trouble::Gated(until),
            };
            match *trouble {
                Trouble::Dead(_) => all.kill(at),
                Trouble::Still(_) => all.gateways[at].polled = false,
                _ => all.gateways[at].switch.gate.set(Gate::Unstarted),
            }
            return;
        }
        _ => return,
    }
    *trouble = Trouble::None;
}

/// What the model finds wrong; else how many requests were lost with a path.
fn walk(profile: &str, seed: u64, options: PathsOptions) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let wanted = Wanted::default();
    let host =
        wanted.host.keep_alive(2 * SECOND).command_timeout(Duration::ZERO).step_timeout(SECOND).max_attempts(1000);
    let paths = options.path_timeout(600 * SECOND).command_retries(None);
    let mut all = Gateways::ready(profile, &Wanted { host, paths, ..Wanted::default() });
    let count = SLOTS as usize;
    let mut model = Model { contents: vec![0; count], doing: vec![Doing::Nothing; count], next: 0, ended: 0 };
    let mut troubles = [Trouble::None; 2];
    for _ in 0..STEPS {
        all.tick = Duration::from_micros(random.below(2000));
        model.submit(&mut all, &mut random);
        for (at, going_on) in troubles.iter_mut().enumerate() {
            trouble(&mut all, at, going_on, &mut random);
        }
        let at = random.below(2) as usize;
        match random.below(1200) {
            0 => all.cut(at as u16),
            1 => all.set_ana(at, AnaState::Optimized),
            2 => all.set_ana(at, random.of(&[AnaState::NonOptimized, AnaState::Inaccessible, AnaState::Change])),
            _ => {}
        }
        all.step();
        model.ends(&mut all)?;
    }
    for (at, going_on) in troubles.into_iter().enumerate() {
        if let Trouble::Dead(_) = going_on {
            all.start(at);
        }
        all.gateways[at].polled = true;
        all.gateways[at].switch.gate.set(Gate::Open);
        all.set_ana(at, AnaState::Optimized);
    }
    all.tick = Duration::from_millis(1);
    all.until("all ended", |all| all.paths.outstanding() == 0);
    model.ends(&mut all)?;
    // Whatever is late has its time.
    all.steps(8_000);
    let wrong = (0..count).find(|slot| all.on_medium(*slot as u64) != model.contents[*slot]);
    let lost = (0..2).map(|path| all.paths.path_statistics(path).lost).sum();
    all.finish();
    match wrong {
        Some(slot) => Err(format!("block {slot} was written over behind the last write")),
        None if model.ended == 0 => Err("nothing was done".to_owned()),
        None => Ok(lost),
    }
}

#[test]
fn no_stale_byte_is_read_and_no_write_comes_back_over_a_later_one() {
    let all = |profile: &str| {
        let lost: u64 = (0..2)
            .map(|seed| {
                walk(profile, seed, PathsOptions::default()).unwrap_or_else(|wrong| panic!("{profile} {seed}: {wrong}"))
            })
            .sum();
        assert!(lost > 0, "{profile}: nothing was lost with a path");
    };
    std::thread::scope(|scope| PROFILES.map(|profile| drop(scope.spawn(move || all(profile)))));
}

#[test]
fn without_the_rule_the_model_finds_what_it_prevents() {
    // As if the storage fenced, which this one does not.
    let found = (0..20).find_map(|seed| walk("reg_mr", seed, PathsOptions::default().storage_fences(true)).err());
    let found = found.expect("some seed of 20 writes over a later write");
    assert!(found.contains("written"), "{found}");
}
