//! The functions of a builder: those of `ibv_wr_*`, and that of lists.

use super::mlx5_abi::{ListBuilder, QueuePairEx};
use core::{ffi::c_void, ptr::NonNull};
use ibverbs_sys::{ibv_mw_bind_info, ibv_qp_ex, ibv_sge};

type Start = unsafe extern "C" fn(*mut ibv_qp_ex);
type WithKey = unsafe extern "C" fn(*mut ibv_qp_ex, u32);
type Remote = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64);
type Bind = unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibverbs_sys::ibv_mw, u32, *const ibv_mw_bind_info);
type SetList = unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge);
type SetInline = unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize);
type Complete = unsafe extern "C" fn(*mut ibv_qp_ex) -> i32;

/// The functions of one queue pair's builder, for one post: libmlx5 has another `wr_complete` for queue pairs in the RESET state
/// than for those that send (set_qp_operational_state in providers/mlx5/verbs.c), and changes it when their state is.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) start: Start,
    pub(super) send: Start,
    pub(super) send_invalidating: WithKey,
    pub(super) read: Remote,
    pub(super) write: Remote,
    pub(super) invalidate: WithKey,
    /// Of queue pairs that were made for windows.
    pub(super) bind: Option<Bind>,
    pub(super) set_list: SetList,
    pub(super) set_inline: SetInline,
    pub(super) complete: Complete,
    pub(super) abort: Start,
}

impl Functions {
    /// `None` where one is missing.
    ///
    /// # Safety
    /// The queue pair is alive.
    pub(super) unsafe fn of(builder: *mut ibv_qp_ex) -> Option<Self> {
        // SAFETY: the caller's promise. Members are read one by one: a reference to all of it would not bear that another
        // thread changes the queue pair's state.
        unsafe {
            Some(Self {
                start: (*builder).wr_start?,
                send: (*builder).wr_send?,
                send_invalidating: (*builder).wr_send_inv?,
                read: (*builder).wr_rdma_read?,
                write: (*builder).wr_rdma_write?,
                invalidate: (*builder).wr_local_inv?,
                bind: (*builder).wr_bind_mw,
                set_list: (*builder).wr_set_sge_list?,
                set_inline: (*builder).wr_set_inline_data?,
                complete: (*builder).wr_complete?,
                abort: (*builder).wr_abort?,
            })
        }
    }

    /// Whether it binds windows.
    pub(super) fn binds(&self) -> bool {
        self.bind.is_some()
    }
}

/// The list builder of one queue pair.
#[derive(Clone, Copy)]
pub(super) struct Lists {
    pub(super) raw: NonNull<QueuePairEx>,
    pub(super) build: ListBuilder,
}

impl Lists {
    /// `None` where the queue pair has none.
    ///
    /// # Safety
    /// Null, or of a queue pair that is alive for as long as the value.
    pub(super) unsafe fn of(raw: *mut QueuePairEx) -> Option<Self> {
        let raw = NonNull::new(raw)?;
        // SAFETY: the caller's promise; the member does not change.
        let build = unsafe { (*raw.as_ptr()).wr_mr_list }?;
        Some(Self { raw, build })
    }
}
