//! Libraries that take whatever is posted and forget it at once: what is left to be counted is the provider's own. One has
//! completion queues that are always full of replies that invalidated a key. The other completes what is posted.

use crate::{queue_pairs, raw::WorkCompletion, verbs};
use core::{
    ffi::{c_int, c_void},
    ptr::{null_mut, without_provenance_mut},
};
use frwr_engine::provider::verbs::VerbsFunctions;
use ibverbs_sys::{
    ibv_context, ibv_cq, ibv_device, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_recv_wr, ibv_send_wr, ibv_sge,
    ibv_wc, ibv_wc_flags, ibv_wc_opcode,
};

/// What programs call: as of any other device, but for what is called per work request or completion.
pub(crate) const FUNCTIONS: VerbsFunctions =
    VerbsFunctions { ibv_open_device: open_device, ibv_qp_to_qp_ex: qp_to_qp_ex, ..verbs::FUNCTIONS };

/// The same, but each list that is posted is completed by the first poll of its queue: by one completion, of its last work
/// request. benches/peers/null_write.c has the same two functions.
pub(crate) const COMPLETING_FUNCTIONS: VerbsFunctions =
    VerbsFunctions { ibv_open_device: open_completing_device, ..verbs::FUNCTIONS };

unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the caller's device, whose promises are those of the function that is called.
    let raw = unsafe { (verbs::FUNCTIONS.ibv_open_device)(device) };
    // SAFETY: null, or just opened; nobody else has it yet.
    if let Some(context) = unsafe { raw.as_mut() } {
        context.ops.post_send = Some(post_send);
        context.ops.post_recv = Some(post_recv);
        context.ops.poll_cq = Some(poll_cq);
    }
    raw
}

unsafe extern "C" fn open_completing_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: as above, here and below.
    let raw = unsafe { open_device(device) };
    // SAFETY: as above.
    if let Some(context) = unsafe { raw.as_mut() } {
        context.ops.post_send = Some(post_to_complete);
        context.ops.poll_cq = Some(poll_completed);
    }
    raw
}

/// What waits for its poll: the queue's context names the queue pair, whose context is the number of its work request.
unsafe extern "C" fn post_to_complete(raw: *mut ibv_qp, list: *mut ibv_send_wr, _: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the caller's queue pair and its queue, which this thread alone uses, and a list that ends with a null pointer.
    unsafe {
        let mut last = list;
        while !(*last).next.is_null() {
            last = (*last).next;
        }
        (*raw).qp_context = without_provenance_mut((*last).wr_id as usize);
        (*(*raw).send_cq).cq_context = raw.cast();
    }
    0
}

unsafe extern "C" fn poll_completed(raw: *mut ibv_cq, _: c_int, completions: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's queue, and room for one completion at least; the queue pair is there as long as it is posted to.
    unsafe {
        let queue_pair: *mut ibv_qp = (*raw).cq_context.cast();
        if queue_pair.is_null() {
            return 0;
        }
        (*raw).cq_context = null_mut();
        let (wr_id, qp_num) = ((*queue_pair).qp_context.addr() as u64, (*queue_pair).qp_num);
        let opcode = ibv_wc_opcode::IBV_WC_RDMA_WRITE;
        completions.cast::<WorkCompletion>().write(WorkCompletion {
            wr_id,
            qp_num,
            opcode,
            ..WorkCompletion::default()
        });
    }
    1
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
