//! From a request's chunks to pieces: what each registration covers, gathered into the places of an idle MR.
//!
//! An MR that is gathered into is taken off its idle list and nothing else: a request that finds too few puts them back as they were,
//! so that no key is burnt by waiting.

use super::{
    SubmitError,
    refusal::Hindrance,
    resolve::{copy_elements, resolve},
    run::{Run, gather_run},
};
use crate::{
    elements::{Elements, covered},
    gather::{GatherError, Limits, Resolved, Segment},
    mr::{ConnectionKey, Grant, IovaRule, Opening},
    options::{MAX_CHUNKS, MAX_MRS_PER_REQUEST},
    pool::Pool,
    protocol::ChunkKeys,
    provider::{Access, Operation, WorkRequest},
    reach::{Reach, covering},
};
use arrayvec::ArrayVec;
use frwr_mempool::{freelist::FreeRing, mutant, slab::Table};

/// The keys of a chunk that one registration covers.
const fn one_key(piece: &Piece) -> ChunkKeys {
    ChunkKeys { access: piece.access, keys: 1 }
}

/// What one registration of a request covers, and the MR that it was gathered into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) descriptor: u32,
    pub(super) access: Access,
    pub(super) run: Run,
}

/// One whose elements may stand elsewhere than in its MR's place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    piece: Piece,
    /// Where they begin.
    first: u32,
}

/// Grants of one request.
pub(super) type Grants = ArrayVec<Grant, MAX_MRS_PER_REQUEST>;

/// Those of one request that were gathered, and how many of them each of its chunks has.
#[derive(Default)]
pub(super) struct Pieces {
    all: ArrayVec<Listed, MAX_MRS_PER_REQUEST>,
    chunks: ArrayVec<ChunkKeys, MAX_CHUNKS>,
    /// Elements of lists that they have together.
    listed: u32,
}

impl Pieces {
    fn push(&mut self, listed: Listed) {
        // Where its MR's own place has its element, that is no list.
        if listed.first != listed.piece.descriptor {
            self.listed += listed.piece.run.elements;
        }
        self.all.push(listed);
    }
}

/// What a request opens, by a type for each shape, so that the compiler writes the one way of requests out for each: how many MRs, and
/// where they come from.
pub(super) trait Memory: Copy {
    /// What the peer is told.
    type Grants: AsRef<[Grant]>;

    /// Of which chunk each of that is.
    type Keys: AsRef<[ChunkKeys]>;

    /// It, with its MRs.
    type Taken: Taken<Self>;

    /// MRs that it takes.
    fn count(self) -> usize;

    /// Those of them that are off the idle list already.
    #[inline(always)]
    fn taken(self) -> usize {
        0
    }

    /// Takes the others. `None`, with nothing taken, where it has to be gathered, or no MR is idle.
    fn take(self, room: Room<'_>) -> Option<Self::Taken>;

    /// Elements of lists that it has, which the next flush posts.
    #[inline(always)]
    fn listed(self, _: Self::Taken) -> u32 {
        0
    }
}

/// Where a connection's memory lies, and its idle MRs with their places.
pub(super) struct Room<'a> {
    pub(super) reach: &'a Table<Reach>,
    pub(super) idle: &'a mut FreeRing,
    pub(super) elements: &'a mut Elements,
    pub(super) limits: &'a Limits,
}

