//! Structures of libmlx5 (mlx5dv.h of rdma-core), which has no binding: those that this provider reads or fills. Their layout
//! is that of every release since rdma-core 24; the tests compare it with the headers that are installed and bundled.

#![allow(missing_docs, reason = "members are those of the header, by their names")]

use core::ffi::c_void;
use ibverbs_sys::{ibv_pd, ibv_sge};

/// `struct mlx5dv_mkey_init_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MkeyAttributes {
    pub pd: *mut ibv_pd,
    pub create_flags: u32,
    /// Asked for, then what there is.
    pub max_entries: u16,
}

/// `struct mlx5dv_mkey`: the front of what libmlx5 allocates. Who posts sets the low byte of both keys.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Mkey {
    pub lkey: u32,
    pub rkey: u32,
}

/// `struct mlx5dv_dc_init_attr`: of other kinds of queue pairs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DynamicallyConnected {
    pub dc_type: u32,
    pub dct_access_key: u64,
}

/// `struct mlx5dv_qp_init_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QueuePairAttributes {
    pub comp_mask: u64,
    pub create_flags: u32,
    pub dc_init_attr: DynamicallyConnected,
    pub send_ops_flags: u64,
}

/// `wr_mr_list`.
pub type ListBuilder = unsafe extern "C" fn(*mut QueuePairEx, *mut Mkey, u32, u16, *mut ibv_sge);

/// `struct mlx5dv_qp_ex`, up to the last member that is read. Never made here: libmlx5 allocates it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QueuePairEx {
    pub comp_mask: u64,
    pub wr_set_dc_addr: *mut c_void,
    pub wr_mr_interleaved: *mut c_void,
    pub wr_mr_list: Option<ListBuilder>,
}

/// `MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT`.
pub const MKEY_INDIRECT: u32 = 1 << 0;
/// `MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG`.
pub const MKEY_UPDATE_TAG: u32 = 1 << 3;
/// `MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE`.
pub const MKEY_REMOTE_INVALIDATE: u32 = 1 << 4;
/// `MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS`.
pub const MASK_CREATE_FLAGS: u64 = 1 << 0;
/// `MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS`.
pub const MASK_SEND_OPERATIONS: u64 = 1 << 2;
/// `MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE`.
pub const DISABLE_SCATTER_TO_COMPLETION: u32 = 1 << 3;
/// `MLX5DV_QP_EX_WITH_MR_LIST`.
pub const WITH_LIST: u64 = 1 << 1;

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<MkeyAttributes>() == 16);
    assert!(offset_of!(MkeyAttributes, create_flags) == 8 && offset_of!(MkeyAttributes, max_entries) == 12);
    assert!(size_of::<Mkey>() == 8 && offset_of!(Mkey, rkey) == 4);
    assert!(size_of::<DynamicallyConnected>() == 16);
    assert!(offset_of!(QueuePairAttributes, dc_init_attr) == 16);
    assert!(offset_of!(QueuePairAttributes, send_ops_flags) == 32 && size_of::<QueuePairAttributes>() == 40);
    assert!(offset_of!(QueuePairEx, wr_mr_list) == 24 && size_of::<QueuePairEx>() == 32);
};
