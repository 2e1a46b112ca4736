//! The responder's slot: RDMA READs that fetch what a peer offers, or RDMA WRITEs and the reply behind them.

use crate::provider::RemoteRange;

/// What a transfer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// RDMA READs; ends when the last has completed.
    Fetch,
    /// RDMA WRITEs that nobody is told of; ends when the last has completed.
    Write,
    /// RDMA WRITEs, then a reply; ends when the device is done with the reply.
    Respond {
        /// Bytes of the reply.
        length: u32,
        /// The peer's key that its device invalidates.
        invalidate: Option<u32>,
    },
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits for send queue entries or a receive of the peer's, in order.
    Waiting,
    /// The next flush posts it.
    Queued,
    /// It is posted.
    Posted,
}

/// One slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) cookie: u64,
    pub(crate) connection: u16,
    pub(crate) phase: Phase,
    pub(crate) kind: Kind,
    /// RDMA READs or WRITEs.
    pub(crate) operations: u8,
}

/// One side of a transfer's data: a range that the peer granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSegment {
    /// Where it is.
    pub remote: RemoteRange,
    /// Bytes.
    pub length: u32,
}

/// Cuts local and remote ranges where either has a boundary. `take` gets local index, local offset, remote index, remote
/// offset and length of each cut and says whether there is room for it. Returns whether both sides were used up.
pub(crate) fn zip_ranges(
    local: impl Fn(usize) -> Option<u32>,
    remote: impl Fn(usize) -> Option<u32>,
    mut take: impl FnMut(usize, u32, usize, u32, u32) -> bool,
) -> bool {
    let (mut at_local, mut at_remote, mut local_offset, mut remote_offset) = (0, 0, 0, 0);
    loop {
        match (local(at_local), remote(at_remote)) {
            (None, None) => return true,
            (Some(local_length), Some(remote_length)) => {
                let length = (local_length - local_offset).min(remote_length - remote_offset);
                if length == 0 || !take(at_local, local_offset, at_remote, remote_offset, length) {
                    return false;
                }
                local_offset += length;
                remote_offset += length;
                if local_offset == local_length {
                    (at_local, local_offset) = (at_local + 1, 0);
                }
                if remote_offset == remote_length {
                    (at_remote, remote_offset) = (at_remote + 1, 0);
                }
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::zip_ranges;

    /// Local index and offset, remote index and offset, length.
    type Cut = (usize, u32, usize, u32, u32);

    fn cuts(local: &[u32], remote: &[u32]) -> Option<Vec<Cut>> {
        let mut out = Vec::new();
        let whole = zip_ranges(
            |i| local.get(i).copied(),
            |i| remote.get(i).copied(),
            |a, b, c, d, e| {
                out.push((a, b, c, d, e));
                true
            },
        );
        whole.then_some(out)
    }

    #[test]
    fn ranges_are_cut_at_either_boundary() {
        assert_eq!(cuts(&[10], &[10]), Some(vec![(0, 0, 0, 0, 10)]));
        assert_eq!(cuts(&[4, 6], &[7, 3]), Some(vec![(0, 0, 0, 0, 4), (1, 0, 0, 4, 3), (1, 3, 1, 0, 3)]));
        assert_eq!(cuts(&[], &[]), Some(vec![]));
    }

    #[test]
    fn sides_of_different_length_are_refused() {
        assert_eq!(cuts(&[10], &[9]), None);
        assert_eq!(cuts(&[9], &[9, 1]), None);
        assert_eq!(cuts(&[0], &[0]), None, "a range of no bytes");
    }
}
