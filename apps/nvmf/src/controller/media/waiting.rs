//! Commands that wait for data buffers: a line for each part of the buffers, and the parts take turns. So a line that does not move,
//! because its disk hangs, stands in nobody's way.

use std::collections::VecDeque;

/// No slot.
const NONE: u32 = u32::MAX;

/// A slot's neighbours in its line.
#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    behind: u32,
}

/// Of one part of the buffers, in order of arrival.
#[derive(Clone, Copy, Debug)]
struct Line {
    first: u32,
    last: u32,
    /// It has a turn; perhaps nobody waits any more.
    has_turn: bool,
}

/// All lines. Nothing grows after it was made.
#[derive(Debug)]
pub(in super::super) struct Waiting {
    links: Vec<Link>,
    lines: Vec<Line>,
    /// Parts whose turn comes, each once.
    turns: VecDeque<u32>,
}

impl Waiting {
    pub(in super::super) fn new(slots: u32, parts: usize) -> Self {
        let (link, line) = (Link { before: NONE, behind: NONE }, Line { first: NONE, last: NONE, has_turn: false });
        Self { links: vec![link; slots as usize], lines: vec![line; parts], turns: VecDeque::with_capacity(parts) }
    }

    /// Nobody waits; where this is false there may be nobody either.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// How many slots wait in all lines.
    pub(in super::super) fn count(&self) -> u32 {
        let behind = |slot: &u32| self.links.get(*slot as usize).map(|link| link.behind).filter(|slot| *slot != NONE);
        let first = |line: &Line| Some(line.first).filter(|slot| *slot != NONE);
        self.lines.iter().map(|line| core::iter::successors(first(line), behind).count() as u32).sum()
    }

    /// Parts that may have somebody who waits.
    pub(in super::super) fn turns(&self) -> usize {
        self.turns.len()
    }

    /// Who waits longest for a part.
    pub(in super::super) fn first(&self, part: u32) -> Option<u32> {
        self.lines.get(part as usize).map(|line| line.first).filter(|slot| *slot != NONE)
    }

    /// The part whose turn it is; it has none any more.
    pub(in super::super) fn next_turn(&mut self) -> Option<u32> {
        let part = self.turns.pop_front()?;
        if let Some(line) = self.lines.get_mut(part as usize) {
            line.has_turn = false;
        }
        Some(part)
    }

    /// A part has a turn behind all others, if somebody waits for it.
    pub(in super::super) fn queue_turn(&mut self, part: u32) {
        if let Some(line) = self.lines.get_mut(part as usize)
            && line.first != NONE
            && !core::mem::replace(&mut line.has_turn, true)
        {
            self.turns.push_back(part);
        }
    }

    /// A slot that waits nowhere waits behind all others of a part.
    pub(in super::super) fn push(&mut self, part: u32, slot: u32) {
        let Some(line) = self.lines.get_mut(part as usize) else { return };
        let before = core::mem::replace(&mut line.last, slot);
        if before == NONE {
            line.first = slot;
        }
        self.set_link(slot, |link| *link = Link { before, behind: NONE });
        self.set_link(before, |link| link.behind = slot);
        self.queue_turn(part);
    }

    /// A slot waits for its part no longer.
    pub(in super::super) fn remove(&mut self, part: u32, slot: u32) {
        let Some(Link { before, behind }) = self.links.get(slot as usize).copied() else { return };
        let Some(line) = self.lines.get_mut(part as usize) else { return };
        if before == NONE {
            line.first = behind;
        }
        if behind == NONE {
            line.last = before;
        }
        self.set_link(before, |link| link.behind = behind);
        self.set_link(behind, |link| link.before = before);
    }

    fn set_link(&mut self, slot: u32, change: impl FnOnce(&mut Link)) {
        if let Some(link) = self.links.get_mut(slot as usize) {
            change(link);
        }
    }
}
