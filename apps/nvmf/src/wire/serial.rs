//! Serial numbers (SN in Identify Controller, Base figure 275).

use super::Nqn;
use arrayvec::ArrayString;
use core::fmt;

/// Bytes of the field.
pub const SERIAL_BYTES: usize = 20;
/// In front of sixteen digits that follow from a subsystem's name.
const OWN: &str = "frwr";

/// A subsystem's serial number: 1 to 20 printable ASCII characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SerialNumber(ArrayString<SERIAL_BYTES>);

/// Why text is no serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to {SERIAL_BYTES} printable ASCII characters, the last one no space; choose another")]
pub struct SerialNumberError;

impl SerialNumber {
    /// Checks a serial number.
    ///
    /// # Errors
    /// [`SerialNumberError`].
    pub fn new(text: &str) -> Result<Self, SerialNumberError> {
        let printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        // Spaces at the end are padding.
        if !printable || text.is_empty() || text.ends_with(' ') {
            return Err(SerialNumberError);
        }
        ArrayString::from(text).map(Self).map_err(|_| SerialNumberError)
    }

    /// One that follows from a subsystem's name, and so is the same after a restart: hosts take two subsystems of one serial
    /// number and model for one disk.
    #[must_use]
    pub fn of_subsystem(name: &Nqn) -> Self {
        let mut serial = ArrayString::new();
        // The half that follows from the name.
        let digits = (u128::from_be_bytes(name.identifier(0)) >> 64) as u64;
        // Four and sixteen characters.
        let _ = fmt::write(&mut serial, format_args!("{OWN}{digits:016x}"));
        Self(serial)
    }

    /// From a field of a data structure. `None` where it is empty, or no text.
    #[must_use]
    pub fn from_field(field: &[u8; SERIAL_BYTES]) -> Option<Self> {
        let text = core::str::from_utf8(field).ok()?;
        Self::new(text.trim_end_matches([' ', '\0'])).ok()
    }

    /// In a field of a data structure, padded with spaces (Base 1.4.2).
    #[must_use]
    pub fn to_field(&self) -> [u8; SERIAL_BYTES] {
        let mut field = [b' '; SERIAL_BYTES];
        for (to, from) in field.iter_mut().zip(self.0.bytes()) {
            *to = from;
        }
        field
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Nqn, SerialNumber};

    #[test]
    fn serial_numbers_are_printable_text_of_twenty_characters() {
        for text in ["S", "0123456789abcdefghij", "a b~"] {
            let serial = SerialNumber::new(text).unwrap();
            assert_eq!(serial.as_str(), text);
            assert_eq!(SerialNumber::from_field(&serial.to_field()), Some(serial));
        }
        for text in ["", " ", "padded ", "0123456789abcdefghijk", "t\tab", "ö"] {
            let error = SerialNumber::new(text).unwrap_err().to_string();
            assert!(error.contains("20") && error.contains("choose"), "{error}");
        }
        assert_eq!(SerialNumber::from_field(&[0; 20]), None);
        assert_eq!(SerialNumber::from_field(&[0xff; 20]), None);
    }

    #[test]
    fn a_name_has_a_serial_number_of_its_own() {
        let of = |name| SerialNumber::of_subsystem(&Nqn::new(name).unwrap());
        assert_eq!(of("nqn.a"), of("nqn.a"));
        assert_ne!(of("nqn.a"), of("nqn.b"));
        assert!(of("nqn.a").as_str().starts_with("frwr") && of("nqn.a").as_str().len() == 20);
    }
}
