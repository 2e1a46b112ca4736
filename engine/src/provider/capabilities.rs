//! What a device says of itself. Every number is configurable on the software NIC, so that any row of the sizing table
//! can be played through it (U13).

/// How the segments of one registration must lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contiguity {
    /// A page list: only the first segment may start inside a page and only the last may end inside one (S29).
    PageList {
        /// Bytes per page, a power of two.
        page_size: u32,
    },
    /// A list of segments with any alignment (SG_GAPS of the kernel, the UMR list layout; S31, U8).
    Gaps {
        /// Bytes per page for counting what a segment takes of the list; 0 where one segment takes one entry.
        page_size: u32,
    },
    /// One contiguous byte range of one base registration (a type 2 window, U7).
    SingleRange,
}

/// Which base addresses a registration may publish to the peer (U11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseAddress {
    /// The poster chooses any 64-bit address.
    Any,
    /// The address of the first byte in its base registration.
    Virtual,
    /// Always zero.
    Zero,
}

/// Through which queue pairs a key can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyScope {
    /// Only through the queue pair that registered it (type 2B windows).
    QueuePair,
    /// Through every queue pair of the protection domain.
    ProtectionDomain,
}

/// What a refused post leaves behind (U15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostModel {
    /// A prefix of the chain was accepted and is executed (`ibv_post_send`).
    Prefix,
    /// Nothing of the chain was accepted (`ibv_wr_complete`).
    AllOrNothing,
}

/// Send queue entries that one work request of a kind takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendQueueCost {
    /// For a registration.
    pub register: u32,
    /// For a local invalidation.
    pub invalidate: u32,
    /// For a SEND, an RDMA READ or an RDMA WRITE.
    pub message: u32,
}

/// Known defects of a device that the engine steers around. `docs/traps.md` has what was seen of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// Remote invalidation is flagged with the kernel's bit; the key is right.
    pub invalidate_flag_misplaced: bool,
    /// A second invalidation of one key crashes the host's kernel.
    pub crashes_on_double_invalidate: bool,
    /// Registrations must be freed before their queue pair is destroyed.
    pub free_before_queue_pair: bool,
    /// A registration that was flushed may have taken effect.
    pub flushed_registration_may_be_live: bool,
    /// A queue pair in the error state that receives from a shared queue does not say when it took its last receive
    /// (no IBV_EVENT_QP_LAST_WQE_REACHED).
    pub silent_about_last_receive: bool,
    /// The receives of a shared queue are looked up in the domain of the queue pair that takes them, not in their queue's.
    pub shared_receives_need_one_domain: bool,
}

/// The attributes that the sizing function reads, named as in `ibv_device_attr` and the kernel's `ib_device_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// Memory management extensions: registration and invalidation by work request (S1). A device without them opens no keys, and can
    /// only respond to peers that do.
    pub memory_management_extensions: bool,
    /// Entries of one fast registration's page list; 0 where there is none (S1).
    pub max_fast_reg_page_list_len: u32,
    /// Registers lists with gaps (S3).
    pub sg_gaps: bool,
    /// Scatter elements of one SEND (S2).
    pub max_send_sge: u32,
    /// Scatter elements of one RDMA READ; used as a hint for the best registration depth (S4).
    pub max_sge_rd: u32,
    /// Work requests that one queue of a queue pair can hold (S6).
    pub max_qp_wr: u32,
    /// Entries that one completion queue can hold.
    pub max_cqe: u32,
    /// Registrations (MRs, windows or mkeys) that the device can hold.
    pub max_registrations: u32,
    /// RDMA READs outstanding per queue pair.
    pub max_rdma_reads: u32,
    /// Shared receive queues that the device can hold; 0 where it has none.
    pub max_srq: u32,
    /// Receives that one shared receive queue can hold.
    pub max_srq_wr: u32,
}

/// All that the engine knows of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Name for messages, such as `soft:window` or `rxe0`.
    pub name: &'static str,
    /// Limits that the sizing function reads.
    pub attributes: DeviceAttributes,
    /// How the segments of one registration must lie.
    pub contiguity: Contiguity,
    /// Bytes that one registration can cover.
    pub max_registration_bytes: u64,
    /// Which base addresses a registration may publish.
    pub base_address: BaseAddress,
    /// Low bits of a key that change from one registration to the next: 8, or 0 where the key is fixed (U10).
    pub rotating_key_bits: u8,
    /// Through which queue pairs a key can be used.
    pub key_scope: KeyScope,
    /// Registrations must be allocated after their queue pair.
    pub allocate_after_queue_pair: bool,
    /// The peer's SEND_WITH_INV works.
    pub remote_invalidation: bool,
    /// Our own SEND_WITH_INV works: where false, a reply that names a key fails, and whoever invites invalidation gets a plain SEND,
    /// behind which it kills its key itself.
    pub send_with_invalidate: bool,
    /// A registration over a live key fails; where false it silently replaces the old one.
    pub refuses_live_registration: bool,
    /// The bounds of a registration are enforced; where false only those of its base registration are.
    pub enforces_bounds: bool,
    /// Send queue entries per work request.
    pub send_queue_cost: SendQueueCost,
    /// What a refused post leaves behind.
    pub post_model: PostModel,
    /// A message behind a registration needs the fence flag (irdma). The software NIC then fails one without.
    pub fence_after_registration: bool,
    /// Known defects.
    pub quirks: Quirks,
}
