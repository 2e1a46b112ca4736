//! Commands of reservations as a world asks for them: while faults happen, and one at a time behind them.

use super::{Answer, Question, UnderWay, reserve};
use crate::simulation::{
    desk::{Kind, Pending},
    effects::Effects,
    hosts::{HostSide, Member},
    ledger::Ledger,
    world::{ROUNDS_TO_END, World},
};
use frwr_nvmf::host::IoError;
use frwr_nvmf::wire::{PersistChange, RegisterAction, ReleaseAction, ReservationType, Status};
use frwr_support::nvmf_harness::reservations::Asked;

/// Commands of a quarrel, and those that are drawn of blocks in between: enough for every kind of news in some seeds of few.
const QUARREL: u64 = 100;
/// Of so many requests of the storm one is of reservations.
const QUESTIONS: u64 = 12;
/// Of so many of the others one is a pair.
const PAIRS: u64 = 6;
/// The key by which everything is cleared.
const KEY: u64 = 1;

/// Commands may be sent more than once.
fn may_repeat(explained: Effects) -> bool {
    [Effects::ENDS, Effects::TIME_OUTS, Effects::REPEATS].into_iter().any(|effect| explained.contains(effect))
}

impl World<'_> {
    /// Something that only hosts ask for which share a namespace, if it is drawn; whether it was taken.
    ///
    /// # Errors
    /// Memory had changed although nobody used it.
    pub(in super::super) fn submit_shared(&mut self, host: usize, member: usize) -> Result<Option<bool>, String> {
        if !self.scenario.reserves {
            return Ok(None);
        }
        if self.asks.one_in(QUESTIONS) {
            let Some(question) = self.ledger.fences.draw(host, &mut self.asks) else { return Ok(None) };
            let taken = self.ask(host, member, question)?;
            // Whoever is preempted may have any command under way.
            self.explained |= Effects::REPEATS.when(taken && question.aborts());
            return Ok(Some(taken));
        }
        let side = &mut self.hosts[host].members[member];
        let most = u64::from(side.host.compares_and_writes().unwrap_or(0)).min(self.scenario.work.blocks / 2);
        if most == 0 || !self.asks.one_in(PAIRS) {
            return Ok(None);
        }
        let prepared = self.ledger.prepare_pair(side.desk, &mut self.asks, most)?;
        let Some((cookie, pending)) = prepared else { return Ok(None) };
        let taken = side.try_submit(&mut self.ledger, cookie, pending);
        if taken {
            self.submitted((host, member), cookie, &pending);
        }
        Ok(Some(taken))
    }

    fn ask(&mut self, host: usize, member: usize, question: Question) -> Result<bool, String> {
        let side = &mut self.hosts[host].members[member];
        let kind = if question == Question::Report { Kind::Report } else { Kind::Reserve };
        let prepared = self.ledger.prepare_question(side.desk, kind, &mut self.asks)?;
        let Some((cookie, pending)) = prepared else { return Ok(false) };
        if !side.try_ask(&mut self.ledger, cookie, pending, question) {
            return Ok(false);
        }
        let under_way = UnderWay { desk: side.desk, cookie, host, question, is_ghost: false };
        self.ledger.fences.begun(under_way, may_repeat(self.explained));
        self.submitted((host, member), cookie, &pending);
        self.run.event(|| format!("  {question:?}"));
        Ok(true)
    }

    /// A host asks, and is answered.
    fn ask_alone(&mut self, host: usize, question: Question) -> Result<(), String> {
        let mut asked = false;
        self.rounds("an answer about reservations", ROUNDS_TO_END, |world| {
            asked = asked || world.ask(host, 0, question)?;
            Ok(asked && world.ledger.is_empty())
        })
    }

    /// Nobody is registered any more, so that every host reads and writes.
    ///
    /// # Errors
    /// What was wrong.
    pub(in super::super) fn make_peace(&mut self) -> Result<(), String> {
        if !self.scenario.reserves {
            return Ok(());
        }
        // Whatever keys there are, and whoever holds what.
        let register = Asked::Register { action: RegisterAction::Replace, ignores_key: true, keys: (0, KEY) };
        let clear = Asked::Release { action: ReleaseAction::Clear, kind: ReservationType::WriteExclusive, key: KEY };
        self.ask_alone(0, Question::Change(register, PersistChange::Clear))?;
        self.ask_alone(0, Question::Change(clear, PersistChange::None))?;
        if self.ledger.fences.is_peace() { Ok(()) } else { Err(format!("no peace: {}", self.ledger.fences.describe())) }
    }

    /// Nothing goes wrong any more: hosts ask one behind the other. Each is answered as the model says, and whoever is to be told of it is.
    ///
    /// # Errors
    /// What was wrong.
    pub(in super::super) fn quarrel(&mut self) -> Result<(), String> {
        if !self.scenario.reserves {
            return Ok(());
        }
        let mut told: Vec<_> = self.hosts.iter().map(HostSide::notifications).collect();
        for _ in 0..QUARREL {
            let host = self.asks.below(self.hosts.len() as u64) as usize;
            let Some(question) = self.ledger.fences.draw(host, &mut self.asks) else { continue };
            self.ask_alone(host, question)?;
            for (host, told) in told.iter_mut().enumerate() {
                *told += self.ledger.fences.told(host)?;
            }
            self.run.event(|| format!("{question:?} of host {host}: all were told {told:?}"));
            self.rounds("hosts were told what others did to their reservations", ROUNDS_TO_END, |world| {
                Ok(world.hosts.iter().map(HostSide::notifications).eq(told.iter().copied()))
            })?;
        }
        self.make_peace()
    }
}

impl Member {
    /// A command of reservations; false where the host does not take it.
    fn try_ask(&mut self, ledger: &mut Ledger, cookie: u64, pending: Pending, question: Question) -> bool {
        let taken = match question {
            Question::Report => {
                let segments = ledger.desks[self.desk].segments(cookie, &pending);
                segments.first().is_some_and(|segment| self.host.report_reservations(*segment, cookie).is_ok())
            }
            Question::Change(asked, persist) => {
                reserve(asked, persist).is_some_and(|(what, keys)| self.host.reserve(what, keys, cookie).is_ok())
            }
        };
        if taken {
            ledger.submitted(self.desk, cookie, Pending { sent_again: self.sent_again(), ..pending });
        }
        taken
    }
}

impl Ledger {
    /// A command of reservations ended. `sent_again`: it may have been executed more than once.
    ///
    /// # Errors
    /// It cannot have ended so, or wrote to memory that was not its own.
    pub(in super::super) fn answered(
        &mut self,
        (desk, cookie): (usize, u64),
        kind: Kind,
        result: Result<(), IoError>,
        sent_again: bool,
        explained: Effects,
    ) -> Result<(), String> {
        let told = |status| Some(Answer::Told(status));
        let answer = match result {
            Ok(()) if kind == Kind::Report => Some(self.fences.seen(self.desks[desk].take_report(cookie))?),
            Ok(()) => told(Status::SUCCESS),
            Err(IoError::Status(status)) => match status.without_flags() {
                Status::RESERVATION_CONFLICT | Status::INVALID_FIELD => told(status.without_flags()),
                _ => None,
            },
            Err(_) => None,
        };
        self.desks[desk].check_memory(cookie, kind == Kind::Report)?;
        self.fences.ended((desk, cookie), answer.as_ref(), may_repeat(explained), sent_again)
    }
}
