//! `ibv_wr_*`: work requests built in place, between start and complete (ibv_wr_post(3)).

use crate::{
    work::{Bind, Verb, Work, elements_at},
    world::{World, with},
};
use core::ffi::c_void;
use frwr_engine::provider::{RemoteRange, ScatterElement};
use ibverbs_sys::{
    IBV_QP_EX_WITH_BIND_MW, IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_INV, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_send_flags, ibv_sge,
};

/// A post under way.
#[derive(Debug, Default)]
pub(crate) struct Building {
    works: Vec<Work>,
    /// The last work request was given its elements.
    has_list: bool,
    /// The first error, which the end of the post tells.
    error: Option<i32>,
}

impl Building {
    pub(crate) fn fail(&mut self, code: i32) {
        self.error.get_or_insert(code);
    }

    /// The entries of the last work request, which came with it.
    pub(crate) fn set_elements(&mut self, elements: Vec<ScatterElement>) {
        if let Some(work) = self.works.last_mut() {
            work.elements = elements;
        }
    }
}

/// The members of the structure that programs write and builders read.
pub(crate) struct Fields {
    pub(crate) number: u32,
    wr_id: u64,
    pub(crate) flags: u32,
}

impl Fields {
    /// # Safety
    /// A queue pair that this crate made and that is alive.
    pub(crate) unsafe fn of(raw: *mut ibv_qp_ex) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self { number: (*raw).qp_base.qp_num, wr_id: (*raw).wr_id, flags: (*raw).wr_flags } }
    }
}

/// # Safety
/// As [`Fields::of`].
unsafe fn fields(raw: *mut ibv_qp_ex) -> Fields {
    // SAFETY: the caller's promise.
    unsafe { Fields::of(raw) }
}

impl World {
    /// The post under way, or a violation.
    pub(crate) fn building(&mut self, number: u32, what: &str) -> Option<&mut Building> {
        let queue_pair = self.queue_pairs.get(&number)?;
        if queue_pair.building.is_none() {
            let context = queue_pair.context;
            self.violation(context, format!("{what} outside of a post"));
        }
        self.queue_pairs.get_mut(&number)?.building.as_mut()
    }

    /// The last work request has all that it needs.
    fn finish_last(&mut self, number: u32) {
        let Some(queue_pair) = self.queue_pairs.get_mut(&number) else { return };
        let context = queue_pair.context;
        let Some(building) = &mut queue_pair.building else { return };
        if building.works.last().is_some_and(Work::is_message) && !building.has_list {
            building.fail(libc::EINVAL);
            self.violation(context, "a message without its elements");
        }
    }

    /// Begins the next work request, of an operation that the queue pair was made for; 0 for those of its driver.
    pub(crate) fn build(&mut self, fields: &Fields, operation: u32, verb: Verb) {
        let number = fields.number;
        if self.building(number, "a builder").is_none() {
            return;
        }
        self.finish_last(number);
        let allowed = operation == 0
            || self.queue_pairs.get(&number).is_some_and(|end| end.operations & u64::from(operation) != 0);
        let work = Work { wr_id: fields.wr_id, flags: fields.flags, verb, elements: Vec::new() };
        let Some(building) = self.building(number, "a builder") else { return };
        if !allowed {
            building.fail(libc::EOPNOTSUPP);
        }
        building.works.push(work);
        building.has_list = false;
    }
}

pub(crate) unsafe extern "C" fn start(raw: *mut ibv_qp_ex) {
    // SAFETY: the caller's queue pair, here and below.
    let Fields { number, .. } = unsafe { fields(raw) };
    with(|world| {
        let Some(queue_pair) = world.queue_pairs.get_mut(&number) else { return };
        let context = queue_pair.context;
        if queue_pair.building.replace(Building::default()).is_some() {
            world.violation(context, "a post begun in a post");
        }
    });
}

pub(crate) unsafe extern "C" fn send(raw: *mut ibv_qp_ex) {
    // SAFETY: as above.
    let fields = unsafe { fields(raw) };
    with(|world| world.build(&fields, IBV_QP_EX_WITH_SEND, Verb::Send { invalidate: None }));
}

pub(crate) unsafe extern "C" fn send_invalidating(raw: *mut ibv_qp_ex, key: u32) {
    // SAFETY: as above.
    let fields = unsafe { fields(raw) };
    with(|world| world.build(&fields, IBV_QP_EX_WITH_SEND_WITH_INV, Verb::Send { invalidate: Some(key) }));
}

