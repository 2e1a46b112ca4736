//! The functions of libibverbs that make, change and destroy queue pairs, and its lists of work requests.

use crate::{
    builder, mlx5,
    queue_pair::{QueuePair, State},
    raw::null,
    refusals::Refusable,
    verbs::{context_of, errno_of, give, take_back, zeroed},
    work::{Bind, Verb, Work, elements_at},
    world::{Event, ParentRecord, World, with},
};
use core::ffi::c_int;
use frwr_engine::provider::verbs::abi::mlx5::{ListBuilder, QueuePairEx};
use frwr_engine::provider::{Command, PostRefusal, QueueSizes, ReceiveRequest, RemoteRange, ScatterElement, Token};
use ibverbs_sys::{
    IBV_QP_EX_WITH_BIND_MW, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, ibv_context, ibv_pd, ibv_qp,
    ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_state, ibv_qp_type, ibv_recv_wr,
    ibv_send_wr, ibv_srq, ibv_wr_opcode,
};

/// Bytes of inline data that a queue pair can be asked for, as many as librxe has room for.
const MAX_INLINE_BYTES: u32 = 400;

/// What is asked for.
pub(crate) struct Wanted {
    pub(crate) domain: *mut ibv_pd,
    pub(crate) send_queue: usize,
    pub(crate) receive_queue: usize,
    /// Null, or the shared receive queue that it receives from.
    pub(crate) shared: *mut ibv_srq,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) kind: ibv_qp_type::Type,
    /// What `ibv_wr_*` builds; none for queue pairs of lists.
    pub(crate) operations: u64,
    /// The list builder of queue pairs that libmlx5 makes.
    pub(crate) lists: Option<ListBuilder>,
}

/// A queue pair's structure, with what libmlx5 has behind it.
#[repr(C)]
pub(crate) struct QueuePairBlock {
    extended: ibv_qp_ex,
    pub(crate) lists: QueuePairEx,
}

impl World {
    /// Makes a queue pair; `cap` is changed to what it has.
    pub(crate) fn create(&mut self, context: usize, wanted: &Wanted) -> Result<*mut ibv_qp, i32> {
        let number = self.number();
        let fits = wanted.lists.is_some() || wanted.cap.max_inline_data <= MAX_INLINE_BYTES;
        if wanted.kind != ibv_qp_type::IBV_QPT_RC || !fits {
            return Err(libc::EINVAL);
        }
        let device = self.contexts.get(&context).and_then(|context| self.devices.get(&context.device));
        let is_mlx5 = device.is_some_and(|record| record.options.is_mlx5());
        if is_mlx5 && wanted.lists.is_none() && !mlx5::send_queue_fits(&wanted.cap, 0) {
            return Err(libc::EINVAL);
        }
        let parent = self.parent(context, wanted.domain);
        let protection = parent.map_or(wanted.domain, |parent| core::ptr::with_exposed_provenance_mut(parent.domain));
        let (found, domain) = self.domain(context, protection)?;
        if !found.queues.contains_key(&wanted.send_queue) || !found.queues.contains_key(&wanted.receive_queue) {
            return Err(libc::EINVAL);
        }
        let shared = if wanted.shared.is_null() { None } else { Some(wanted.shared.addr()) };
        let source = match shared {
            None => None,
            Some(shared) => Some(found.shared.get(&shared).ok_or(libc::EINVAL)?.queue),
        };
        let ibv_qp_cap { max_send_wr: send, max_recv_wr: receive, max_send_sge, .. } = wanted.cap;
        let made = found.nic.create_queue_pair(domain, QueueSizes { send, receive, max_send_sge }, source);
        let soft = made.map_err(errno_of)?;
        found.by_soft.insert(soft, number);
        found.parents.entry(wanted.domain.addr()).and_modify(|parent| parent.queue_pairs += 1);
        let mut block = QueuePairBlock { extended: ibv_qp_ex::default(), lists: zeroed() };
        block.lists.wr_mr_list = wanted.lists;
        let base = &mut block.extended.qp_base;
        (base.context, base.pd) = (core::ptr::with_exposed_provenance_mut(context), protection);
        base.send_cq = core::ptr::with_exposed_provenance_mut(wanted.send_queue);
        (base.qp_num, base.handle, base.qp_type) = (number, number, wanted.kind);
        if wanted.operations != 0 {
            set_builders(&mut block.extended);
        }
        let raw: *mut ibv_qp = give(block).cast();
        let mut queue_pair = QueuePair::new(context, raw.expose_provenance(), soft);
        (queue_pair.send_queue, queue_pair.receive_queue) = (wanted.send_queue, wanted.receive_queue);
        (queue_pair.cap, queue_pair.operations, queue_pair.shared) = (wanted.cap, wanted.operations, shared);
        queue_pair.parent = parent.map(|_| wanted.domain.addr());
        self.queue_pairs.insert(number, queue_pair);
        Ok(raw)
    }

