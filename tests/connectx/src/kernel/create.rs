//! Commands that make objects.

use super::{
    Command, Errno, Kernel, Object,
    abi::{
        AllocDomain, AllocDomainAnswer, AllocWindow, AllocWindowAnswer, Attribute, CreateCompletionQueue,
        CreateCompletionQueueAnswer, CreateCompletionQueueDriver, CreateQueuePair, CreateQueuePairAnswer,
        CreateQueuePairDriver, CreateSharedReceives, CreateSharedReceivesAnswer, CreateSharedReceivesDriver,
        RegisterMemory, RegisterMemoryAnswer,
    },
    firmware, refused,
};
use crate::card::context::{CompletionQueueContext, MemoryKey, QueuePairContext, SharedReceiveContext};
use crate::memory;
use std::os::fd::RawFd;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE.
const LOCAL_WRITE: u32 = 1;
const REMOTE_WRITE: u32 = 1 << 1;

/// IBV_MW_TYPE_2.
const BOUND_BY_WORK_REQUESTS: u8 = 2;
/// IBV_QPT_RC.
const RELIABLE: u8 = 2;
/// How registers are reached: combined writes, which take work requests as well (BlueFlame), or none of them.
const COMBINED_WRITES: u64 = 0;
const SINGLE_WRITES: u64 = 1;
/// Bytes of a page of registers.
const REGISTER_PAGE: u32 = 4096;
/// Where the first page is mapped: no program takes offset 0 for an answer.
const FIRST_REGISTER_OFFSET: u64 = 1 << 32;
/// MLX5_QP_FLAG_UAR_PAGE_INDEX and MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX: a page that the program made is rung.
const RINGS_OWN_PAGE: u32 = 1 << 10;
const COMPLETIONS_RING_OWN_PAGE: u16 = 1 << 1;
/// Bytes of a basic block, and of what links entries of a shared receive queue.
const BLOCK: u64 = 64;
const LINK_BYTES: u32 = 16;
/// Bytes of an element of a receive, and of the least entry of a shared queue.
const ELEMENT_BYTES: u32 = 16;
const LEAST_SHARED_STRIDE: u32 = 32;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct QueuePairAnswer {
    core: CreateQueuePairAnswer,
    /// Register, options, mask, numbers of what is inside.
    driver: [u32; 8],
    address: u64,
}

impl Kernel {
    pub(super) fn alloc_domain(&mut self, asked: &Command<'_>) -> Result<(), Errno> {
        let core = asked.core::<AllocDomain>()?;
        self.domains += 1;
        let number = self.domains;
        let handle = self.add(asked.file, Object::Domain(number))?;
        asked.answer(core.response, &AllocDomainAnswer { handle, number });
        Ok(())
    }

    pub(super) fn register_memory(&mut self, asked: &Command<'_>) -> Result<(), Errno> {
        let core = asked.core::<RegisterMemory>()?;
        let domain = self.domain(asked.file, core.domain)?;
        if core.access & REMOTE_WRITE != 0 && core.access & LOCAL_WRITE == 0 {
            return Err(libc::EINVAL);
        }
        // IBV_ACCESS_ZERO_BASED is told by the address.
        let zero_based = core.address != core.start;
        let (address, length, access) = (core.start, core.length, core.access);
        let wanted = MemoryKey::Region { domain, address, length, access, zero_based };
        let low_byte = self.low_byte();
        let key = self.card.create_key(wanted, low_byte);
        let handle = self.add(asked.file, Object::Region { key, domain })?;
        asked.answer(core.response, &RegisterMemoryAnswer { handle, lkey: key, rkey: key });
        Ok(())
    }

    pub(super) fn alloc_window(&mut self, asked: &Command<'_>) -> Result<(), Errno> {
        let core = asked.core::<AllocWindow>()?;
        let domain = self.domain(asked.file, core.domain)?;
        if core.kind != BOUND_BY_WORK_REQUESTS {
            return Err(libc::EOPNOTSUPP);
        }
        let low_byte = self.low_byte();
        let rkey = self.card.create_key(MemoryKey::Window { domain }, low_byte);
        let handle = self.add(asked.file, Object::Window { key: rkey, domain })?;
        asked.answer(core.response, &AllocWindowAnswer { handle, rkey });
        Ok(())
    }

    pub(super) fn create_list(&mut self, file: RawFd, wanted: &[u8], answer: &Attribute) -> Result<u32, Errno> {
        let wanted = firmware::parse(wanted)?;
        let MemoryKey::List { domain, .. } = wanted.kind else { return Err(libc::EINVAL) };
        if !self.file(file)?.objects.values().any(|object| *object == Object::Domain(domain)) {
            return Err(libc::EINVAL);
        }
        let key = self.card.create_key(wanted.kind, wanted.low_byte);
        memory::answer(answer.data, answer.length.into(), &firmware::created(key));
        self.add(file, Object::List { key, domain })
    }

    /// A page of registers; answers where it is mapped, how many bytes of it, and its number.
    pub(super) fn create_registers(&mut self, file: RawFd, kind: u64, answers: &[Attribute; 3]) -> Result<u32, Errno> {
        if !matches!(kind, COMBINED_WRITES | SINGLE_WRITES) {
            return Err(libc::EINVAL);
        }
        self.pages += 1;
        let page = self.pages;
        let offset = FIRST_REGISTER_OFFSET + u64::from(page) * u64::from(REGISTER_PAGE);
        let [at, length, number] = answers;
        memory::answer(at.data, at.length.into(), offset.as_bytes());
        memory::answer(length.data, length.length.into(), REGISTER_PAGE.as_bytes());
        memory::answer(number.data, number.length.into(), page.as_bytes());
        self.add(file, Object::Registers { page })
    }

