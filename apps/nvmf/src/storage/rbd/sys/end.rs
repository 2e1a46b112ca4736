//! The end of an operation, as a thread of librbd tells it.

use super::{super::mailbox::Mailbox, functions::RbdFunctions};
use core::ffi::c_void;
use std::sync::Arc;

/// Where the end of the operation in a slot is put. librbd is given its address, so that it stays where it is until that end was taken
/// from the mailbox.
#[derive(Debug)]
pub(super) struct End {
    functions: &'static RbdFunctions,
    mailbox: Arc<Mailbox>,
    slot: usize,
}

impl End {
    /// One for each slot of a mailbox.
    pub(super) fn of_all(functions: &'static RbdFunctions, mailbox: &Arc<Mailbox>) -> Arc<[Self]> {
        (0..mailbox.slots()).map(|slot| Self { functions, mailbox: Arc::clone(mailbox), slot }).collect()
    }
}

/// What librbd calls when an operation has ended (`rbd_callback_t` of librbd.h): once, on a thread of its own. It waits for nobody, and
/// nobody for it.
///
/// # Safety
/// `completion` is that operation's, `argument` its [`End`], which lives until the end was taken from its mailbox.
pub(super) unsafe extern "C" fn ended(completion: *mut c_void, argument: *mut c_void) {
    // SAFETY: as the caller promises.
    let End { functions, mailbox, slot } = unsafe { &*argument.cast_const().cast::<End>() };
    // Whoever takes the end may let go of all that it came by, while the bell is rung.
    let (mailbox, slot) = (Arc::clone(mailbox), *slot);
    // SAFETY: it has ended, and nobody else releases it.
    let result = unsafe {
        let result = (functions.rbd_aio_get_return_value)(completion);
        (functions.rbd_aio_release)(completion);
        result
    };
    mailbox.post(slot, result as i64);
}