    /// What this domain consists of, if it is of several.
    fn parent(&self, context: usize, domain: *mut ibv_pd) -> Option<ParentRecord> {
        self.contexts.get(&context)?.parents.get(&domain.addr()).copied()
    }
}

fn set_builders(block: &mut ibv_qp_ex) {
    block.wr_start = Some(builder::start);
    block.wr_send = Some(builder::send);
    block.wr_send_inv = Some(builder::send_invalidating);
    block.wr_rdma_read = Some(builder::read);
    block.wr_rdma_write = Some(builder::write);
    block.wr_local_inv = Some(builder::invalidate);
    block.wr_bind_mw = Some(builder::bind);
    block.wr_set_sge_list = Some(builder::set_list);
    block.wr_set_inline_data = Some(builder::set_inline);
    block.wr_complete = Some(builder::complete);
    block.wr_abort = Some(builder::abort);
}

pub(crate) unsafe extern "C" fn create_qp(domain: *mut ibv_pd, attributes: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller's structures.
    let (context, asked) = unsafe { (context_of(domain), *attributes) };
    let wanted = Wanted {
        domain,
        send_queue: asked.send_cq.addr(),
        receive_queue: asked.recv_cq.addr(),
        shared: asked.srq,
        cap: asked.cap,
        kind: asked.qp_type,
        operations: 0,
        lists: None,
    };
    with(|world| world.create(context, &wanted)).unwrap_or_else(null)
}

/// `ibv_create_qp_ex` as a program reaches it: by the head of its context.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attributes: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller's structure.
    let asked = unsafe { *attributes };
    let needed = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if asked.comp_mask & needed != needed {
        return null(libc::EINVAL);
    }
    with(|world| {
        let device = world.contexts.get(&context.addr()).and_then(|context| world.devices.get(&context.device));
        let has_windows = device.is_some_and(|record| record.options.has_windows());
        if asked.send_ops_flags & u64::from(IBV_QP_EX_WITH_BIND_MW) != 0 && !has_windows {
            return null(libc::EOPNOTSUPP);
        }
        let wanted = Wanted {
            domain: asked.pd,
            send_queue: asked.send_cq.addr(),
            receive_queue: asked.recv_cq.addr(),
            shared: asked.srq,
            cap: asked.cap,
            kind: asked.qp_type,
            operations: asked.send_ops_flags,
            lists: None,
        };
        world.create(context.addr(), &wanted).unwrap_or_else(null)
    })
}

/// The builder of a queue pair that was made for it.
pub(crate) unsafe extern "C" fn qp_to_qp_ex(raw: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the caller's queue pair, here and below.
    let number = unsafe { (*raw).qp_num };
    let extended = with(|world| world.queue_pairs.get(&number).is_some_and(|end| end.operations != 0));
    if extended { raw.cast() } else { core::ptr::null_mut() }
}

