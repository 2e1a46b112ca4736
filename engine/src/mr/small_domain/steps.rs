//! What each step does, to the MR and to its device.

use super::super::{Cause, Mr, MrError, ReturnPolicy, Step};
use super::world::{Act, INDEX, OPENING, OWNER, Sent, Valid, Work, World, assert_same};
use crate::provider::{Operation, RegistrationId, WorkRequest};

impl World {
    /// Does it, where that can happen now. What the MR refuses leaves it unchanged ([`super::refusals`]) and is not done.
    pub(super) fn act(&mut self, act: Act) -> Option<()> {
        match act {
            Act::Install => {
                self.mr.install(RegistrationId(4), INDEX, self.connection).ok()?;
                self.forget();
            }
            Act::Open(taken) if self.has_room() => self.open(taken)?,
            Act::OpenAsPad(taken) if self.has_room() => self.open_as_pad(taken)?,
            Act::GiveBack => self.mr.give_back().ok()?,
            Act::Invalidate(policy, taken) if self.has_room() => self.invalidate(policy, taken)?,
            Act::Execute if !self.broken && !self.queue.is_empty() => self.execute(),
            Act::Fail(took_effect) if !self.broken && !self.queue.is_empty() => self.fail(took_effect),
            Act::Complete if !self.completions.is_empty() => self.complete(),
            Act::InvalidateRemotely => self.invalidate_remotely()?,
            Act::Lose if self.completions.is_empty() && self.queue.is_empty() => self.lose()?,
            Act::BeginRecovery if self.is_passed() => self.mr.begin_recovery().ok()?,
            Act::Destroy if self.is_passed() => {
                self.mr.destroyed().ok()?;
                self.forget();
            }
            _ => return None,
        }
        Some(())
    }

    /// No object ends while the device may work on it: its queue pair is drained, or completions have passed all that was posted.
    fn is_passed(&self) -> bool {
        !self.broken && self.queue.is_empty()
    }

    /// The device object is gone.
    fn forget(&mut self) {
        (self.valid, self.unknown, self.lost, self.invalidated) = (None, false, false, false);
        self.device_key = INDEX;
    }

    fn open(&mut self, taken: bool) -> Option<()> {
        let mut place = WorkRequest::VACANT;
        let key = self.mr.open(self.connection, &OPENING, &mut place, &mut false).ok()?;
        self.opened(key, place, taken);
        Some(())
    }

    fn open_as_pad(&mut self, taken: bool) -> Option<()> {
        let mut place = WorkRequest::VACANT;
        let key = self.mr.open_as_pad(self.connection, &OPENING, &mut place).ok()?;
        self.opened(key, place, taken);
        Some(())
    }

    fn opened(&mut self, key: u32, place: WorkRequest, taken: bool) {
        let Operation::Register(fields) = place.operation else { panic!("{place:?}") };
        assert_eq!((fields.key, place.token), (key, self.mr.token_register()));
        if taken && !self.broken {
            self.post(Work::Register { old_key: fields.old_key, key });
        } else {
            self.mr.register_refused().expect("registering");
        }
    }

    fn invalidate(&mut self, policy: ReturnPolicy, taken: bool) -> Option<()> {
        let key = self.mr.key();
        let (owner, _) = self.mr.invalidate_posted(key, policy).ok()?;
        assert_eq!(owner, OWNER);
        if taken && !self.broken {
            self.post(Work::Invalidate { key });
        } else {
            self.mr.invalidate_refused(self.mr.generation()).expect("it was marked as posted");
            self.unknown = true;
            assert_eq!(self.mr.cause, Cause::UnpostedInvalidate);
        }
        Some(())
    }

    fn execute(&mut self) {
        let sent = self.queue.remove(0);
        self.take_effect(sent);
        self.completions.push((sent, true));
    }

    fn take_effect(&mut self, sent: Sent) {
        match sent.work {
            Work::Register { key, .. } => {
                assert_eq!(self.valid, None, "registered over a live key: {self:?}");
                self.valid = Some((key, sent.generation));
            }
            Work::Invalidate { key } => {
                assert_eq!(self.valid, Some((key, sent.generation)), "invalidated a key that is not valid: {self:?}");
                self.valid = None;
            }
        }
    }

    fn fail(&mut self, took_effect: bool) {
        if took_effect {
            self.take_effect(self.queue[0]);
        }
        (self.broken, self.unknown) = (true, true);
        self.completions.extend(self.queue.drain(..).map(|sent| (sent, false)));
    }

    /// A completion is of the current use, or of one that the MR has in mind, or it is refused.
    fn complete(&mut self) {
        let (sent, succeeded) = self.completions.remove(0);
        let Sent { work, generation } = sent;
        let before = self.mr.clone();
        let waited_for_it = before.step == Step::Invalidating && generation == before.generation();
        let result = match (work, succeeded) {
            (Work::Register { .. }, true) => self.mr.registered(generation),
            (Work::Register { .. }, false) => self.mr.register_failed(generation),
            (Work::Invalidate { .. }, true) => self.mr.invalidated(generation).map(|freed| {
                assert_eq!(freed, waited_for_it.then_some(OWNER), "who has it is told: {before:?}");
            }),
            (Work::Invalidate { .. }, false) => self.mr.invalidate_failed(generation),
        };
        if let Err(error) = result {
            assert_eq!(error, MrError::StaleCompletion);
            assert_same(&self.mr, &before);
        }
        // With early return the failure that counts may be yet to come: its own, or that of the invalidation it has in mind.
        let counts = |mr: &Mr, generation| generation == mr.generation() || mr.is_pending(generation);
        let comes = |(sent, well): &(Sent, bool)| !*well && counts(&self.mr, sent.generation);
        let may_wait = !counts(&before, generation) && self.completions.iter().any(comes);
        assert!(succeeded || may_wait || self.mr.step == Step::Stale, "what failed is not Stale: {sent:?} {self:?}");
    }

    /// The peer was told the key, which is valid, and the reply comes before its request gives up on it.
    fn invalidate_remotely(&mut self) -> Option<()> {
        let is_current = |valid: &Valid| *valid == (self.mr.key(), self.mr.generation());
        let (key, _) = self.valid.filter(|valid| is_current(valid) && !self.invalidated && !self.broken)?;
        self.mr.remotely_invalidated(OWNER, self.connection, key).ok()?;
        (self.valid, self.invalidated) = (None, true);
        Some(())
    }

    fn lose(&mut self) -> Option<()> {
        self.mr.connection_lost(self.connection).ok()?;
        // The queue pair is gone, but not the object: a valid key may be used by another queue pair of its protection domain.
        (self.broken, self.lost) = (false, true);
        Some(())
    }
}
