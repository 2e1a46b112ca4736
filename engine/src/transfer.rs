//! The responder's slot: RDMA READs that fetch what a peer offers, or RDMA WRITEs and the reply behind them.

use crate::{
    chain::NOT_POSTED,
    event::{Event, TransferStatus},
    options::{MAX_TRANSFER_ELEMENTS, MAX_TRANSFER_OPERATIONS},
    provider::{ElementRange, RemoteRange, ScatterElement},
};

/// What a transfer does, in the order of the events that tell of it: one is found by the other without a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// RDMA READs; ends when the last has completed.
    Fetch,
    /// RDMA WRITEs that nobody is told of; ends when the last has completed.
    Write,
    /// RDMA WRITEs, then a reply; ends when the device is done with the reply.
    Respond {
        /// The peer's key that its device invalidates.
        invalidate: Option<u32>,
    },
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It waits for send queue entries or a receive of the peer's, in order.
    Waiting,
    /// It is posted, or the next flush posts it.
    Posted,
    /// All of it succeeded; its event was not taken yet.
    Ended,
}

/// One slot. Its position stands where a request's slot has that, since who looks for one looks at either.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Transfer {
    cookie: u64,
    /// Where the last work request stands in the send queue, once it is admitted: what a completion has passed, all of them have ended.
    position: u64,
    kind: Kind,
    connection: u16,
    phase: Phase,
    /// RDMA READs or WRITEs.
    operations: u8,
}

impl Transfer {
    /// One that is not admitted.
    #[inline(always)]
    pub(crate) fn waiting(cookie: u64, connection: u16, kind: Kind, operations: u8) -> Self {
        Self { cookie, connection, phase: Phase::Waiting, kind, operations, position: NOT_POSTED }
    }

    /// The same one, in the chain, its last work request at this position.
    #[inline(always)]
    pub(crate) fn posted(self, position: u64) -> Self {
        Self { phase: Phase::Posted, position, ..self }
    }

    /// Index of its connection.
    #[inline(always)]
    pub(crate) fn connection(&self) -> usize {
        usize::from(self.connection)
    }

    #[inline(always)]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Its RDMA READs or WRITEs.
    #[inline(always)]
    pub(crate) fn operations(&self) -> usize {
        usize::from(self.operations)
    }

    /// Where its last work request stands in the send queue; see the field.
    #[inline(always)]
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Its last work request moved up in the chain.
    pub(crate) fn moved_to(&mut self, position: u64) {
        self.position = position;
    }

    /// All of it succeeded.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        self.phase = Phase::Ended;
    }

    /// All of it succeeded, and its caller is about to be told.
    pub(crate) fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
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

/// An RDMA READ or WRITE of a transfer: a range of the peer's, and the elements that have its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RdmaOperation {
    pub(crate) remote: RemoteRange,
    pub(crate) local: ElementRange,
}

impl RdmaOperation {
    /// One of no bytes, which names no memory.
    pub(crate) const NOTHING: Self =
        Self { remote: RemoteRange { address: 0, key: 0 }, local: ElementRange { first: 0, count: 0 } };
}

/// Those of one slot.
pub(crate) type RdmaOperations = [RdmaOperation; MAX_TRANSFER_OPERATIONS];

/// What a transfer is cut into, in the places of its slot.
pub(crate) struct Places<'a> {
    /// Index of the first element in the engine's table.
    pub(crate) first: u32,
    /// Of all operations, one behind the other.
    pub(crate) elements: &'a mut [ScatterElement; MAX_TRANSFER_ELEMENTS],
    pub(crate) operations: &'a mut RdmaOperations,
}

/// Why the two sides of a transfer cannot be cut into operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutError<E> {
    /// Of a piece.
    Piece(E),
    /// The sides differ in length, or a range has no bytes.
    Length,
    /// There is no room for one more operation, or element.
    Operations,
}