pub(crate) unsafe extern "C" fn modify_qp(raw: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: as above.
    let (number, attributes) = unsafe { ((*raw).qp_num, *attributes) };
    with(|world| {
        let World { contexts, queue_pairs, .. } = world;
        let Some(queue_pair) = queue_pairs.get_mut(&number) else { return libc::EINVAL };
        if attributes.qp_state == ibv_qp_state::IBV_QPS_ERR
            && let Some(context) = contexts.get_mut(&queue_pair.context)
            && let Err(code) = context.refusals.check(Refusable::FailQueuePair)
        {
            return code;
        }
        if let Err(code) = queue_pair.modify(&attributes, mask.cast_unsigned()) {
            return code;
        }
        match queue_pair.state {
            State::ReadyToSend => world.join(number),
            State::Failed => world.fail(number),
            State::Reset | State::Initialised | State::ReadyToReceive => {}
        }
        0
    })
}

impl World {
    fn fail(&mut self, number: u32) {
        let Some(queue_pair) = self.queue_pairs.get(&number) else { return };
        let (address, soft) = (queue_pair.context, queue_pair.soft);
        if let Some(context) = self.contexts.get_mut(&address) {
            // A queue pair that exists can fail at any time.
            let _ = context.nic.command(Command::FailQueuePair { queue_pair: soft });
        }
        self.take_news(address);
        // What no peer ever saw is flushed like everything else.
        self.post_waiting(number);
    }
}

pub(crate) unsafe extern "C" fn destroy_qp(raw: *mut ibv_qp) -> c_int {
    // SAFETY: as above.
    let number = unsafe { (*raw).qp_num };
    let destroyed = with(|world| {
        let World { contexts, queue_pairs, .. } = world;
        let context = queue_pairs.get(&number).and_then(|queue_pair| contexts.get_mut(&queue_pair.context));
        let context = context.ok_or(libc::EINVAL)?;
        context.refusals.check(Refusable::DestroyQueuePair)?;
        let queue_pair = queue_pairs.remove(&number).ok_or(libc::EINVAL)?;
        let destroyed = context.nic.command(Command::DestroyQueuePair { queue_pair: queue_pair.soft });
        context.by_soft.remove(&queue_pair.soft);
        if let Some(parent) = queue_pair.parent {
            context.parents.entry(parent).and_modify(|parent| parent.queue_pairs -= 1);
        }
        // Its completions go with it, and so do its events.
        for queue in context.queues.values_mut() {
            queue.entries.retain(|queued| queued.completion.qp_num != number);
        }
        let before = context.events.len();
        context.events.retain(|event| !matches!(event, Event::OfQueuePair(_, of) if *of == number));
        (context.events.len()..before).for_each(|_| context.signal.lower());
        destroyed.map(drop).map_err(errno_of)
    });
    match destroyed {
        Ok(()) => {
            // SAFETY: made by `create`, as the front of this structure, and forgotten above.
            unsafe { take_back(raw.cast::<QueuePairBlock>()) };
            0
        }
        Err(code) => code,
    }
}

impl World {
    /// Whether a queue pair's library notes keys in windows.
    fn writes_keys(&self, number: u32) -> bool {
        self.queue_pairs.get(&number).is_some_and(|end| self.manners(end.context).writes_keys)
    }
}

