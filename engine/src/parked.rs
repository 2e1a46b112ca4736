//! What is kept of requests that wait, by slot. Messages and inline segments are not here: those
//! stand where the device will read them.

use crate::{
    gather::{MemoryId, Segment},
    options::MAX_CHUNKS,
    provider::Access,
};
use arrayvec::ArrayVec;
use frwr_mempool::{Region, mutant, region::CarveError, slab::Table};

/// What nobody asks for beside a slot once its request is admitted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Admission {
    pub(crate) iova_cookie: u32,
    pub(crate) message_length: u32,
    /// MRs that its chunks take.
    pub(crate) pieces: u8,
    /// Elements of the message beyond its first.
    pub(crate) inline_segments: u8,
}

/// One chunk, and how many of its request's segments are its own.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    access: Access,
    segments: u16,
}

#[derive(Debug, Default)]
struct Place {
    admission: Admission,
    /// What to map once the request is admitted.
    chunks: ArrayVec<Chunk, MAX_CHUNKS>,
}

/// See the module.
pub(crate) struct Parked {
    places: Table<Place>,
    /// So many per slot as a request may have.
    segments: Table<Segment>,
    per_request: usize,
}

impl Parked {
    /// For so many slots, and requests of at most so many segments.
    pub(crate) fn new_in(region: &mut Region, slots: u32, per_request: u32) -> Result<Self, CarveError> {
        let no_segment = Segment { memory: MemoryId(0), offset: 0, length: 0 };
        let (slots, per_request) = (slots as usize, per_request as usize);
        Ok(Self {
            places: Table::new_in(region, slots, |_| Place::default())?,
            segments: Table::new_in(region, slots * per_request, |_| no_segment)?,
            per_request,
        })
    }

    /// Bytes of the region that it takes.
    pub(crate) fn bytes_needed(slots: u32, per_request: u32) -> Option<usize> {
        let segments = (slots as usize).checked_mul(per_request as usize)?;
        Table::<Place>::bytes_needed(slots as usize)?.checked_add(Table::<Segment>::bytes_needed(segments)?)
    }

    /// Keeps a request, whose chunks have no more segments than a request may have. False where
    /// there is no such slot.
    pub(crate) fn keep<'a>(
        &mut self,
        slot: u32,
        admission: Admission,
        chunks: impl Iterator<Item = (Access, &'a [Segment])>,
    ) -> bool {
        let Some(place) = self.places.get_mut(slot as usize) else { return false };
        let first = slot as usize * self.per_request;
        let mut kept = self.segments.get_mut(first..first + self.per_request).unwrap_or_default().iter_mut();
        place.admission = admission;
        place.chunks.clear();
        for (access, segments) in chunks {
            // Mutant: a request that waited opens its memory with more rights than it asked for.
            let access = if mutant!(waited_rights) { Access::RemoteReadWrite } else { access };
            // At most max_segments, which is 4096 at most.
            place.chunks.push(Chunk { access, segments: segments.len() as u16 });
            segments.iter().zip(kept.by_ref()).for_each(|(segment, kept)| *kept = *segment);
        }
        true
    }

    /// What is kept of the request in this slot.
    pub(crate) fn get(&self, slot: u32) -> Option<Admission> {
        self.places.get(slot as usize).map(|place| place.admission)
    }

    /// Its chunks.
    pub(crate) fn chunks(&self, slot: u32) -> impl Iterator<Item = (Access, &[Segment])> {
        let mut at = slot as usize * self.per_request;
        let chunks = self.places.get(slot as usize).map_or(&[][..], |place| &place.chunks[..]);
        chunks.iter().map(move |chunk| {
            let first = at;
            at += usize::from(chunk.segments);
            (chunk.access, self.segments.get(first..at).unwrap_or_default())
        })
    }
}
