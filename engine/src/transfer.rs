//! The responder's slot: RDMA READs that fetch what a peer offers, or RDMA WRITEs and the reply behind them.

use crate::{
    chain::NOT_POSTED,
    event::{Event, TransferStatus},
    options::MAX_TRANSFER_OPERATIONS,
    provider::{RemoteRange, ScatterElement},
};

/// What a transfer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// RDMA READs; ends when the last has completed.
    Fetch,
    /// RDMA WRITEs that nobody is told of; ends when the last has completed.
    Write,
    /// RDMA WRITEs, then a reply; ends when the device is done with the reply.
    Respond {
        /// Bytes of the reply.
        length: u32,
        /// The peer's key that its device invalidates.
        invalidate: Option<u32>,
    },
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits for send queue entries or a receive of the peer's, in order.
    Waiting,
    /// The same of an RDMA WRITE of no bytes, which has no ranges. No kind of its own: each of the others has an event of its own, which
    /// their ends need not choose.
    WaitingToProbe,
    /// It is posted, or the next flush posts it.
    Posted,
    /// All of it succeeded; its event was not taken yet.
    Ended,
}

/// One slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) cookie: u64,
    pub(crate) connection: u16,
    pub(crate) phase: Phase,
    pub(crate) kind: Kind,
    /// RDMA READs or WRITEs.
    pub(crate) operations: u8,
    /// Where the last work request stands in the send queue, once it is admitted: what a completion has passed, all of them have ended.
    pub(crate) position: u64,
}

impl Transfer {
    /// One that is not admitted.
    #[inline(always)]
    pub(crate) fn new(cookie: u64, connection: u16, kind: Kind, operations: u8) -> Self {
        Self { cookie, connection, phase: Phase::Waiting, kind, operations, position: NOT_POSTED }
    }

    /// An RDMA WRITE of no bytes that is not admitted.
    pub(crate) fn probe(cookie: u64, connection: u16) -> Self {
        Self { phase: Phase::WaitingToProbe, ..Self::new(cookie, connection, Kind::Write, 1) }
    }

    /// One of one operation that goes into the chain at this position at once.
    #[inline(always)]
    pub(crate) fn posted(cookie: u64, connection: u16, kind: Kind, position: u64) -> Self {
        Self { cookie, connection, phase: Phase::Posted, kind, operations: 1, position }
    }

    /// What its caller is told.
    #[inline]
    pub(crate) fn event(&self, status: TransferStatus) -> Event {
        let cookie = self.cookie;
        match self.kind {
            Kind::Fetch => Event::Fetched { cookie, status },
            Kind::Write => Event::Written { cookie, status },
            Kind::Respond { .. } => Event::Responded { cookie, status },
        }
    }
}

/// One side of a transfer's data: a range that the peer granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSegment {
    /// Where it is.
    pub remote: RemoteRange,
    /// Bytes.
    pub length: u32,
}

/// Why the two sides of a transfer cannot be cut into operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutError<E> {
    /// Of a piece.
    Piece(E),
    /// The sides differ in length, or a range has no bytes.
    Length,
    /// There is no room for one more.
    Operations,
}

/// Cuts both sides where either has a boundary: the operations' halves go to the same places of `elements` and `ranges`. Pieces
/// have bytes. Returns the number of operations.
#[inline(always)]
pub(crate) fn cut<E>(
    pieces: impl Iterator<Item = Result<ScatterElement, E>>,
    remote: &[RemoteSegment],
    elements: &mut [ScatterElement; MAX_TRANSFER_OPERATIONS],
    ranges: &mut [RemoteSegment; MAX_TRANSFER_OPERATIONS],
) -> Result<usize, CutError<E>> {
    let mut remote = remote;
    let mut places = elements.iter_mut().zip(ranges);
    let mut operations = 0;
    let mut put = |element, range| {
        let (element_place, range_place) = places.next().ok_or(CutError::Operations)?;
        (*element_place, *range_place) = (element, range);
        operations += 1;
        Ok(())
    };
    // What is left of a range that began in the piece before.
    let mut rest = RemoteSegment { remote: RemoteRange { address: 0, key: 0 }, length: 0 };
    for piece in pieces {
        let mut piece = piece.map_err(CutError::Piece)?;
        if rest.length > 0 {
            let (front, behind) = rest.cut(piece.length);
            put(ScatterElement { length: front.length, ..piece }, front)?;
            (piece, rest) = (advance(piece, front.length), behind);
        }
        // Ranges that lie in the piece as a whole.
        while let [range, behind @ ..] = remote
            && range.length <= piece.length
        {
            if range.length == 0 {
                return Err(CutError::Length);
            }
            put(ScatterElement { length: range.length, ..piece }, *range)?;
            (piece, remote) = (advance(piece, range.length), behind);
        }
        if piece.length > 0 {
            let [range, behind @ ..] = remote else { return Err(CutError::Length) };
            let (front, left) = range.cut(piece.length);
            put(piece, front)?;
            (rest, remote) = (left, behind);
        }
    }
    if rest.length == 0 && remote.is_empty() { Ok(operations) } else { Err(CutError::Length) }
}

