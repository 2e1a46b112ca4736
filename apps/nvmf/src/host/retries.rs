//! Commands that were lost with their session, and how often they are sent again.
//!
//! A command that makes the target end its session (a defect of the target that this command hits, a medium that hangs at
//! that block) would do so for ever. So each has a number of retries. Commands that happened to be in flight with it are lost as often as it is
//! while all are sent together; so those that were lost twice are suspects, of which one is in flight at a time. What is innocent is
//! answered then, since it ends no session and no other suspect is beside it; and what is guilty is alone to blame.

use super::Host;
use super::request::IoError;
use core::time::Duration;
use frwr_engine::provider::Port;
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
}

impl Resend {
    pub(super) fn new(commands: u16) -> Self {
        let line = || VecDeque::with_capacity(commands.into());
        Self { plain: line(), suspects: line(), paused: VecDeque::with_capacity(commands.into()) }
    }

    pub(super) fn line(&mut self, suspects: bool) -> &mut VecDeque<u16> {
        if suspects { &mut self.suspects } else { &mut self.plain }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.suspects.is_empty() && self.paused.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<u16> {
        let paused = |paused: &mut VecDeque<(u16, _)>| paused.pop_front().map(|(slot, _)| slot);
        self.plain.pop_front().or_else(|| self.suspects.pop_front()).or_else(|| paused(&mut self.paused))
    }

    pub(super) fn remove(&mut self, slot: u16) {
        self.plain.retain(|&waiting| waiting != slot);
        self.suspects.retain(|&waiting| waiting != slot);
        self.paused.retain(|&(waiting, _)| waiting != slot);
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
}

impl<P: Port> Host<P> {
    /// A command came back without an answer; why its request fails, if it was sent as often as it may be.
    pub(super) fn count_loss(&mut self, slot: u16) -> Result<(), IoError> {
        let most = self.blame_limit();
        let Some(Some(part)) = self.parts.get_mut(usize::from(slot)) else { return Ok(()) };
        part.losses = part.losses.saturating_add(1);
        part.blame = part.blame.saturating_add(if self.ends_elsewhere { ELSEWHERE } else { HERE });
        match most {
            Some(most) if part.blame > most => Err(IoError::Unanswered { attempts: part.losses }),
            _ => Ok(()),
        }
    }

    /// Has a command wait until it may be sent.
    pub(super) fn send_again(&mut self, slot: u16) {
        let part = self.parts.get(usize::from(slot)).and_then(Option::as_ref);
        let suspected = part.is_some_and(|part| self.is_suspect(part.blame));
        self.resend.line(suspected).push_back(slot);
    }

    /// Why a command that waits is not to be sent: its request has failed meanwhile.
    pub(super) fn given_up(&self, slot: u16) -> Option<IoError> {
        let part = self.parts.get(usize::from(slot))?.as_ref()?;
        self.requests.get(usize::from(part.request))?.as_ref()?.result.err()
    }

    /// Also where the next loss is the last one that it may have.
    pub(super) fn is_suspect(&self, blame: u16) -> bool {
        blame > 0 && blame >= SUSPICION.min(self.blame_limit().unwrap_or(u16::MAX))
    }

    /// What all losses of a command may count.
    fn blame_limit(&self) -> Option<u16> {
        self.context.options.command_retries.map(|retries| retries.saturating_mul(HERE))
    }
}
