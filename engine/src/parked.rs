//! What is kept of requests that wait, by slot. Messages are not here: those stand where the device
//! will read them.

use crate::{
    gather::{MemoryId, Segment},
    options::MAX_CHUNKS,
    provider::Access,
};
use arrayvec::ArrayVec;
use frwr_mempool::{Region, mutant, region::CarveError, slab::Table};

/// Segments that are kept together: few requests have more, so that each slot's is one run.
const RUN: usize = 4;

/// No run.
const NONE: u32 = u32::MAX;

/// What nobody asks for beside a slot once its request is admitted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Admission {
    pub(crate) iova_cookie: u32,
    pub(crate) message_length: u32,
    /// MRs that its chunks take.
    pub(crate) pieces: u8,
    /// Segments that follow the message.
    pub(crate) inline_segments: u8,
}

/// One chunk, and how many of its request's segments are its own.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    access: Access,
    segments: u16,
}

#[derive(Debug)]
struct Place {
    admission: Admission,
    /// What to map once the request is admitted.
    chunks: ArrayVec<Chunk, MAX_CHUNKS>,
    /// The first run of its segments.
    first: u32,
}

impl Place {
    /// Segments of its chunks.
    fn in_chunks(&self) -> usize {
        self.chunks.iter().map(|chunk| usize::from(chunk.segments)).sum()
    }
}

/// Segments of one request, or of none.
struct Run {
    segments: [Segment; RUN],
    /// The run behind it: of the same request, or free as well.
    next: u32,
}

/// See the module.
pub(crate) struct Parked {
    places: Table<Place>,
    /// Of all requests that wait: one per slot, and those of one largest request.
    runs: Table<Run>,
    /// The first run that is free.
    free: u32,
    free_runs: usize,
    /// The segments of one request, in order, while somebody looks at them.
    whole: Table<Segment>,
}

fn runs_of(segments: usize) -> usize {
    segments.div_ceil(RUN)
}

impl Parked {
    /// For so many slots, and requests of at most so many segments.
    pub(crate) fn new_in(region: &mut Region, slots: u32, per_request: u32) -> Result<Self, CarveError> {
        let no_segment = Segment { memory: MemoryId(0), offset: 0, length: 0 };
        let (slots, largest) = (slots as usize, runs_of(per_request as usize));
        let runs = slots + largest;
        // Slots are numbered by fewer than 32 bit, and the largest request has few runs.
        let behind = |run: usize| if run + 1 < runs { run as u32 + 1 } else { NONE };
        let vacant = |_| Place { admission: Admission::default(), chunks: ArrayVec::new(), first: NONE };
        Ok(Self {
            places: Table::new_in(region, slots, vacant)?,
            runs: Table::new_in(region, runs, |run| Run { segments: [no_segment; RUN], next: behind(run) })?,
            free: 0,
            free_runs: runs,
            whole: Table::new_in(region, largest * RUN, |_| no_segment)?,
        })
    }

    /// Bytes of the region that it takes.
    pub(crate) fn bytes_needed(slots: u32, per_request: u32) -> Option<usize> {
        let (slots, largest) = (slots as usize, runs_of(per_request as usize));
        Table::<Place>::bytes_needed(slots)?
            .checked_add(Table::<Run>::bytes_needed(slots.checked_add(largest)?)?)?
            .checked_add(Table::<Segment>::bytes_needed(largest.checked_mul(RUN)?)?)
    }

