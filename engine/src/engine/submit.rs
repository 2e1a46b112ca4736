//! A request as its caller says it.

use super::{
    Engine, SubmitError,
    issue::{Issue, Payload, Seat},
    pieces::{Gathering, NoMemory, OneList, OneSegment, Pieces, Room},
    refusal::Hindrance,
    resolve::resolve,
};
use crate::{
    connection::Connection,
    event::ConnectionId,
    gather::Segment,
    options::MAX_CHUNKS,
    protocol::Protocol,
    provider::{Access, Port},
    request::RequestHandle,
};

/// Memory that a request opens to the peer with one right.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// What the peer may do (S32).
    pub access: Access,
    /// Where the memory is.
    pub segments: &'a [Segment],
}

/// A request to submit.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// The message as far as it is known without keys; [`Protocol::announce`] completes it.
    pub message: &'a [u8],
    /// Memory whose bytes follow the message in the same SEND, straight out of the caller's memory. The request then
    /// ends only when the device is done with it as well (S51).
    pub inline: &'a [Segment],
    /// Memory that the request opens to the peer; may be empty.
    pub chunks: &'a [Chunk<'a>],
    /// The message asks the peer to invalidate one of the keys with its reply.
    pub invite_invalidation: bool,
    /// Goes into the base address where the device lets us choose it, such as an XID (S36).
    pub iova_cookie: u32,
    /// Comes back with the request's end.
    pub cookie: u64,
}

/// What keys cover of a list of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Bytes from the front of the list.
    pub bytes: u32,
    /// Keys that they take.
    pub keys: u32,
}

impl<'a> Submission<'a> {
    #[inline(always)]
    pub(super) fn issue(&self) -> Issue<'a> {
        Issue {
            payload: Payload::Message(self.message),
            inline: self.inline,
            answered: true,
            invited: self.invite_invalidation,
            iova_cookie: self.iova_cookie,
            cookie: self.cookie,
        }
    }
}

impl<P: Port> Engine<P> {
    /// Takes a request: its memory is opened to the peer, its message sent, and its end reported by
    /// [`crate::Event::Completed`] when every key of it is dead. Nothing is posted before [`Engine::flush`]. A request that finds
    /// too few MRs, send queue entries or receives waits in order, and so does one behind a transfer that waits for entries; one that
    /// needs more MRs than the device makes ends as [`crate::RequestStatus::TooFewRegistrations`].
    ///
    /// # Errors
    /// [`SubmitError`]; nothing is left behind.
    #[inline(always)]
    pub fn submit(
        &mut self,
        connection: ConnectionId,
        submission: &Submission<'_>,
        protocol: &mut impl Protocol,
    ) -> Result<RequestHandle, SubmitError> {
        let index = usize::from(connection.index);
        let is_free = self.connections.get(index).is_some_and(|found| found.takes_at_once(connection));
        let has_message =
            !submission.message.is_empty() && submission.message.len() <= self.plan.message_bytes as usize;
        let hindrance = match submission.chunks {
            _ if !(is_free && has_message) => Hindrance::Unusual,
            [] => match self.issue(index, Seat::New, submission.issue(), NoMemory, protocol) {
                Ok(handle) => return Ok(RequestHandle(handle)),
                Err(hindrance) => hindrance,
            },
            [Chunk { access, segments: [segment] }] => {
                let memory = OneSegment { access: *access, segment };
                match self.issue(index, Seat::New, submission.issue(), memory, protocol) {
                    Ok(handle) => return Ok(RequestHandle(handle)),
                    Err(hindrance) => hindrance,
                }
            }
            [Chunk { access, segments: [segment] }, Chunk { access: other, segments: [next] }] => {
                let memory = [OneSegment { access: *access, segment }, OneSegment { access: *other, segment: next }];
                match self.issue(index, Seat::New, submission.issue(), memory, protocol) {
                    Ok(handle) => return Ok(RequestHandle(handle)),
                    Err(hindrance) => hindrance,
                }
            }
            _ => Hindrance::Gather,
        };
        // A copy: what is not passed on need not be in memory. What comes back fits into a register, for the same reason: a handle
        // without a generation names nothing, and `refused` says why.
        let (submission, mut refused) = (*submission, SubmitError::NoSlot);
        let handle = self.submit_hindered(connection, &submission, hindrance, protocol, &mut refused);
        if handle.generation() == 0 { Err(refused) } else { Ok(handle) }
    }

    #[inline(never)]
    fn submit_hindered(
        &mut self,
        connection: ConnectionId,
        submission: &Submission<'_>,
        hindrance: Hindrance,
        protocol: &mut impl Protocol,
        refused: &mut SubmitError,
    ) -> RequestHandle {
        let done = match hindrance {
            Hindrance::Unusual => self.submit_behind(connection, submission, protocol),
            other => self.hindered(usize::from(connection.index), submission, other, protocol),
        };
        done.unwrap_or_else(|error| {
            *refused = error;
            RequestHandle::from_parts(0, 0)
        })
    }

