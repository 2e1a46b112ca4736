//! Thread domains, and the domains that are of a protection domain and a thread domain together.

use crate::{
    raw::null,
    verbs::{context_of, give, take_back},
    world::{ParentRecord, World, with},
};
use core::ffi::c_int;
use ibverbs_sys::{ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr};

pub(crate) unsafe extern "C" fn alloc_td(raw: *mut ibv_context, attributes: *mut ibv_td_init_attr) -> *mut ibv_td {
    // SAFETY: the caller's structure.
    let mask = unsafe { (*attributes).comp_mask };
    with(|world| {
        let Some(context) = world.contexts.get_mut(&raw.addr()).filter(|_| mask == 0) else {
            return null(libc::EINVAL);
        };
        let made = give(ibv_td { context: raw });
        context.threads.insert(made.expose_provenance(), 0);
        made
    })
}

pub(crate) unsafe extern "C" fn dealloc_td(raw: *mut ibv_td) -> c_int {
    // SAFETY: the caller's domain.
    let address = unsafe { (*raw).context }.addr();
    let freed = with(|world| {
        let context = world.contexts.get_mut(&address).ok_or(libc::EINVAL)?;
        match context.threads.get(&raw.addr()) {
            None => Err(libc::EINVAL),
            Some(0) => {
                context.threads.remove(&raw.addr());
                Ok(())
            }
            Some(_) => {
                world.violation(address, "a thread domain freed with domains in it");
                Err(libc::EBUSY)
            }
        }
    });
    match freed {
        Ok(()) => {
            // SAFETY: made by `alloc_td`, and forgotten above.
            unsafe { take_back(raw) };
            0
        }
        Err(code) => code,
    }
}

pub(crate) unsafe extern "C" fn alloc_parent_domain(
    raw: *mut ibv_context,
    attributes: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: the caller's structure and the protection domain that it names.
    let asked = unsafe { *attributes };
    with(|world| {
        let context = world.contexts.get_mut(&raw.addr());
        let known = |context: &&mut crate::world::Context| {
            let has_thread = asked.td.is_null() || context.threads.contains_key(&asked.td.addr());
            asked.comp_mask == 0 && has_thread && context.domains.contains_key(&asked.pd.addr())
        };
        let Some(context) = context.filter(known) else { return null(libc::EINVAL) };
        context.threads.entry(asked.td.addr()).and_modify(|parents| *parents += 1);
        // SAFETY: a protection domain of this crate that is alive.
        let handle = unsafe { (*asked.pd).handle };
        let made = give(ibv_pd { context: raw, handle });
        let record = ParentRecord { domain: asked.pd.expose_provenance(), thread: asked.td.addr(), queue_pairs: 0 };
        context.parents.insert(made.expose_provenance(), record);
        made
    })
}

impl World {
    /// Frees such a domain; nothing where it is none.
    pub(crate) fn free_parent(&mut self, raw: *mut ibv_pd) -> Option<Result<(), i32>> {
        // SAFETY: the caller's domain.
        let address = unsafe { context_of(raw) };
        let context = self.contexts.get_mut(&address)?;
        let record = *context.parents.get(&raw.addr())?;
        if record.queue_pairs > 0 {
            self.violation(address, "a parent domain freed with queue pairs in it");
            return Some(Err(libc::EBUSY));
        }
        context.parents.remove(&raw.addr());
        context.threads.entry(record.thread).and_modify(|parents| *parents -= 1);
        Some(Ok(()))
    }
}
