//! What a caller asks for: reads, writes, compares, flushes, zeroes and deallocation, each ended by one completion.

use super::Host;
use super::error::RequestError;
use super::fused;
use super::options::MAX_SEGMENTS;
use super::requests::{Asked, Detour, HostCompletion, Kind, MAX_REQUEST_BYTES};
use super::reserve::Reserve;
use crate::storage::Geometry;
use crate::wire::{IdentifyController, MAX_DATASET_RANGES, ReservationKeys};
use frwr_engine::gather::Segment;
use frwr_engine::provider::Port;

/// What it is called where a controller does not have it.
pub(super) const COMPARE_AND_WRITE: &str =
    "fused Compare and Write, with a queue of two commands and a connection of two registrations";

impl<P: Port> Host<P> {
    /// Reads the blocks from `lba` on into `segments`, in order. Ends with one [`HostCompletion`], however many commands
    /// it takes.
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn read(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        self.transfer(Kind::Read { force_unit_access: false }, lba, segments, cookie)
    }

    /// [`Host::read`] with Force Unit Access: what is read is on the medium before it ends, whoever wrote it.
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn read_force_unit_access(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        self.transfer(Kind::Read { force_unit_access: true }, lba, segments, cookie)
    }

    /// Writes `segments`, in order, to the blocks from `lba` on. Their bytes must not change before the end. Where it takes
    /// several commands and one fails, others may have been executed.
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn write(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        self.transfer(Kind::Write { force_unit_access: false }, lba, segments, cookie)
    }

    /// [`Host::write`] with Force Unit Access: what is written is on the medium before it ends, without a flush of what else was
    /// written.
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn write_force_unit_access(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        self.transfer(Kind::Write { force_unit_access: true }, lba, segments, cookie)
    }

    /// Compares `segments`, in order, with the blocks from `lba` on; ends with
    /// [`Status::COMPARE_FAILURE`](crate::wire::Status::COMPARE_FAILURE) where they differ.
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn compare(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        self.supports(IdentifyController::COMPARE, "Compare")?;
        self.transfer(Kind::Compare, lba, segments, cookie)
    }

    /// Writes `written` to the blocks from `lba` on if they hold what is `expected`, as one step to all hosts (fused Compare and
    /// Write); ends with [`Status::COMPARE_FAILURE`](crate::wire::Status::COMPARE_FAILURE) where they do not, and then nothing was
    /// written. Both have as many bytes, and together as many segments as one request. Both commands are sent once: where their session
    /// ended before they were answered, it ends with [`IoError::Undecided`](super::IoError::Undecided), not before the controller is over; what
    /// the controller refuses for the time being is not tried again. Where the medium failed under it, as with
    /// [`Status::WRITE_FAULT`](crate::wire::Status::WRITE_FAULT) or Internal Error, the blocks may have been written: read them before you
    /// try it again.
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn compare_and_write(
        &mut self,
        lba: u64,
        expected: &[Segment],
        written: &[Segment],
        cookie: u64,
    ) -> Result<(), RequestError> {
        let geometry = self.geometry().ok_or(RequestError::NotReady)?;
        let most = self.compares_and_writes().ok_or(RequestError::Unsupported(COMPARE_AND_WRITE))?;
        let mut both = fused::Both::new();
        self.hand(&fused::pair((geometry, most), lba, [expected, written], &mut both, cookie)?)
    }

    /// Blocks of one [`Host::compare_and_write`] at most; `None` where the controller has no such operation, where a queue has not room for
    /// two commands or its connection no keys for both ([`EngineOptions::registrations`](frwr_engine::EngineOptions::registrations)), and
    /// before the first session.
    #[must_use]
    pub fn compares_and_writes(&self) -> Option<u32> {
        // Both commands are in one queue at the same time, each with a key of its own: the first is not answered before the second.
        let (queue_depth, sizes) = (self.context.options.queue_depth, self.context.transport.engine().sizes());
        self.session.found().limits().compare_and_write.filter(|_| queue_depth > 1 && sizes.registrations > 1)
    }