    /// Keeps a request, which has no more segments than a request may have, those behind its message among them, until
    /// [`Parked::release`]. False where there is no such slot, or no room for its segments beside those of others.
    pub(crate) fn keep<'a>(
        &mut self,
        slot: u32,
        admission: Admission,
        chunks: impl Iterator<Item = (Access, &'a [Segment])>,
        inline: &[Segment],
    ) -> bool {
        self.release(slot);
        let Some(place) = self.places.get_mut(slot as usize) else { return false };
        let mut all = 0;
        for (access, segments) in chunks {
            // Mutant: a request that waited opens its memory with more rights than it asked for.
            let access = if mutant!(waited_rights) { Access::RemoteReadWrite } else { access };
            // At most max_segments, which is 4096 at most.
            place.chunks.push(Chunk { access, segments: segments.len() as u16 });
            let Some(whole) = self.whole.get_mut(all..all + segments.len()) else { return false };
            whole.copy_from_slice(segments);
            all += segments.len();
        }
        let Some(whole) = self.whole.get_mut(all..all + inline.len()) else { return false };
        whole.copy_from_slice(inline);
        all += inline.len();
        if runs_of(all) > self.free_runs {
            place.chunks.clear();
            return false;
        }
        place.admission = admission;
        // From the last one on, so that each finds the one behind it.
        for segments in self.whole.get(..all).unwrap_or_default().chunks(RUN).rev() {
            let Some(run) = self.runs.get_mut(self.free as usize) else { return false };
            run.segments.iter_mut().zip(segments).for_each(|(kept, segment)| *kept = *segment);
            let taken = core::mem::replace(&mut self.free, run.next);
            run.next = core::mem::replace(&mut place.first, taken);
            self.free_runs -= 1;
        }
        true
    }

    /// The request in this slot waits no more. Nothing is done where none did.
    pub(crate) fn release(&mut self, slot: u32) {
        let Some(place) = self.places.get_mut(slot as usize) else { return };
        place.chunks.clear();
        place.admission.inline_segments = 0;
        while let Some(run) = self.runs.get_mut(place.first as usize) {
            let freed = core::mem::replace(&mut place.first, run.next);
            run.next = core::mem::replace(&mut self.free, freed);
            self.free_runs += 1;
        }
    }

    /// What is kept of the request in this slot.
    pub(crate) fn get(&self, slot: u32) -> Option<Admission> {
        self.places.get(slot as usize).map(|place| place.admission)
    }

    /// Its segments: those of its chunks, and those behind its message.
    pub(crate) fn segments(&self, slot: u32) -> impl Iterator<Item = &Segment> {
        let place = self.places.get(slot as usize);
        let all = place.map_or(0, |place| place.in_chunks() + usize::from(place.admission.inline_segments));
        let run = |at: u32| self.runs.get(at as usize);
        let first = place.and_then(|place| run(place.first));
        let runs = core::iter::successors(first, move |before| run(before.next));
        runs.flat_map(|run| &run.segments).take(all)
    }

    /// Those behind its message.
    pub(crate) fn inline(&self, slot: u32) -> impl Iterator<Item = Segment> {
        let in_chunks = self.places.get(slot as usize).map_or(0, Place::in_chunks);
        self.segments(slot).skip(in_chunks).copied()
    }

