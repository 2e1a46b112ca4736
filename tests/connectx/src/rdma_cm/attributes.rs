//! rdma_init_qp_attr(3): what a queue pair is to be told for its next state.

use super::{
    Asked, ConnectionManager, Errno, Phase, Settings,
    abi::{AddressHandle, Attributes, InitAttributes},
};
use crate::attributes;
use zerocopy::FromZeros;

/// States by ibv_qp_state.
const INITIALISED: u32 = 1;
const READY_TO_RECEIVE: u32 = 2;
const READY_TO_SEND: u32 = 3;

/// 1024 bytes by ibv_mtu: what fits a packet of Ethernet.
const MTU: u32 = 3;
/// What a receiver that is not ready asks for: the longest wait of the standard's table, as the kernel's connection manager leaves it.
const RECEIVER_TIMER: u8 = 0;
/// Exponent of the time until a packet is sent again, as the kernel's connection manager chooses it for a short way.
const TIMEOUT: u8 = 18;

impl ConnectionManager {
    pub(super) fn init_attributes(&mut self, asked: &Asked<'_>) -> Result<(), Errno> {
        let wanted = asked.get::<InitAttributes>()?;
        let Settings { port, gid, gid_index, .. } = self.settings;
        let id = self.id(wanted.id)?;
        let knows_peer = matches!(id.phase, Phase::Requested | Phase::Answered | Phase::Connected);
        // Who was asked knows by then what it will answer; the kernel takes what it was asked for.
        let (own, theirs) = (id.own, id.theirs);
        let mut answer = Attributes::new_zeroed();
        answer.state = wanted.state;
        match wanted.state {
            INITIALISED => {
                answer.mask = attributes::OF_INITIALISED;
                answer.port = port;
            }
            READY_TO_RECEIVE if knows_peer => {
                answer.mask = attributes::OF_READY_TO_RECEIVE;
                let mut path = AddressHandle::new_zeroed();
                (path.gid, path.gid_index, path.hops, path.is_global, path.port) = (gid, gid_index, 64, 1, port);
                (answer.path, answer.mtu, answer.destination) = (path, MTU, theirs.queue_pair);
                answer.reads_in = if own.valid != 0 { own.reads_in } else { theirs.reads_out };
                answer.receiver_timer = RECEIVER_TIMER;
            }
            READY_TO_SEND if knows_peer => {
                answer.mask = attributes::OF_READY_TO_SEND;
                answer.reads_out = if own.valid != 0 { own.reads_out.min(theirs.reads_in) } else { theirs.reads_in };
                // Each end says how often the other one shall try where it is not ready itself (rdma_connect(3)).
                (answer.timeout, answer.receiver_retries) = (TIMEOUT, theirs.receiver_retries);
                answer.retries = if own.valid != 0 { own.retries } else { theirs.retries };
            }
            _ => return Err(libc::EINVAL),
        }
        asked.answer(wanted.response, &answer)
    }
}
