//! One core's operations with an image, and the memory that they move bytes to and from.

use super::{
    super::{mailbox::Mailbox, shared::Shared},
    Errno,
    end::End,
    image::Step,
};
use core::time::Duration;
use frwr_mempool::DeviceMemory;
use std::{sync::Arc, thread, time::Instant};

/// How long a way that is dropped waits for what librbd has of it: its OSDs answer in milliseconds, and start again within seconds.
const DROP_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks meanwhile: nobody's waker is at hand.
const DROP_TURN: Duration = Duration::from_millis(10);

/// A way of one core. At most as many operations run as it has slots.
#[derive(Debug)]
pub(in super::super) struct Way {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    /// Of each slot.
    ends: Arc<[End]>,
    buffers: Option<DeviceMemory>,
    running: usize,
}

impl Way {
    /// Of so many slots.
    pub(in super::super) fn new(shared: Arc<Shared>, slots: usize) -> Self {
        let mailbox = Arc::new(Mailbox::new(slots));
        let ends = End::of_all(shared.image().functions(), &mailbox);
        Self { shared, mailbox, ends, buffers: None, running: 0 }
    }

    pub(in super::super) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(in super::super) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Takes the memory of all buffers, once. False where it has one already.
    pub(in super::super) fn attach(&mut self, buffers: DeviceMemory) -> bool {
        let is_new = self.buffers.is_none();
        self.buffers.get_or_insert(buffers);
        is_new
    }

    /// The memory of all buffers.
    pub(in super::super) const fn buffers(&self) -> Option<&DeviceMemory> {
        self.buffers.as_ref()
    }

    /// Operations that librbd has.
    pub(in super::super) const fn running(&self) -> usize {
        self.running
    }

    /// Begins a step of the operation in a slot, which has none that runs.
    ///
    /// # Errors
    /// What librbd says, or EFAULT where its buffer lies outside; nothing was begun.
    pub(in super::super) fn start(&mut self, slot: u32, step: Step) -> Result<(), Errno> {
        let within = match step {
            Step::Read { bytes, buffer, .. } | Step::Write { bytes, buffer, .. } => Some((buffer, bytes as usize)),
            Step::CompareAndWrite { bytes, buffer, .. } => Some((buffer, 3 * bytes as usize)),
            Step::WriteZeroes { .. } | Step::Discard { .. } | Step::Flush => None,
        };
        let memory = match within {
            Some((buffer, bytes)) => {
                let place = self.buffers.as_ref().and_then(|all| all.slice(buffer, bytes).ok());
                // Nothing is ever accessed through it by Rust.
                core::ptr::with_exposed_provenance_mut(place.ok_or(Errno(libc::EFAULT))?.address() as usize)
            }
            None => core::ptr::null_mut(),
        };
        let end = &raw const self.ends[slot as usize];
        // SAFETY: both stay until all have ended (`drop`): the end, which nobody changes, and the memory, which lies in `self.buffers`,
        // where devices change it.
        unsafe { self.shared.image().start(end, step, memory) }?;
        self.running += 1;
        Ok(())
    }

    /// Operations that have ended.
    pub(in super::super) fn take(&mut self, mut each: impl FnMut(u32, i64)) {
        let running = &mut self.running;
        self.mailbox.take(|slot, result| {
            *running -= 1;
            each(slot, result);
        });
    }

    /// Waits until all have ended; false where that takes too long.
    #[allow(
        clippy::disallowed_methods,
        reason = "a way is dropped when nobody polls it, and its cluster may never answer"
    )]
    fn wait(&mut self) -> bool {
        let began = Instant::now();
        while self.running > 0 {
            self.take(|_, _| {});
            if self.running > 0 {
                if began.elapsed() >= DROP_LIMIT {
                    return false;
                }
                thread::sleep(DROP_TURN);
            }
        }
        true
    }
}

impl Drop for Way {
    /// Waits for what runs: its buffers must stay mapped until then.
    fn drop(&mut self) {
        if !self.wait() {
            // They stay mapped for ever, what librbd has the address of stays, and the image open.
            core::mem::forget(self.buffers.take());
            core::mem::forget(Arc::clone(&self.ends));
            core::mem::forget(Arc::clone(&self.shared));
        }
    }
}
