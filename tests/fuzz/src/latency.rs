//! What the halves of the latency bench send each other. Its decoders are nobody else's business, so their file is included.

#[expect(dead_code, reason = "encoders of the other half")]
#[path = "../../../apps/frwr/src/latency/message.rs"]
mod message_format;

mod parameters {
    pub(super) use frwr::latency::MAX_SEGMENTS;
}

use message_format::{HEADER_BYTES, Header, NOWHERE, RANGE_BYTES, name_ranges, ranges, word};
use parameters::MAX_SEGMENTS;

/// A message, behind four bytes that say how many bytes its ranges should have.
pub(crate) fn message(bytes: &[u8]) {
    let Some((wanted, message)) = bytes.split_first_chunk() else { return };
    let wanted = u32::from_le_bytes(*wanted);
    let Some(header) = Header::decode(message) else { return };
    let mut again = vec![0; HEADER_BYTES + MAX_SEGMENTS as usize * RANGE_BYTES];
    header.encode(&mut again);
    assert_eq!(Header::decode(&again), Some(header));
    for at in [0, HEADER_BYTES, message.len().saturating_sub(8), usize::MAX] {
        let _ = word(message, at);
    }
    let mut places = [NOWHERE; MAX_SEGMENTS as usize];
    let Some(count) = ranges(message, header.count, wanted, &mut places) else { return };
    let places = &places[..count];
    assert!(count > 0 && places.iter().all(|place| place.length > 0));
    assert_eq!(places.iter().map(|place| u64::from(place.length)).sum::<u64>(), u64::from(wanted));
    let named = places.iter().map(|place| (place.remote.address, place.remote.key, place.length));
    name_ranges(&mut again, named).expect("as many as were read");
    let mut read = [NOWHERE; MAX_SEGMENTS as usize];
    assert_eq!(ranges(&again, header.count, wanted, &mut read), Some(count));
    assert_eq!(&read[..count], places);
}