/// # Safety
/// A work request whose lists are alive.
unsafe fn work_of(request: &ibv_send_wr) -> Result<Work, i32> {
    // SAFETY: the members of the unions are those of the opcode, for which programs set them.
    let (verb, elements) = unsafe {
        let elements = || elements_at(request.sg_list, usize::try_from(request.num_sge).unwrap_or(0));
        let remote = RemoteRange { address: request.wr.rdma.remote_addr, key: request.wr.rdma.rkey };
        let key = request.__bindgen_anon_1.invalidate_rkey;
        match request.opcode {
            ibv_wr_opcode::IBV_WR_SEND => (Verb::Send { invalidate: None }, elements()),
            ibv_wr_opcode::IBV_WR_SEND_WITH_INV => (Verb::Send { invalidate: Some(key) }, elements()),
            ibv_wr_opcode::IBV_WR_RDMA_READ => (Verb::Read(remote), elements()),
            ibv_wr_opcode::IBV_WR_RDMA_WRITE => (Verb::Write(remote), elements()),
            ibv_wr_opcode::IBV_WR_LOCAL_INV => (Verb::Invalidate { key }, Vec::new()),
            ibv_wr_opcode::IBV_WR_BIND_MW => {
                let bind = &request.__bindgen_anon_2.bind_mw;
                // Leftovers are refused.
                if request.num_sge != 0 || key != 0 {
                    return Err(libc::EINVAL);
                }
                (Verb::Bind(Bind::new(&*bind.mw, bind.rkey, &bind.bind_info)), Vec::new())
            }
            _ => return Err(libc::EOPNOTSUPP),
        }
    };
    Ok(Work { wr_id: request.wr_id, flags: request.send_flags, verb, elements })
}

/// A prefix of the list is taken.
pub(crate) unsafe extern "C" fn post_send(
    raw: *mut ibv_qp,
    first: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's queue pair and list, in all of this function.
    let number = unsafe { (*raw).qp_num };
    with(|world| {
        let (mut works, mut at, mut code) = (Vec::new(), first, 0);
        while !at.is_null() {
            // SAFETY: as above.
            let work = unsafe { work_of(&*at) };
            match work.and_then(|work| world.check(number, &work, works.len()).map(|()| work)) {
                Ok(work) => {
                    if let Verb::Bind(bind) = &work.verb
                        && world.writes_keys(number)
                    {
                        // SAFETY: the window that a bind names is the program's, and alive while it posts.
                        unsafe { (*(*at).__bindgen_anon_2.bind_mw.mw).rkey = bind.new_key() };
                    }
                    works.push(work);
                }
                Err(error) => {
                    code = error;
                    // SAFETY: as above.
                    unsafe { *refused = at };
                    break;
                }
            }
            // SAFETY: as above.
            at = unsafe { (*at).next };
        }
        world.post(number, works);
        code
    })
}

/// A prefix of the list is taken.
pub(crate) unsafe extern "C" fn post_recv(
    raw: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: as above.
    let number = unsafe { (*raw).qp_num };
    with(|world| {
        let mut at = first;
        while !at.is_null() {
            // SAFETY: as above.
            let (request, elements) = unsafe { (&*at, elements_at((*at).sg_list, (*at).num_sge as usize)) };
            let element = elements.first().copied().unwrap_or_default();
            if let Err(code) = world.post_receive(number, Token(request.wr_id), element) {
                // SAFETY: as above.
                unsafe { *refused = at };
                return code;
            }
            at = request.next;
        }
        0
    })
}

impl World {
    fn post_receive(&mut self, number: u32, token: Token, element: ScatterElement) -> Result<(), i32> {
        let queue_pair = self.queue_pairs.get_mut(&number).ok_or(libc::EINVAL)?;
        if queue_pair.state == State::Reset || queue_pair.shared.is_some() {
            return Err(libc::EINVAL);
        }
        let request = queue_pair.receive(ReceiveRequest { token, element });
        let (address, soft) = (queue_pair.context, queue_pair.soft);
        let context = self.contexts.get_mut(&address).ok_or(libc::EINVAL)?;
        let posted = context.nic.post_receives(soft, &[request]);
        if posted.is_err()
            && let Some(queue_pair) = self.queue_pairs.get_mut(&number)
        {
            queue_pair.receives.pop_back();
        }
        self.take_news(address);
        match posted {
            Ok(()) => Ok(()),
            Err(error) if error.reason == PostRefusal::QueueFull => Err(libc::ENOMEM),
            Err(_) => Err(libc::EINVAL),
        }
    }
}
