//! From a request's chunks to pieces: what each registration covers, gathered into the places of an idle MR.
//!
//! An MR that is gathered into is taken off its idle list and nothing else: a request that finds too few puts them back as they were,
//! so that no key is burnt by waiting.

use super::{
    SubmitError,
    issue::Opener,
    resolve::{copy_elements, locate_whole, resolve},
    run::{Run, gather_run},
    submit::Hindrance,
};
use crate::{
    connection::{Connection, Reach},
    gather::{GatherError, Limits, Resolved, Segment},
    mr::Grant,
    options::MAX_MRS_PER_REQUEST,
    pool::Pool,
    provider::{Access, ScatterElement, WorkRequest},
};
use arrayvec::ArrayVec;
use frwr_mempool::{freelist::FreeRing, mutant};

/// What one registration of a request covers, and the MR that it was gathered into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) descriptor: u32,
    pub(super) access: Access,
    pub(super) run: Run,
}

/// Grants of one request.
pub(super) type Grants = ArrayVec<Grant, MAX_MRS_PER_REQUEST>;

/// Those of one request.
pub(super) type Pieces = ArrayVec<Piece, MAX_MRS_PER_REQUEST>;

/// What a request opens, by a type for each shape, so that the compiler writes the one way of requests out for each: how many MRs, and
/// where they come from.
pub(super) trait Memory: Copy {
    /// What the peer is told.
    type Grants: AsRef<[Grant]>;

    /// It, with its MRs.
    type Taken: Taken<Self>;

    /// MRs that it takes.
    fn count(self) -> usize;

    /// Those of them that are off the idle list.
    fn taken(self) -> usize;

    /// Takes the others. `None`, with nothing taken, where it has to be gathered, or no MR is idle.
    fn take(
        self,
        reach: &[Reach],
        idle: &mut FreeRing,
        pool: &Pool,
        elements: &mut [ScatterElement],
        limits: &Limits,
    ) -> Option<Self::Taken>;
}

/// Pieces of a request.
pub(super) trait Taken<M: Memory>: Copy {
    /// Does this with each piece, in order.
    fn each(self, act: impl FnMut(&Piece));

    /// Opens each piece, which has its place in the chain; `None` where one cannot be.
    fn open(self, opener: Opener<'_>, places: &mut [WorkRequest]) -> Option<M::Grants>;
}

/// None.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoMemory;

impl Memory for NoMemory {
    type Grants = [Grant; 0];
    type Taken = Self;

    #[inline(always)]
    fn count(self) -> usize {
        0
    }

    #[inline(always)]
    fn taken(self) -> usize {
        0
    }

    #[inline(always)]
    fn take(self, _: &[Reach], _: &mut FreeRing, _: &Pool, _: &mut [ScatterElement], _: &Limits) -> Option<Self> {
        Some(self)
    }
}

impl Taken<Self> for NoMemory {
    #[inline(always)]
    fn each(self, _: impl FnMut(&Piece)) {}

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
    type Taken = Piece;

    #[inline(always)]
    fn count(self) -> usize {
        1
    }

    #[inline(always)]
    fn taken(self) -> usize {
        0
    }

