//! Reservations as a caller asks for them (Base 8.19): who of several hosts may read and write the namespace.

use super::Host;
use super::cut::SURE_BYTES;
use super::error::RequestError;
use super::requests::{Asked, Kind};
use super::reserve::Reserve;
use crate::wire::{IdentifyController, RegisteredControllerExtended, ReservationKeys};
use frwr_engine::gather::Segment;
use frwr_engine::provider::Port;

/// Bytes of a report that are read at most: what one key covers on every device, which is room for 511 registrants.
const MAX_REPORT_BYTES: u32 = SURE_BYTES;

/// The command's name in errors.
const NAME: &str = "Reservations";

/// Bytes of a report of so many registrants ([`Host::report_reservations`]).
#[must_use]
pub const fn report_bytes(registrants: u32) -> u32 {
    (registrants + 1) * RegisteredControllerExtended::BYTES as u32
}

impl<P: Port> Host<P> {
    /// Registers, acquires, preempts, releases or clears. The host is known by its identifier ([`super::HostOptions`]), on whatever
    /// session; `keys` are its current key, and the new one or the one that it preempts. Ends with
    /// [`Status::RESERVATION_CONFLICT`](crate::wire::Status::RESERVATION_CONFLICT) where it may not do that.
    ///
    /// One whose answer is lost with its session is sent once more, as all requests are: done twice it may end with a conflict, and
    /// a report says what holds.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn reserve(&mut self, what: Reserve, keys: (u64, u64), cookie: u64) -> Result<(), RequestError> {
        self.supports(IdentifyController::RESERVATIONS, NAME)?;
        let keys = ReservationKeys { current: keys.0.into(), other: keys.1.into() };
        self.hand_keys(what, &keys, cookie)
    }

    /// Reads who is registered and what is held: a [`ReservationStatus`](crate::wire::ReservationStatus), at each further multiple of 64
    /// bytes a [`RegisteredControllerExtended`], and zeros behind them. `segment`: where it goes, as much as there is room for, a multiple
    /// of 4 bytes ([`report_bytes`]).
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn report_reservations(&mut self, segment: Segment, cookie: u64) -> Result<(), RequestError> {
        self.supports(IdentifyController::RESERVATIONS, NAME)?;
        let (bytes, limit) = (segment.length, MAX_REPORT_BYTES);
        if bytes == 0 || bytes > limit || !bytes.is_multiple_of(4) {
            return Err(RequestError::Length { bytes: bytes.into(), limit });
        }
        self.hand(&Asked::new(Kind::ReservationReport { bytes }, 0, 0, &[segment], cookie))
    }
}
