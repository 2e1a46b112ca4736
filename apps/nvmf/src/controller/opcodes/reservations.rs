//! Commands of reservations (Base 7.2 to 7.5), and what other commands are refused for the sake of one.

use super::super::media::Medium;
use super::super::reservation::{Access, Request};
use super::super::subsystem::Served;
use super::super::work::{Reply, Work, refused};
use super::checks::{Accepted, Arrival, Checks};
use crate::storage::Storage;
use crate::wire::{
    DataPointer, KeyedDataBlock, RESERVATION_KEYS_BYTES, ReservationAcquire, ReservationRegister, ReservationRelease,
    ReservationReport, Status,
};
use frwr_engine::provider::Port;

impl<'a, P: Port, S: Storage> Checks<'a, P, S> {
    /// The namespace that a command of an I/O queue reads or writes, where its host may do so.
    #[inline]
    pub(super) fn reach(
        &self,
        arrival: &Arrival<'_>,
        subsystem: Option<&Served>,
        identifier: u32,
        access: Access,
    ) -> Result<(usize, &'a Medium<S>), Reply> {
        let (place, medium) = self.usable(subsystem, identifier)?;
        if medium.reservation().published.is_held() {
            self.check_reservation(arrival, medium, access)?;
        }
        Ok((place, medium))
    }

    #[cold]
    #[inline(never)]
    fn check_reservation(&self, arrival: &Arrival<'_>, medium: &Medium<S>, access: Access) -> Result<(), Reply> {
        let controller = arrival.place().and_then(|place| self.controllers.get(place));
        let host = controller.ok_or(refused(Status::INTERNAL_ERROR))?.host_id();
        match medium.reservation().published.permits(&host, access) {
            true => Ok(()),
            false => Err(refused(Status::RESERVATION_CONFLICT)),
        }
    }

    /// The namespace of a command about reservations, if it has some.
    fn reservable(&self, subsystem: Option<&Served>, identifier: u32) -> Result<usize, Reply> {
        let (place, medium) = self.usable(subsystem, identifier)?;
        match medium.reservation().exists() {
            true => Ok(place),
            false => Err(refused(Status::INVALID_COMMAND_OPCODE)),
        }
    }

    fn accept(&self, subsystem: Option<&Served>, identifier: u32, request: Request, data: DataPointer) -> Accepted {
        let namespace = self.reservable(subsystem, identifier)?;
        let (DataPointer::Keyed(KeyedDataBlock { length, .. }) | DataPointer::InCapsule { length, .. }) = data;
        // Linux sends as many bytes with a release as with the others.
        match (request.data_bytes()..=RESERVATION_KEYS_BYTES).contains(&length) {
            true => Ok((Work::Reserve { namespace, request }, data)),
            false => Err(refused(Status::DATA_SGL_LENGTH_INVALID)),
        }
    }

    /// Nobody keeps reservations here.
    fn check_reserves(&self) -> Result<(), Reply> {
        if self.media.reserves() { Ok(()) } else { Err(refused(Status::INVALID_COMMAND_OPCODE)) }
    }
}

/// Reservation Register (Base 7.3).
pub(super) fn register<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    checks.check_reserves()?;
    let (subsystem, register) = checks.ready_in(arrival, ReservationRegister::decode(arrival.entry))?;
    let ReservationRegister { namespace, action, ignore_key, persist, data } = register;
    checks.accept(subsystem, namespace, Request::Register { action, ignore_key, persist }, data)
}

/// Reservation Acquire (Base 7.2).
pub(super) fn acquire<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    checks.check_reserves()?;
    let (subsystem, acquire) = checks.ready_in(arrival, ReservationAcquire::decode(arrival.entry))?;
    let ReservationAcquire { namespace, action, kind, data } = acquire;
    checks.accept(subsystem, namespace, Request::Acquire { action, kind }, data)
}

/// Reservation Release (Base 7.4).
pub(super) fn release<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    checks.check_reserves()?;
    let (subsystem, release) = checks.ready_in(arrival, ReservationRelease::decode(arrival.entry))?;
    let ReservationRelease { namespace, action, kind, data } = release;
    checks.accept(subsystem, namespace, Request::Release { action, kind }, data)
}

/// Reservation Report (Base 7.5).
pub(super) fn report<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    checks.check_reserves()?;
    let (subsystem, report) = checks.ready_in(arrival, ReservationReport::decode(arrival.entry))?;
    let namespace = checks.reservable(subsystem, report.namespace)?;
    // Over fabrics all host identifiers have 128 bits (Base 7.5).
    if !report.extended {
        return Err(refused(Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT));
    }
    if report.length > u64::from(checks.options.buffer_bytes) {
        // Above MDTS.
        return Err(refused(Status::INVALID_FIELD));
    }
    match report.data {
        DataPointer::Keyed(KeyedDataBlock { length, .. }) if u64::from(length) == report.length => {
            Ok((Work::ReservationReport { namespace, length }, report.data))
        }
        DataPointer::Keyed(_) => Err(refused(Status::DATA_SGL_LENGTH_INVALID)),
        DataPointer::InCapsule { .. } => Err(refused(Status::SGL_DESCRIPTOR_TYPE_INVALID)),
    }
}
