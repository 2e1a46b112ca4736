//! Get Features and Set Features (Base 5.15 and 5.27).

use super::Target;
use super::command::{Reply, Work};
use super::event::Notice;
use super::receive::refused;
use super::table::{Accepted, Arrival};
use crate::storage::Storage;
use crate::wire::{ADMIN_QUEUE, DataPointer, GetFeatures, KeyedDataBlock, Select, SetFeatures, Status, feature};
use frwr_engine::ReceiveQueues;
use frwr_engine::provider::Port;

/// Default of both temperature thresholds in kelvin: nothing is measured, so none is ever crossed.
const OVER_TEMPERATURE: u16 = 0xffff;
/// THSEL: which threshold is meant.
const UNDER_SHIFT: u32 = 20;
/// TMPSEL of all sensors.
const ALL_SENSORS: u32 = 0xf;
/// Bytes of a host identifier over fabrics.
pub(super) const HOST_IDENTIFIER_BYTES: u32 = 16;
/// Bits of Asynchronous Event Configuration for health warnings, which every controller has.
const HEALTH_EVENTS: u32 = 0xff;
/// What Get Features says of a feature with SEL 011b: it can be changed.
const CHANGEABLE: u64 = 1 << 2;

/// What a host set. All of it is gone with the controller.
#[derive(Debug)]
pub(super) struct Features {
    arbitration: u32,
    over_temperature: u16,
    under_temperature: u16,
    error_recovery: u32,
    write_atomicity: u32,
    /// WCE. Without, every write is on the medium before it is answered.
    pub(super) write_cache: bool,
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
}

impl<P: Port, S: Storage> Target<P, S> {
    /// Set Features (Base 5.27).
    pub(super) fn set_features(&mut self, arrival: &Arrival<'_>) -> Accepted {
        let (controller, set) = self.ready(arrival, SetFeatures::decode(arrival.entry))?;
        if set.save {
            return Err(refused(Status::FEATURE_NOT_SAVEABLE));
        }
        let (queues, has_queues) = (self.queues_granted(), self.has_io_queues(controller));
        let Some(Some(found)) = self.controllers.get_mut(controller) else {
            return Err(refused(Status::INTERNAL_ERROR));
        };
        let is_discovery = found.subsystem().is_none();
        let features = &mut found.features;
        match set.feature {
            feature::KEEP_ALIVE_TIMER => found.set_keep_alive(set.value),
            feature::ASYNCHRONOUS_EVENTS => {
                let notices = if is_discovery { Notice::OF_DISCOVERY } else { Notice::SUPPORTED };
                if set.value & !(HEALTH_EVENTS | notices) != 0 {
                    return Err(refused(Status::INVALID_FIELD));
                }
                found.events.configuration = set.value;
            }
            // A discovery controller has no I/O queues and no medium (Base 3.1.2.3.4).
            _ if is_discovery => return Err(refused(Status::INVALID_FIELD)),
            feature::NUMBER_OF_QUEUES => {
                // What exists was granted (Base 5.27.1.5).
                if has_queues {
                    return Err(refused(Status::COMMAND_SEQUENCE_ERROR));
                }
                // Both are 0-based, and fabrics queues come in pairs.
                let (submission, completion) = (set.value & 0xffff, set.value >> 16);
                if submission == 0xffff || completion == 0xffff {
                    return Err(refused(Status::INVALID_FIELD));
                }
                let granted = u64::from(submission.min(completion).min(queues));
                return Err(Reply::result(granted | granted << 16));
            }
            feature::ARBITRATION => features.arbitration = set.value,
            // One power state (NPSS 0).
            feature::POWER_MANAGEMENT if set.value & 0x1f == 0 => {}
            feature::TEMPERATURE_THRESHOLD => match features.temperature(set.value) {
                // The lower half.
                Some(threshold) => *threshold = set.value as u16,
                None => return Err(refused(Status::INVALID_FIELD)),
            },
            // DULBE needs a namespace that knows what is deallocated.
            feature::ERROR_RECOVERY if set.value & 1 << 16 == 0 => features.error_recovery = set.value,
            feature::VOLATILE_WRITE_CACHE => {
                let wanted = set.value & 1 != 0;
                if core::mem::replace(&mut features.write_cache, wanted) != wanted {
                    self.settings_changed(controller);
                }
                if let Some(work) = self.spread_settings(controller) {
                    return Ok((work, DataPointer::NONE));
                }
            }
            feature::WRITE_ATOMICITY => features.write_atomicity = set.value & 1,
            // Connect said it; over fabrics it cannot be set (Base 5.27.1.25).
            feature::HOST_IDENTIFIER => return Err(refused(Status::COMMAND_SEQUENCE_ERROR)),
            // There are no interrupts over fabrics.
            _ => return Err(refused(Status::INVALID_FIELD)),
        }
        Err(Reply::result(0))
    }

