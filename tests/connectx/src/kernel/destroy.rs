//! Commands that end objects.

use super::{
    Command, Errno, Kernel, Object,
    abi::{Destroy, DestroyCompletionQueueAnswer, DestroyQueue, DestroyQueueAnswer},
    refused,
};
use crate::waiting;
use std::os::fd::RawFd;

impl Kernel {
    /// A domain, a region or a window.
    pub(super) fn destroy_plain(&mut self, asked: &Command<'_>) -> Result<(), Errno> {
        let handle = asked.core::<Destroy>()?.handle;
        self.destroy(asked.file, handle)
    }

    /// A completion queue, a queue pair or a shared receive queue.
    pub(super) fn destroy_queue(&mut self, asked: &Command<'_>) -> Result<(), Errno> {
        let core = asked.core::<DestroyQueue>()?;
        let object = self.object(asked.file, core.handle)?;
        self.destroy(asked.file, core.handle)?;
        match object {
            Object::CompletionQueue(_) => {
                asked.answer(core.response, &DestroyCompletionQueueAnswer { completion_events: 0, async_events: 0 })
            }
            Object::QueuePair { events, .. } => asked.answer(core.response, &DestroyQueueAnswer { events }),
            _ => asked.answer(core.response, &DestroyQueueAnswer { events: 0 }),
        }
        Ok(())
    }

    /// Any object.
    pub(super) fn destroy(&mut self, file: RawFd, handle: u32) -> Result<(), Errno> {
        let object = self.object(file, handle)?;
        if let Object::Domain(number) = object
            && self.file(file)?.objects.values().any(|other| domain_of(other) == Some(number))
        {
            return Err(libc::EBUSY);
        }
        self.forget(object)?;
        let file = self.file(file)?;
        file.objects.remove(&handle);
        if let Object::QueuePair { user, .. } = object {
            // What was not read of it is not to be read any more.
            let before = file.events.len();
            file.events.retain(|event| event.element != user);
            for _ in file.events.len()..before {
                waiting::take(file.events_descriptor);
            }
        }
        Ok(())
    }

    /// The card's part of it.
    pub(super) fn forget(&mut self, object: Object) -> Result<(), Errno> {
        match object {
            Object::Domain(_) | Object::Registers { .. } => Ok(()),
            Object::Region { key, .. } | Object::Window { key, .. } | Object::List { key, .. } => {
                self.card.destroy_key(key)
            }
            Object::CompletionQueue(number) => self.card.destroy_completion_queue(number),
            Object::QueuePair { number, .. } => self.card.destroy_queue_pair(number),
            Object::SharedReceives { number, .. } => self.card.destroy_shared_receives(number),
        }
        .map_err(refused)
    }
}

/// The domain that an object lives in.
fn domain_of(object: &Object) -> Option<u32> {
    match *object {
        Object::Region { domain, .. }
        | Object::Window { domain, .. }
        | Object::List { domain, .. }
        | Object::QueuePair { domain, .. }
        | Object::SharedReceives { domain, .. } => Some(domain),
        Object::Domain(_) | Object::CompletionQueue(_) | Object::Registers { .. } => None,
    }
}