/// Cuts both sides: an operation for each range of the peer's, with an element for each piece that it has a part in, at most `most`; a
/// range of more pieces has more operations. Pieces have bytes. Returns the number of operations.
#[inline(always)]
pub(crate) fn cut<E>(
    pieces: impl Iterator<Item = Result<ScatterElement, E>>,
    remote: &[RemoteSegment],
    most: u32,
    places: Places<'_>,
) -> Result<usize, CutError<E>> {
    let mut remote = remote;
    let mut elements = (places.first..).zip(places.elements.iter_mut());
    let mut operations = places.operations.iter_mut();
    let mut begun = 0;
    // What is left of a range that began in the piece before, and its operation.
    let mut rest = RemoteSegment { remote: RemoteRange { address: 0, key: 0 }, length: 0 };
    let mut open: Option<&mut RdmaOperation> = None;
    for piece in pieces {
        let mut piece = piece.map_err(CutError::Piece)?;
        if rest.length > 0 {
            let (front, behind) = rest.cut(piece.length);
            let (first, element) = elements.next().ok_or(CutError::Operations)?;
            *element = ScatterElement { length: front.length, ..piece };
            match &mut open {
                Some(operation) if operation.local.count < most => operation.local.count += 1,
                _ => {
                    let operation = operations.next().ok_or(CutError::Operations)?;
                    *operation = RdmaOperation { remote: front.remote, local: ElementRange { first, count: 1 } };
                    (open, begun) = (Some(operation), begun + 1);
                }
            }
            (piece, rest) = (advance(piece, front.length), behind);
        }
        // Ranges that lie in the piece as a whole.
        while let [range, behind @ ..] = remote
            && range.length <= piece.length
        {
            if range.length == 0 {
                return Err(CutError::Length);
            }
            let (Some((first, element)), Some(operation)) = (elements.next(), operations.next()) else {
                return Err(CutError::Operations);
            };
            *element = ScatterElement { length: range.length, ..piece };
            *operation = RdmaOperation { remote: range.remote, local: ElementRange { first, count: 1 } };
            begun += 1;
            (piece, remote) = (advance(piece, range.length), behind);
        }
        if piece.length > 0 {
            let [range, behind @ ..] = remote else { return Err(CutError::Length) };
            let (Some((first, element)), Some(operation)) = (elements.next(), operations.next()) else {
                return Err(CutError::Operations);
            };
            *element = piece;
            *operation = RdmaOperation { remote: range.remote, local: ElementRange { first, count: 1 } };
            (open, begun) = (Some(operation), begun + 1);
            (rest, remote) = (range.cut(piece.length).1, behind);
        }
    }
    if rest.length == 0 && remote.is_empty() { Ok(begun) } else { Err(CutError::Length) }
}