    /// Whether a request on a connection that does not take it at once has to wait. Invalidations that are due stand in front of it,
    /// where the order says so.
    ///
    /// # Errors
    /// [`SubmitError::NotConnected`].
    #[inline(never)]
    pub(super) fn must_wait(&mut self, connection: ConnectionId) -> Result<bool, SubmitError> {
        let index = usize::from(connection.index);
        let is_this = |found: &Connection| found.key == connection && found.is_ready();
        if !self.connections.get(index).is_some_and(is_this) {
            return Err(SubmitError::NotConnected);
        }
        self.stage_invalidations_first(index);
        let connection = &mut self.connections[index];
        Ok(!(connection.waiting().requests() == 0 && connection.admits_requests()))
    }

    /// Gathers the chunks of a submission, which may have `most` pieces.
    pub(super) fn gather_submission(
        &mut self,
        index: usize,
        submission: &Submission<'_>,
        most: u32,
        pieces: &mut Pieces,
    ) -> Result<(), Hindrance> {
        self.check_numbers(submission)?;
        let Connection { reach, idle, .. } = &mut self.connections[index];
        let gathering = Gathering {
            room: Room { reach, idle, elements: &mut self.elements, limits: &self.gather },
            resolved: &mut self.resolved,
            most: most as usize,
            pieces,
        };
        gathering.gather(submission.chunks.iter().map(|chunk| (chunk.access, chunk.segments)))
    }

    /// Chunks and segments are no more than there is room for.
    pub(super) fn check_numbers(&self, submission: &Submission<'_>) -> Result<(), SubmitError> {
        let segments = submission.chunks.iter().map(|chunk| chunk.segments.len()).sum::<usize>();
        let inline = submission.inline.len();
        let fits = submission.chunks.len() <= MAX_CHUNKS && inline < self.plan.message_elements as usize;
        let fits = fits && segments <= self.options.max_segments as usize;
        if fits { Ok(()) } else { Err(SubmitError::TooManySegments) }
    }

    /// A request that did not go so: its memory is gathered, it waits, or its caller keeps it.
    fn hindered(
        &mut self,
        index: usize,
        submission: &Submission<'_>,
        hindrance: Hindrance,
        protocol: &mut impl Protocol,
    ) -> Result<RequestHandle, SubmitError> {
        let mut issued = Err(hindrance);
        if let (Hindrance::Gather, [Chunk { access, segments }]) = (hindrance, submission.chunks)
            && segments.len() <= self.options.max_segments as usize
        {
            let memory = OneList { access: *access, segments };
            issued = self.issue(index, Seat::New, submission.issue(), memory, protocol);
        }
        if matches!(issued, Err(Hindrance::Gather)) {
            let mut pieces = Pieces::default();
            issued = self
                .gather_submission(index, submission, self.plan.max_mrs, &mut pieces)
                .and_then(|()| self.issue(index, Seat::New, submission.issue(), &pieces, protocol));
        }
        match issued {
            Ok(handle) => Ok(RequestHandle(handle)),
            Err(Hindrance::Refused(error)) => Err(error),
            Err(Hindrance::NoSlot) => Err(SubmitError::NoSlot),
            Err(_) => self.park(index, submission, true, true),
        }
    }

    /// A request that finds something in front of it, such as invalidations that are due, or others that wait.
    fn submit_behind(
        &mut self,
        connection: ConnectionId,
        submission: &Submission<'_>,
        protocol: &mut impl Protocol,
    ) -> Result<RequestHandle, SubmitError> {
        let (index, waits) = (usize::from(connection.index), self.must_wait(connection)?);
        if submission.message.is_empty() || submission.message.len() > self.plan.message_bytes as usize {
            return Err(SubmitError::MessageLength);
        }
        if waits {
            return self.park(index, submission, true, false);
        }
        self.hindered(index, submission, Hindrance::Gather, protocol)
    }

    /// How much of the front of `segments` at most `most` keys of one request cover on this connection: what protocols need
    /// to know whose messages have room for few keys. With whatever right: that the memory is read-only is no matter here.
    ///
    /// # Errors
    /// [`SubmitError::NotConnected`], [`SubmitError::Segment`], [`SubmitError::UnknownMemory`],
    /// [`SubmitError::TooManySegments`].
    pub fn coverage(
        &mut self,
        connection: ConnectionId,
        segments: &[Segment],
        most: u32,
    ) -> Result<Coverage, SubmitError> {
        let index = self.index_of(connection).ok_or(SubmitError::NotConnected)?;
        if segments.len() > self.options.max_segments as usize {
            return Err(SubmitError::TooManySegments);
        }
        self.resolved.clear();
        let connection = &self.connections[index];
        match resolve(&connection.reach, &self.gather, segments, false, &mut self.resolved) {
            // What found no room stands behind all that one request can open.
            Ok(()) | Err(SubmitError::TooManyRegistrations) => {}
            Err(error) => return Err(error),
        }
        let mut coverage = Coverage { bytes: 0, keys: 0 };
        let mut rest = self.resolved.as_slice();
        while coverage.keys < most.min(self.plan.max_mrs) && !rest.is_empty() {
            let piece = self.gather.next_piece(rest)?;
            coverage.bytes = coverage.bytes.saturating_add(piece.bytes);
            coverage.keys += 1;
            rest = rest.get(piece.consumed..).unwrap_or(&[]);
        }
        self.resolved.clear();
        Ok(coverage)
    }
}
