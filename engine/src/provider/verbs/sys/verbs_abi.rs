//! What the inline functions of verbs.h reach and ibverbs-sys does not bind: the head of `struct verbs_context`, which lies
//! in front of the `struct ibv_context` that applications hold.

#![allow(missing_docs, reason = "members are those of the header, by their names")]

use core::ffi::c_void;
use ibverbs_sys::{ibv_context, ibv_qp, ibv_qp_init_attr_ex};

/// `ibv_create_qp_ex`.
pub type CreateQueuePairEx = unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;

/// The members right in front of the `ibv_context`, in their order (verbs.md, section 7, way a).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ContextHead {
    pub create_cq_ex: *mut c_void,
    pub private: *mut c_void,
    pub query_device_ex: *mut c_void,
    pub destroy_flow: *mut c_void,
    pub reserved_second: *mut c_void,
    pub create_flow: *mut c_void,
    pub reserved_first: *mut c_void,
    pub open_qp: *mut c_void,
    pub create_qp_ex: Option<CreateQueuePairEx>,
    pub get_srq_num: *mut c_void,
    pub create_srq_ex: *mut c_void,
    pub open_xrcd: *mut c_void,
    pub close_xrcd: *mut c_void,
    pub reserved_third: u64,
    /// Bytes of the whole `struct verbs_context`, the `ibv_context` included.
    pub bytes: usize,
}

const _: () = {
    assert!(size_of::<ContextHead>() == 120 && core::mem::offset_of!(ContextHead, create_qp_ex) == 64);
};

/// `ibv_create_qp_ex`'s function of the device's library, where it has one.
///
/// # Safety
/// `context` is an open context of libibverbs.
pub(super) unsafe fn create_qp_ex(context: *mut ibv_context) -> Option<CreateQueuePairEx> {
    // SAFETY: the caller's promise.
    let extended = unsafe { (*context).abi_compat }.addr() == usize::MAX;
    if !extended {
        return None;
    }
    // SAFETY: an extended context is the last member of a `struct verbs_context`, so that its head lies in front of it in
    // the same allocation.
    let head = unsafe { &*context.byte_sub(size_of::<ContextHead>()).cast::<ContextHead>() };
    // Old libraries have shorter heads: the size tells whether the member exists.
    let needed = size_of::<ContextHead>() - core::mem::offset_of!(ContextHead, create_qp_ex) + size_of::<ibv_context>();
    if head.bytes >= needed { head.create_qp_ex } else { None }
}
