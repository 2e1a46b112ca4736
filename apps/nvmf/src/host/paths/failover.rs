//! What becomes of a request that a path gave back: the rule of what is sent again, and when.
//!
//! A controller that was sent a change of the medium and did not answer may execute it at any time until it is over. Sent to another
//! controller meanwhile, the change may be executed there, be overwritten by a later one, and then be executed once more by the first. So it
//! waits here, and neither goes on nor ends before that ([`super::one::OnePath::is_over`]).

use super::Paths;
use super::one::OnePath;
use super::table::{Fence, Place};
use crate::host::error::IoError;
use crate::host::recourse::is_of_path;
use crate::host::requests::HostCompletion;
use core::time::Duration;
use frwr_engine::provider::Port;

impl<P: Port> Paths<P> {
    /// A path is done with a request: it has ended, or is to be sent again.
    pub(super) fn came_back(&mut self, path: usize, HostCompletion { cookie, result }: HostCompletion) {
        // A slot.
        let slot = cookie as u16;
        self.table.came_back(slot);
        if let Some(one) = self.paths.get_mut(path) {
            let counted = one.statistics_mut();
            counted.outstanding = counted.outstanding.saturating_sub(1);
        }
        match result {
            Err(IoError::GivenBack { in_flight: true }) => self.lost(slot, path),
            Err(IoError::GivenBack { in_flight: false }) => self.refused(slot, path, IoError::NoPath),
            Err(IoError::Status(status)) if is_of_path(status, false) => {
                self.refused(slot, path, IoError::Status(status));
            }
            ended => self.table.end(slot, ended),
        }
    }

    /// A path gave a request back because of the path, and no controller executes it: another one takes it at once. Where all have refused it
    /// for too long, it ends so.
    fn refused(&mut self, slot: u16, path: usize, error: IoError) {
        let (Some(one), Some(entry)) = (self.paths.get_mut(path), self.table.get_mut(slot)) else { return };
        one.statistics_mut().refused += 1;
        entry.given_back = true;
        entry.refused_by(path);
        let refused = entry.refused;
        if !self.paths.iter().enumerate().any(|(at, path)| path.serves() && refused.is_new(at)) {
            // A controller that says that the namespace can be reached by it, and refuses each command because of the path, does so for ever.
            let watched = self.clock.watched(self.now);
            if let Some(entry) = self.table.get_mut(slot)
                && watched.saturating_sub(entry.refused.by_all(watched)) >= self.options.path_timeout
            {
                entry.verdict.get_or_insert(error);
            }
        }
        self.again(slot);
    }

    /// A session ended before a request was answered.
    fn lost(&mut self, slot: u16, path: usize) {
        let (Some(one), Some(entry)) = (self.paths.get_mut(path), self.table.get_mut(slot)) else { return };
        entry.given_back = true;
        // A place among MAX_PATHS.
        let fence = one.ends(path as u16);
        entry.lost();
        if entry.request.kind.is_sent_once() {
            // Sent again it would find its own blocks, and look like one that was too late.
            entry.verdict.get_or_insert(IoError::Undecided);
        }
        if self.options.command_retries.is_some_and(|most| entry.losses > u32::from(most)) {
            entry.verdict.get_or_insert(IoError::Unanswered { attempts: entry.losses });
        }
        if entry.request.kind.changes_medium() {
            let counted = one.statistics_mut();
            counted.fenced += 1;
            counted.waiting += 1;
            self.table.fence(slot, fence);
        } else {
            self.again(slot);
        }
    }

    /// No controller executes a request: it is sent again, or ends.
    fn again(&mut self, slot: u16) {
        match self.table.get(slot).and_then(|entry| entry.verdict) {
            Some(error) => self.table.end(slot, Err(error)),
            None => self.table.wait(slot),
        }
    }

    /// What waited for the end of a controller goes on. Returns how many requests do.
    pub(super) fn end_fences(&mut self) -> u32 {
        let mut ended = 0;
        loop {
            let is_over = |(_, fence): &(u16, Fence)| {
                let path = self.paths.get(usize::from(fence.path));
                path.is_none_or(|path| path.is_over(fence, &self.options, self.now))
            };
            let Some((slot, fence)) = self.table.fenced().find(is_over) else { return ended };
            self.unfence(slot, fence.path);
            self.again(slot);
            ended += 1;
        }
    }

