//! Layouts of the uverbs interface and of its mlx5 half: what libibverbs and libmlx5 write and expect. Facts of ib_user_verbs.h,
//! rdma_user_ioctl_cmds.h, mlx5-abi.h and mlx5_user_ioctl_cmds.h of rdma-core 44. Numbers are the machine's own.

use crate::layouts::layouts;

/// Commands of write(2).
pub(super) mod command {
    pub(in super::super) const GET_CONTEXT: u32 = 0;
    pub(in super::super) const QUERY_DEVICE: u32 = 1;
    pub(in super::super) const QUERY_PORT: u32 = 2;
    pub(in super::super) const ALLOC_DOMAIN: u32 = 3;
    pub(in super::super) const DEALLOC_DOMAIN: u32 = 4;
    pub(in super::super) const REGISTER_MEMORY: u32 = 9;
    pub(in super::super) const DEREGISTER_MEMORY: u32 = 13;
    pub(in super::super) const ALLOC_WINDOW: u32 = 14;
    pub(in super::super) const DEALLOC_WINDOW: u32 = 16;
    pub(in super::super) const CREATE_COMPLETION_QUEUE: u32 = 18;
    pub(in super::super) const DESTROY_COMPLETION_QUEUE: u32 = 20;
    pub(in super::super) const CREATE_QUEUE_PAIR: u32 = 24;
    pub(in super::super) const QUERY_QUEUE_PAIR: u32 = 25;
    pub(in super::super) const MODIFY_QUEUE_PAIR: u32 = 26;
    pub(in super::super) const DESTROY_QUEUE_PAIR: u32 = 27;
    pub(in super::super) const CREATE_SHARED_RECEIVES: u32 = 32;
    pub(in super::super) const DESTROY_SHARED_RECEIVES: u32 = 35;
    /// Marks a command in the extended form, of which none is known here: the library falls back.
    pub(in super::super) const EXTENDED: u32 = 0x8000_0000;
}

/// RDMA_VERBS_IOCTL.
pub(super) const VERBS_IOCTL: u64 = 0xc018_1b01;

/// Objects, methods and attributes of ioctl(2): the driver's begin at 0x1000.
pub(super) mod method {
    /// MLX5_IB_OBJECT_DEVX_OBJ.
    pub(in super::super) const FIRMWARE_OBJECT: u16 = 0x1001;
    /// MLX5_IB_METHOD_DEVX_OBJ_CREATE.
    pub(in super::super) const CREATE: u16 = 0x1000;
    /// MLX5_IB_METHOD_DEVX_OBJ_DESTROY.
    pub(in super::super) const DESTROY: u16 = 0x1001;
    /// The handle, of either.
    pub(in super::super) const HANDLE: u16 = 0x1000;
    /// The firmware's command.
    pub(in super::super) const COMMAND_IN: u16 = 0x1001;
    /// Its answer.
    pub(in super::super) const COMMAND_OUT: u16 = 0x1002;
    /// MLX5_IB_OBJECT_UAR; its methods to make and to destroy have the numbers of those above.
    pub(in super::super) const REGISTER_OBJECT: u16 = 0x1008;
    /// How it is reached: combined writes (0), or none of them (1).
    pub(in super::super) const REGISTER_KIND: u16 = 0x1001;
    /// Where it is mapped, how many bytes of it, and its number.
    pub(in super::super) const REGISTER_OFFSET: u16 = 0x1002;
    pub(in super::super) const REGISTER_LENGTH: u16 = 0x1003;
    pub(in super::super) const REGISTER_PAGE: u16 = 0x1004;
}

