//! What the inline functions of verbs.h reach and ibverbs-sys does not bind: the head of `struct verbs_context`, which lies
//! in front of the `struct ibv_context` that applications hold.

#![allow(missing_docs, reason = "members are those of the header, by their names")]

use core::{
    ffi::{c_int, c_void},
    mem::offset_of,
};
use ibverbs_sys::{
    ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_qp, ibv_qp_init_attr_ex, ibv_td, ibv_td_init_attr,
};

/// `ibv_create_qp_ex`.
pub type CreateQueuePairEx = unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;
/// `ibv_alloc_td`.
pub type AllocateThreadDomain = unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td;
/// `ibv_dealloc_td`.
pub type FreeThreadDomain = unsafe extern "C" fn(*mut ibv_td) -> c_int;
/// `ibv_alloc_parent_domain`.
pub type AllocateParentDomain = unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd;

/// The members right in front of the `ibv_context`, in their order.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ContextHead {
    pub alloc_parent_domain: Option<AllocateParentDomain>,
    pub dealloc_td: Option<FreeThreadDomain>,
    pub alloc_td: Option<AllocateThreadDomain>,
    pub modify_cq: *mut c_void,
    pub post_srq_ops: *mut c_void,
    pub destroy_rwq_ind_table: *mut c_void,
    pub create_rwq_ind_table: *mut c_void,
    pub destroy_wq: *mut c_void,
    pub modify_wq: *mut c_void,
    pub create_wq: *mut c_void,
    pub query_rt_values: *mut c_void,
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
    assert!(size_of::<ContextHead>() == 208 && offset_of!(ContextHead, create_qp_ex) == 152);
};

/// `ibv_create_qp_ex`'s function of the device's library, where it has one.
///
/// # Safety
/// `context` is an open context of libibverbs.
pub(super) unsafe fn create_qp_ex(context: *mut ibv_context) -> Option<CreateQueuePairEx> {
    // SAFETY: the caller's promise.
    unsafe { member(context, offset_of!(ContextHead, create_qp_ex)) }
}

/// The functions of thread domains.
#[derive(Clone, Copy)]
pub(super) struct ThreadDomainFunctions {
    pub(super) allocate: AllocateThreadDomain,
    pub(super) free: FreeThreadDomain,
    pub(super) allocate_parent: AllocateParentDomain,
}

/// The functions of thread domains of the device's library, where it has them.
///
/// # Safety
/// `context` is an open context of libibverbs.
pub(super) unsafe fn thread_domains(context: *mut ibv_context) -> Option<ThreadDomainFunctions> {
    // SAFETY: the caller's promise; each member is read as its type.
    unsafe {
        Some(ThreadDomainFunctions {
            allocate: member::<AllocateThreadDomain>(context, offset_of!(ContextHead, alloc_td))?,
            free: member::<FreeThreadDomain>(context, offset_of!(ContextHead, dealloc_td))?,
            allocate_parent: member::<AllocateParentDomain>(context, offset_of!(ContextHead, alloc_parent_domain))?,
        })
    }
}

/// The function at this place of the head, where the context has a head that is long enough.
///
/// # Safety
/// `context` is an open context of libibverbs, and the member at `offset` is an `Option<T>`.
unsafe fn member<T: Copy>(context: *mut ibv_context, offset: usize) -> Option<T> {
    // SAFETY: the caller's promise.
    let extended = unsafe { (*context).abi_compat }.addr() == usize::MAX;
    if !extended {
        return None;
    }
    // SAFETY: an extended context is the last member of a `struct verbs_context`, whose size lies right in front of it, in the
    // same allocation.
    let bytes = unsafe { *context.byte_sub(size_of::<usize>()).cast::<usize>() };
    // Old libraries have shorter heads: the size tells whether the member exists.
    let before = size_of::<ContextHead>() - offset;
    if bytes < before + size_of::<ibv_context>() {
        return None;
    }
    // SAFETY: the structure reaches that far in front of the context.
    unsafe { *context.byte_sub(before).cast::<Option<T>>() }
}