/// [`cut`] of one piece, which lies in no range as a part: an operation for each range.
#[inline(always)]
pub(crate) fn cut_piece<E>(
    piece: ScatterElement,
    remote: &[RemoteSegment],
    elements: &mut [ScatterElement; MAX_TRANSFER_OPERATIONS],
    ranges: &mut [RemoteSegment; MAX_TRANSFER_OPERATIONS],
) -> Result<usize, CutError<E>> {
    if remote.len() > MAX_TRANSFER_OPERATIONS {
        return Err(CutError::Operations);
    }
    let (mut bytes, mut all_have_some) = (0, true);
    for ((element, place), range) in elements.iter_mut().zip(ranges).zip(remote) {
        // Beyond the piece's end it may wrap: then the lengths differ.
        *element =
            ScatterElement { address: piece.address.wrapping_add(bytes), length: range.length, lkey: piece.lkey };
        *place = *range;
        bytes += u64::from(range.length);
        all_have_some &= range.length > 0;
    }
    if bytes == u64::from(piece.length) && all_have_some { Ok(remote.len()) } else { Err(CutError::Length) }
}

/// What is behind so many bytes of an element, which has as many.
#[inline(always)]
fn advance(element: ScatterElement, length: u32) -> ScatterElement {
    ScatterElement {
        address: element.address.wrapping_add(u64::from(length)),
        length: element.length - length,
        ..element
    }
}

impl RemoteSegment {
    /// The first `length` bytes, or all if there are no more, and what is behind them.
    #[inline(always)]
    fn cut(self, length: u32) -> (Self, Self) {
        let front = self.length.min(length);
        // The peer's address may wrap; its own device refuses what it did not register.
        let address = self.remote.address.wrapping_add(u64::from(front));
        let behind = Self { remote: RemoteRange { address, ..self.remote }, length: self.length - front };
        (Self { length: front, ..self }, behind)
    }
}

#[cfg(test)]
mod tests {
    use super::{CutError, RemoteSegment, cut, cut_piece};
    use crate::{
        options::MAX_TRANSFER_OPERATIONS,
        provider::{RemoteRange, ScatterElement},
    };

    /// Local and remote address, length.
    type Cut = (u64, u64, u32);

    /// Of pieces from 1000 on and ranges from the last 4 bytes of all addresses on, one right behind the other.
    fn cuts(local: &[u32], remote: &[u32]) -> Result<Vec<Cut>, CutError<()>> {
        let none = RemoteSegment { remote: RemoteRange { address: 0, key: 0 }, length: 0 };
        let mut elements = [ScatterElement::default(); MAX_TRANSFER_OPERATIONS];
        let mut ranges = [none; MAX_TRANSFER_OPERATIONS];
        let mut address = 1000;
        let pieces: Vec<_> = local
            .iter()
            .map(|&length| {
                address += u64::from(length);
                Ok(ScatterElement { address: address - u64::from(length), length, lkey: 7 })
            })
            .collect();
        let mut address = u64::MAX - 3;
        let remote: Vec<_> = remote
            .iter()
            .map(|&length| {
                let here = address;
                address = address.wrapping_add(u64::from(length));
                RemoteSegment { remote: RemoteRange { address: here, key: 9 }, length }
            })
            .collect();
        let count = cut(pieces.into_iter(), &remote, &mut elements, &mut ranges);
        if let &[length] = local {
            let piece = ScatterElement { address: 1000, length, lkey: 7 };
            let alone = cut_piece::<()>(piece, &remote, &mut elements, &mut ranges);
            assert_eq!(alone.is_ok(), count.is_ok(), "{local:?} {remote:?}");
            assert_eq!(alone.ok(), count.ok());
        }
        let count = count?;
        let both = elements.iter().zip(&ranges).take(count);
        Ok(both
            .map(|(element, range)| {
                assert_eq!((element.lkey, range.remote.key, element.length), (7, 9, range.length));
                (element.address, range.remote.address, range.length)
            })
            .collect())
    }

    #[test]
    fn ranges_are_cut_at_either_boundary() {
        let last = u64::MAX - 3;
        assert_eq!(cuts(&[10], &[10]), Ok(vec![(1000, last, 10)]));
        assert_eq!(cuts(&[4, 6], &[7, 3]), Ok(vec![(1000, last, 4), (1004, 0, 3), (1007, 3, 3)]));
        assert_eq!(cuts(&[], &[]), Ok(vec![]));
        assert_eq!(cuts(&[128], &[8; 16]).map(|cuts| cuts.len()), Ok(16));
        assert_eq!(cuts(&[8; 16], &[128]).map(|cuts| cuts.len()), Ok(16));
    }

    #[test]
    fn sides_of_different_length_are_refused() {
        for (local, remote) in [(&[10][..], &[9][..]), (&[9], &[9, 1]), (&[9, 1], &[9]), (&[], &[1]), (&[5], &[0])] {
            assert_eq!(cuts(local, remote), Err(CutError::Length), "{local:?} {remote:?}");
        }
        assert_eq!(cuts(&[8], &[8, 0]), Err(CutError::Length), "a range of no bytes");
    }

    #[test]
    fn more_operations_than_there_are_places_are_refused() {
        assert_eq!(cuts(&[17], &[1; 17]), Err(CutError::Operations));
        assert_eq!(cuts(&[12, 12], &[1; 24]), Err(CutError::Operations));
    }
}