pub(crate) unsafe extern "C" fn read(raw: *mut ibv_qp_ex, key: u32, address: u64) {
    // SAFETY: as above.
    let fields = unsafe { fields(raw) };
    with(|world| world.build(&fields, IBV_QP_EX_WITH_RDMA_READ, Verb::Read(RemoteRange { address, key })));
}

pub(crate) unsafe extern "C" fn write(raw: *mut ibv_qp_ex, key: u32, address: u64) {
    // SAFETY: as above.
    let fields = unsafe { fields(raw) };
    with(|world| world.build(&fields, IBV_QP_EX_WITH_RDMA_WRITE, Verb::Write(RemoteRange { address, key })));
}

pub(crate) unsafe extern "C" fn invalidate(raw: *mut ibv_qp_ex, key: u32) {
    // SAFETY: as above.
    let fields = unsafe { fields(raw) };
    with(|world| world.build(&fields, IBV_QP_EX_WITH_LOCAL_INV, Verb::Invalidate { key }));
}

pub(crate) unsafe extern "C" fn bind(
    raw: *mut ibv_qp_ex,
    window: *mut ibv_mw,
    key: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: as above; window and info live through the call.
    let (fields, bind) = unsafe { (fields(raw), Bind::new(&*window, key, &*info)) };
    with(|world| world.build(&fields, IBV_QP_EX_WITH_BIND_MW, Verb::Bind(bind)));
}

pub(crate) unsafe extern "C" fn set_list(raw: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: as above; the list has as many elements.
    let (fields, elements) = unsafe { (fields(raw), elements_at(list, count)) };
    with(|world| {
        let Some(building) = world.building(fields.number, "a setter") else { return };
        let fits = building.works.last().is_some_and(Work::is_message) && !building.has_list;
        if let Some(work) = building.works.last_mut().filter(|_| fits) {
            work.elements = elements;
            building.has_list = true;
            return;
        }
        building.fail(libc::EINVAL);
        let context = world.queue_pairs[&fields.number].context;
        world.violation(context, "elements for a work request that takes none, or has them");
    });
}

/// Data that are copied at once, wherever they are: here they are looked for among what is registered, since the NIC fetches them.
pub(crate) unsafe extern "C" fn set_inline(raw: *mut ibv_qp_ex, data: *mut c_void, length: usize) {
    // SAFETY: as above.
    let (fields, domain) = unsafe { (fields(raw), (*raw).qp_base.pd.addr()) };
    with(|world| {
        let Some(queue_pair) = world.queue_pairs.get(&fields.number) else { return };
        let (context, room) = (queue_pair.context, queue_pair.cap.max_inline_data as usize);
        let element = world.contexts.get(&context).and_then(|context| context.registered(domain, data.addr(), length));
        let Some(building) = world.building(fields.number, "a setter") else { return };
        if length > room {
            building.fail(libc::ENOMEM);
        }
        let fits = building.works.last().is_some_and(Work::is_message) && !building.has_list;
        if let (Some(work), Some(element)) = (building.works.last_mut().filter(|_| fits), element) {
            work.elements = vec![element];
            work.flags |= ibv_send_flags::IBV_SEND_INLINE.0;
            building.has_list = true;
            return;
        }
        building.fail(libc::EINVAL);
        world.violation(
            context,
            "inline data of a work request that takes none, has them, or of memory that nobody registered",
        );
    });
}

/// All or nothing.
pub(crate) unsafe extern "C" fn complete(raw: *mut ibv_qp_ex) -> i32 {
    // SAFETY: as above.
    let Fields { number, .. } = unsafe { fields(raw) };
    with(|world| {
        world.finish_last(number);
        if world.building(number, "the end of a post").is_none() {
            return libc::EINVAL;
        }
        let building = world.queue_pairs.get_mut(&number).and_then(|end| end.building.take());
        let Building { works, error, .. } = building.unwrap_or_default();
        if let Some(code) = error {
            return code;
        }
        for (planned, work) in works.iter().enumerate() {
            if let Err(code) = world.check(number, work, planned) {
                return code;
            }
        }
        world.post(number, works);
        0
    })
}

pub(crate) unsafe extern "C" fn abort(raw: *mut ibv_qp_ex) {
    // SAFETY: as above.
    let Fields { number, .. } = unsafe { fields(raw) };
    with(|world| {
        if world.building(number, "the end of a post").is_some()
            && let Some(queue_pair) = world.queue_pairs.get_mut(&number)
        {
            queue_pair.building = None;
        }
    });
}