/// [`cut`] of one piece, which lies in no range as a part: an operation for each range. Apart, so that its loop has the registers.
#[inline(never)]
pub(crate) fn cut_piece<E>(
    piece: ScatterElement,
    remote: &[RemoteSegment],
    places: Places<'_>,
) -> Result<usize, CutError<E>> {
    if remote.len() > MAX_TRANSFER_OPERATIONS {
        return Err(CutError::Operations);
    }
    let (mut first, mut bytes, mut all_have_some) = (places.first, 0, true);
    for ((element, operation), range) in places.elements.iter_mut().zip(places.operations).zip(remote) {
        // Beyond the piece's end it may wrap: then the lengths differ.
        let address = piece.address.wrapping_add(bytes);
        *element = ScatterElement { address, length: range.length, lkey: piece.lkey };
        *operation = RdmaOperation { remote: range.remote, local: ElementRange { first, count: 1 } };
        first += 1;
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
    use super::{CutError, Places, RdmaOperation, RemoteSegment, cut, cut_piece};
    use crate::{
        options::{MAX_TRANSFER_ELEMENTS, MAX_TRANSFER_OPERATIONS},
        provider::{RemoteRange, ScatterElement},
    };

    /// An operation: the remote address, and address and length of each element.
    type Cut = (u64, Vec<(u64, u32)>);

    /// Of pieces from 1000 on and ranges from the last 4 bytes of all addresses on, one right behind the other.
    fn cuts(local: &[u32], remote: &[u32], most: u32) -> Result<Vec<Cut>, CutError<()>> {
        let mut elements = [ScatterElement::default(); MAX_TRANSFER_ELEMENTS];
        let mut operations = [RdmaOperation::NOTHING; MAX_TRANSFER_OPERATIONS];
        let mut address = 1000;
        let pieces = local.iter().map(|&length| {
            address += u64::from(length);
            Ok(ScatterElement { address: address - u64::from(length), length, lkey: 7 })
        });
        let mut address = u64::MAX - 3;
        let remote: Vec<_> = remote
            .iter()
            .map(|&length| {
                let here = address;
                address = address.wrapping_add(u64::from(length));
                RemoteSegment { remote: RemoteRange { address: here, key: 9 }, length }
            })
            .collect();
        let places = Places { first: 5, elements: &mut elements, operations: &mut operations };
        let count = cut(pieces, &remote, most, places);
        if let &[length] = local {
            let piece = ScatterElement { address: 1000, length, lkey: 7 };
            let (mut elements, mut operations) = (elements, operations);
            let places = Places { first: 5, elements: &mut elements, operations: &mut operations };
            assert_eq!(cut_piece(piece, &remote, places), count, "{local:?} {remote:?}");
        }
        let count = count?;
        let (mut next, mut elements) = (5, elements.iter());
        let each = operations.iter().take(count).map(|operation| {
            assert!(operation.remote.key == 9 && (1..=most).contains(&operation.local.count), "{operation:?}");
            assert_eq!(operation.local.first, next, "elements stand one behind the other");
            next += operation.local.count;
            let own = elements.by_ref().take(operation.local.count as usize);
            let own = own.map(|element| {
                assert_eq!(element.lkey, 7);
                (element.address, element.length)
            });
            (operation.remote.address, own.collect())
        });
        Ok(each.collect())
    }

    #[test]
    fn each_range_is_an_operation_with_an_element_for_each_piece() {
        let last = u64::MAX - 3;
        assert_eq!(cuts(&[10], &[10], 4), Ok(vec![(last, vec![(1000, 10)])]));
        let both = vec![(last, vec![(1000, 4), (1004, 3)]), (3, vec![(1007, 3)])];
        assert_eq!(cuts(&[4, 6], &[7, 3], 4), Ok(both));
        assert_eq!(cuts(&[2, 2, 6], &[10], 4), Ok(vec![(last, vec![(1000, 2), (1002, 2), (1004, 6)])]));
        assert_eq!(cuts(&[], &[], 4), Ok(vec![]));
        assert_eq!(cuts(&[128], &[8; 16], 4).map(|cuts| cuts.len()), Ok(16));
        assert_eq!(cuts(&[8; 16], &[128], 16).map(|cuts| cuts.len()), Ok(1));
    }

    #[test]
    fn a_range_of_more_pieces_than_an_operation_has_elements_is_cut() {
        let last = u64::MAX - 3;
        let alone = vec![(last, vec![(1000, 4)]), (0, vec![(1004, 3)]), (3, vec![(1007, 3)])];
        assert_eq!(cuts(&[4, 6], &[7, 3], 1), Ok(alone));
        let pairs = vec![(last, vec![(1000, 2), (1002, 2)]), (0, vec![(1004, 2), (1006, 2)]), (4, vec![(1008, 1)])];
        assert_eq!(cuts(&[2, 2, 2, 2, 1], &[9], 2), Ok(pairs));
        for most in 1..=16 {
            let cuts = cuts(&[8; 16], &[128], most).expect("as many elements as there are places");
            assert_eq!(cuts.len() as u32, 16_u32.div_ceil(most), "{most}");
        }
    }

    #[test]
    fn sides_of_different_length_are_refused() {
        for (local, remote) in [(&[10][..], &[9][..]), (&[9], &[9, 1]), (&[9, 1], &[9]), (&[], &[1]), (&[5], &[0])] {
            for most in [1, 4] {
                assert_eq!(cuts(local, remote, most), Err(CutError::Length), "{local:?} {remote:?}");
            }
        }
        assert_eq!(cuts(&[8], &[8, 0], 4), Err(CutError::Length), "a range of no bytes");
        assert_eq!(cuts(&[4, 4], &[6, 0, 2], 4), Err(CutError::Length), "the same in between");
    }

    #[test]
    fn more_than_there_are_places_are_refused() {
        for most in [1, 4] {
            assert_eq!(cuts(&[17], &[1; 17], most), Err(CutError::Operations));
            assert_eq!(cuts(&[12, 12], &[1; 24], most), Err(CutError::Operations));
            assert_eq!(cuts(&[1; 17], &[17], most), Err(CutError::Operations), "elements of one operation");
        }
    }
}