    #[inline(always)]
    fn take(
        self,
        reach: &[Reach],
        idle: &mut FreeRing,
        pool: &Pool,
        elements: &mut [ScatterElement],
        _: &Limits,
    ) -> Option<Self::Taken> {
        let Resolved { element, base } = locate_whole(reach, self.segment)?;
        let descriptor = idle.pop()?;
        // Every descriptor has its places.
        *elements.get_mut(pool.first_element(descriptor))? = element;
        let run = Run { address: element.address, bytes: element.length, base, elements: 1 };
        Some(Piece { descriptor, access: self.access, run })
    }
}

impl<M: Memory<Grants = [Grant; 1]>> Taken<M> for Piece {
    #[inline(always)]
    fn each(self, mut act: impl FnMut(&Piece)) {
        act(&self);
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
    type Taken = Piece;

    #[inline(always)]
    fn count(self) -> usize {
        1
    }

    #[inline(always)]
    fn taken(self) -> usize {
        0
    }

    #[inline(always)]
    fn take(
        self,
        reach: &[Reach],
        idle: &mut FreeRing,
        pool: &Pool,
        elements: &mut [ScatterElement],
        limits: &Limits,
    ) -> Option<Self::Taken> {
        let first = pool.first_element(idle.peek()?);
        let places = elements.get_mut(first..first + pool.depth() as usize)?;
        let run = gather_run(reach, limits, self.segments, places)?;
        Some(Piece { descriptor: idle.pop()?, access: self.access, run })
    }
}

/// Two segments, such as what is read and what is written.
impl Memory for [OneSegment<'_>; 2] {
    type Grants = [Grant; 2];
    type Taken = [Piece; 2];

    #[inline(always)]
    fn count(self) -> usize {
        2
    }

    #[inline(always)]
    fn taken(self) -> usize {
        0
    }

    #[inline(always)]
    fn take(
        self,
        reach: &[Reach],
        idle: &mut FreeRing,
        pool: &Pool,
        elements: &mut [ScatterElement],
        limits: &Limits,
    ) -> Option<Self::Taken> {
        let [first, second] = self;
        // Nothing is taken where the other one is not there.
        locate_whole(reach, second.segment).filter(|_| idle.len() >= 2)?;
        Some([first.take(reach, idle, pool, elements, limits)?, second.take(reach, idle, pool, elements, limits)?])
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
    fn open(self, mut opener: Opener<'_>, places: &mut [WorkRequest]) -> Option<[Grant; 2]> {
        let ([first, second], [place, next, ..]) = (self, places) else { return None };
        Some([opener.open(&first, place)?, opener.open(&second, next)?])
    }
}

/// Anything that was gathered.
impl Memory for &Pieces {
    type Grants = Grants;
    type Taken = Self;

    fn count(self) -> usize {
        self.len()
    }

    fn taken(self) -> usize {
        self.len()
    }

    fn take(self, _: &[Reach], _: &mut FreeRing, _: &Pool, _: &mut [ScatterElement], _: &Limits) -> Option<Self> {
        Some(self)
    }
}

impl Taken<Self> for &Pieces {
    fn each(self, act: impl FnMut(&Piece)) {
        self.iter().for_each(act);
    }

    fn open(self, mut opener: Opener<'_>, places: &mut [WorkRequest]) -> Option<Grants> {
        self.iter().zip(places).map(|(piece, place)| opener.open(piece, place)).collect()
    }
}

/// What gathering touches.
pub(super) struct Gathering<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) pool: &'a Pool,
    /// The table that chains refer to.
    pub(super) elements: &'a mut [ScatterElement],
    pub(super) limits: &'a Limits,
    /// Room for the segments of one request.
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
            if let Err(hindrance) = self.chunk(access, segments) {
                self.connection.idle.put_back(self.pieces.len());
                return Err(hindrance);
            }
        }
        Ok(())
    }

    fn chunk(&mut self, access: Access, segments: &[Segment]) -> Result<(), Hindrance> {
        match segments {
            [] => return Err(SubmitError::from(GatherError::NoSegments).into()),
            [only] => {
                if let Some(Resolved { element, base }) = locate_whole(&self.connection.reach, only) {
                    return self.piece(access, |places| {
                        *places.first_mut()? = element;
                        Some(Run { address: element.address, bytes: element.length, base, elements: 1 })
                    });
                }
            }
            list => {
                let (place, room) = self.next_places()?;
                if let Some(run) =
                    gather_run(&self.connection.reach, self.limits, list, &mut self.elements[place..][..room])
                {
                    return self.piece(access, |_| Some(run));
                }
            }
        }
        self.resolved.clear();
        resolve(self.connection, self.limits, segments, self.resolved)?;
        self.cut(access)
    }

    /// Cuts what was resolved where one registration ends.
    fn cut(&mut self, access: Access) -> Result<(), Hindrance> {
        let (mut at, mut bytes) = (0, 0_u32);
        let resolved = core::mem::take(self.resolved);
        let mut cut = || {
            while let Some(rest @ [first, ..]) = resolved.get(at..) {
                let piece = self.limits.next_piece(rest).map_err(SubmitError::from)?;
                bytes = bytes.checked_add(piece.bytes).ok_or(SubmitError::from(GatherError::TooManyBytes))?;
                self.piece(access, |places| {
                    let elements = copy_elements(places, &rest[..piece.consumed]);
                    // F11: the elements that were given, where the device merges them into fewer.
                    let elements = if mutant!(F11) { piece.entries } else { elements };
                    Some(Run { address: first.element.address, bytes: piece.bytes, base: first.base, elements })
                })?;
                // K8: both counts of a piece are taken for one.
                at += if mutant!(K8) { piece.entries as usize } else { piece.consumed };
            }
            Ok(())
        };
        let done = cut();
        *self.resolved = resolved;
        done
    }

    /// Where the elements of the next idle MR stand, and how many have room.
    fn next_places(&self) -> Result<(usize, usize), Hindrance> {
        let descriptor = self.connection.idle.peek().ok_or(Hindrance::Wait)?;
        Ok((self.pool.first_element(descriptor), self.pool.depth() as usize))
    }

    /// One more piece, in the places of the next idle MR, which `fill` fills.
    fn piece(
        &mut self,
        access: Access,
        fill: impl FnOnce(&mut [ScatterElement]) -> Option<Run>,
    ) -> Result<(), Hindrance> {
        if self.pieces.len() >= self.most {
            return Err(SubmitError::TooManyRegistrations.into());
        }
        let (place, room) = self.next_places()?;
        let run = self.elements.get_mut(place..place + room).and_then(fill).ok_or(Hindrance::Wait)?;
        let descriptor = self.connection.idle.pop().ok_or(Hindrance::Wait)?;
        self.pieces.push(Piece { descriptor, access, run });
        Ok(())
    }
}