impl<'a> Room<'a> {
    /// The memory of a segment that one registration covers wherever it begins.
    #[inline(always)]
    fn find(&self, access: Access, segment: &Segment) -> Option<&'a Reach> {
        covering(self.reach, segment, access.permits_write())
    }

    /// A segment that was found so, in the places of the next idle MR.
    #[inline(always)]
    fn place(&mut self, access: Access, segment: &Segment, reach: &Reach) -> Option<Piece> {
        let descriptor = self.idle.pop()?;
        let element = reach.element(segment);
        // Every descriptor has its place.
        *self.elements.of_mr(descriptor)? = element;
        let run = Run { address: element.address, bytes: element.length, base: reach.base, elements: 1 };
        Some(Piece { descriptor, access, run })
    }

    /// Both.
    #[inline(always)]
    fn segment(&mut self, access: Access, segment: &Segment) -> Option<Piece> {
        let reach = self.find(access, segment)?;
        self.place(access, segment, reach)
    }

    /// A list of equal pieces of one memory that one registration covers, behind so many elements of lists of the same
    /// request.
    #[inline(always)]
    fn list(&mut self, access: Access, segments: &[Segment], behind: u32) -> Option<Listed> {
        let descriptor = self.idle.peek()?;
        let (first, places) = self.elements.vacant_list(behind)?;
        let run = gather_run(self.reach, self.limits, segments, access.permits_write(), places)?;
        let begin = *places.first()?;
        *self.elements.of_mr(descriptor)? = begin;
        Some(Listed { piece: Piece { descriptor: self.idle.pop()?, access, run }, first })
    }

    /// What one registration covers, in the places of the next idle MR or of lists: where they begin, and how many they
    /// are.
    fn copy(&mut self, covers: &[Resolved], behind: u32) -> Option<(u32, u32)> {
        let descriptor = self.idle.peek()?;
        if let [only] = covers {
            *self.elements.of_mr(descriptor)? = only.element;
            return Some((descriptor, 1));
        }
        let (first, places) = self.elements.vacant_list(behind)?;
        let elements = copy_elements(places, covers);
        let covered = covered(places.get(..elements as usize)?);
        *self.elements.of_mr(descriptor)? = covered;
        Some((first, elements))
    }
}

/// Pieces of a request.
pub(super) trait Taken<M: Memory>: Copy {
    /// Does this with each piece, in order.
    fn each(self, act: impl FnMut(&Piece));

    /// Its chunks.
    fn keys(self) -> M::Keys;

    /// Opens each piece, which has its place in the chain; `None` where one cannot be.
    fn open(self, opener: Opener<'_>, places: &mut [WorkRequest]) -> Option<M::Grants>;
}

/// What opening the pieces of a request touches.
pub(super) struct Opener<'a> {
    pub(super) pool: &'a mut Pool,
    pub(super) connection: ConnectionKey,
    pub(super) owner: u32,
    pub(super) iova: &'a IovaRule,
    pub(super) iova_cookie: u32,
    pub(super) key_mask: u32,
    pub(super) first_keys: &'a mut bool,
}

impl Opener<'_> {
    /// Makes a piece's registration in its place in the chain.
    #[inline(always)]
    pub(super) fn open(&mut self, piece: &Piece, place: &mut WorkRequest) -> Option<Grant> {
        let run = &piece.run;
        let opening = Opening {
            owner: self.owner,
            bytes: run.bytes,
            base: run.base,
            elements: run.elements,
            access: piece.access,
            iova: self.iova.apply(run.address, if mutant!(request_cookie) { 0 } else { self.iova_cookie }),
            key_mask: self.key_mask,
        };
        let mr = self.pool.get_mut(piece.descriptor)?;
        let opened = mr.open(self.connection, &opening, place, self.first_keys);
        debug_assert!(opened.is_ok(), "an idle MR of its connection can be opened: {opened:?}");
        let key = opened.ok()?;
        Some(Grant { key, address: opening.iova, length: run.bytes })
    }

    /// The same of one whose elements may stand elsewhere.
    #[inline(always)]
    fn open_listed(&mut self, Listed { piece, first }: &Listed, place: &mut WorkRequest) -> Option<Grant> {
        let grant = self.open(piece, place)?;
        if let Operation::Register(fields) = &mut place.operation {
            fields.elements.first = *first;
        }
        Some(grant)
    }
}

/// None.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoMemory;

impl Memory for NoMemory {
    type Grants = [Grant; 0];
    type Keys = [ChunkKeys; 0];
    type Taken = Self;

    #[inline(always)]
    fn count(self) -> usize {
        0
    }

    #[inline(always)]
    fn take(self, _: Room<'_>) -> Option<Self> {
        Some(self)
    }
}

impl Taken<Self> for NoMemory {
    #[inline(always)]
    fn each(self, _: impl FnMut(&Piece)) {}

