//! Which hosts may read and write the namespace, as far as is known: a command of reservations may be executed at any time between its
//! submission and its end, once, or more often where it was sent again.

mod peace;
mod possible;
mod rights;

use frwr_nvmf::host::Reserve;
use frwr_nvmf::wire::{
    AcquireAction, PersistChange, RegisteredControllerExtended, ReleaseAction, ReservationStatus, Status,
};
use frwr_support::Random;
use frwr_support::nvmf_harness::reservations::{Asked, HOSTS};
use possible::{Answer, Question, UnderWay, Worlds};
use rights::Rights;
use zerocopy::FromBytes;

/// Commands of reservations under way at a time: all orders in which they may be executed are looked at.
const MOST_UNDER_WAY: usize = 3;
/// With so many possibilities hosts ask for reports only, which leave one.
const MANY: usize = 24;
/// Of so many commands of reservations one is a report.
const REPORTS: u64 = 6;
/// Of so many registrations one asks that all survives, and of so many others one that it does not.
const PERSISTS: (u64, u64) = (3, 10);

/// All that is known of the namespace's reservation.
pub(super) struct Fences {
    /// Host Identifiers, by number.
    hosts: Vec<[u8; 16]>,
    /// What hosts ask to survive does.
    persists: bool,
    worlds: Worlds,
    rights: Rights,
    /// Counts commands that begin and end.
    clock: u64,
    /// Hosts of which nothing may reach the medium any more: they were preempted, their commands have ended, and they may not write.
    shut_out: [bool; HOSTS],
}

impl Fences {
    /// Nobody is registered. `hosts`: their identifiers. `persists`: they may ask that what there is survives the target.
    pub(super) fn new(hosts: Vec<[u8; 16]>, persists: bool) -> Self {
        let (worlds, rights) = (Worlds::new(), Rights::default());
        let mut fences = Self { hosts, persists, worlds, rights, clock: 0, shut_out: [false; HOSTS] };
        fences.look();
        fences
    }

    /// Counts what happened to reservations: by it requests know since when they have to be judged.
    pub(super) fn clock(&self) -> u64 {
        self.clock
    }

    /// Something that a host asks next; `None` where enough is under way, or its part of the draw is of blocks.
    fn draw(&self, host: usize, random: &mut Random) -> Option<Question> {
        if self.worlds.under_way().len() >= MOST_UNDER_WAY {
            return None;
        }
        if self.worlds.count() >= MANY || random.one_in(REPORTS) {
            return Some(Question::Report);
        }
        match Asked::any(self.worlds.some(random)?, host, random) {
            Asked::Read | Asked::Write | Asked::Pair => None,
            asked => Some(Question::Change(asked, self.draw_persistence(asked, random))),
        }
    }

    fn draw_persistence(&self, asked: Asked, random: &mut Random) -> PersistChange {
        match asked {
            Asked::Register { .. } if self.persists && random.one_in(PERSISTS.0) => PersistChange::Set,
            Asked::Register { .. } if self.persists && random.one_in(PERSISTS.1) => PersistChange::Clear,
            _ => PersistChange::None,
        }
    }

    /// A command was taken. `again`: it may be sent more than once.
    fn begun(&mut self, under_way: UnderWay, again: bool) {
        self.clock += 1;
        self.worlds.begin(under_way);
        self.worlds.close(again);
        self.look();
    }

    /// One has ended: with that, or nobody knows how. `again`: some may have been sent more than once; `sent_again`: this one was.
    ///
    /// # Errors
    /// In no order of what was under way would it end so.
    fn ended(
        &mut self,
        (desk, cookie): (usize, u64),
        answer: Option<&Answer>,
        again: bool,
        sent_again: bool,
    ) -> Result<(), String> {
        self.clock += 1;
        self.worlds.close(again);
        self.look();
        let ended = self.worlds.take(desk, cookie, answer)?;
        if ended.question.aborts() {
            self.rights.were_aborted(self.clock, |host| self.worlds.any(|model| model.has_ended(host)));
        }
        // What others may have ended need not be over.
        if !self.worlds.under_way().iter().any(|one| one.question.aborts()) {
            if ended.question.aborts() && !sent_again && answer == Some(&Answer::Told(Status::SUCCESS)) {
                for (host, is_out) in self.shut_out.iter_mut().enumerate() {
                    *is_out |= self.worlds.all(|model| model.has_ended(host) && !model.permits(host, true));
                }
            }
            self.worlds.forget_orders();
        }
        self.look();
        Ok(())
    }

