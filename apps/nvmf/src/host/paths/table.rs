//! The requests of all paths: where each of them is, and in which order those go that wait.

use super::super::error::{IoError, RequestError};
use super::super::requests::{Asked, Detour, HostCompletion, Kind, Request};
use super::options::MAX_PATHS;
use crate::wire::MAX_DATASET_RANGES;
use arrayvec::ArrayVec;
use core::time::Duration;
use std::collections::VecDeque;

/// Ranges of one deallocation, kept until it ends, since it may have to be sent again.
pub(super) type Ranges = ArrayVec<(u64, u32), { MAX_DATASET_RANGES as usize }>;
/// Deallocations in hand: each keeps 4 KiB, and file systems send them one at a time.
const MAX_DEALLOCATIONS: u16 = 8;
/// Losses after which a request is suspected of ending its sessions. As with [`super::super::retries`]: of suspects one is in flight at a
/// time, so that no other is lost with it.
const SUSPICION: u32 = 2;

/// What a change of the medium waits for: that a controller is over, which was sent it and did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    pub(super) path: u16,
    /// The session of that path, counted from 1.
    pub(super) session: u64,
    /// How long its controller may hear nothing before it is over; `None` where silence ends nothing.
    pub(super) silence: Option<Duration>,
    /// Since when it hears nothing, by the caller's time; `None` while something of ours can reach it.
    pub(super) since: Option<Duration>,
}

impl Fence {
    /// When its controller is over for want of a sign of ours, by the caller's time.
    pub(super) fn over_at(&self, margin: Duration) -> Option<Duration> {
        Some(self.since?.saturating_add(self.silence?).saturating_add(margin))
    }
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is to be sent.
    Waiting,
    /// A controller may still execute it.
    Fenced(Fence),
    /// With the host of this path.
    Sent(u16),
}

/// A set of paths, a bit for each.
type PathSet = u8;
const _: () = assert!(MAX_PATHS <= PathSet::BITS as usize);

/// Who refuses a request because of the path: since a session ended with it in flight, which is no refusal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refused {
    /// All that did.
    by: PathSet,
    /// Those since it last paused, which are tried again when all have refused it.
    lately: PathSet,
    /// Since when every path does that serves, in watched time.
    since: Option<Duration>,
    pauses: u16,
}

impl Refused {
    /// Nobody did.
    pub(super) fn is_empty(&self) -> bool {
        self.by == 0
    }

    /// It is to be tried before one that refused the request lately.
    pub(super) fn is_untried(&self, path: usize) -> bool {
        self.lately & bit(path) == 0
    }

    /// A path refuses it: where it was the last resort, the request has paused there, and all are tried once more.
    fn by(&mut self, path: usize) {
        if self.is_untried(path) {
            self.lately |= bit(path);
        } else {
            self.lately = 0;
            self.pauses = self.pauses.saturating_add(1);
        }
        self.by |= bit(path);
    }

    /// All paths that serve refuse it: since when.
    pub(super) fn by_all(&mut self, now: Duration) -> Duration {
        *self.since.get_or_insert(now)
    }

    /// A path never refused it.
    pub(super) fn is_new(&self, path: usize) -> bool {
        self.by & bit(path) == 0
    }

    /// A path takes it. One that never refused it ends the time in which all do: that is once for each.
    fn sent(&mut self, path: usize) {
        if self.is_new(path) {
            self.since = None;
        }
    }

    /// What a path does that refuses it.
    pub(super) fn detour(&self, path: usize) -> Detour {
        Detour { at_once: self.is_untried(path), pauses: self.pauses }
    }
}

fn bit(path: usize) -> PathSet {
    1 << path
}

/// A request, from its submission until its completion is queued.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) request: Request,
    pub(super) place: Place,
    /// Its place in the order in which requests were taken.
    age: u64,
    /// How often a session ended before it was answered.
    pub(super) losses: u32,
    /// It came back from a path.
    pub(super) given_back: bool,
    pub(super) refused: Refused,
    /// How it ends when nobody executes it any more.
    pub(super) verdict: Option<IoError>,
}

impl Entry {
    fn is_suspect(&self) -> bool {
        self.losses >= SUSPICION
    }

    /// A session ended before it was answered.
    pub(super) fn lost(&mut self) {
        self.losses += 1;
        self.refused = Refused::default();
    }

    /// A path gave it back because of the path.
    pub(super) fn refused_by(&mut self, path: usize) {
        self.refused.by(path);
    }
}

/// All of them, by slots.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Option<Entry>>,
    free: Vec<u16>,
    /// In the order in which they were taken.
    waiting: VecDeque<u16>,
    fenced: VecDeque<u16>,
    suspect: Option<u16>,
    ranges: Vec<Ranges>,
    free_ranges: Vec<u16>,
    completions: VecDeque<HostCompletion>,
    ages: u64,
}