    #[inline(always)]
    fn keys(self) -> [ChunkKeys; 0] {
        []
    }

    #[inline(always)]
    fn open(self, _: Opener<'_>, _: &mut [WorkRequest]) -> Option<[Grant; 0]> {
        Some([])
    }
}

/// The usual: one segment, which one registration covers wherever it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneSegment<'a> {
    pub(super) access: Access,
    pub(super) segment: &'a Segment,
}

impl Memory for OneSegment<'_> {
    type Grants = [Grant; 1];
    type Keys = [ChunkKeys; 1];
    type Taken = Piece;

    #[inline(always)]
    fn count(self) -> usize {
        1
    }

    #[inline(always)]
    fn take(self, mut room: Room<'_>) -> Option<Piece> {
        room.segment(self.access, self.segment)
    }
}

impl Taken<OneSegment<'_>> for Piece {
    #[inline(always)]
    fn each(self, mut act: impl FnMut(&Piece)) {
        act(&self);
    }

    #[inline(always)]
    fn keys(self) -> [ChunkKeys; 1] {
        [one_key(&self)]
    }

    #[inline(always)]
    fn open(self, mut opener: Opener<'_>, places: &mut [WorkRequest]) -> Option<[Grant; 1]> {
        Some([opener.open(&self, places.first_mut()?)?])
    }
}

/// A list of equal pieces of one memory that one registration covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneList<'a> {
    pub(super) access: Access,
    pub(super) segments: &'a [Segment],
}

impl Memory for OneList<'_> {
    type Grants = [Grant; 1];
    type Keys = [ChunkKeys; 1];
    type Taken = Listed;

    #[inline(always)]
    fn count(self) -> usize {
        1
    }

    #[inline(always)]
    fn take(self, mut room: Room<'_>) -> Option<Listed> {
        room.list(self.access, self.segments, 0)
    }

    #[inline(always)]
    fn listed(self, Listed { piece, .. }: Listed) -> u32 {
        piece.run.elements
    }
}

impl Taken<OneList<'_>> for Listed {
    #[inline(always)]
    fn each(self, mut act: impl FnMut(&Piece)) {
        act(&self.piece);
    }

    #[inline(always)]
    fn keys(self) -> [ChunkKeys; 1] {
        [one_key(&self.piece)]
    }

    #[inline(always)]
    fn open(self, mut opener: Opener<'_>, places: &mut [WorkRequest]) -> Option<[Grant; 1]> {
        Some([opener.open_listed(&self, places.first_mut()?)?])
    }
}

/// Two segments, such as what is read and what is written.
impl Memory for [OneSegment<'_>; 2] {
    type Grants = [Grant; 2];
    type Keys = [ChunkKeys; 2];
    type Taken = [Piece; 2];

    #[inline(always)]
    fn count(self) -> usize {
        2
    }

    #[inline(always)]
    fn take(self, mut room: Room<'_>) -> Option<[Piece; 2]> {
        let [first, second] = self;
        // Nothing is taken where the other one is not there.
        let reach = room.find(first.access, first.segment)?;
        let other = room.find(second.access, second.segment).filter(|_| room.idle.len() >= 2)?;
        Some([room.place(first.access, first.segment, reach)?, room.place(second.access, second.segment, other)?])
    }
}

impl Taken<[OneSegment<'_>; 2]> for [Piece; 2] {
    #[inline(always)]
    fn each(self, mut act: impl FnMut(&Piece)) {
        let [first, second] = self;
        act(&first);
        act(&second);
    }

    #[inline(always)]
    fn keys(self) -> [ChunkKeys; 2] {
        self.each_ref().map(one_key)
    }

    #[inline(always)]
    fn open(self, mut opener: Opener<'_>, places: &mut [WorkRequest]) -> Option<[Grant; 2]> {
        let ([first, second], [place, next, ..]) = (self, places) else { return None };
        Some([opener.open(&first, place)?, opener.open(&second, next)?])
    }
}

/// Anything that was gathered.
impl<'a> Memory for &'a Pieces {
    type Grants = Grants;
    type Keys = &'a [ChunkKeys];
    type Taken = Self;

