//! Get Features and Set Features (Base 5.15 and 5.27).

use super::super::controllers::{Features, Notice};
use super::super::reservation::reservations;
use super::super::work::{Reply, Work, refused};
use super::checks::{Accepted, Arrival, Checks};
use crate::storage::Storage;
use crate::wire::{
    BROADCAST_NAMESPACE, DataPointer, GetFeatures, KeyedDataBlock, Select, SetFeatures, Status, feature,
};
use frwr_engine::ReceiveQueues;
use frwr_engine::provider::Port;

/// Bytes of a host identifier over fabrics.
const HOST_IDENTIFIER_BYTES: u32 = 16;
/// Bits of Asynchronous Event Configuration for health warnings, which every controller has.
const HEALTH_EVENTS: u32 = 0xff;
/// What Get Features says of a feature with SEL 011b: it can be changed.
const CHANGEABLE: u64 = 1 << 2;
/// The same: each namespace has its own.
const OF_NAMESPACES: u64 = 1 << 1;
/// PTPL of Reservation Persistence.
const PERSISTS: u32 = 1;

/// Set Features (Base 5.27).
pub(super) fn set_features<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let (place, controller, set) = checks.ready(arrival, SetFeatures::decode(arrival.entry))?;
    if set.save {
        return Err(refused(Status::FEATURE_NOT_SAVEABLE));
    }
    let is_discovery = controller.subsystem().is_none();
    match set.feature {
        feature::KEEP_ALIVE_TIMER => controller.set_keep_alive(set.value),
        feature::ASYNCHRONOUS_EVENTS => {
            let notices = if is_discovery { Notice::OF_DISCOVERY } else { Notice::SUPPORTED };
            if set.value & !(HEALTH_EVENTS | notices) != 0 {
                return Err(refused(Status::INVALID_FIELD));
            }
            controller.events().configure(set.value);
        }
        // A discovery controller has no I/O queues and no medium (Base 3.1.2.3.4).
        _ if is_discovery => return Err(refused(Status::INVALID_FIELD)),
        feature::NUMBER_OF_QUEUES => return Err(number_of_queues(checks, place, set.value)),
        // Connect said it; over fabrics it cannot be set (Base 5.27.1.25).
        feature::HOST_IDENTIFIER => return Err(refused(Status::COMMAND_SEQUENCE_ERROR)),
        feature::RESERVATION_NOTIFICATION_MASK | feature::RESERVATION_PERSISTENCE => {
            return set_of_reservations(checks, place, &set);
        }
        wanted => {
            if controller.set_feature(&set).map_err(refused)? {
                checks.spread.tell_members();
            }
            if wanted == feature::VOLATILE_WRITE_CACHE {
                return write_cache_was_set(checks, place);
            }
        }
    }
    Err(Reply::result(0))
}

/// A feature of namespaces that have reservations: of one, or of all of them.
fn set_of_reservations<P: Port, S: Storage>(
    checks: &mut Checks<'_, P, S>,
    place: usize,
    set: &SetFeatures,
) -> Accepted {
    check_reserved(checks, place, set.namespace)?;
    if set.feature == feature::RESERVATION_PERSISTENCE {
        let persists = Some(set.value & PERSISTS != 0);
        return Ok((Work::Persistence { namespace: set.namespace, persists }, DataPointer::NONE));
    }
    let (subsystems, media) = (checks.subsystems, checks.media);
    let controller = checks.controllers.get_mut(place).ok_or(refused(Status::INTERNAL_ERROR))?;
    let served = controller.subsystem().and_then(|subsystem| subsystems.get(subsystem));
    for (identifier, _) in served.into_iter().flat_map(|served| reservations(media, served.namespaces(), set.namespace))
    {
        controller.notifications_mut().set_mask(identifier, set.value);
    }
    Err(Reply::result(0))
}

/// The namespace has reservations, or one of all has (Base 5.27.1.26 and 5.27.1.27).
fn check_reserved<P: Port, S: Storage>(checks: &Checks<'_, P, S>, place: usize, identifier: u32) -> Result<(), Reply> {
    let subsystem = checks.controllers.get(place).and_then(|controller| controller.subsystem());
    let served = subsystem.and_then(|subsystem| checks.subsystems.get(subsystem));
    let namespaces = served.ok_or(refused(Status::INVALID_FIELD))?.namespaces();
    if reservations(checks.media, namespaces, identifier).next().is_some() {
        return Ok(());
    }
    let is_known = !checks.media.reserves() || identifier == BROADCAST_NAMESPACE || namespaces.is_valid(identifier);
    Err(refused(if is_known { Status::INVALID_FIELD } else { Status::INVALID_NAMESPACE }))
}

