//! What card, port and driver say of themselves: a ConnectX-5 as far as it matters to registering.

use super::{
    Command, Errno, Kernel,
    abi::{
        GetContext, GetContextAnswer, GetContextDriver, GetContextDriverAnswer, QueryDevice, QueryDeviceAnswer,
        QueryPort, QueryPortAnswer,
    },
    events_descriptor,
};
use crate::files::{GID_INDEX, NODE_GUID};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The driver lets programs change the low byte of keys (MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_MKEY_UPDATE_TAG).
const UPDATES_TAGS: u32 = 1 << 5;
/// The program makes registers as it needs them (MLX5_LIB_CAP_DYN_UAR), which kernels leave to it since 5.7.
const MAKES_REGISTERS: u64 = 1 << 1;
/// Completions say the queue pair by the number that the program gave it.
const COMPLETION_VERSION: u8 = 1;
/// Bytes of the longest work request of a send queue.
const MAX_SEND_DESCRIPTOR_BYTES: u16 = 1024;
/// Bytes of the longest entry of a receive queue.
const MAX_RECEIVE_DESCRIPTOR_BYTES: u16 = 512;
/// Basic blocks of the largest send queue, and receives of the largest receive queue.
const MAX_QUEUE: u32 = 1 << 15;

/// IBV_DEVICE_MEM_MGT_EXTENSIONS, IBV_DEVICE_MEM_WINDOW, IBV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_DEVICE_SRQ_RESIZE.
const CAPABILITIES: u32 = 1 << 21 | 1 << 17 | 1 << 24 | 1 << 13;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ContextAnswer {
    core: GetContextAnswer,
    driver: GetContextDriverAnswer,
}

impl Kernel {
    pub(super) fn get_context(&mut self, asked: &Command<'_>) -> Result<(), Errno> {
        let (core, driver) = asked.with_driver::<GetContext, GetContextDriver>()?;
        let descriptor = events_descriptor()?;
        self.file(asked.file)?.events_descriptor = descriptor;
        let mut answer = ContextAnswer {
            core: GetContextAnswer { async_fd: descriptor as u32, completion_vectors: 1 },
            driver: GetContextDriverAnswer::new_zeroed(),
        };
        let told = &mut answer.driver;
        told.queue_pairs = 1 << 18;
        told.register_bytes = 512;
        if driver.library_capabilities & MAKES_REGISTERS == 0 {
            return Err(libc::EOPNOTSUPP);
        }
        // None are there from the start.
        told.total_registers = 0;
        told.cache_line_bytes = 64;
        told.max_send_descriptor_bytes = MAX_SEND_DESCRIPTOR_BYTES;
        told.max_receive_descriptor_bytes = MAX_RECEIVE_DESCRIPTOR_BYTES;
        told.max_send_blocks = MAX_QUEUE;
        told.max_receives = MAX_QUEUE;
        told.max_shared_receives = MAX_QUEUE - 1;
        told.ports = 1;
        told.comp_mask = UPDATES_TAGS;
        told.response_length = size_of::<GetContextDriverAnswer>() as u32;
        told.cqe_version = COMPLETION_VERSION.min(driver.max_cqe_version);
        // 4 KiB, one of them in a page.
        told.log_register_page = 12;
        told.register_pages = 1;
        asked.answer(core.response, &answer);
        Ok(())
    }

    pub(super) fn query_device(&mut self, asked: &Command<'_>) -> Result<(), Errno> {
        let core = asked.core::<QueryDevice>()?;
        let mut answer = QueryDeviceAnswer::new_zeroed();
        // 16.35.2000, each part in 16 bits.
        answer.firmware = 16 << 32 | 35 << 16 | 2000;
        answer.node_guid = NODE_GUID;
        answer.system_image_guid = NODE_GUID;
        answer.max_region_bytes = u64::MAX;
        answer.page_sizes = 0xffff_ffff_ffff_f000;
        (answer.vendor, answer.part) = (0x02c9, 4119);
        answer.max_queue_pairs = 1 << 18;
        answer.max_work_requests = MAX_QUEUE;
        answer.capabilities = CAPABILITIES;
        (answer.max_elements, answer.max_read_elements) = (30, 30);
        (answer.max_completion_queues, answer.max_completions) = (1 << 24, (1 << 22) - 1);
        (answer.max_regions, answer.max_windows, answer.max_domains) = (1 << 24, 1 << 24, 1 << 23);
        (answer.max_reads_in, answer.max_reads_out, answer.max_all_reads_in) = (16, 16, 1 << 22);
        (answer.max_shared_queues, answer.max_shared_receives, answer.max_shared_elements) =
            (1 << 23, MAX_QUEUE - 1, 31);
        (answer.max_partition_keys, answer.acknowledge_delay, answer.ports) = (128, 16, 1);
        answer.max_address_handles = i32::MAX as u32;
        asked.answer(core.response, &answer);
        Ok(())
    }

    pub(super) fn query_port(&mut self, asked: &Command<'_>) -> Result<(), Errno> {
        let core = asked.core::<QueryPort>()?;
        if core.port != crate::world::PORT {
            return Err(libc::EINVAL);
        }
        let mut answer = QueryPortAnswer::new_zeroed();
        answer.max_message_bytes = 1 << 30;
        answer.gids = u32::from(GID_INDEX) + 1;
        answer.partition_keys = 1;
        // Active, 4096 and 1024 bytes, one lane of virtual lanes, link up, Ethernet: by ibv_query_port(3).
        (answer.state, answer.max_mtu, answer.active_mtu) = (4, 5, 3);
        (answer.virtual_lanes, answer.active_width, answer.active_speed) = (1, 2, 32);
        (answer.physical_state, answer.link_layer) = (5, 2);
        asked.answer(core.response, &answer);
        Ok(())
    }
}
