//! The functions of libibverbs but for queue pairs: devices, contexts, domains, memory, windows, completion queues, events.

use crate::{
    FakeWindows, Manners, channels,
    nic::Nic,
    queue_pairs,
    raw::{Signal, WorkCompletion, null, set_errno},
    refusals::{Refusable, Refusals},
    shared_receives, thread_domains,
    world::{Context, Event, ObjectRecord, QueueRecord, RegionRecord, World, with},
};
use core::{
    ffi::{c_char, c_int, c_void},
    mem::MaybeUninit,
    ptr::NonNull,
};
use frwr_engine::provider::{
    Command, CommandError, DomainId,
    verbs::{VerbsFunctions, abi::ContextHead},
};
use frwr_mempool::Region;
use ibverbs_sys::{
    IBV_DEVICE_MEM_WINDOW, IBV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_EVENT_CQ_ERR, IBV_MW_TYPE_2, ibv_access_flags,
    ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_mr, ibv_mw, ibv_mw_type,
    ibv_pd, ibv_wc,
};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// What programs call.
pub(crate) const FUNCTIONS: VerbsFunctions = VerbsFunctions {
    ibv_get_device_list: get_device_list,
    ibv_free_device_list: free_device_list,
    ibv_get_device_name: get_device_name,
    ibv_open_device: open_device,
    ibv_close_device: close_device,
    ibv_query_device: query_device,
    ibv_get_async_event: get_async_event,
    ibv_ack_async_event: ack_async_event,
    ibv_alloc_pd: alloc_pd,
    ibv_dealloc_pd: dealloc_pd,
    ibv_reg_mr: reg_mr,
    ibv_dereg_mr: dereg_mr,
    ibv_create_comp_channel: channels::create_comp_channel,
    ibv_destroy_comp_channel: channels::destroy_comp_channel,
    ibv_get_cq_event: channels::get_cq_event,
    ibv_ack_cq_events: channels::ack_cq_events,
    ibv_create_cq: create_cq,
    ibv_destroy_cq: destroy_cq,
    ibv_create_srq: shared_receives::create_srq,
    ibv_destroy_srq: shared_receives::destroy_srq,
    ibv_create_qp: queue_pairs::create_qp,
    ibv_modify_qp: queue_pairs::modify_qp,
    ibv_destroy_qp: queue_pairs::destroy_qp,
    ibv_qp_to_qp_ex: queue_pairs::qp_to_qp_ex,
};

/// Where the keys of memory that is registered with a remote right begin: far behind those of the NIC.
const REMOTE_KEYS: u32 = 0x8000_0000;

/// A context with what lies in front of it in every extended library.
#[repr(C)]
struct ContextBlock {
    head: ContextHead,
    context: ibv_context,
}

/// All zeroes: a value of every plain structure of C.
pub(crate) fn zeroed<T: Copy>() -> T {
    // SAFETY: only asked for structures of integers, pointers and optional functions.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Gives a structure to C; its address is its name.
pub(crate) fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Takes back what was given.
///
/// # Safety
/// Given by [`give`] as this type, and not taken back before.
pub(crate) unsafe fn take_back<T>(raw: *mut T) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(raw) });
}

/// An errno for a refused command of the NIC.
pub(crate) fn errno_of(error: CommandError) -> i32 {
    match error {
        // Commands of verbs know no other number for these.
        CommandError::Unknown | CommandError::Address(_) => libc::EINVAL,
        other => other.errno().0,
    }
}

/// A device's structure.
pub(crate) fn make_device(name: &str) -> *mut ibv_device {
    let mut device = ibv_device { transport_type: ibverbs_sys::IBV_TRANSPORT_IB, ..ibv_device::default() };
    for (place, byte) in device.name.iter_mut().zip(name.bytes()).take(63) {
        *place = byte as c_char;
    }
    give(device)
}

/// A context that is no open device: what librdmacm shows of one.
pub(crate) fn make_manager_context(device: *mut ibv_device) -> *mut ibv_context {
    give(ibv_context { device, ..ibv_context::default() })
}

unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let mut list: Vec<*mut ibv_device> =
        with(|world| world.devices.values().map(|device| core::ptr::with_exposed_provenance_mut(device.raw)).collect());
    // SAFETY: the caller's counter.
    unsafe { *count = list.len() as c_int };
    // As the library does: its end tells `free_device_list` the length.
    list.push(core::ptr::null_mut());
    Box::into_raw(list.into_boxed_slice()).cast()
}

unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: as made above: it ends with a null pointer, which counts.
    unsafe {
        let mut length = 0;
        while !(*list.add(length)).is_null() {
            length += 1;
        }
        drop(Box::from_raw(core::ptr::slice_from_raw_parts_mut(list, length + 1)));
    }
}

unsafe extern "C" fn get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: a device of this crate, whose name lives as long.
    unsafe { (&raw const (*device).name).cast() }
}

unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    let opened = with(|world| world.open(device));
    opened.unwrap_or_else(null)
}

impl World {
    /// Those of an open device.
    pub(crate) fn manners(&self, context: usize) -> Manners {
        let device = self.contexts.get(&context).and_then(|context| self.devices.get(&context.device));
        device.map(|record| record.options.manners).unwrap_or_default()
    }

    fn open(&mut self, device: *mut ibv_device) -> Result<*mut ibv_context, i32> {
        let number = self.number();
        let known = self.devices.iter_mut().find(|(_, record)| record.raw == device.addr());
        let (name, record) = known.ok_or(libc::ENODEV)?;
        let nic = Nic::new(&self.fabric, record.options.soft(), number).map_err(errno_of)?;
        let signal = Signal::new();
        let mut block = ContextBlock { head: zeroed(), context: ibv_context::default() };
        block.head.create_qp_ex = Some(queue_pairs::create_qp_ex);
        if record.options.thread_domains {
            block.head.alloc_td = Some(thread_domains::alloc_td);
            block.head.dealloc_td = Some(thread_domains::dealloc_td);
            block.head.alloc_parent_domain = Some(thread_domains::alloc_parent_domain);
        }
        block.head.bytes = size_of::<ContextBlock>();
        let context = &mut block.context;
        (context.device, context.async_fd) = (device, signal.fd());
        // The mark of an extended context.
        context.abi_compat = core::ptr::without_provenance_mut(usize::MAX);
        if record.options.has_windows() {
            context.ops.alloc_mw = Some(alloc_mw);
            context.ops.dealloc_mw = Some(dealloc_mw);
        }
        context.ops.poll_cq = Some(poll_cq);
        context.ops.req_notify_cq = Some(channels::req_notify_cq);
        context.ops.post_send = Some(queue_pairs::post_send);
        context.ops.post_recv = Some(queue_pairs::post_recv);
        context.ops.post_srq_recv = Some(shared_receives::post_srq_recv);
        let block = give(block);
        // SAFETY: just made.
        let raw = unsafe { &raw mut (*block).context };
        record.opened.push(raw.addr());
        let context = Context {
            device: name.clone(),
            nic,
            domains: HashMap::new(),
            threads: HashMap::new(),
            parents: HashMap::new(),
            regions: HashMap::new(),
            windows: HashMap::new(),
            mkeys: HashMap::new(),
            queues: HashMap::new(),
            channels: HashMap::new(),
            shared: HashMap::new(),
            by_soft: HashMap::new(),
            events: VecDeque::new(),
            signal,
            refusals: Refusals::default(),
        };
        self.contexts.insert(raw.addr(), context);
        Ok(raw)
    }
}

unsafe extern "C" fn close_device(raw: *mut ibv_context) -> c_int {
    let closed = with(|world| {
        let Some(context) = world.contexts.get(&raw.addr()) else { return false };
        let left = context.domains.len() + context.regions.len() + context.windows.len() + context.queues.len();
        let left = left + context.threads.len() + context.parents.len() + context.channels.len();
        if left + context.mkeys.len() + context.shared.len() + context.by_soft.len() > 0 {
            world.violation(raw.addr(), format!("a device closed with {left} objects or more"));
        }
        if let Some(context) = world.contexts.remove(&raw.addr())
            && let Some(record) = world.devices.get_mut(&context.device)
        {
            record.opened.retain(|opened| *opened != raw.addr());
        }
        true
    });
    if !closed {
        return libc::EINVAL;
    }
    // SAFETY: made by `open`, where the context is the second member, and forgotten above.
    unsafe { take_back(raw.byte_sub(core::mem::offset_of!(ContextBlock, context)).cast::<ContextBlock>()) };
    0
}

