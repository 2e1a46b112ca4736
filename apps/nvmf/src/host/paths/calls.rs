//! What a caller asks for, as of a host.

use super::Paths;
use super::one::OnePath;
use crate::host::error::RequestError;
use crate::host::fused::{Both, pair};
use crate::host::request::{COMPARE_AND_WRITE, check_ranges, transfer, zeroes};
use crate::host::requests::{Asked, HostCompletion, Kind};
use crate::storage::Geometry;
use crate::wire::IdentifyController;
use frwr_engine::gather::Segment;
use frwr_engine::provider::Port;

impl<P: Port> Paths<P> {
    /// As [`Host::read`](super::Host::read).
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn read(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        match self.alone() {
            Some(host) => host.read(lba, segments, cookie),
            None => self.transfer(Kind::Read { force_unit_access: false }, lba, segments, cookie),
        }
    }

    /// As [`Host::read_force_unit_access`](super::Host::read_force_unit_access).
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn read_force_unit_access(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        match self.alone() {
            Some(host) => host.read_force_unit_access(lba, segments, cookie),
            None => self.transfer(Kind::Read { force_unit_access: true }, lba, segments, cookie),
        }
    }

    /// As [`Host::write`](super::Host::write). A change that was lost waits until its controller is over, and requests that come later may
    /// be executed before it: as with all that is outstanding at the same time, there is no order. Until it has ended, nothing else is to be
    /// written to its blocks.
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn write(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        match self.alone() {
            Some(host) => host.write(lba, segments, cookie),
            None => self.transfer(Kind::Write { force_unit_access: false }, lba, segments, cookie),
        }
    }

    /// As [`Host::write_force_unit_access`](super::Host::write_force_unit_access), and as [`Paths::write`].
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn write_force_unit_access(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        match self.alone() {
            Some(host) => host.write_force_unit_access(lba, segments, cookie),
            None => self.transfer(Kind::Write { force_unit_access: true }, lba, segments, cookie),
        }
    }

    /// As [`Host::compare`](super::Host::compare).
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn compare(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        if let Some(host) = self.alone() {
            return host.compare(lba, segments, cookie);
        }
        self.supports(IdentifyController::COMPARE, "Compare")?;
        self.transfer(Kind::Compare, lba, segments, cookie)
    }

    /// As [`Host::compare_and_write`](super::Host::compare_and_write), and as [`Paths::write`]: one that was lost ends when its controller is
    /// over, with [`IoError::Undecided`](crate::host::IoError::Undecided). One that a controller refused because of the path, and so did not
    /// execute, goes to another one.
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
        if let Some(host) = self.alone() {
            return host.compare_and_write(lba, expected, written, cookie);
        }
        let geometry = self.known()?;
        // Whichever path it takes.
        let serving = self.paths.iter().filter(|path| path.serves());
        let most = serving.map(|path| path.host().compares_and_writes()).reduce(|one, other| Some(one?.min(other?)));
        let most = match most {
            // It waits for a path, which may take less.
            None => u32::MAX,
            Some(most) => most.ok_or(RequestError::Unsupported(COMPARE_AND_WRITE))?,
        };
        let mut both = Both::new();
        self.take(&pair((geometry, most), lba, [expected, written], &mut both, cookie)?)
    }

    /// As [`Host::flush_namespace`](super::Host::flush_namespace). It takes one path: what controllers keep in front of the medium has to be
    /// of the namespace, as the standard wants it, or of none of them.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn flush_namespace(&mut self, cookie: u64) -> Result<(), RequestError> {
        match self.alone() {
            Some(host) => host.flush_namespace(cookie),
            None => self.take(&Asked::plain(Kind::Flush, cookie)),
        }
    }

    /// As [`Host::write_zeroes`](super::Host::write_zeroes), and as [`Paths::write`].
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn write_zeroes(&mut self, lba: u64, blocks: u32, deallocate: bool, cookie: u64) -> Result<(), RequestError> {
        if let Some(host) = self.alone() {
            return host.write_zeroes(lba, blocks, deallocate, cookie);
        }
        self.supports(IdentifyController::WRITE_ZEROES, "Write Zeroes")?;
        let asked = zeroes(self.known()?, (lba, blocks), deallocate, cookie)?;
        self.take(&asked)
    }

    /// As [`Host::deallocate`](super::Host::deallocate), and as [`Paths::write`].
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn deallocate(&mut self, ranges: &[(u64, u32)], cookie: u64) -> Result<(), RequestError> {
        if let Some(host) = self.alone() {
            return host.deallocate(ranges, cookie);
        }
        self.supports(IdentifyController::DATASET_MANAGEMENT, "Dataset Management")?;
        check_ranges(self.known()?, ranges)?;
        // Else it would wait for ever for a buffer of the path that it takes.
        if !self.paths.iter().all(|path| path.host().io.has_buffers_for(ranges)) {
            return Err(RequestError::NoBounceBuffer);
        }
        self.admits()?;
        self.table.take_ranges(ranges, cookie)?;
        self.send_waiting();
        Ok(())
    }

    /// As [`Host::abort`](super::Host::abort). A change that was lost ends when its controller is over.
    pub fn abort(&mut self, cookie: u64) -> usize {
        if let Some(host) = self.alone() {
            return host.abort(cookie);
        }
        let mut found = 0;
        for slot in self.table.slots() {
            if self.table.get(slot).is_some_and(|entry| entry.request.cookie() == cookie) {
                found += 1;
                self.give_up(slot);
            }
        }
        found
    }

    /// As [`Host::next_completion`](super::Host::next_completion).
    pub fn next_completion(&mut self) -> Option<HostCompletion> {
        match self.alone() {
            Some(host) => host.next_completion(),
            None => self.table.next_completion(),
        }
    }

    fn known(&self) -> Result<Geometry, RequestError> {
        self.agreement.geometry().ok_or(RequestError::NotReady)
    }

    /// Whichever path it takes: all that have had a session have the command.
    fn supports(&self, command: u16, name: &'static str) -> Result<(), RequestError> {
        self.known()?;
        let lacks =
            |path: &OnePath<P>| path.serves() && path.host().session.found().limits().optional_commands & command == 0;
        if self.paths.iter().any(lacks) { Err(RequestError::Unsupported(name)) } else { Ok(()) }
    }

    fn transfer(&mut self, kind: Kind, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        let asked = transfer(self.known()?, kind, lba, segments, cookie)?;
        self.take(&asked)
    }

    fn admits(&self) -> Result<(), RequestError> {
        let is_over = self.stopping || self.all_are_final();
        if is_over { Err(RequestError::NotReady) } else { Ok(()) }
    }

    fn take(&mut self, asked: &Asked<'_>) -> Result<(), RequestError> {
        self.admits()?;
        self.table.take(asked)?;
        self.send_waiting();
        Ok(())
    }
}