    /// Controllers that nothing of ours can reach any more hear nothing from now on. To be called before the paths are polled: what they find
    /// only now may have happened behind the time of this poll, if whoever polls was stopped in between.
    pub(super) fn begin_silence(&mut self) {
        let Self { paths, table, now, .. } = self;
        table.falls_silent(*now, |fence| paths.get(usize::from(fence.path)).is_none_or(|path| path.is_silent(fence)));
    }

    /// When silence ends what a change waits for, or begins to count; by the caller's time.
    pub(super) fn ends_at(&self, fence: &Fence) -> Option<Duration> {
        let begins = || self.paths.get(usize::from(fence.path))?.is_silent(fence).then_some(self.now);
        if fence.since.is_none() { begins() } else { fence.over_at(self.options.quiesce_margin) }
    }

    fn unfence(&mut self, slot: u16, path: u16) {
        self.table.unfence(slot);
        if let Some(one) = self.paths.get_mut(usize::from(path)) {
            let counted = one.statistics_mut();
            counted.waiting = counted.waiting.saturating_sub(1);
        }
    }

    /// Ends what waits where no path serves any more, or has for too long.
    pub(super) fn end_waiting(&mut self) {
        if self.stopping {
            self.end_endless_fences(IoError::Abandoned);
        }
        if self.paths.iter().any(OnePath::serves) {
            self.none_since = None;
            return;
        }
        let watched = self.clock.watched(self.now);
        let since = *self.none_since.get_or_insert(watched);
        let is_hopeless = self.is_hopeless();
        let too_long = watched.saturating_sub(since) >= self.options.path_timeout;
        if !is_hopeless && !too_long {
            return;
        }
        let error = if is_hopeless { IoError::Abandoned } else { IoError::NoPath };
        while let Some(slot) = self.table.first_waiting() {
            self.table.end(slot, Err(error));
        }
        self.end_endless_fences(error);
    }

    /// No path will serve any more.
    fn is_hopeless(&self) -> bool {
        self.stopping || self.all_are_final()
    }

    /// When [`Paths::end_waiting`] has to look although nothing arrives, by the caller's time.
    pub(super) fn gives_up_at(&self) -> Option<Duration> {
        let ends = self.table.waits() || self.table.fenced().any(|(_, fence)| fence.silence.is_none());
        if !ends || self.paths.iter().any(OnePath::serves) {
            return None;
        }
        let since = self.none_since.filter(|_| !self.is_hopeless());
        let deadline = since.map(|since| since.saturating_add(self.options.path_timeout));
        Some(deadline.map_or(self.clock.looks_at(), |deadline| self.clock.judged_at(deadline)))
    }

    /// A change whose controller is never known to be over ends all the same where no path will come, and each that waits for that where the
    /// caller wants the end: whoever asked for it hears that it may have been executed.
    fn end_endless_fences(&mut self, error: IoError) {
        loop {
            let is_endless = |(_, fence): &(u16, Fence)| self.stopping || fence.silence.is_none();
            let Some((slot, fence)) = self.table.fenced().find(is_endless) else { return };
            self.unfence(slot, fence.path);
            if let Some(entry) = self.table.get_mut(slot) {
                // That would say that its controller is over.
                entry.verdict.take_if(|verdict| *verdict == IoError::Undecided);
            }
            self.table.end(slot, Err(error));
        }
    }

    /// A request was given up: it ends where nobody executes it, or as soon as that is so.
    pub(super) fn give_up(&mut self, slot: u16) {
        let Some(entry) = self.table.get_mut(slot) else { return };
        entry.verdict = Some(IoError::Aborted);
        match entry.place {
            Place::Waiting => self.table.end(slot, Err(IoError::Aborted)),
            Place::Fenced(_) => {}
            Place::Sent(path) => {
                if let Some(one) = self.paths.get_mut(usize::from(path)) {
                    one.host_mut().abort(slot.into());
                }
            }
        }
    }
}