unsafe extern "C" fn query_device(raw: *mut ibv_context, attributes: *mut ibv_device_attr) -> c_int {
    let told = with(|world| {
        let context = world.contexts.get(&raw.addr())?;
        let record = world.devices.get(&context.device)?;
        Some((*context.nic.capabilities(), record.options.has_windows()))
    });
    let Some((capabilities, has_windows)) = told else { return libc::EINVAL };
    let limits = capabilities.attributes;
    let mut told: ibv_device_attr = zeroed();
    let signed = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    if has_windows {
        told.device_cap_flags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
        told.max_mw = signed(limits.max_registrations);
    }
    told.max_mr_size = u64::MAX;
    told.max_qp_wr = signed(limits.max_qp_wr);
    (told.max_sge, told.max_sge_rd) = (signed(limits.max_send_sge), signed(limits.max_sge_rd));
    (told.max_cqe, told.max_mr) = (signed(limits.max_cqe), signed(limits.max_registrations));
    (told.max_qp_rd_atom, told.max_qp_init_rd_atom) = (signed(limits.max_rdma_reads), signed(limits.max_rdma_reads));
    (told.max_srq, told.max_srq_wr, told.max_srq_sge) = (signed(limits.max_srq), signed(limits.max_srq_wr), 1);
    told.phys_port_cnt = 1;
    // SAFETY: the caller's structure.
    unsafe { *attributes = told };
    0
}

unsafe extern "C" fn get_async_event(raw: *mut ibv_context, into: *mut ibv_async_event) -> c_int {
    let taken = with(|world| {
        let World { contexts, queue_pairs, .. } = world;
        let context = contexts.get_mut(&raw.addr())?;
        let event = context.events.pop_front()?;
        context.signal.lower();
        let mut told: ibv_async_event = zeroed();
        match event {
            Event::OfQueuePair(kind, number) => {
                told.event_type = kind;
                told.element.qp = core::ptr::with_exposed_provenance_mut(queue_pairs.get(&number)?.raw);
            }
            Event::OfCompletionQueue(queue) => {
                told.event_type = IBV_EVENT_CQ_ERR;
                told.element.cq = core::ptr::with_exposed_provenance_mut(queue);
            }
        }
        Some(told)
    });
    let Some(event) = taken else {
        set_errno(libc::EAGAIN);
        return -1;
    };
    // SAFETY: the caller's structure.
    unsafe { *into = event };
    0
}

unsafe extern "C" fn ack_async_event(_event: *mut ibv_async_event) {}

unsafe extern "C" fn alloc_pd(raw: *mut ibv_context) -> *mut ibv_pd {
    with(|world| {
        let Some(context) = world.contexts.get_mut(&raw.addr()) else { return null(libc::EINVAL) };
        match context.nic.allocate_domain() {
            Ok(domain) => {
                let made = give(ibv_pd { context: raw, handle: domain.0 });
                context.domains.insert(made.expose_provenance(), domain);
                made
            }
            Err(error) => null(errno_of(error)),
        }
    })
}

/// The context of an object and its domain on the NIC.
///
/// # Safety
/// A domain of this crate that is alive.
pub(crate) unsafe fn context_of(domain: *mut ibv_pd) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*domain).context }.addr()
}

impl World {
    pub(crate) fn domain(&mut self, context: usize, domain: *mut ibv_pd) -> Result<(&mut Context, DomainId), i32> {
        let context = self.contexts.get_mut(&context).ok_or(libc::EINVAL)?;
        let found = context.domains.get(&domain.addr()).copied().ok_or(libc::EINVAL)?;
        Ok((context, found))
    }
}