    /// The program has made this page.
    fn registers(&mut self, file: RawFd, page: u32) -> Result<(), Errno> {
        let made = self.file(file)?.objects.values().any(|object| *object == Object::Registers { page });
        if made { Ok(()) } else { Err(libc::EINVAL) }
    }

    pub(super) fn create_completion_queue(&mut self, asked: &Command<'_>) -> Result<(), Errno> {
        let (core, driver) = asked.with_driver::<CreateCompletionQueue, CreateCompletionQueueDriver>()?;
        if driver.compresses != 0 || !matches!(driver.entry_bytes, 64 | 128) || core.channel != -1 {
            return Err(libc::EOPNOTSUPP);
        }
        if driver.flags & COMPLETIONS_RING_OWN_PAGE == 0 {
            return Err(libc::EINVAL);
        }
        self.registers(asked.file, driver.register_page.into())?;
        // The library asks for one less than its buffer holds, a power of two.
        let entries = core.entries.checked_add(1).and_then(u32::checked_next_power_of_two).ok_or(libc::EINVAL)?;
        let number = self.card.create_completion_queue(CompletionQueueContext {
            buffer: driver.buffer,
            entries,
            entry_bytes: driver.entry_bytes,
            doorbell: driver.doorbell,
        });
        let handle = self.add(asked.file, Object::CompletionQueue(number))?;
        let answer = CreateCompletionQueueAnswer { handle, entries: entries - 1, number, reserved: 0 };
        asked.answer(core.response, &answer);
        Ok(())
    }

    pub(super) fn create_shared_receives(&mut self, asked: &Command<'_>) -> Result<(), Errno> {
        let (core, driver) = asked.with_driver::<CreateSharedReceives, CreateSharedReceivesDriver>()?;
        let domain = self.domain(asked.file, core.domain)?;
        let entries = core.max_receives.checked_add(1).and_then(u32::checked_next_power_of_two).ok_or(libc::EINVAL)?;
        let bytes = core.max_elements.checked_mul(ELEMENT_BYTES).and_then(|bytes| bytes.checked_add(LINK_BYTES));
        let stride = bytes.ok_or(libc::EINVAL)?.max(LEAST_SHARED_STRIDE).next_power_of_two();
        let number = self.card.create_shared_receives(SharedReceiveContext {
            domain,
            buffer: driver.buffer,
            entries,
            stride,
            doorbell: driver.doorbell,
        });
        let handle = self.add(asked.file, Object::SharedReceives { number, user: core.user, domain })?;
        let mut answer = CreateSharedReceivesAnswer::new_zeroed();
        (answer.handle, answer.number, answer.driver_number) = (handle, number, number);
        (answer.max_receives, answer.max_elements) = (core.max_receives, core.max_elements);
        asked.answer(core.response, &answer);
        Ok(())
    }

    pub(super) fn create_queue_pair(&mut self, asked: &Command<'_>) -> Result<(), Errno> {
        let (core, driver) = asked.with_driver::<CreateQueuePair, CreateQueuePairDriver>()?;
        let domain = self.domain(asked.file, core.domain)?;
        if core.kind != RELIABLE {
            return Err(libc::EOPNOTSUPP);
        }
        let mut queue = |handle| match self.object(asked.file, handle)? {
            Object::CompletionQueue(number) => Ok(number),
            _ => Err(libc::EINVAL),
        };
        let (send_completions, receive_completions) = (queue(core.send_completions)?, queue(core.receive_completions)?);
        let shared_receives = match (core.is_shared, self.object(asked.file, core.shared)) {
            (0, _) => None,
            (_, Ok(Object::SharedReceives { number, .. })) => Some(number),
            _ => return Err(libc::EINVAL),
        };
        if !driver.send_blocks.is_power_of_two() || driver.receive_shift > 16 {
            return Err(libc::EINVAL);
        }
        if driver.flags & RINGS_OWN_PAGE == 0 {
            return Err(libc::EINVAL);
        }
        self.registers(asked.file, driver.register)?;
        // Receives stand in front of sends, in one buffer.
        let receive_bytes = u64::from(driver.receive_entries) << driver.receive_shift;
        let context = QueuePairContext {
            domain,
            send_queue: driver.buffer + receive_bytes.next_multiple_of(BLOCK),
            send_blocks: driver.send_blocks,
            receive_queue: driver.buffer,
            receive_entries: driver.receive_entries,
            receive_stride: 1 << driver.receive_shift,
            doorbell: driver.doorbell,
            send_completions,
            receive_completions,
            shared_receives,
            user_index: driver.user_index,
        };
        let number = self.card.create_queue_pair(context).map_err(refused)?;
        let handle = self.add(asked.file, Object::QueuePair { number, user: core.user, domain, events: 0 })?;
        let told = CreateQueuePairAnswer {
            handle,
            number,
            max_sends: core.max_sends,
            max_receives: core.max_receives,
            max_send_elements: core.max_send_elements,
            max_receive_elements: core.max_receive_elements,
            max_inline_bytes: core.max_inline_bytes,
            reserved: 0,
        };
        asked.answer(
            core.response,
            &QueuePairAnswer { core: told, driver: [driver.register, 0, 0, 0, 0, 0, 0, 0], address: 0 },
        );
        Ok(())
    }
}