    /// I/O queues of a controller, 0-based: as many as there are, or of those that share their receives as many as find some now, each
    /// core having about as many left as this one; one at least.
    fn queues_granted(&self) -> u32 {
        let all = u32::from(self.options.io_queues);
        let fit = match self.options.receive_queues {
            ReceiveQueues::PerConnection => all,
            ReceiveQueues::Shared { .. } => {
                let free = self.engine.statistics().shared_receives_free;
                // Far fewer than 2^32.
                (free / u64::from(self.options.queue_entries)) as u32 * u32::from(self.options.cores)
            }
        };
        all.min(fit).max(1) - 1
    }

    /// The controller has I/O queues, here or on a member.
    fn has_io_queues(&self, controller: usize) -> bool {
        let here = self.queues.iter().flatten().any(|queue| {
            queue.asked.queue_id != ADMIN_QUEUE
                && queue.association.is_some_and(|association| association.controller == controller)
        });
        here || self.spread.peers().iter().any(|peer| peer.guests().any(|guest| guest.place == controller))
    }

    /// What can be said of a Get Features: everything but a host identifier, which is data.
    pub(super) fn get_features(&mut self, arrival: &Arrival<'_>) -> Accepted {
        let (controller, get) = self.ready(arrival, GetFeatures::decode(arrival.entry))?;
        let queues = u64::from(self.queues_granted());
        let Some(Some(found)) = self.controllers.get_mut(controller) else {
            return Err(refused(Status::INTERNAL_ERROR));
        };
        let is_discovery = found.subsystem().is_none();
        if is_discovery && !matches!(get.feature, feature::KEEP_ALIVE_TIMER | feature::ASYNCHRONOUS_EVENTS) {
            return Err(refused(Status::INVALID_FIELD));
        }
        let mut defaults = Features::default();
        // Nothing is saved, so the saved value is the default (Base 5.15).
        let features = if get.select == Select::Current { &mut found.features } else { &mut defaults };
        let value = match get.feature {
            feature::ARBITRATION => features.arbitration.into(),
            feature::POWER_MANAGEMENT => 0,
            feature::TEMPERATURE_THRESHOLD => match features.temperature(get.value) {
                Some(threshold) => u64::from(*threshold),
                None => return Err(refused(Status::INVALID_FIELD)),
            },
            feature::ERROR_RECOVERY => features.error_recovery.into(),
            feature::VOLATILE_WRITE_CACHE => features.write_cache.into(),
            feature::NUMBER_OF_QUEUES => queues | queues << 16,
            feature::WRITE_ATOMICITY => features.write_atomicity.into(),
            feature::ASYNCHRONOUS_EVENTS if get.select == Select::Current => found.events.configuration.into(),
            feature::ASYNCHRONOUS_EVENTS => 0,
            feature::KEEP_ALIVE_TIMER if get.select == Select::Current => found.keep_alive_milliseconds(),
            feature::KEEP_ALIVE_TIMER => 0,
            feature::HOST_IDENTIFIER => return host_identifier(get),
            _ => return Err(refused(Status::INVALID_FIELD)),
        };
        Err(Reply::result(if get.select == Select::Capabilities { CHANGEABLE } else { value }))
    }
}

/// Over fabrics the extended identifier, which EXHID has to ask for (Base 5.27.1.25).
fn host_identifier(get: GetFeatures) -> Accepted {
    match (get.select, get.data) {
        (Select::Capabilities, _) => Err(Reply::result(0)),
        _ if get.value & 1 == 0 => Err(refused(Status::INVALID_FIELD)),
        (_, DataPointer::Keyed(KeyedDataBlock { length: HOST_IDENTIFIER_BYTES, .. })) => {
            Ok((Work::HostIdentifier, get.data))
        }
        _ => Err(refused(Status::DATA_SGL_LENGTH_INVALID)),
    }
}
