//! The server's part of WRITEs that go to and fro: what a client has open to it, and which of its WRITEs were answered.

use super::{
    breach::Breach,
    layout::Layout,
    message::{Header, NOWHERE, ranges},
    parameters::Parameters,
    slots::stamp,
};
use frwr_engine::RemoteSegment;

/// One slot: where its answers go, and what stands in its memory.
#[derive(Clone, Copy, Debug)]
struct Side {
    remote: RemoteSegment,
    /// What both ends held when it was looked at last, or were given since.
    seen: u64,
    /// An answer stands in the memory and found no room to be sent.
    owes: bool,
}

/// The slots of one connection.
#[derive(Clone, Debug)]
pub(super) struct Rally(Box<[Side]>);

impl Rally {
    /// By what a client says that it has open, once for the run.
    pub(super) fn begin(
        has_begun: bool,
        parameters: &Parameters,
        header: Header,
        message: &[u8],
    ) -> Result<Self, Breach> {
        if !parameters.operation.rallies() || has_begun {
            return Err(Breach::Unasked);
        }
        let layout = Layout::new(parameters);
        // Bounded by MAX_BUFFER_BYTES.
        let size = layout.connection_bytes() as u32;
        let mut opened = [NOWHERE];
        if ranges(message, header.count, size, &mut opened) != Some(1) {
            return Err(Breach::Ranges { count: header.count, size });
        }
        let of_slots = layout.ranges_of_slots(opened[0].remote).zip(0..);
        Ok(Self(of_slots.map(|(remote, slot)| Side { remote, seen: stamp(slot, 0), owes: false }).collect()))
    }

    /// A slot whose ends hold these words: where to write, and what, if the client has written there. Both ends have arrived then.
    pub(super) fn look(&mut self, slot: u32, [first, last]: [u64; 2]) -> Option<(RemoteSegment, u64)> {
        let side = self.0.get_mut(slot as usize)?;
        if side.owes {
            return Some((side.remote, side.seen));
        }
        if last == side.seen || first != last {
            return None;
        }
        (side.seen, side.owes) = (!last, true);
        Some((side.remote, side.seen))
    }

    /// Its answer is on its way.
    pub(super) fn answered(&mut self, slot: u32) {
        if let Some(side) = self.0.get_mut(slot as usize) {
            side.owes = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Breach, Header, Parameters, Rally, stamp};
    use crate::latency::operation::Operation;
    use crate::latency::{
        message::{HEADER_BYTES, Kind, RANGE_BYTES, name_ranges},
        parameters::{Invalidation, KeyKind, PeerDoes},
    };

    const PARAMETERS: Parameters = Parameters {
        operation: Operation::Pingpong,
        key: KeyKind::Static,
        invalidation: Invalidation::Local,
        peer_does: PeerDoes::Write,
        size: 64,
        segments: 1,
        ranges: 1,
        depth: 2,
        batch: 1,
        connections: 1,
    };

    fn begin(has_begun: bool, parameters: &Parameters, length: u32) -> Result<Rally, Breach> {
        let mut message = [0; HEADER_BYTES + RANGE_BYTES];
        Header::new(Kind::Opened, 0, 0).encode(&mut message);
        name_ranges(&mut message, [(1 << 20, 7, length)].into_iter()).unwrap();
        Rally::begin(has_begun, parameters, Header::decode(&message).unwrap(), &message)
    }

    #[test]
    fn each_write_is_answered_once_with_what_it_is_not() {
        let mut rally = begin(false, &PARAMETERS, 8192).unwrap();
        let (idle, ping) = (stamp(1, 0), stamp(1, 5));
        assert_eq!(rally.look(1, [idle; 2]), None, "nothing was written");
        assert_eq!(rally.look(1, [idle, ping]), None, "half of it");
        let (remote, answer) = rally.look(1, [ping; 2]).unwrap();
        assert_eq!((remote.remote.address, remote.remote.key, remote.length, answer), ((1 << 20) + 4096, 7, 64, !ping));
        // No room: the next poll is told the same, whatever stands in the memory.
        assert_eq!(rally.look(1, [answer; 2]).map(|(_, answer)| answer), Some(!ping));
        rally.answered(1);
        assert_eq!(rally.look(1, [answer; 2]), None);
        assert!(rally.look(1, [stamp(1, 6); 2]).is_some() && rally.look(2, [ping; 2]).is_none());
    }

    #[test]
    fn what_a_client_has_open_is_what_it_asked_for_and_told_once() {
        assert!(matches!(begin(true, &PARAMETERS, 8192), Err(Breach::Unasked)));
        let write = Parameters { operation: Operation::Write, ..PARAMETERS };
        assert!(matches!(begin(false, &write, 8192), Err(Breach::Unasked)));
        for length in [8191, 8193, 64] {
            assert!(
                matches!(begin(false, &PARAMETERS, length), Err(Breach::Ranges { count: 1, size: 8192 })),
                "{length}"
            );
        }
    }
}
