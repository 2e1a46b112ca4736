//! Private data of the connection manager's messages.

use frwr::latency::{ConnectData, DecodeError, PROTOCOL_VERSION, Refusal};
use frwr_nvmf::wire::{AcceptPrivateData, RejectPrivateData, RejectStatus, RequestPrivateData};
use zerocopy::IntoBytes as _;

/// Entries of the largest queue, and the highest queue, of a target.
const LIMITS: [(u16, u16); 3] = [(0, 2), (16, 128), (u16::MAX, u16::MAX)];

/// Of NVMe over Fabrics, as target and host read it.
pub(crate) fn nvmf(bytes: &[u8]) {
    for (max_queue_id, max_entries) in LIMITS {
        match RequestPrivateData::parse(bytes, max_queue_id, max_entries) {
            Ok(queue) => {
                assert!(queue.queue_id <= max_queue_id && (2..=max_entries).contains(&queue.entries));
                assert!(queue.receives >= queue.entries - 1);
                let again = RequestPrivateData::new(queue.queue_id, queue.entries);
                let again = RequestPrivateData::parse(again.as_bytes(), max_queue_id, max_entries);
                assert_eq!(again.map(|again| (again.queue_id, again.entries)), Ok((queue.queue_id, queue.entries)));
            }
            Err(error) => assert!(!error.to_string().is_empty() && error.status() as u16 > 0),
        }
    }
    if let Ok(receives) = AcceptPrivateData::parse(bytes) {
        assert_eq!(AcceptPrivateData::parse(AcceptPrivateData::new(receives).as_bytes()), Ok(receives));
    }
    if let Some(status) = RejectPrivateData::parse(bytes).ok().and_then(RejectStatus::from_wire) {
        assert_eq!(RejectPrivateData::parse(RejectPrivateData::new(status).as_bytes()), Ok(status as u16));
    }
}

/// Of the latency bench.
pub(crate) fn latency(bytes: &[u8]) {
    if let Ok(data) = ConnectData::decode(bytes) {
        assert!(data.client != 0);
        assert_eq!(ConnectData::decode(&data.encode()), Ok(data));
    }
    match Refusal::decode(bytes) {
        // Said by the version in front, whatever follows.
        Ok(Refusal::Version(version)) if version != PROTOCOL_VERSION => {
            assert_eq!(ConnectData::decode(bytes), Err(DecodeError::Version(version)));
        }
        Ok(refusal) => assert_eq!(Refusal::decode(&refusal.encode()), Ok(refusal)),
        Err(error) => assert_ne!(error, DecodeError::Version(PROTOCOL_VERSION)),
    }
}
