//! Random commands of several hosts on several cores, beside a model that knows them by maps alone.

use super::hosts::{CORES, Hosts, host_id};
use frwr_nvmf::controller::Reservations;
use frwr_nvmf::wire::{AcquireAction, RegisterAction, ReleaseAction, ReservationType, Status};
use std::collections::BTreeMap;

const HOSTS: usize = 4;
const STEPS: usize = 400;

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[derive(Default)]
struct Model {
    keys: BTreeMap<usize, u64>,
    /// Type and holder; all registrants hold the types that say so.
    held: Option<(ReservationType, usize)>,
}

impl Model {
    fn holds(&self, host: usize) -> bool {
        let of = |(kind, holder): (ReservationType, usize)| kind.is_held_by_all() || holder == host;
        self.keys.contains_key(&host) && self.held.is_some_and(of)
    }

    fn forget(&mut self, goes: impl Fn(usize, u64) -> bool) -> usize {
        let before = self.keys.len();
        self.keys.retain(|host, key| !goes(*host, *key));
        if let Some((kind, holder)) = self.held
            && (self.keys.is_empty() || !kind.is_held_by_all() && !self.keys.contains_key(&holder))
        {
            self.held = None;
        }
        before - self.keys.len()
    }

    fn register(&mut self, host: usize, action: RegisterAction, (current, new): (u64, u64)) -> Status {
        let known = self.keys.get(&host).copied();
        match action {
            RegisterAction::Register if known.is_some_and(|key| key != new) => return Status::RESERVATION_CONFLICT,
            RegisterAction::Register => {}
            _ if known != Some(current) => return Status::RESERVATION_CONFLICT,
            RegisterAction::Replace => {}
            RegisterAction::Unregister => {
                self.forget(|other, _| other == host);
                return Status::SUCCESS;
            }
        }
        self.keys.insert(host, new);
        Status::SUCCESS
    }

    fn acquire(&mut self, host: usize, preempts: bool, kind: ReservationType, (current, other): (u64, u64)) -> Status {
        if self.keys.get(&host) != Some(&current) {
            return Status::RESERVATION_CONFLICT;
        }
        let takes = match self.held {
            None if !preempts => true,
            Some((held, _)) if !preempts => {
                return if held == kind && self.holds(host) { Status::SUCCESS } else { Status::RESERVATION_CONFLICT };
            }
            Some((held, _)) if held.is_held_by_all() => other == 0,
            Some((_, holder)) if self.keys[&holder] == other => true,
            Some(_) if other == 0 => return Status::INVALID_FIELD,
            _ => false,
        };
        if preempts {
            let gone = self.forget(|one, key| match takes {
                true => one != host && (other == 0 || key == other),
                false => key == other,
            });
            if gone == 0 && !takes {
                return Status::RESERVATION_CONFLICT;
            }
        }
        if takes {
            self.held = Some((kind, host));
        }
        Status::SUCCESS
    }

    fn release(&mut self, host: usize, clears: bool, kind: ReservationType, current: u64) -> Status {
        if self.keys.get(&host) != Some(&current) {
            return Status::RESERVATION_CONFLICT;
        }
        if clears {
            self.forget(|_, _| true);
        } else if self.holds(host) {
            if self.held.is_some_and(|(held, _)| held != kind) {
                return Status::INVALID_FIELD;
            }
            self.held = None;
        }
        Status::SUCCESS
    }

    fn may(&self, host: usize, writes: bool) -> bool {
        let Some((kind, _)) = self.held else { return true };
        let registered = self.keys.contains_key(&host);
        self.holds(host) || registered && kind.is_of_registrants() || !writes && kind.lets_read()
    }
}

#[test]
fn random_commands_of_several_hosts_end_as_the_model_says() {
    for seed in 1..=6 {
        let mut random = Random(seed);
        let mut all = Hosts::new(&Reservations::new(), &[1, 2, 3, 4]);
        let mut model = Model::default();
        for step in 0..STEPS {
            let (host, core) = (random.below(HOSTS as u64) as usize, random.below(CORES as u64) as usize);
            let io = all.io(host, core);
            let kind = ReservationType::ALL[random.below(6) as usize];
            // Most say their own key, and few keys are many hosts'.
            let own = model.keys.get(&host).copied().unwrap_or(1);
            let current = if random.below(8) == 0 { 1 + random.below(4) } else { own };
            let (found, expected) = match random.below(10) {
                0..=2 => {
                    let action = [RegisterAction::Register, RegisterAction::Register, RegisterAction::Replace];
                    let action = match random.below(5) {
                        0 => RegisterAction::Unregister,
                        other => action[other as usize % 3],
                    };
                    let keys = (current, 1 + random.below(4));
                    (all.register(io, action, keys), model.register(host, action, keys))
                }
                3..=5 => {
                    let action = match random.below(4) {
                        0 | 1 => AcquireAction::Acquire,
                        2 => AcquireAction::Preempt,
                        _ => AcquireAction::PreemptAndAbort,
                    };
                    let (keys, preempts) = ((current, random.below(5)), action != AcquireAction::Acquire);
                    (all.acquire(io, action, kind, keys), model.acquire(host, preempts, kind, keys))
                }
                6 => {
                    let clears = random.below(6) == 0;
                    let action = if clears { ReleaseAction::Clear } else { ReleaseAction::Release };
                    let held = model.held.map_or(kind, |(held, _)| if random.below(3) > 0 { held } else { kind });
                    (all.release(io, action, held, current), model.release(host, clears, held, current))
                }
                operation => {
                    let writes = operation == 7;
                    let status = if writes { all.write(io, 1) } else { all.read(io) };
                    let expected = if model.may(host, writes) { Status::SUCCESS } else { Status::RESERVATION_CONFLICT };
                    (status, expected)
                }
            };
            assert_eq!(found, expected, "seed {seed}, step {step}, host {host}");
            if step % 8 == 0 {
                let (head, mut registrants) = all.report(io);
                registrants.sort_unstable();
                let listed = model.keys.iter().map(|(at, key)| (host_id(*at as u8 + 1), *key, model.holds(*at)));
                assert_eq!(registrants, listed.collect::<Vec<_>>(), "seed {seed}, step {step}");
                assert_eq!(head.kind, model.held.map_or(0, |(kind, _)| kind as u8));
            }
        }
        all.raw.shut_down();
    }
}
