//! ibv_modify_qp(3) and ibv_query_qp(3).

use super::{
    Command, Errno, Kernel, Object,
    abi::{ModifyQueuePair, QueryQueuePair, QueryQueuePairAnswer},
    refused,
};
use crate::{
    attributes,
    card::context::{Modification, QueuePairState},
};
use zerocopy::FromZeros;

/// What a reliable queue pair has to be told for its next state.
fn required(state: QueuePairState) -> u32 {
    match state {
        QueuePairState::Reset | QueuePairState::Error => attributes::STATE,
        QueuePairState::Initialised => attributes::OF_INITIALISED,
        QueuePairState::ReadyToReceive => attributes::OF_READY_TO_RECEIVE,
        QueuePairState::ReadyToSend => attributes::OF_READY_TO_SEND,
    }
}

/// A state by its number in ibv_qp_state.
fn state_of(number: u8) -> Option<QueuePairState> {
    match number {
        0 => Some(QueuePairState::Reset),
        1 => Some(QueuePairState::Initialised),
        2 => Some(QueuePairState::ReadyToReceive),
        3 => Some(QueuePairState::ReadyToSend),
        6 => Some(QueuePairState::Error),
        _ => None,
    }
}

fn number_of(state: QueuePairState) -> u8 {
    match state {
        QueuePairState::Reset => 0,
        QueuePairState::Initialised => 1,
        QueuePairState::ReadyToReceive => 2,
        QueuePairState::ReadyToSend => 3,
        QueuePairState::Error => 6,
    }
}

/// Whether a queue pair may go from one state to another.
fn may_follow(from: QueuePairState, to: QueuePairState) -> bool {
    use QueuePairState::{Error, Initialised, ReadyToReceive, ReadyToSend, Reset};
    matches!(
        (from, to),
        (_, Reset | Error)
            | (Reset | Initialised, Initialised)
            | (Initialised, ReadyToReceive)
            | (ReadyToReceive | ReadyToSend, ReadyToSend)
    )
}

impl Kernel {
    pub(super) fn modify_queue_pair(&mut self, asked: &Command<'_>) -> Result<(), Errno> {
        let core = asked.core::<ModifyQueuePair>()?;
        let Object::QueuePair { number, .. } = self.object(asked.file, core.handle)? else { return Err(libc::EINVAL) };
        let has = |bit: u32| core.mask & bit != 0;
        let next = if has(attributes::STATE) { Some(state_of(core.state).ok_or(libc::EINVAL)?) } else { None };
        let now = self.card.queue_pair_state(number).ok_or(libc::EINVAL)?;
        if let Some(next) = next {
            let needs = required(next);
            // From a state to itself nothing has to be told again.
            if !may_follow(now, next) || (now != next && core.mask & needs != needs) {
                return Err(libc::EINVAL);
            }
        }
        let change = Modification {
            state: next,
            destination: has(attributes::DESTINATION).then_some(core.destination),
            remote_access: has(attributes::ACCESS).then_some(core.access),
            receiver_not_ready_retries: has(attributes::RECEIVER_RETRIES).then_some(core.receiver_retries),
        };
        self.card.modify_queue_pair(number, &change).map_err(refused)
    }

    pub(super) fn query_queue_pair(&mut self, asked: &Command<'_>) -> Result<(), Errno> {
        let core = asked.core::<QueryQueuePair>()?;
        let Object::QueuePair { number, .. } = self.object(asked.file, core.handle)? else { return Err(libc::EINVAL) };
        let state = number_of(self.card.queue_pair_state(number).ok_or(libc::EINVAL)?);
        let mut answer = QueryQueuePairAnswer::new_zeroed();
        (answer.state, answer.current_state) = (state, state);
        asked.answer(core.response, &answer);
        Ok(())
    }
}
