//! A library that takes whatever is posted and forgets it at once, and whose completion queues are always full of replies that
//! invalidated a key: what is left to be counted is the provider's own.

use crate::{queue_pairs, raw::WorkCompletion, verbs};
use core::ffi::{c_int, c_void};
use frwr_engine::provider::verbs::VerbsFunctions;
use ibverbs_sys::{
    ibv_context, ibv_cq, ibv_device, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_recv_wr, ibv_send_wr, ibv_sge,
    ibv_wc, ibv_wc_flags, ibv_wc_opcode,
};

/// What programs call: as of any other device, but for what is called per work request or completion.
pub(crate) const FUNCTIONS: VerbsFunctions =
    VerbsFunctions { ibv_open_device: open_device, ibv_qp_to_qp_ex: qp_to_qp_ex, ..verbs::FUNCTIONS };

unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the caller's device, whose promises are those of the function that is called.
    let raw = unsafe { (verbs::FUNCTIONS.ibv_open_device)(device) };
    if !raw.is_null() {
        // SAFETY: just opened; nobody else has it yet.
        let operations = unsafe { &mut (*raw).ops };
        operations.post_send = Some(post_send);
        operations.post_recv = Some(post_recv);
        operations.poll_cq = Some(poll_cq);
    }
    raw
}

unsafe extern "C" fn qp_to_qp_ex(raw: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the caller's queue pair.
    let extended = unsafe { queue_pairs::qp_to_qp_ex(raw) };
    // SAFETY: null, or the same queue pair, whose builder nobody uses yet.
    if let Some(builder) = unsafe { extended.as_mut() } {
        builder.wr_start = Some(begin);
        builder.wr_send = Some(begin);
        builder.wr_send_inv = Some(with_key);
        builder.wr_rdma_read = Some(with_remote);
        builder.wr_rdma_write = Some(with_remote);
        builder.wr_local_inv = Some(with_key);
        builder.wr_bind_mw = Some(bind);
        builder.wr_set_sge_list = Some(set_list);
        builder.wr_set_inline_data = Some(set_inline);
        builder.wr_complete = Some(complete);
        builder.wr_abort = Some(begin);
    }
    extended
}

unsafe extern "C" fn post_send(_: *mut ibv_qp, _: *mut ibv_send_wr, _: *mut *mut ibv_send_wr) -> c_int {
    0
}

unsafe extern "C" fn post_recv(_: *mut ibv_qp, _: *mut ibv_recv_wr, _: *mut *mut ibv_recv_wr) -> c_int {
    0
}

/// As many replies as there is room for, each of which invalidated another key.
unsafe extern "C" fn poll_cq(_: *mut ibv_cq, room: c_int, completions: *mut ibv_wc) -> c_int {
    let completions = completions.cast::<WorkCompletion>();
    for at in 0..usize::try_from(room).unwrap_or(0) {
        let told = WorkCompletion {
            wr_id: at as u64,
            opcode: ibv_wc_opcode::IBV_WC_RECV,
            wc_flags: ibv_wc_flags::IBV_WC_WITH_INV.0,
            imm_data: (at as u32) << 8,
            ..WorkCompletion::default()
        };
        // SAFETY: the caller has room for so many.
        unsafe { completions.add(at).write(told) };
    }
    room
}

unsafe extern "C" fn begin(_: *mut ibv_qp_ex) {}
unsafe extern "C" fn with_key(_: *mut ibv_qp_ex, _: u32) {}
unsafe extern "C" fn with_remote(_: *mut ibv_qp_ex, _: u32, _: u64) {}
unsafe extern "C" fn bind(_: *mut ibv_qp_ex, _: *mut ibv_mw, _: u32, _: *const ibv_mw_bind_info) {}
unsafe extern "C" fn set_list(_: *mut ibv_qp_ex, _: usize, _: *const ibv_sge) {}
unsafe extern "C" fn set_inline(_: *mut ibv_qp_ex, _: *mut c_void, _: usize) {}
unsafe extern "C" fn complete(_: *mut ibv_qp_ex) -> c_int {
    0
}
