//! A panic is how a check of a simulation fails: its text, and quiet while one is repeated.

use core::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Calls `run`; a panic is an error with its text and place, and prints nothing.
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if CAUGHT.get() {
                LAST.set(Some(info.to_string()));
            } else {
                before(info);
            }
        }));
    });
    let was = CAUGHT.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    CAUGHT.set(was);
    result.unwrap_or_else(|_| Err(LAST.take().unwrap_or_else(|| "panicked".to_owned())))
}
