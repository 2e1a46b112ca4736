//! What reservations have to do, by maps and by the standard's tables alone (Base 8.19, NVM 2.1.3).

use crate::Random;
use frwr_nvmf::wire::{
    AcquireAction, RegisterAction, ReleaseAction, ReservationNotificationKind, ReservationType, Status,
};
use std::collections::BTreeMap;

/// Hosts that take part: the first one has the number 0.
pub const HOSTS: usize = 4;
/// Keys that are asked for, from 1.
const KEYS: u64 = 4;

/// Of a type: whether who is not registered, a registrant and the holder may read, and whether they may write.
type Rights = (ReservationType, [bool; 3], [bool; 3]);

const NOBODY_BUT_IT: [bool; 3] = [false, false, true];
const REGISTRANTS: [bool; 3] = [false, true, true];
const EVERYBODY: [bool; 3] = [true, true, true];

const RIGHTS: [Rights; 6] = [
    (ReservationType::WriteExclusive, EVERYBODY, NOBODY_BUT_IT),
    (ReservationType::ExclusiveAccess, NOBODY_BUT_IT, NOBODY_BUT_IT),
    (ReservationType::WriteExclusiveRegistrants, EVERYBODY, REGISTRANTS),
    (ReservationType::ExclusiveAccessRegistrants, REGISTRANTS, REGISTRANTS),
    (ReservationType::WriteExclusiveAll, EVERYBODY, REGISTRANTS),
    (ReservationType::ExclusiveAccessAll, REGISTRANTS, REGISTRANTS),
];

/// Every registrant holds it.
fn is_of_all(kind: ReservationType) -> bool {
    matches!(kind, ReservationType::WriteExclusiveAll | ReservationType::ExclusiveAccessAll)
}

/// None but its holder has rights by it.
fn is_of_one(kind: ReservationType) -> bool {
    matches!(kind, ReservationType::WriteExclusive | ReservationType::ExclusiveAccess)
}

/// A command. Keys: the host's own, and the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Register {
        action: RegisterAction,
        /// IEKEY.
        ignores_key: bool,
        keys: (u64, u64),
    },
    Acquire {
        action: AcquireAction,
        kind: ReservationType,
        keys: (u64, u64),
    },
    Release {
        action: ReleaseAction,
        kind: ReservationType,
        key: u64,
    },
    Read,
    Write,
    /// A fused Compare and Write.
    Pair,
}

impl Asked {
    /// Something that a host might ask, as far as is known. Most say their own key, and few keys are many hosts'.
    pub fn any(known: &Model, host: usize, random: &mut Random) -> Self {
        let (own, held) = (known.key_of(host).unwrap_or(1), known.kind());
        let current = if random.one_in(8) { 1 + random.below(KEYS) } else { own };
        let kind = random.of(&ReservationType::ALL);
        match random.below(12) {
            0..=2 => {
                let actions = [RegisterAction::Register, RegisterAction::Register, RegisterAction::Replace];
                let action = if random.one_in(5) { RegisterAction::Unregister } else { random.of(&actions) };
                Self::Register { action, ignores_key: false, keys: (current, 1 + random.below(KEYS)) }
            }
            3..=5 => {
                let actions = [AcquireAction::Acquire, AcquireAction::Preempt, AcquireAction::PreemptAndAbort];
                Self::Acquire { action: random.of(&actions), kind, keys: (current, random.below(KEYS + 1)) }
            }
            6 => {
                let action = if random.one_in(6) { ReleaseAction::Clear } else { ReleaseAction::Release };
                let kind = if random.one_in(3) { kind } else { held.unwrap_or(kind) };
                Self::Release { action, kind, key: current }
            }
            7 | 8 => Self::Read,
            9 | 10 => Self::Write,
            _ => Self::Pair,
        }
    }
}

/// Registrations, the reservation, and what hosts were told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    keys: BTreeMap<usize, u64>,
    /// Type and holder; of no meaning where all registrants hold it.
    held: Option<(ReservationType, usize)>,
    /// What each host was told and has not read.
    pub told: [Vec<ReservationNotificationKind>; HOSTS],
    /// Hosts whose commands were to end.
    ended: [bool; HOSTS],
}

impl Model {
    pub fn key_of(&self, host: usize) -> Option<u64> {
        self.keys.get(&host).copied()
    }

    pub fn kind(&self) -> Option<ReservationType> {
        self.held.map(|(kind, _)| kind)
    }

    /// As a report lists them: of each registrant its number, its key, and whether it holds the reservation.
    pub fn registrants(&self) -> impl Iterator<Item = (usize, u64, bool)> {
        self.keys.iter().map(|(host, key)| (*host, *key, self.holds(*host)))
    }

    /// No order to end commands is known any more.
    pub fn forget_orders(&mut self) {
        self.ended = [false; HOSTS];
    }

    /// All hosts have read what they were told.
    pub fn forget_told(&mut self) {
        self.told = Default::default();
    }

    /// Commands of this host may have been aborted.
    pub fn has_ended(&self, host: usize) -> bool {
        self.ended[host]
    }

