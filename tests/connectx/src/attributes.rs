//! Bits of ibv_qp_attr_mask, and what of it each state of a reliable queue pair has to be told (ibv_modify_qp(3)).

pub(crate) const STATE: u32 = 1 << 0;
pub(crate) const ACCESS: u32 = 1 << 3;
const PARTITION: u32 = 1 << 4;
const PORT: u32 = 1 << 5;
const PATH: u32 = 1 << 7;
const MTU: u32 = 1 << 8;
const TIMEOUT: u32 = 1 << 9;
const RETRIES: u32 = 1 << 10;
pub(crate) const RECEIVER_RETRIES: u32 = 1 << 11;
const RECEIVE_NUMBER: u32 = 1 << 12;
const READS_OUT: u32 = 1 << 13;
const RECEIVER_TIMER: u32 = 1 << 15;
const SEND_NUMBER: u32 = 1 << 16;
const READS_IN: u32 = 1 << 17;
pub(crate) const DESTINATION: u32 = 1 << 20;

/// For INIT.
pub(crate) const OF_INITIALISED: u32 = STATE | ACCESS | PARTITION | PORT;
/// For RTR.
pub(crate) const OF_READY_TO_RECEIVE: u32 =
    STATE | PATH | MTU | DESTINATION | RECEIVE_NUMBER | READS_IN | RECEIVER_TIMER;
/// For RTS.
pub(crate) const OF_READY_TO_SEND: u32 = STATE | SEND_NUMBER | TIMEOUT | RETRIES | RECEIVER_RETRIES | READS_OUT;