unsafe extern "C" fn dealloc_pd(raw: *mut ibv_pd) -> c_int {
    // SAFETY: the caller's domain.
    let address = unsafe { context_of(raw) };
    let freed = with(|world| {
        if let Some(freed) = world.free_parent(raw) {
            return freed;
        }
        let (context, domain) = world.domain(address, raw)?;
        let freed = context.nic.command(Command::FreeDomain { domain });
        freed.map_err(errno_of).inspect_err(|_| world.violation(address, "a domain freed with objects in it"))?;
        world.contexts.get_mut(&address).map(|context| context.domains.remove(&raw.addr()));
        Ok(())
    });
    match freed {
        Ok(()) => {
            // SAFETY: made by `alloc_pd` or `alloc_parent_domain`, and forgotten above.
            unsafe { take_back(raw) };
            0
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn reg_mr(domain: *mut ibv_pd, start: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
    let access = access.cast_unsigned();
    // SAFETY: the caller's domain.
    let address = unsafe { context_of(domain) };
    with(|world| {
        let remote = ibv_access_flags::IBV_ACCESS_REMOTE_READ | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
        let manners = world.manners(address);
        let has_windows = manners.windows != FakeWindows::None;
        // Where windows do not work there is no other key.
        if access & remote.0 != 0 && manners.windows == FakeWindows::Working {
            world.violation(address, "memory registered with a remote right");
        }
        if access & ibv_access_flags::IBV_ACCESS_MW_BIND.0 != 0 && !has_windows {
            return null(libc::EINVAL);
        }
        let number = world.number();
        // Nobody reaches memory by it: the NIC opens keys by work requests only.
        let rkey = if access & remote.0 != 0 { REMOTE_KEYS | number << 8 } else { 0 };
        let (context, found) = match world.domain(address, domain) {
            Ok(found) => found,
            Err(code) => return null(code),
        };
        // SAFETY: as ibv_reg_mr(3) has it: the range is mapped until it is deregistered; programs of this project access it
        // by copies only, and what ends inside of a word owns all of it.
        let memory = unsafe { lend(start, length) };
        let Some(memory) = memory else { return null(libc::EINVAL) };
        let local_write = access & ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 != 0;
        let (base, lkey) = match context.nic.register_memory(found, memory, local_write) {
            Ok(made) => made,
            Err(error) => return null(errno_of(error)),
        };
        let raw = address_of_context(address);
        let made = give(ibv_mr { context: raw, pd: domain, addr: start, length, handle: base.0, lkey, rkey });
        let can_bind = access & ibv_access_flags::IBV_ACCESS_MW_BIND.0 != 0;
        let zero_based = access & ibv_access_flags::IBV_ACCESS_ZERO_BASED.0 != 0;
        let record =
            RegionRecord { base, lkey, can_bind, zero_based, domain: domain.addr(), start: start.addr(), length };
        context.regions.insert(made.expose_provenance(), record);
        made
    })
}

pub(crate) fn address_of_context(address: usize) -> *mut ibv_context {
    core::ptr::with_exposed_provenance_mut(address)
}

/// Memory of the program as the NIC sees it.
///
/// # Safety
/// As [`Region::from_foreign`].
unsafe fn lend(start: *mut c_void, length: usize) -> Option<frwr_mempool::DeviceMemory> {
    const WORD: usize = 8;
    let start = NonNull::new(core::ptr::with_exposed_provenance_mut::<u8>(start.addr()))?;
    // SAFETY: the caller's promise; device memory always ends with a whole word.
    let mut region = unsafe { Region::from_foreign(start, length.next_multiple_of(WORD), Arc::new(())) };
    let block = region.carve(length, WORD).ok()?;
    Some(block.into_device_memory())
}

unsafe extern "C" fn dereg_mr(raw: *mut ibv_mr) -> c_int {
    // SAFETY: the caller's region.
    let address = unsafe { (*raw).context }.addr();
    let freed = with(|world| {
        let context = world.contexts.get_mut(&address).ok_or(libc::EINVAL)?;
        let region = context.regions.get(&raw.addr()).ok_or(libc::EINVAL)?;
        // EINVAL while a window is bound to it.
        context.nic.command(Command::DeregisterMemory { base: region.base }).map_err(|_| libc::EINVAL)?;
        context.regions.remove(&raw.addr());
        Ok(())
    });
    match freed {
        Ok(()) => {
            // SAFETY: made by `reg_mr`, and forgotten above.
            unsafe { take_back(raw) };
            0
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn alloc_mw(domain: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the caller's domain.
    let address = unsafe { context_of(domain) };
    with(|world| {
        let number = world.number();
        if let Some(context) = world.contexts.get_mut(&address)
            && let Err(code) = context.refusals.check(Refusable::MakeRegistration)
        {
            return null(code);
        }
        if kind != IBV_MW_TYPE_2 || world.manners(address).windows == FakeWindows::NotAllocated {
            return null(libc::EOPNOTSUPP);
        }
        let (context, found) = match world.domain(address, domain) {
            Ok(found) => found,
            Err(code) => return null(code),
        };
        match context.nic.allocate_registration(found, 1) {
            Ok((object, key)) => {
                context.windows.insert(number, ObjectRecord { object, key });
                let raw = address_of_context(address);
                give(ibv_mw { context: raw, pd: domain, rkey: key, handle: number, type_: kind })
            }
            Err(error) => null(errno_of(error)),
        }
    })
}

unsafe extern "C" fn dealloc_mw(raw: *mut ibv_mw) -> c_int {
    // SAFETY: the caller's window.
    let (address, number) = unsafe { ((*raw).context.addr(), (*raw).handle) };
    let freed = with(|world| {
        let context = world.contexts.get_mut(&address).ok_or(libc::EINVAL)?;
        context.refusals.check(Refusable::DestroyRegistration)?;
        let window = context.windows.remove(&number).ok_or(libc::EINVAL)?;
        context.nic.command(Command::FreeRegistration { object: window.object }).map(drop).map_err(errno_of)
    });
    match freed {
        Ok(()) => {
            // SAFETY: made by `alloc_mw`, and forgotten above.
            unsafe { take_back(raw) };
            0
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn create_cq(
    raw: *mut ibv_context,
    entries: c_int,
    cookie: *mut c_void,
    channel: *mut ibv_comp_channel,
    _vector: c_int,
) -> *mut ibv_cq {
    with(|world| {
        let Some(context) = world.contexts.get_mut(&raw.addr()) else { return null(libc::EINVAL) };
        let limit = context.nic.capabilities().attributes.max_cqe as usize;
        let Some(capacity) = usize::try_from(entries).ok().filter(|entries| (1..=limit).contains(entries)) else {
            return null(libc::EINVAL);
        };
        let notification = match context.follow(channel.addr()) {
            Ok(notification) => notification,
            Err(code) => return null(code),
        };
        let mut made: ibv_cq = zeroed();
        (made.context, made.channel, made.cq_context, made.cqe) = (raw, channel, cookie, entries);
        let made = give(made);
        let queue = QueueRecord { capacity, entries: VecDeque::new(), overran: false, notification };
        context.queues.insert(made.expose_provenance(), queue);
        made
    })
}

unsafe extern "C" fn destroy_cq(raw: *mut ibv_cq) -> c_int {
    // SAFETY: the caller's queue.
    let address = unsafe { (*raw).context }.addr();
    let destroyed = with(|world| {
        let used = |end: &crate::queue_pair::QueuePair| [end.send_queue, end.receive_queue].contains(&raw.addr());
        if world.queue_pairs.values().any(used) {
            world.violation(address, "a completion queue destroyed under a queue pair");
            return Err(libc::EBUSY);
        }
        let context = world.contexts.get_mut(&address).ok_or(libc::EINVAL)?;
        let queue = context.queues.remove(&raw.addr()).ok_or(libc::EINVAL)?;
        let unacknowledged = context.unfollow(raw.addr(), queue.notification);
        if unacknowledged > 0 {
            let what = format!("a completion queue destroyed with {unacknowledged} events that nobody acknowledged");
            world.violation(address, what);
        }
        Ok(())
    });
    match destroyed {
        Ok(()) => {
            // SAFETY: made by `create_cq`, and forgotten above.
            unsafe { take_back(raw) };
            0
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn poll_cq(raw: *mut ibv_cq, room: c_int, into: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's queue.
    let address = unsafe { (*raw).context }.addr();
    with(|world| {
        world.step_device(address);
        let World { devices, contexts, queue_pairs, .. } = world;
        let Some(context) = contexts.get_mut(&address) else { return -1 };
        let Some(queue) = context.queues.get_mut(&raw.addr()) else { return -1 };
        let mut readable = devices.get_mut(&context.device).map(|record| &mut record.readable);
        let mut taken = 0;
        while taken < room {
            let Some(queued) = queue.entries.pop_front() else { break };
            if let Some(Some(left)) = readable.as_deref_mut().map(Option::as_mut) {
                let Some(fewer) = left.checked_sub(1) else {
                    readable.map(Option::take);
                    return -1;
                };
                *left = fewer;
            }
            if let Some(queue_pair) = queue_pairs.get_mut(&queued.completion.qp_num) {
                queue_pair.used = queue_pair.used.saturating_sub(queued.frees);
            }
            // SAFETY: there is room for as many; both are the same structure of C.
            unsafe { into.add(taken as usize).cast::<WorkCompletion>().write(queued.completion) };
            taken += 1;
        }
        taken
    })
}