    /// What a host is answered. A pair that may be executed is answered as its blocks say, which is not known here.
    pub fn apply(&mut self, host: usize, asked: Asked) -> Status {
        match asked {
            Asked::Register { action, ignores_key, keys } => self.register(host, action, ignores_key, keys),
            Asked::Acquire { action: AcquireAction::Acquire, kind, keys } => self.acquire(host, kind, keys.0),
            Asked::Acquire { action, kind, keys } => {
                self.preempt(host, action == AcquireAction::PreemptAndAbort, kind, keys)
            }
            Asked::Release { action, kind, key } => self.release(host, action == ReleaseAction::Clear, kind, key),
            Asked::Read => self.used(host, false),
            Asked::Write | Asked::Pair => self.used(host, true),
        }
    }

    fn holds(&self, host: usize) -> bool {
        let of = |(kind, holder): (ReservationType, usize)| is_of_all(kind) || holder == host;
        self.keys.contains_key(&host) && self.held.is_some_and(of)
    }

    fn used(&self, host: usize, writes: bool) -> Status {
        if self.permits(host, writes) { Status::SUCCESS } else { Status::RESERVATION_CONFLICT }
    }

    /// The host may read, or write.
    pub fn permits(&self, host: usize, writes: bool) -> bool {
        let Some((held, _)) = self.held else { return true };
        let (_, reading, writing) = RIGHTS[held as usize - 1];
        let standing = usize::from(self.keys.contains_key(&host)) + usize::from(self.holds(host));
        if writes { writing[standing] } else { reading[standing] }
    }

    /// Those that `by` has made go are told why, if they were made to.
    fn forget(&mut self, by: usize, why: ReservationNotificationKind, goes: impl Fn(usize, u64) -> bool) -> Vec<usize> {
        let gone: Vec<_> = self.keys.iter().filter(|(host, key)| goes(**host, **key)).map(|(host, _)| *host).collect();
        for host in &gone {
            self.keys.remove(host);
            if *host != by {
                self.told[*host].push(why);
            }
        }
        if let Some((kind, holder)) = self.held
            && (self.keys.is_empty() || !is_of_all(kind) && !self.keys.contains_key(&holder))
        {
            self.held = None;
        }
        gone
    }

    /// Registrants hear that what they went by is not so any more.
    fn tell_others(&mut self, by: usize) {
        for host in self.keys.keys().filter(|host| **host != by) {
            self.told[*host].push(ReservationNotificationKind::ReservationReleased);
        }
    }

    fn register(&mut self, host: usize, action: RegisterAction, ignores_key: bool, keys: (u64, u64)) -> Status {
        let ((current, new), known) = (keys, self.keys.get(&host).copied());
        match action {
            RegisterAction::Register if known.is_some_and(|key| key != new) => return Status::RESERVATION_CONFLICT,
            RegisterAction::Register => {}
            RegisterAction::Replace if ignores_key => {}
            _ if known.is_none_or(|key| key != current && !ignores_key) => return Status::RESERVATION_CONFLICT,
            RegisterAction::Replace => {}
            RegisterAction::Unregister => {
                let before = self.held;
                self.forget(host, ReservationNotificationKind::RegistrationPreempted, |other, _| other == host);
                if before.is_some_and(|(kind, _)| !is_of_one(kind)) && self.held.is_none() {
                    self.tell_others(host);
                }
                return Status::SUCCESS;
            }
        }
        self.keys.insert(host, new);
        Status::SUCCESS
    }

    fn acquire(&mut self, host: usize, kind: ReservationType, current: u64) -> Status {
        match self.held {
            _ if self.keys.get(&host) != Some(&current) => Status::RESERVATION_CONFLICT,
            None => {
                self.held = Some((kind, host));
                Status::SUCCESS
            }
            Some((held, _)) if held == kind && self.holds(host) => Status::SUCCESS,
            Some(_) => Status::RESERVATION_CONFLICT,
        }
    }

    fn preempt(&mut self, host: usize, aborts: bool, kind: ReservationType, (current, other): (u64, u64)) -> Status {
        if self.keys.get(&host) != Some(&current) {
            return Status::RESERVATION_CONFLICT;
        }
        let before = self.held;
        let takes = match before {
            None => false,
            Some((held, _)) if is_of_all(held) => other == 0,
            Some((_, holder)) if self.keys[&holder] == other => true,
            Some(_) if other == 0 => return Status::INVALID_FIELD,
            Some(_) => false,
        };
        let why = ReservationNotificationKind::RegistrationPreempted;
        let gone = self.forget(host, why, |one, key| match takes {
            true => one != host && (other == 0 || key == other),
            false => key == other,
        });
        if gone.is_empty() && !takes {
            return Status::RESERVATION_CONFLICT;
        }
        if takes {
            self.held = Some((kind, host));
        }
        if before.is_some_and(|(held, _)| self.kind() != Some(held)) {
            self.tell_others(host);
        }
        // Who preempts itself ends nothing of its own: that was under way with it, and may be carried out before or behind.
        for one in gone.into_iter().filter(|one| aborts && *one != host) {
            self.ended[one] = true;
        }
        Status::SUCCESS
    }

    fn release(&mut self, host: usize, clears: bool, kind: ReservationType, current: u64) -> Status {
        if self.keys.get(&host) != Some(&current) {
            return Status::RESERVATION_CONFLICT;
        }
        if clears {
            self.forget(host, ReservationNotificationKind::ReservationPreempted, |_, _| true);
        } else if self.holds(host) {
            if self.kind() != Some(kind) {
                return Status::INVALID_FIELD;
            }
            self.held = None;
            if !is_of_one(kind) {
                self.tell_others(host);
            }
        }
        Status::SUCCESS
    }
}
