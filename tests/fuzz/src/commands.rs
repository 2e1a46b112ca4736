//! Capsules, and what they hold.

use frwr_nvmf::wire::{
    DataPointer, Nqn, QueueKind, SerialNumber, Status, decode, in_capsule_data, last_segment, parse_command,
    parse_connect_data, parse_response,
};
use zerocopy::IntoBytes as _;

/// A command capsule, as it arrives on either kind of queue. What it asks for is asked for again by the encoder.
pub(crate) fn command_capsule(bytes: &[u8]) {
    let Ok((entry, data)) = parse_command(bytes) else { return };
    for queue in [QueueKind::Admin, QueueKind::Io] {
        match decode(&entry, queue) {
            Ok(command) => {
                let again = command.encode(entry.command_id.get()).expect("what was decoded can be encoded");
                assert_eq!(decode(&again, queue), Ok(command));
                assert_eq!(again.command_id, entry.command_id);
            }
            Err(status) => refused(status),
        }
    }
    pointer(entry.data, data);
    let _ = (entry.forces_unit_access(), entry.command_set());
}

/// What a host would be answered is a failure, and a known one.
fn refused(status: Status) {
    assert!(!status.is_success());
    assert_eq!(Status::from_wire(status.to_wire()), status);
    assert!(!status.to_string().is_empty());
}

/// A data pointer, and the bytes that followed its command.
fn pointer(bytes: [u8; 16], data: &[u8]) {
    match DataPointer::decode(bytes) {
        Ok(pointer) => {
            let again = pointer.encode().expect("24 bits of length were read");
            assert_eq!(DataPointer::decode(again), Ok(pointer));
            if let DataPointer::InCapsule { offset, length } = pointer {
                within(offset, length, data);
            }
        }
        Err(status) => refused(status),
    }
    let Some((offset, length)) = last_segment(bytes) else { return };
    if let Some(list) = within(offset, length, data) {
        list.as_chunks().0.iter().for_each(|descriptor| pointer_alone(*descriptor));
    }
}

/// A descriptor of a list, which is in no capsule of its own.
fn pointer_alone(bytes: [u8; 16]) {
    match DataPointer::decode(bytes) {
        Ok(pointer) => assert!(pointer.encode().is_ok()),
        Err(status) => refused(status),
    }
}

fn within(offset: u64, length: u32, data: &[u8]) -> Option<&[u8]> {
    match in_capsule_data(offset, length, data.len()) {
        Ok(range) => {
            assert_eq!(range.len() as u64, u64::from(length));
            Some(&data[range])
        }
        Err(status) => {
            refused(status);
            assert!(offset.checked_add(length.into()).is_none_or(|end| end > data.len() as u64));
            None
        }
    }
}

/// A data pointer, with what followed its command.
pub(crate) fn data_pointer(bytes: &[u8]) {
    if let Some((descriptor, data)) = bytes.split_first_chunk() {
        pointer(*descriptor, data);
    }
}

/// A response capsule.
pub(crate) fn response_capsule(bytes: &[u8]) {
    let Ok(response) = parse_response(bytes) else { return };
    let status = response.status();
    // The lowest bit is the phase tag, which fabrics do not have.
    assert_eq!(status.to_wire(), response.status.get() & !1);
    assert!(status.retry_delay() <= 3);
    assert_eq!(status.without_flags().is_success(), status.is_success());
    assert!(status.do_not_retry().is_final());
    assert!(!status.to_string().is_empty());
    assert_eq!(response.as_bytes(), bytes);
}

/// Connect's data, and the texts in it.
pub(crate) fn connect_data(bytes: &[u8]) {
    if let Ok(data) = parse_connect_data(bytes) {
        assert_eq!(parse_connect_data(&data.to_bytes()), Ok(data));
        assert_eq!(data.subsystem.identifier(1), data.subsystem.identifier(1));
        let serial = SerialNumber::of_subsystem(&data.subsystem);
        assert_eq!(SerialNumber::from_field(&serial.to_field()), Some(serial));
    }
    if let Some((field, _)) = bytes.split_first_chunk()
        && let Some(serial) = SerialNumber::from_field(field)
    {
        assert_eq!(SerialNumber::from_field(&serial.to_field()), Some(serial));
    }
    if let Some(name) = core::str::from_utf8(bytes).ok().and_then(|text| Nqn::new(text).ok()) {
        assert_eq!(Nqn::from_field(&name.to_field()), Ok(name));
    }
}