impl Table {
    pub(super) fn new(count: u16) -> Self {
        let line = || VecDeque::with_capacity(count.into());
        Self {
            entries: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
            waiting: line(),
            fenced: line(),
            suspect: None,
            ranges: (0..MAX_DEALLOCATIONS).map(|_| Ranges::new()).collect(),
            free_ranges: (0..MAX_DEALLOCATIONS).rev().collect(),
            completions: VecDeque::with_capacity(count.into()),
            ages: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// How many may be taken: completions that nobody took yet occupy their places.
    pub(super) fn available(&self) -> usize {
        self.free.len().saturating_sub(self.completions.len())
    }

    pub(super) fn outstanding(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn get(&self, slot: u16) -> Option<&Entry> {
        self.entries.get(usize::from(slot))?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u16) -> Option<&mut Entry> {
        self.entries.get_mut(usize::from(slot))?.as_mut()
    }

    pub(super) fn slots(&self) -> core::ops::Range<u16> {
        // Made from as many.
        0..self.entries.len() as u16
    }

    /// Takes a request, which waits.
    pub(super) fn take(&mut self, asked: &Asked<'_>) -> Result<(), RequestError> {
        if self.available() == 0 {
            return Err(RequestError::QueueFull);
        }
        let slot = self.free.pop().ok_or(RequestError::QueueFull)?;
        self.ages += 1;
        let (request, age, place, losses) = (Request::new(asked), self.ages, Place::Waiting, 0);
        let entry =
            Entry { request, place, age, losses, given_back: false, refused: Refused::default(), verdict: None };
        if let Some(vacant) = self.entries.get_mut(usize::from(slot)) {
            *vacant = Some(entry);
        }
        self.waiting.push_back(slot);
        Ok(())
    }

    /// Takes a deallocation.
    pub(super) fn take_ranges(&mut self, ranges: &[(u64, u32)], cookie: u64) -> Result<(), RequestError> {
        if self.available() == 0 {
            return Err(RequestError::QueueFull);
        }
        let kept = self.free_ranges.pop().ok_or(RequestError::NoBounceBuffer)?;
        if let Some(list) = self.ranges.get_mut(usize::from(kept)) {
            list.clear();
            // At most as many: the caller has checked that.
            list.extend(ranges.iter().copied().take(MAX_DATASET_RANGES as usize));
        }
        let kind = Kind::Deallocate { ranges: ranges.len() as u32, bounce: kept };
        self.take(&Asked::plain(kind, cookie))
    }

    /// The ranges of a deallocation.
    pub(super) fn ranges(&self, slot: u16) -> Option<&Ranges> {
        let Kind::Deallocate { bounce, .. } = self.get(slot)?.request.kind else { return None };
        self.ranges.get(usize::from(bounce))
    }

    /// The request at a place of the line that may be sent now: a second suspect may not.
    pub(super) fn to_send(&self, at: usize) -> Option<u16> {
        let mut line = self.waiting.iter().skip(at);
        line.find(|slot| self.suspect.is_none() || !self.get(**slot).is_some_and(Entry::is_suspect)).copied()
    }

    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn first_waiting(&self) -> Option<u16> {
        self.waiting.front().copied()
    }

    /// A path has it.
    pub(super) fn sent(&mut self, slot: u16, path: u16) {
        if self.waiting.front() == Some(&slot) {
            self.waiting.pop_front();
        } else {
            self.waiting.retain(|&waiting| waiting != slot);
        }
        if let Some(entry) = self.get_mut(slot) {
            entry.place = Place::Sent(path);
            entry.refused.sent(path.into());
            if entry.is_suspect() {
                self.suspect = Some(slot);
            }
        }
    }

    /// Its path is done with it.
    pub(super) fn came_back(&mut self, slot: u16) {
        self.suspect.take_if(|suspect| *suspect == slot);
    }

    /// It waits to be sent, behind what was taken before it.
    pub(super) fn wait(&mut self, slot: u16) {
        let Some(entry) = self.get_mut(slot) else { return };
        entry.place = Place::Waiting;
        let age = entry.age;
        let entries = &self.entries;
        let age_of = |slot: &u16| entries.get(usize::from(*slot)).and_then(Option::as_ref).map_or(0, |entry| entry.age);
        let at = self.waiting.partition_point(|waiting| age_of(waiting) < age);
        self.waiting.insert(at, slot);
    }

    /// It waits until a controller is over.
    pub(super) fn fence(&mut self, slot: u16, fence: Fence) {
        if let Some(entry) = self.get_mut(slot) {
            entry.place = Place::Fenced(fence);
            self.fenced.push_back(slot);
        }
    }

    /// Those that wait until a controller is over.
    pub(super) fn fenced(&self) -> impl Iterator<Item = (u16, Fence)> {
        self.fenced.iter().filter_map(|&slot| match self.get(slot)?.place {
            Place::Fenced(fence) => Some((slot, fence)),
            _ => None,
        })
    }

    pub(super) fn fences(&self) -> bool {
        !self.fenced.is_empty()
    }

    /// The controllers of which this holds hear nothing from now on, if they have not heard nothing for longer.
    pub(super) fn falls_silent(&mut self, now: Duration, is_silent: impl Fn(&Fence) -> bool) {
        for &slot in &self.fenced {
            if let Some(Entry { place: Place::Fenced(fence), .. }) =
                self.entries.get_mut(usize::from(slot)).and_then(Option::as_mut)
                && fence.since.is_none()
                && is_silent(fence)
            {
                fence.since = Some(now);
            }
        }
    }

    /// Its controller is over.
    pub(super) fn unfence(&mut self, slot: u16) {
        self.fenced.retain(|&fenced| fenced != slot);
    }

    /// It has ended: no controller executes it, as far as is known. It is in no line but that of those that wait.
    pub(super) fn end(&mut self, slot: u16, result: Result<(), IoError>) {
        let Some(entry) = self.entries.get_mut(usize::from(slot)).and_then(Option::take) else { return };
        if entry.place == Place::Waiting {
            self.waiting.retain(|&waiting| waiting != slot);
        }
        if let Kind::Deallocate { bounce, .. } = entry.request.kind {
            self.free_ranges.push(bounce);
        }
        self.free.push(slot);
        let result = entry.verdict.map_or(result, Err);
        self.completions.push_back(HostCompletion { cookie: entry.request.cookie(), result });
    }

    pub(super) fn next_completion(&mut self) -> Option<HostCompletion> {
        self.completions.pop_front()
    }
}
