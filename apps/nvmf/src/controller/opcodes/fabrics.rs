//! Fabrics commands (Base 6): properties, and what of a Connect can be said before its data is there.

use super::super::refusal::Refusal;
use super::super::session::{Connecting, Names};
use super::super::work::{Reply, Seating, Work, refused, refused_connect};
use super::checks::{Accepted, Arrival, Checks};
use crate::authentication::MAX_MESSAGE_BYTES;
use crate::storage::Storage;
use crate::wire::{
    AuthenticationMessage, CONNECT_DATA_BYTES, Connect, DataPointer, KeyedDataBlock, Property, PropertyGet,
    PropertySet, Status, SubmissionQueueEntry, fabrics, opcode,
};
use frwr_engine::provider::Port;

/// Whose type says which one it is.
pub(super) fn fabrics<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    match arrival.entry.fabrics_type() {
        fabrics::CONNECT => connect(checks, arrival),
        fabrics::AUTHENTICATION_SEND | fabrics::AUTHENTICATION_RECEIVE if checks.sessions.authenticates() => {
            authentication(checks, arrival)
        }
        fabrics::PROPERTY_GET if arrival.is_admin => {
            let PropertyGet { property, .. } = PropertyGet::decode(arrival.entry).map_err(Reply::of)?;
            let (controller, _) = checks.controllers.addressed(arrival.place(), checks.now)?;
            Ok((Work::PropertyGet { controller, property }, DataPointer::NONE))
        }
        fabrics::PROPERTY_SET if arrival.is_admin => {
            let set = PropertySet::decode(arrival.entry).map_err(Reply::of)?;
            let (controller, _) = checks.controllers.addressed(arrival.place(), checks.now)?;
            // CC is the only one that can be written.
            if set.property != Property::Configuration {
                return Err(refused(Status::INVALID_FIELD));
            }
            // It has 4 bytes.
            Ok((Work::Configure { controller, configuration: set.value as u32 }, DataPointer::NONE))
        }
        _ => Err(refused(Status::INVALID_COMMAND_OPCODE)),
    }
}

/// A command that hosts may send before they have proven themselves.
pub(in super::super) fn is_authentication(entry: &SubmissionQueueEntry) -> bool {
    let is_one = matches!(entry.fabrics_type(), fabrics::AUTHENTICATION_SEND | fabrics::AUTHENTICATION_RECEIVE);
    entry.opcode == opcode::FABRICS && is_one
}

/// Authentication Send and Authentication Receive (Base 6.1 and 6.2).
fn authentication<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let AuthenticationMessage { length, data } = AuthenticationMessage::decode(arrival.entry).map_err(Reply::of)?;
    checks.controllers.addressed(arrival.place(), checks.now)?;
    let (DataPointer::Keyed(KeyedDataBlock { length: bytes, .. }) | DataPointer::InCapsule { length: bytes, .. }) =
        data;
    if bytes != length {
        return Err(refused(Status::DATA_SGL_LENGTH_INVALID));
    }
    if length == 0 || length as usize > MAX_MESSAGE_BYTES {
        return Err(refused(Status::INVALID_FIELD));
    }
    let sends = arrival.entry.fabrics_type() == fabrics::AUTHENTICATION_SEND;
    let work = if sends { Work::AuthenticationSend { length } } else { Work::AuthenticationReceive { length } };
    Ok((work, data))
}

/// Connect (Base 6.3): what can be said before the data is there.
fn connect<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let connect = Connect::decode(arrival.entry).map_err(Reply::of)?;
    if arrival.association.is_some() {
        checks.controllers.addressed(arrival.place(), checks.now)?;
        return Err(refused(Status::COMMAND_SEQUENCE_ERROR));
    }
    match judge_command(checks, arrival, &connect) {
        Ok(()) => Ok((Work::Connect(Seating::of(&connect)), connect.data)),
        Err(refusal) => {
            if refusal.is_told() {
                checks.sessions.connect_refused(arrival.connection, Names::default(), refusal, None);
            }
            Err(refused_connect(refusal))
        }
    }
}

fn judge_command<P: Port, S>(
    checks: &mut Checks<'_, P, S>,
    arrival: &Arrival<'_>,
    connect: &Connect,
) -> Result<(), Refusal> {
    let queue = checks.sessions.find(arrival.connection).ok_or(Refusal::Internal)?;
    let (asked, entries) = (queue.id(), queue.asked_entries());
    if connect.record_format != 0 {
        return Err(Refusal::Format { value: connect.record_format });
    }
    if connect.queue_id != asked {
        return Err(Refusal::QueueId { value: connect.queue_id, asked });
    }
    if connect.queue_size == 0 || connect.queue_size >= entries {
        return Err(Refusal::QueueSize { value: connect.queue_size, most: entries.saturating_sub(1) });
    }
    let (DataPointer::Keyed(KeyedDataBlock { length, .. }) | DataPointer::InCapsule { length, .. }) = connect.data;
    if length as usize != CONNECT_DATA_BYTES {
        return Err(Refusal::DataLength { bytes: length });
    }
    if queue.connect(Connecting::Arriving) != Connecting::No {
        return Err(Refusal::Twice);
    }
    Ok(())
}