    /// Its chunks.
    pub(crate) fn chunks(&mut self, slot: u32) -> impl Iterator<Item = (Access, &[Segment])> {
        let place = self.places.get(slot as usize);
        let mut next = place.map_or(NONE, |place| place.first);
        for whole in self.whole.as_chunks_mut::<RUN>().0 {
            let Some(run) = self.runs.get(next as usize) else { break };
            *whole = run.segments;
            next = run.next;
        }
        let (whole, mut at) = (&self.whole, 0);
        place.map_or(&[][..], |place| &place.chunks[..]).iter().map(move |chunk| {
            let first = at;
            at += usize::from(chunk.segments);
            (chunk.access, whole.get(first..at).unwrap_or_default())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, Parked, RUN};
    use crate::{
        gather::{MemoryId, Segment},
        provider::Access,
    };
    use frwr_mempool::{PagePolicy, Region, RegionOptions};

    const SLOTS: u32 = 4;
    const LARGEST: u32 = 3 * RUN as u32 - 1;

    fn parked() -> Parked {
        let plain = RegionOptions::new(1 << 16).pages(PagePolicy::Ladder { allow_plain: true });
        Parked::new_in(&mut Region::map(&plain).unwrap(), SLOTS, LARGEST).unwrap()
    }

    fn list(of: u32, count: u32) -> Vec<Segment> {
        (0..count).map(|at| Segment { memory: MemoryId(of), offset: at.into(), length: 1 }).collect()
    }

    fn keep(parked: &mut Parked, slot: u32, chunks: &[Vec<Segment>]) -> bool {
        let chunks = chunks.iter().map(|segments| (Access::RemoteRead, &segments[..]));
        parked.keep(slot, Admission::default(), chunks, &[])
    }

    fn kept(parked: &mut Parked, slot: u32) -> Vec<Vec<Segment>> {
        let all: Vec<_> = parked.segments(slot).copied().collect();
        let chunks: Vec<_> = parked.chunks(slot).map(|(_, segments)| segments.to_vec()).collect();
        assert_eq!(all, chunks.concat());
        chunks
    }

    #[test]
    fn chunks_come_back_as_they_were_wherever_runs_end() {
        let mut parked = parked();
        for round in 0..20 {
            for slot in 0..SLOTS {
                let chunks = [list(slot, 1 + (round + slot) % 3), list(round, 1)];
                assert!(keep(&mut parked, slot, &chunks), "{round} {slot}");
                assert_eq!(kept(&mut parked, slot), chunks, "{round} {slot}");
            }
            let whole = [list(7, LARGEST)];
            parked.release(0);
            assert!(keep(&mut parked, 0, &whole), "the largest finds room beside one run of each other slot");
            assert_eq!(kept(&mut parked, 0), whole);
            for slot in 0..SLOTS {
                parked.release(slot);
                parked.release(slot);
                assert_eq!(kept(&mut parked, slot), Vec::<Vec<_>>::new());
            }
        }
    }

    #[test]
    fn what_follows_a_message_is_kept_behind_its_chunks() {
        let mut parked = parked();
        let (chunk, inline) = (list(1, RUN as u32 - 1), list(2, RUN as u32 + 1));
        for chunks in [&[][..], &[(Access::RemoteRead, &chunk[..])]] {
            let admission = Admission { inline_segments: inline.len() as u8, ..Admission::default() };
            assert!(parked.keep(1, admission, chunks.iter().copied(), &inline));
            assert_eq!(parked.inline(1).collect::<Vec<_>>(), inline);
            let all: Vec<_> = chunks.iter().flat_map(|(_, list)| *list).chain(&inline).copied().collect();
            assert_eq!(parked.segments(1).copied().collect::<Vec<_>>(), all);
            assert_eq!(
                parked.chunks(1).map(|(_, list)| list.to_vec()).collect::<Vec<_>>().concat(),
                all[..all.len() - inline.len()]
            );
            parked.release(1);
            assert_eq!(kept(&mut parked, 1), Vec::<Vec<_>>::new());
        }
    }

    #[test]
    fn where_there_is_no_room_nothing_is_kept_and_room_comes_back_once() {
        let mut parked = parked();
        let (largest, one) = ([list(1, LARGEST)], [list(2, 1)]);
        assert!(keep(&mut parked, 0, &largest) && keep(&mut parked, 1, &largest));
        assert!(!keep(&mut parked, 2, &largest), "4 slots have a run each, and the largest 3 more");
        assert!(keep(&mut parked, 2, &one) && !keep(&mut parked, 3, &one));
        assert_eq!(kept(&mut parked, 3), Vec::<Vec<_>>::new());
        parked.release(2);
        assert!(keep(&mut parked, 3, &one) && !keep(&mut parked, 2, &one));
        parked.release(0);
        assert!(keep(&mut parked, 2, &largest));
        assert_eq!([kept(&mut parked, 1), kept(&mut parked, 2)], [largest.clone(), largest]);
    }
}
