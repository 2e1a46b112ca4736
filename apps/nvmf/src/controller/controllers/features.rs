//! Features that a host sets for its controller (Base 5.15 and 5.27).

use crate::wire::{SetFeatures, Status, feature};

/// Default of both temperature thresholds in kelvin: nothing is measured, so none is ever crossed.
const OVER_TEMPERATURE: u16 = 0xffff;
/// THSEL: which threshold is meant.
const UNDER_SHIFT: u32 = 20;
/// TMPSEL of all sensors.
const ALL_SENSORS: u32 = 0xf;

/// What a host set. All of it is gone with the controller.
#[derive(Debug)]
pub(in super::super) struct Features {
    arbitration: u32,
    over_temperature: u16,
    under_temperature: u16,
    error_recovery: u32,
    write_atomicity: u32,
    /// WCE. Without, every write is on the medium before it is answered.
    write_cache: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            arbitration: 0,
            over_temperature: OVER_TEMPERATURE,
            under_temperature: 0,
            error_recovery: 0,
            write_atomicity: 0,
            write_cache: true,
        }
    }
}

impl Features {
    /// The threshold that a value of command dword 11 selects.
    fn temperature(&mut self, value: u32) -> Option<&mut u16> {
        let sensor = (value >> 16) & 0xf;
        // Only the composite temperature, which is 0; all sensors are that one.
        match ((value >> UNDER_SHIFT) & 3, sensor) {
            (0, 0 | ALL_SENSORS) => Some(&mut self.over_temperature),
            (1, 0 | ALL_SENSORS) => Some(&mut self.under_temperature),
            _ => None,
        }
    }

    /// WCE: without, every write is on the medium before it is answered.
    pub(in super::super) fn has_write_cache(&self) -> bool {
        self.write_cache
    }

    pub(super) fn set_write_cache(&mut self, write_cache: bool) {
        self.write_cache = write_cache;
    }

    /// Set Features of those that are here.
    pub(super) fn set(&mut self, set: &SetFeatures) -> Result<(), Status> {
        match set.feature {
            feature::ARBITRATION => self.arbitration = set.value,
            // One power state (NPSS 0).
            feature::POWER_MANAGEMENT if set.value & 0x1f == 0 => {}
            feature::TEMPERATURE_THRESHOLD => {
                // The lower half.
                *self.temperature(set.value).ok_or(Status::INVALID_FIELD)? = set.value as u16;
            }
            // DULBE needs a namespace that knows what is deallocated.
            feature::ERROR_RECOVERY if set.value & 1 << 16 == 0 => self.error_recovery = set.value,
            feature::VOLATILE_WRITE_CACHE => self.write_cache = set.value & 1 != 0,
            feature::WRITE_ATOMICITY => self.write_atomicity = set.value & 1,
            // There are no interrupts over fabrics.
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(())
    }

    /// Get Features of those; `value`: command dword 11.
    pub(in super::super) fn get(&self, wanted: u8, value: u32) -> Option<u64> {
        Some(match wanted {
            feature::ARBITRATION => self.arbitration.into(),
            feature::POWER_MANAGEMENT => 0,
            feature::TEMPERATURE_THRESHOLD => u64::from(*Self { ..*self }.temperature(value)?),
            feature::ERROR_RECOVERY => self.error_recovery.into(),
            feature::VOLATILE_WRITE_CACHE => self.write_cache.into(),
            feature::WRITE_ATOMICITY => self.write_atomicity.into(),
            _ => return None,
        })
    }
}
