//! A queue pair as libibverbs shows it: states, room, and what was posted to it.

use crate::{builder::Building, work::Work};
use frwr_engine::provider::{ConnectionParameters, QueuePairId, ReceiveRequest, Token};
use ibverbs_sys::{ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_state};
use std::collections::VecDeque;

/// The states of ibv_modify_qp(3) that a connection goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Reset,
    Initialised,
    ReadyToReceive,
    ReadyToSend,
    Failed,
}

/// A work request of the send queue that no completion has vouched for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) token: Token,
    pub(crate) wr_id: u64,
    pub(crate) opcode: u32,
}

/// One queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    /// Address of the context.
    pub(crate) context: usize,
    /// Address of its structure.
    pub(crate) raw: usize,
    pub(crate) soft: QueuePairId,
    pub(crate) state: State,
    /// Addresses of its completion queues.
    pub(crate) send_queue: usize,
    pub(crate) receive_queue: usize,
    /// Address of the shared receive queue that it receives from.
    pub(crate) shared: Option<usize>,
    /// Address of the domain that it is made in, where that has a thread domain.
    pub(crate) parent: Option<usize>,
    pub(crate) cap: ibv_qp_cap,
    /// What `ibv_wr_*` may build.
    pub(crate) operations: u64,
    pub(crate) destination: u32,
    pub(crate) access: u32,
    pub(crate) parameters: ConnectionParameters,
    /// The software NIC has joined it to its peer.
    pub(crate) joined: bool,
    /// Posted before it was: a real device would send it again and again.
    pub(crate) waiting: Vec<Work>,
    pub(crate) sent: VecDeque<Sent>,
    pub(crate) receives: VecDeque<(Token, u64)>,
    /// Entries of the send queue that no completion was polled for.
    pub(crate) used: u32,
    next_token: u64,
    pub(crate) building: Option<Building>,
}

/// Masks of ibv_modify_qp(3) for reliable connections: what a transition needs beside the state.
const TO_INITIALISED: [ibv_qp_attr_mask; 3] =
    [ibv_qp_attr_mask::IBV_QP_PKEY_INDEX, ibv_qp_attr_mask::IBV_QP_PORT, ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS];
const TO_RECEIVE: [ibv_qp_attr_mask; 6] = [
    ibv_qp_attr_mask::IBV_QP_AV,
    ibv_qp_attr_mask::IBV_QP_PATH_MTU,
    ibv_qp_attr_mask::IBV_QP_DEST_QPN,
    ibv_qp_attr_mask::IBV_QP_RQ_PSN,
    ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC,
    ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER,
];
const TO_SEND: [ibv_qp_attr_mask; 5] = [
    ibv_qp_attr_mask::IBV_QP_TIMEOUT,
    ibv_qp_attr_mask::IBV_QP_RETRY_CNT,
    ibv_qp_attr_mask::IBV_QP_RNR_RETRY,
    ibv_qp_attr_mask::IBV_QP_SQ_PSN,
    ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC,
];

fn has_all(mask: u32, needed: &[ibv_qp_attr_mask]) -> bool {
    needed.iter().all(|bit| mask & bit.0 != 0)
}

impl QueuePair {
    pub(crate) fn new(context: usize, raw: usize, soft: QueuePairId) -> Self {
        Self {
            context,
            raw,
            soft,
            state: State::Reset,
            send_queue: 0,
            receive_queue: 0,
            shared: None,
            parent: None,
            cap: ibv_qp_cap { max_send_wr: 0, max_recv_wr: 0, max_send_sge: 0, max_recv_sge: 0, max_inline_data: 0 },
            operations: 0,
            destination: 0,
            access: 0,
            parameters: ConnectionParameters::default(),
            joined: false,
            waiting: Vec::new(),
            sent: VecDeque::new(),
            receives: VecDeque::new(),
            used: 0,
            next_token: 0,
            building: None,
        }
    }

    /// A token for the software NIC, other than any before.
    pub(crate) fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    /// Takes a receive; what the software NIC gets of it.
    pub(crate) fn receive(&mut self, receive: ReceiveRequest) -> ReceiveRequest {
        let token = self.token();
        self.receives.push_back((token, receive.token.0));
        ReceiveRequest { token, ..receive }
    }

    /// Changes state and attributes as ibv_modify_qp(3) allows it.
    pub(crate) fn modify(&mut self, attributes: &ibv_qp_attr, mask: u32) -> Result<(), i32> {
        if mask & ibv_qp_attr_mask::IBV_QP_STATE.0 == 0 {
            return Err(libc::EINVAL);
        }
        let next = match (self.state, attributes.qp_state) {
            (_, ibv_qp_state::IBV_QPS_ERR) => State::Failed,
            (State::Reset | State::Initialised, ibv_qp_state::IBV_QPS_INIT) if has_all(mask, &TO_INITIALISED) => {
                self.access = attributes.qp_access_flags;
                State::Initialised
            }
            (State::Initialised, ibv_qp_state::IBV_QPS_RTR) if has_all(mask, &TO_RECEIVE) => {
                self.destination = attributes.dest_qp_num;
                self.parameters.responder_resources = attributes.max_dest_rd_atomic;
                State::ReadyToReceive
            }
            (State::ReadyToReceive, ibv_qp_state::IBV_QPS_RTS) if has_all(mask, &TO_SEND) => {
                self.parameters.initiator_depth = attributes.max_rd_atomic;
                self.parameters.retry_count = attributes.retry_cnt;
                self.parameters.rnr_retry_count = attributes.rnr_retry;
                State::ReadyToSend
            }
            _ => return Err(libc::EINVAL),
        };
        self.state = next;
        Ok(())
    }
}