fn number_of_queues<P: Port, S>(checks: &Checks<'_, P, S>, place: usize, value: u32) -> Reply {
    // What exists was granted (Base 5.27.1.5).
    if checks.sessions.has_io_queues(place) || checks.spread.has_queues(place) {
        return refused(Status::COMMAND_SEQUENCE_ERROR);
    }
    // Both are 0-based, and fabrics queues come in pairs.
    let (submission, completion) = (value & 0xffff, value >> 16);
    if submission == 0xffff || completion == 0xffff {
        return refused(Status::INVALID_FIELD);
    }
    let granted = u64::from(submission.min(completion).min(queues_granted(checks)));
    Reply::result(granted | granted << 16)
}

/// What remains to be done before a host may rely on the write cache that it set; nothing where all cores go by it, which
/// need not be so where it set what was set before.
fn write_cache_was_set<P: Port, S>(checks: &Checks<'_, P, S>, place: usize) -> Accepted {
    let version = checks.controllers.get(place).map_or(0, |controller| controller.settings_version());
    match checks.spread.is_any_behind(place, version) {
        true => Ok((Work::SettingsEverywhere { controller: place, version }, DataPointer::NONE)),
        false => Err(Reply::result(0)),
    }
}

/// I/O queues of a controller, 0-based: as many as there are, or of those that share their receives as many as find some now, each
/// core having about as many left as this one; one at least.
fn queues_granted<P: Port, S>(checks: &Checks<'_, P, S>) -> u32 {
    let all = u32::from(checks.options.io_queues);
    let fit = match checks.options.receive_queues {
        ReceiveQueues::PerConnection => all,
        ReceiveQueues::Shared { .. } => {
            let free = checks.engine.statistics().shared_receives_free;
            // Far fewer than 2^32.
            (free / u64::from(checks.options.queue_entries)) as u32 * u32::from(checks.options.cores)
        }
    };
    all.min(fit).max(1) - 1
}

/// What can be said of a Get Features: everything but a host identifier, which is data.
pub(super) fn get_features<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let (place, _, get) = checks.ready(arrival, GetFeatures::decode(arrival.entry))?;
    let controller = checks.controllers.get_mut(place).ok_or(refused(Status::INTERNAL_ERROR))?;
    let is_discovery = controller.subsystem().is_none();
    if is_discovery && !matches!(get.feature, feature::KEEP_ALIVE_TIMER | feature::ASYNCHRONOUS_EVENTS) {
        return Err(refused(Status::INVALID_FIELD));
    }
    if matches!(get.feature, feature::RESERVATION_NOTIFICATION_MASK | feature::RESERVATION_PERSISTENCE) {
        return get_of_reservations(checks, place, &get);
    }
    let is_current = get.select == Select::Current;
    let defaults = Features::default();
    // Nothing is saved, so the saved value is the default (Base 5.15).
    let value = match get.feature {
        feature::ASYNCHRONOUS_EVENTS if is_current => controller.events().configuration().into(),
        feature::KEEP_ALIVE_TIMER if is_current => controller.keep_alive_milliseconds(),
        feature::ASYNCHRONOUS_EVENTS | feature::KEEP_ALIVE_TIMER => 0,
        feature::HOST_IDENTIFIER => return host_identifier(get),
        feature::NUMBER_OF_QUEUES => {
            let queues = u64::from(queues_granted(checks));
            queues | queues << 16
        }
        wanted => {
            let features = if is_current { controller.features() } else { &defaults };
            features.get(wanted, get.value).ok_or(refused(Status::INVALID_FIELD))?
        }
    };
    Err(Reply::result(if get.select == Select::Capabilities { CHANGEABLE } else { value }))
}

/// A feature of a namespace that has reservations; there is no value for all of them.
fn get_of_reservations<P: Port, S: Storage>(checks: &Checks<'_, P, S>, place: usize, get: &GetFeatures) -> Accepted {
    check_reserved(checks, place, get.namespace)?;
    if get.namespace == BROADCAST_NAMESPACE {
        return Err(refused(Status::INVALID_FIELD));
    }
    match get.select {
        Select::Capabilities => Err(Reply::result(CHANGEABLE | OF_NAMESPACES)),
        Select::Current if get.feature == feature::RESERVATION_PERSISTENCE => {
            Ok((Work::Persistence { namespace: get.namespace, persists: None }, DataPointer::NONE))
        }
        Select::Current => {
            let controller = checks.controllers.get(place).ok_or(refused(Status::INTERNAL_ERROR))?;
            Err(Reply::result(controller.notifications().mask(get.namespace).into()))
        }
        Select::Default | Select::Saved => Err(Reply::result(0)),
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
