//! Captures of RoCE v2 traffic, as `roce-keys` reads them.

use frwr_tests::capture::{Frame, Keys, frames};

/// Head of a capture in pcap format: of this byte order, version 2.4, packets of Ethernet.
pub(crate) const PCAP_HEAD: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
/// The host of those captures.
pub(crate) const HOST: [u8; 4] = [10, 9, 1, 1];

/// Packets, each behind its length, and the whole as a file.
pub(crate) fn capture(bytes: &[u8]) {
    if let Ok(read) = frames(bytes) {
        follow(&read);
    }
    if let Ok(read) = frames(&*pcap(bytes)) {
        follow(&read);
    }
}

/// A capture of those packets.
fn pcap(mut packets: &[u8]) -> Vec<u8> {
    let mut file = PCAP_HEAD.to_vec();
    while let Some((length, rest)) = packets.split_first() {
        let (packet, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        // Behind the time.
        file.extend([0; 8]);
        let length = (packet.len() as u32).to_le_bytes();
        file.extend([length, length].concat());
        file.extend(packet);
        packets = rest;
    }
    file
}

fn follow(read: &[Frame]) {
    let mut keys = Keys::of(HOST);
    read.iter().for_each(|frame| keys.frame(frame));
    assert!(keys.alive() as u64 <= keys.announced);
    assert!(keys.answered + keys.invalidated <= keys.announced);
}