layouts! {
    /// In front of each command.
    CommandHeader, 8 { command: u32, in_words: u16, out_words: u16 }

    GetContext, 8 { response: u64 }
    /// Of libmlx5, behind it; older or shorter ones are not asked by rdma-core 44.
    GetContextDriver, 32 {
        total_registers: u32, low_latency_registers: u32, flags: u32, comp_mask: u32, max_cqe_version: u8, reserved0: u8,
        reserved1: u16, reserved2: u32, library_capabilities: u64
    }
    GetContextAnswer, 8 { async_fd: u32, completion_vectors: u32 }
    GetContextDriverAnswer, 72 {
        queue_pairs: u32, register_bytes: u32, total_registers: u32, cache_line_bytes: u32, max_send_descriptor_bytes: u16,
        max_receive_descriptor_bytes: u16, max_send_blocks: u32, max_receives: u32, max_shared_receives: u32, ports: u16,
        flow_action_flags: u16, comp_mask: u32, response_length: u32, cqe_version: u8, driver_data_commands: u8,
        min_inline: u8, clock_info_versions: u8, clock_offset: u64, log_register_page: u32, register_pages: u32,
        dynamic_registers: u32, dump_fill_key: u32
    }

    QueryDevice, 8 { response: u64 }
    QueryDeviceAnswer, 176 {
        firmware: u64, node_guid: [u8; 8], system_image_guid: [u8; 8], max_region_bytes: u64, page_sizes: u64,
        vendor: u32, part: u32, hardware: u32, max_queue_pairs: u32, max_work_requests: u32, capabilities: u32,
        max_elements: u32, max_read_elements: u32, max_completion_queues: u32, max_completions: u32, max_regions: u32,
        max_domains: u32, max_reads_in: u32, max_ee_reads_in: u32, max_all_reads_in: u32, max_reads_out: u32,
        max_ee_reads_out: u32, atomics: u32, max_ee: u32, max_rdd: u32, max_windows: u32, max_raw_ipv: u32,
        max_raw_ethernet: u32, max_groups: u32, max_group_queue_pairs: u32, max_all_group_queue_pairs: u32,
        max_address_handles: u32, max_fast_regions: u32, max_fast_maps: u32, max_shared_queues: u32,
        max_shared_receives: u32, max_shared_elements: u32, max_partition_keys: u16, acknowledge_delay: u8, ports: u8,
        reserved: [u8; 4]
    }

    QueryPort, 16 { response: u64, port: u8, reserved: [u8; 7] }
    QueryPortAnswer, 40 {
        capabilities: u32, max_message_bytes: u32, bad_partition_keys: u32, bad_queue_keys: u32, gids: u32,
        partition_keys: u16, lid: u16, manager_lid: u16, state: u8, max_mtu: u8, active_mtu: u8, lid_mask: u8,
        virtual_lanes: u8, manager_level: u8, subnet_timeout: u8, init_type: u8, active_width: u8, active_speed: u8,
        physical_state: u8, link_layer: u8, flags: u8, reserved: u8
    }

    AllocDomain, 8 { response: u64 }
    AllocDomainAnswer, 8 { handle: u32, number: u32 }

    RegisterMemory, 40 { response: u64, start: u64, length: u64, address: u64, domain: u32, access: u32 }
    RegisterMemoryAnswer, 12 { handle: u32, lkey: u32, rkey: u32 }

    AllocWindow, 16 { response: u64, domain: u32, kind: u8, reserved: [u8; 3] }
    AllocWindowAnswer, 8 { handle: u32, rkey: u32 }

    CreateCompletionQueue, 32 { response: u64, user: u64, entries: u32, vector: u32, channel: i32, reserved: u32 }
    CreateCompletionQueueDriver, 32 {
        buffer: u64, doorbell: u64, entry_bytes: u32, compresses: u8, compressed_form: u8, flags: u16,
        register_page: u16, reserved0: u16, reserved1: u32
    }
    CreateCompletionQueueAnswer, 16 { handle: u32, entries: u32, number: u32, reserved: u32 }

    CreateQueuePair, 56 {
        response: u64, user: u64, domain: u32, send_completions: u32, receive_completions: u32, shared: u32, max_sends: u32,
        max_receives: u32, max_send_elements: u32, max_receive_elements: u32, max_inline_bytes: u32, all_signalled: u8,
        kind: u8, is_shared: u8, reserved: u8
    }
    CreateQueuePairDriver, 48 {
        buffer: u64, doorbell: u64, send_blocks: u32, receive_entries: u32, receive_shift: u32, flags: u32, user_index: u32,
        register: u32, send_buffer: u64
    }
    CreateQueuePairAnswer, 32 {
        handle: u32, number: u32, max_sends: u32, max_receives: u32, max_send_elements: u32, max_receive_elements: u32,
        max_inline_bytes: u32, reserved: u32
    }

    QueryQueuePair, 16 { response: u64, handle: u32, mask: u32 }
    PathTo, 32 {
        gid: [u8; 16], flow: u32, lid: u16, reserved: u16, gid_index: u8, hops: u8, class: u8, level: u8, path_bits: u8,
        rate: u8, is_global: u8, port: u8
    }
    QueryQueuePairAnswer, 128 {
        path: PathTo, alternative: PathTo, max_sends: u32, max_receives: u32, max_send_elements: u32,
        max_receive_elements: u32, max_inline_bytes: u32, queue_key: u32, receive_number: u32, send_number: u32,
        destination: u32, access: u32, partition: u16, alternative_partition: u16, state: u8, current_state: u8, mtu: u8,
        migration: u8, draining: u8, reads_out: u8, reads_in: u8, receiver_timer: u8, port: u8, timeout: u8, retries: u8,
        receiver_retries: u8, alternative_port: u8, alternative_timeout: u8, all_signalled: u8, reserved: [u8; 5]
    }

    ModifyQueuePair, 112 {
        path: PathTo, alternative: PathTo, handle: u32, mask: u32, queue_key: u32, receive_number: u32, send_number: u32,
        destination: u32, access: u32, partition: u16, alternative_partition: u16, state: u8, current_state: u8, mtu: u8,
        migration: u8, notify: u8, reads_out: u8, reads_in: u8, receiver_timer: u8, port: u8, timeout: u8, retries: u8,
        receiver_retries: u8, alternative_port: u8, alternative_timeout: u8, reserved: [u8; 2]
    }

    /// Of a domain, a region and a window.
    Destroy, 4 { handle: u32 }
    /// Of a queue of any kind.
    DestroyQueue, 16 { response: u64, handle: u32, reserved: u32 }
    /// Of a completion queue: events that were read.
    DestroyCompletionQueueAnswer, 8 { completion_events: u32, async_events: u32 }
    /// Of a queue pair and a shared receive queue.
    DestroyQueueAnswer, 4 { events: u32 }

    CreateSharedReceives, 32 { response: u64, user: u64, domain: u32, max_receives: u32, max_elements: u32, limit: u32 }
    CreateSharedReceivesDriver, 32 { buffer: u64, doorbell: u64, flags: u32, reserved0: u32, user_index: u32, reserved1: u32 }
    CreateSharedReceivesAnswer, 24 {
        handle: u32, max_receives: u32, max_elements: u32, number: u32, driver_number: u32, reserved: u32
    }

    /// In front of the attributes of ioctl(2).
    IoctlHeader, 24 { length: u16, object: u16, method: u16, attributes: u16, reserved1: u64, driver: u32, reserved2: u32 }
    Attribute, 16 { id: u16, length: u16, flags: u16, extra: u16, data: u64 }

    /// What read(2) gives of asynchronous events.
    EventDescription, 16 { element: u64, kind: u32, reserved: u32 }
}