    /// Makes all writes durable that ended before.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn flush_namespace(&mut self, cookie: u64) -> Result<(), RequestError> {
        self.hand(&Asked::plain(Kind::Flush, cookie))
    }

    /// Fills `blocks` blocks from `lba` on with zeros; they may be deallocated where `deallocate` is set and
    /// the namespace has that.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn write_zeroes(&mut self, lba: u64, blocks: u32, deallocate: bool, cookie: u64) -> Result<(), RequestError> {
        self.supports(IdentifyController::WRITE_ZEROES, "Write Zeroes")?;
        let geometry = self.geometry().ok_or(RequestError::NotReady)?;
        self.hand(&zeroes(geometry, (lba, blocks), deallocate, cookie)?)
    }

    /// Tells the controller that the blocks of `ranges`, each a first block and a count, hold nothing any more (Dataset
    /// Management). It may ignore that.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn deallocate(&mut self, ranges: &[(u64, u32)], cookie: u64) -> Result<(), RequestError> {
        self.supports(IdentifyController::DATASET_MANAGEMENT, "Dataset Management")?;
        let geometry = self.geometry().ok_or(RequestError::NotReady)?;
        check_ranges(geometry, ranges)?;
        self.hand_ranges(ranges, cookie, Detour::default())
    }

    /// Gives the requests with this cookie up: nothing more is sent for them, and the controller is asked to abort what
    /// was. Each still ends with one completion, after its keys are dead. Returns how many there are.
    pub fn abort(&mut self, cookie: u64) -> usize {
        self.io.abort(cookie, &mut self.context)
    }

    /// The next request that ended.
    pub fn next_completion(&mut self) -> Option<HostCompletion> {
        self.io.next_completion()
    }

    pub(super) fn supports(&self, command: u16, name: &'static str) -> Result<(), RequestError> {
        if self.geometry().is_none() {
            return Err(RequestError::NotReady);
        }
        if self.session.found().limits().optional_commands & command == 0 {
            return Err(RequestError::Unsupported(name));
        }
        Ok(())
    }

    fn transfer(&mut self, kind: Kind, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        let geometry = self.geometry().ok_or(RequestError::NotReady)?;
        self.hand(&transfer(geometry, kind, lba, segments, cookie)?)
    }

    /// A host that stops, or has given up, takes nothing any more.
    fn admits(&self) -> Result<(), RequestError> {
        if self.session.admits() { Ok(()) } else { Err(RequestError::NotReady) }
    }

    /// Takes a request that was checked. It waits for the next flush, which makes commands of all that came by then.
    pub(super) fn hand(&mut self, asked: &Asked<'_>) -> Result<(), RequestError> {
        self.admits()?;
        self.io.take(asked)
    }

    /// Takes a deallocation that was checked.
    pub(super) fn hand_ranges(
        &mut self,
        ranges: &[(u64, u32)],
        cookie: u64,
        detour: Detour,
    ) -> Result<(), RequestError> {
        self.admits()?;
        self.io.take_ranges(ranges, cookie, detour)
    }

    /// Takes a command about reservations.
    pub(super) fn hand_keys(&mut self, what: Reserve, keys: &ReservationKeys, cookie: u64) -> Result<(), RequestError> {
        self.admits()?;
        self.io.take_keys(what, keys, cookie)
    }
}

/// What asks to move data, where the namespace has its blocks.
///
/// # Errors
/// [`RequestError`].
pub(super) fn transfer(
    geometry: Geometry,
    kind: Kind,
    lba: u64,
    segments: &[Segment],
    cookie: u64,
) -> Result<Asked<'_>, RequestError> {
    if segments.is_empty() || segments.len() > MAX_SEGMENTS {
        return Err(RequestError::Segments(segments.len()));
    }
    let bytes: u64 = segments.iter().map(|segment| u64::from(segment.length)).sum();
    let (limit, block) = (MAX_REQUEST_BYTES, u64::from(geometry.block_bytes()));
    if bytes == 0 || bytes > u64::from(limit) || !bytes.is_multiple_of(block) {
        return Err(RequestError::Length { bytes, limit });
    }
    // Compared with the limit, which is 32 bit.
    let blocks = (bytes / block) as u32;
    geometry.extent(lba, blocks).map_err(|_| RequestError::OutOfRange)?;
    Ok(Asked::new(kind, lba, blocks, segments, cookie))
}

/// What asks to fill blocks with zeros, where the namespace has them.
///
/// # Errors
/// [`RequestError`].
pub(super) fn zeroes(
    geometry: Geometry,
    (lba, blocks): (u64, u32),
    deallocate: bool,
    cookie: u64,
) -> Result<Asked<'static>, RequestError> {
    geometry.extent(lba, blocks).map_err(|_| RequestError::OutOfRange)?;
    if blocks == 0 {
        return Err(RequestError::Length { bytes: 0, limit: MAX_REQUEST_BYTES });
    }
    Ok(Asked::new(Kind::WriteZeroes { deallocate }, lba, blocks, &[], cookie))
}

/// The ranges of a deallocation are as many as one command takes, and the namespace has their blocks.
///
/// # Errors
/// [`RequestError`].
pub(super) fn check_ranges(geometry: Geometry, ranges: &[(u64, u32)]) -> Result<(), RequestError> {
    if ranges.is_empty() || ranges.len() > MAX_DATASET_RANGES as usize {
        return Err(RequestError::Ranges(ranges.len()));
    }
    if ranges.iter().any(|&(lba, blocks)| geometry.extent(lba, blocks).is_err()) {
        return Err(RequestError::OutOfRange);
    }
    Ok(())
}
