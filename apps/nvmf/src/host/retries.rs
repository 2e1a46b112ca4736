//! Commands that were lost with their session, and how often they are sent again.
//!
//! A command that makes the target end its session (a defect of the target that this command hits, a medium that hangs at
//! that block) would do so for ever. So each has a number of retries. Commands that happened to be in flight with it are lost as often as it is
//! while all are sent together; so those that were lost twice are suspects, of which one is in flight at a time. What is innocent is
//! answered then, since it ends no session and no other suspect is beside it; and what is guilty is alone to blame.

use super::error::IoError;
use super::parts::Part;
use core::time::Duration;
use std::collections::VecDeque;

/// What a loss counts whose session ended on this core, and one whose session ended because a queue of another core did: there the guilty
/// one is more likely. A target that dies takes the queues of all cores, in an order that says nothing, so that it is not for nothing.
const HERE: u16 = 2;
const ELSEWHERE: u16 = 1;
/// Losses after which a command is suspected: one is what every end of a session does to all that is in flight, and two of them in a row do
/// not happen to the same command by themselves, unless sessions end all the time.
const SUSPICION: u16 = 2 * HERE;

/// Commands that were made and are to be submitted, once more or at last. Suspects have a line of their own, so that none waits behind
/// them who is not suspected.
#[derive(Debug)]
pub(super) struct Resend {
    plain: VecDeque<u16>,
    suspects: VecDeque<u16>,
    /// Those that pause before they wait, and until when, by the caller's time.
    paused: VecDeque<(u16, Duration)>,
    /// The command in flight that is suspected of ending its sessions, of which there is one at a time.
    suspect: Option<u16>,
    /// What all losses of a command may count; `None` for any number.
    limit: Option<u16>,
}

impl Resend {
    /// `retries`: how often a command may be lost and sent again; `None` for ever.
    pub(super) fn new(commands: u16, retries: Option<u16>) -> Self {
        let line = || VecDeque::with_capacity(commands.into());
        let paused = VecDeque::with_capacity(commands.into());
        let limit = retries.map(|retries| retries.saturating_mul(HERE));
        Self { plain: line(), suspects: line(), paused, suspect: None, limit }
    }

    fn line(&mut self, suspects: bool) -> &mut VecDeque<u16> {
        if suspects { &mut self.suspects } else { &mut self.plain }
    }

    /// The next one of a line, unless it would be a second suspect in flight.
    pub(super) fn first(&mut self, suspects: bool) -> Option<u16> {
        if suspects && self.suspect.is_some() { None } else { self.line(suspects).front().copied() }
    }

    /// The next one of a line leaves it.
    pub(super) fn pop_first(&mut self, suspects: bool) {
        self.line(suspects).pop_front();
    }

    /// The next one of a line lets the others pass.
    pub(super) fn pass_over(&mut self, suspects: bool) {
        self.line(suspects).rotate_left(1);
    }

    pub(super) fn len(&mut self, suspects: bool) -> usize {
        self.line(suspects).len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.suspects.is_empty() && self.paused.is_empty()
    }

    /// Takes whatever waits or pauses.
    pub(super) fn pop(&mut self) -> Option<u16> {
        let paused = |paused: &mut VecDeque<(u16, _)>| paused.pop_front().map(|(slot, _)| slot);
        self.plain.pop_front().or_else(|| self.suspects.pop_front()).or_else(|| paused(&mut self.paused))
    }

    pub(super) fn remove(&mut self, slot: u16) {
        self.plain.retain(|&waiting| waiting != slot);
        self.suspects.retain(|&waiting| waiting != slot);
        self.paused.retain(|&(waiting, _)| waiting != slot);
    }

    /// Has a command wait until it may be sent.
    pub(super) fn push(&mut self, slot: u16, part: &Part) {
        let suspected = self.suspects(part.blame);
        self.line(suspected).push_back(slot);
    }

    /// A command waits for its turn from a time of the caller's on.
    pub(super) fn pause(&mut self, slot: u16, until: Duration) {
        self.paused.push_back((slot, until));
    }

    /// Takes a command whose pause is over.
    pub(super) fn pause_over(&mut self, now: Duration) -> Option<u16> {
        let at = self.paused.iter().position(|&(_, until)| until <= now)?;
        self.paused.remove(at).map(|(slot, _)| slot)
    }

    /// When the first pause is over.
    pub(super) fn paused_until(&self) -> Option<Duration> {
        self.paused.iter().map(|&(_, until)| until).min()
    }

    /// A command was sent.
    pub(super) fn sent(&mut self, slot: u16, part: &Part) {
        if self.suspects(part.blame) {
            self.suspect = Some(slot);
        }
    }

    /// A command is not in flight any more.
    pub(super) fn landed(&mut self, slot: u16) {
        self.suspect.take_if(|suspect| *suspect == slot);
    }

    /// Why the request of a command that was lost fails, if it was sent as often as it may be.
    pub(super) fn judge(&self, part: &Part) -> Result<(), IoError> {
        match self.limit {
            Some(most) if part.blame > most => Err(IoError::Unanswered { attempts: part.losses }),
            _ => Ok(()),
        }
    }

    /// Also where the next loss is the last one that it may have.
    fn suspects(&self, blame: u16) -> bool {
        blame > 0 && blame >= SUSPICION.min(self.limit.unwrap_or(u16::MAX))
    }
}

/// What a loss counts. `elsewhere`: the session ended because a queue of another core did.
pub(super) fn blame(elsewhere: bool) -> u16 {
    if elsewhere { ELSEWHERE } else { HERE }
}