    fn count(self) -> usize {
        self.all.len()
    }

    fn taken(self) -> usize {
        self.all.len()
    }

    fn take(self, _: Room<'_>) -> Option<Self> {
        Some(self)
    }

    fn listed(self, _: Self) -> u32 {
        self.listed
    }
}

impl<'a> Taken<Self> for &'a Pieces {
    fn each(self, act: impl FnMut(&Piece)) {
        self.all.iter().map(|listed| &listed.piece).for_each(act);
    }

    fn keys(self) -> &'a [ChunkKeys] {
        &self.chunks
    }

    fn open(self, mut opener: Opener<'_>, places: &mut [WorkRequest]) -> Option<Grants> {
        self.all.iter().zip(places).map(|(listed, place)| opener.open_listed(listed, place)).collect()
    }
}

/// What gathering touches.
pub(super) struct Gathering<'a> {
    pub(super) room: Room<'a>,
    /// Space for the segments of one request.
    pub(super) resolved: &'a mut Vec<Resolved>,
    /// MRs that the request may have.
    pub(super) most: usize,
    pub(super) pieces: &'a mut Pieces,
}

impl Gathering<'_> {
    /// All chunks of a request (S25, S28, S43).
    ///
    /// # Errors
    /// [`Hindrance`]; all MRs are idle again.
    pub(super) fn gather<'s>(mut self, chunks: impl Iterator<Item = (Access, &'s [Segment])>) -> Result<(), Hindrance> {
        for (access, segments) in chunks {
            let before = self.pieces.all.len();
            if let Err(hindrance) = self.chunk(access, segments) {
                self.room.idle.put_back(self.pieces.all.len());
                return Err(hindrance);
            }
            // At most MAX_MRS_PER_REQUEST.
            let keys = (self.pieces.all.len() - before) as u8;
            self.pieces.chunks.push(ChunkKeys { access, keys });
        }
        Ok(())
    }

    fn chunk(&mut self, access: Access, segments: &[Segment]) -> Result<(), Hindrance> {
        let whole = match segments {
            [] => return Err(SubmitError::from(GatherError::NoSegments).into()),
            _ if self.pieces.all.len() >= self.most => None,
            [only] => self.room.segment(access, only).map(|piece| Listed { piece, first: piece.descriptor }),
            list => self.room.list(access, list, self.pieces.listed),
        };
        if let Some(listed) = whole {
            self.pieces.push(listed);
            return Ok(());
        }
        self.resolved.clear();
        resolve(self.room.reach, self.room.limits, segments, access.permits_write(), self.resolved)?;
        self.cut(access)
    }

    /// Cuts what was resolved where one registration ends.
    fn cut(&mut self, access: Access) -> Result<(), Hindrance> {
        let (mut rest, mut bytes) = (self.resolved.as_slice(), 0_u32);
        while let [first, ..] = rest {
            if self.pieces.all.len() >= self.most {
                return Err(SubmitError::TooManyRegistrations.into());
            }
            let piece = self.room.limits.next_piece(rest).map_err(SubmitError::from)?;
            bytes = bytes.checked_add(piece.bytes).ok_or(SubmitError::from(GatherError::TooManyBytes))?;
            // Behind the next flush there is room for its list.
            let copied = self.room.copy(&rest[..piece.consumed], self.pieces.listed);
            let (at, elements) = copied.ok_or(Hindrance::Wait)?;
            let descriptor = self.room.idle.pop().ok_or(Hindrance::Wait)?;
            // F11: the elements that were given, where the device merges them into fewer.
            let elements = if mutant!(F11) { piece.entries } else { elements };
            let run = Run { address: first.element.address, bytes: piece.bytes, base: first.base, elements };
            self.pieces.push(Listed { piece: Piece { descriptor, access, run }, first: at });
            // K8: both counts of a piece are taken for one.
            let consumed = if mutant!(K8) { piece.entries as usize } else { piece.consumed };
            rest = rest.get(consumed..).unwrap_or_default();
        }
        Ok(())
    }
}