    /// A report as it was read.
    ///
    /// # Errors
    /// It lists somebody that there is not, or more than it has room for.
    fn seen(&self, bytes: &[u8]) -> Result<Answer, String> {
        let (head, _) = ReservationStatus::read_from_prefix(bytes).map_err(|_| "a report without a head".to_owned())?;
        let entries = bytes.chunks_exact(RegisteredControllerExtended::BYTES).skip(1);
        let mut registrants = Vec::new();
        for entry in entries.take(head.registered.get().into()) {
            let (entry, _) =
                RegisteredControllerExtended::read_from_prefix(entry).map_err(|_| "an entry too short".to_owned())?;
            let host = self.hosts.iter().position(|host| *host == entry.host_id);
            let host = host.ok_or_else(|| format!("somebody is registered that there is not: {entry:x?}"))?;
            registrants.push((host, entry.key.get(), entry.status == RegisteredControllerExtended::HOLDER));
        }
        registrants.sort_unstable();
        Ok(Answer::Seen { kind: head.kind, persists: head.persists > 0, registrants })
    }

    /// Nobody is registered.
    fn is_peace(&self) -> bool {
        self.worlds.all(|model| model.registrants().next().is_none())
    }

    /// How much a host was to be told of the last command.
    ///
    /// # Errors
    /// There is more than one possibility.
    fn told(&self, host: usize) -> Result<u64, String> {
        match self.worlds.only() {
            Some(model) => Ok(model.told[host].len() as u64),
            None => Err(format!("nothing went wrong, and it is not known what there is: {}", self.describe())),
        }
    }

    /// What is in force at this time.
    fn look(&mut self) {
        for host in 0..HOSTS {
            for writes in [false, true] {
                let may = self.worlds.any(|model| model.permits(host, writes));
                let may_not = self.worlds.any(|model| !model.permits(host, writes));
                self.rights.are(self.clock, host, writes, (may, may_not));
                self.shut_out[host] &= !(writes && may);
            }
        }
    }

    /// A request that began at a time of [`Fences::clock`], and ends now, may have been executed.
    pub(super) fn may_pass(&self, host: usize, writes: bool, begun: u64) -> bool {
        self.rights.may_pass(host, writes, begun)
    }

    /// It may have been refused.
    pub(super) fn may_be_refused(&self, host: usize, writes: bool, begun: u64) -> bool {
        self.rights.may_be_refused(host, writes, begun)
    }

    /// It may have been aborted.
    pub(super) fn may_be_aborted(&self, host: usize, begun: u64) -> bool {
        self.rights.may_be_aborted(host, begun) || self.worlds.any(|model| model.has_ended(host))
    }

    /// Nothing of this host may reach the medium.
    pub(super) fn is_shut_out(&self, host: usize) -> bool {
        self.shut_out[host]
    }

    /// The target began anew, and knows what its file has. What it had answered may still be on its way.
    pub(super) fn begin_anew(&mut self) {
        self.clock += 1;
        self.worlds.begin_anew();
        self.look();
    }

    /// A host's program is gone: what it had asked for may be executed until its next session is there ([`Fences::exorcise`]).
    pub(super) fn haunted(&mut self, desk: usize) {
        self.worlds.haunted(desk);
    }

    /// Nothing of it is executed any more.
    ///
    /// # Errors
    /// As [`Fences::ended`].
    pub(super) fn exorcise(&mut self, desk: usize) -> Result<(), String> {
        while let Some(cookie) = self.worlds.ghost(desk) {
            self.ended((desk, cookie), None, true, true)?;
        }
        Ok(())
    }

    /// What is known, for messages.
    pub(super) fn describe(&self) -> String {
        self.worlds.describe()
    }
}

/// As a host of this crate asks for it; `None` for what is no command of reservations.
fn reserve(asked: Asked, persist: PersistChange) -> Option<(Reserve, (u64, u64))> {
    Some(match asked {
        Asked::Register { action, ignores_key: ignore_key, keys } => {
            (Reserve::Register { action, ignore_key, persist }, keys)
        }
        Asked::Acquire { action, kind, keys } => (Reserve::Acquire { action, kind }, keys),
        Asked::Release { action: ReleaseAction::Release, kind, key } => (Reserve::Release { kind }, (key, 0)),
        Asked::Release { action: ReleaseAction::Clear, key, .. } => (Reserve::Clear, (key, 0)),
        Asked::Read | Asked::Write | Asked::Pair => return None,
    })
}

impl Question {
    /// It ends what other hosts have under way.
    fn aborts(self) -> bool {
        matches!(self, Self::Change(Asked::Acquire { action: AcquireAction::PreemptAndAbort, .. }, _))
    }
}
