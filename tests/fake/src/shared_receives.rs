//! Shared receive queues.

use crate::{
    raw::null,
    verbs::{address_of_context, context_of, errno_of, give, take_back, zeroed},
    work::elements_at,
    world::{SharedRecord, World, with},
};
use core::ffi::c_int;
use frwr_engine::provider::{Command, PostRefusal, ReceiveRequest, Token};
use ibverbs_sys::{ibv_pd, ibv_recv_wr, ibv_srq, ibv_srq_init_attr};
use std::collections::HashMap;

pub(crate) unsafe extern "C" fn create_srq(domain: *mut ibv_pd, attributes: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: the caller's domain and structure.
    let (address, entries) = unsafe { (context_of(domain), (*attributes).attr.max_wr) };
    with(|world| {
        let (context, found) = match world.domain(address, domain) {
            Ok(found) => found,
            Err(code) => return null(code),
        };
        match context.nic.create_shared_receive_queue(found, entries) {
            Ok(queue) => {
                let mut made: ibv_srq = zeroed();
                (made.context, made.pd) = (address_of_context(address), domain);
                let made = give(made);
                let record = SharedRecord { queue, last_token: 0, receives: HashMap::new() };
                context.shared.insert(made.expose_provenance(), record);
                made
            }
            Err(error) => null(errno_of(error)),
        }
    })
}

pub(crate) unsafe extern "C" fn destroy_srq(raw: *mut ibv_srq) -> c_int {
    // SAFETY: the caller's queue, here and below.
    let address = unsafe { (*raw).context }.addr();
    let destroyed = with(|world| {
        let context = world.contexts.get_mut(&address).ok_or(libc::EINVAL)?;
        let queue = context.shared.get(&raw.addr()).ok_or(libc::EINVAL)?.queue;
        context.nic.command(Command::DestroySharedReceiveQueue { queue }).map_err(errno_of)?;
        context.shared.remove(&raw.addr());
        Ok(())
    });
    match destroyed {
        Ok(()) => {
            // SAFETY: made by `create_srq`, and forgotten above.
            unsafe { take_back(raw) };
            0
        }
        Err(code) => code,
    }
}

/// A prefix of the list is taken.
pub(crate) unsafe extern "C" fn post_srq_recv(
    raw: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: as above; the list is the caller's, here and below.
    let address = unsafe { (*raw).context }.addr();
    with(|world| {
        let mut at = first;
        while !at.is_null() {
            // SAFETY: as above.
            let (request, elements) = unsafe { (&*at, elements_at((*at).sg_list, (*at).num_sge as usize)) };
            let element = elements.first().copied().unwrap_or_default();
            let receive = ReceiveRequest { token: Token(request.wr_id), element };
            if let Err(code) = world.post_shared_receive(address, raw.addr(), receive) {
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
    fn post_shared_receive(&mut self, address: usize, queue: usize, receive: ReceiveRequest) -> Result<(), i32> {
        let context = self.contexts.get_mut(&address).ok_or(libc::EINVAL)?;
        let record = context.shared.get_mut(&queue).ok_or(libc::EINVAL)?;
        record.last_token += 1;
        let token = Token(record.last_token);
        record.receives.insert(token, receive.token.0);
        let posted = context.nic.post_shared_receives(record.queue, &[ReceiveRequest { token, ..receive }]);
        if posted.is_err() {
            record.receives.remove(&token);
        }
        self.take_news(address);
        match posted {
            Ok(()) => Ok(()),
            Err(error) if error.reason == PostRefusal::QueueFull => Err(libc::ENOMEM),
            Err(_) => Err(libc::EINVAL),
        }
    }
}
