//! Data buffers, and the commands that wait for them.

use super::super::statistics::TargetStatistics;
use super::super::work::Work;
use super::waiting::Waiting;
use super::{Buffer, Buffers};

/// The buffers of one core, and who waits for them.
#[derive(Debug)]
pub(in super::super) struct Pool {
    buffers: Buffers,
    waiting: Waiting,
    /// Times that a command had to wait.
    waits: u64,
}

impl Pool {
    /// So many commands may wait.
    pub(in super::super) fn new(buffers: Buffers, commands: u32) -> Self {
        let waiting = Waiting::new(commands, buffers.parts());
        Self { buffers, waiting, waits: 0 }
    }

    pub(in super::super) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Namespaces have come or gone: buffers are kept for those that there are ([`Buffers::share`]).
    pub(in super::super) fn share(&mut self, places: usize, is_taken: impl Fn(usize) -> bool) -> bool {
        self.buffers.share(places, is_taken)
    }

    /// All the buffers that a command needs: none, so that nobody holds one and waits for another, where not all are free.
    #[inline(always)]
    pub(in super::super) fn take(
        &mut self,
        work: &Work,
        buffer: &mut Option<Buffer>,
        second: &mut Option<Buffer>,
    ) -> bool {
        let (part, wanted) = (self.buffers.part(work.namespace()), work.buffers());
        if wanted > 1 && !self.buffers.has(part, wanted) {
            return false;
        }
        *buffer = self.buffers.take(part);
        if wanted > 1 {
            *second = self.buffers.take(part);
        }
        buffer.is_some()
    }

    #[inline(always)]
    pub(in super::super) fn put(&mut self, buffer: Buffer) {
        self.buffers.put(buffer);
    }

    /// A command waits for its buffers behind all others of its part.
    #[cold]
    pub(in super::super) fn wait(&mut self, work: &Work, command: u32) {
        self.waits += 1;
        self.waiting.push(self.buffers.part(work.namespace()), command);
    }

    /// A command that waits for its buffers does so no longer.
    pub(in super::super) fn leave(&mut self, work: &Work, command: u32) {
        self.waiting.remove(self.buffers.part(work.namespace()), command);
    }

    /// Nobody waits; where this is false there may be nobody either.
    #[inline]
    pub(in super::super) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many wait: each is looked at.
    pub(in super::super) fn count_waiting(&self) -> u32 {
        self.waiting.count()
    }

    /// Who waits goes first where buffers are for all, and in its own part anyway.
    #[inline]
    pub(in super::super) fn has_to_wait(&self, work: &Work) -> bool {
        self.is_awaited() && {
            let part = self.buffers.part(work.namespace());
            self.waiting.first(part).is_some() || !self.buffers.has_kept(part, work.buffers())
        }
    }

    /// One turn for each part that somebody may wait for.
    pub(in super::super) fn turns(&self) -> usize {
        self.waiting.turns()
    }

    /// The part whose turn it is, and who waits longest in it, if anybody does.
    pub(in super::super) fn next_turn(&mut self) -> Option<(u32, Option<u32>)> {
        let part = self.waiting.next_turn()?;
        Some((part, self.waiting.first(part)))
    }

    /// The turn is over. True where that command waits no longer, since there is room for it; it has to take its buffers at once, and
    /// the part has another turn by [`Pool::queue_turn`].
    pub(in super::super) fn lets_in(&mut self, part: u32, command: u32, work: &Work) -> bool {
        let has_room = self.buffers.has(part, work.buffers());
        if has_room {
            self.waiting.remove(part, command);
        }
        has_room
    }

    /// A part has a turn behind all others, if somebody waits for it.
    pub(in super::super) fn queue_turn(&mut self, part: u32) {
        self.waiting.queue_turn(part);
    }

    pub(in super::super) fn statistics(&self) -> TargetStatistics {
        TargetStatistics {
            buffer_waits: self.waits,
            buffers: self.buffers.count().into(),
            buffers_free: self.buffers.available() as u64,
            ..TargetStatistics::default()
        }
    }
}
