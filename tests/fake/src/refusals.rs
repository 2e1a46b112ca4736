//! What a context refuses although nothing is wrong with what it is asked for, as often as a test says.

use std::collections::HashMap;

/// A function that ends something, or makes something, and may be refused. What was refused goes on as if nobody had asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusable {
    /// ibv_destroy_qp(3).
    DestroyQueuePair,
    /// ibv_modify_qp(3) to the error state.
    FailQueuePair,
    /// ibv_dealloc_mw(3) and mlx5dv_destroy_mkey(3).
    DestroyRegistration,
    /// ibv_alloc_mw(3).
    MakeRegistration,
    /// ibv_create_comp_channel(3).
    MakeChannel,
    /// ibv_req_notify_cq(3).
    RequestNotification,
}

/// How often one function is refused.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    code: i32,
    left: u32,
    refused: u32,
}

/// Of one context.
#[derive(Debug, Default)]
pub(crate) struct Refusals(HashMap<Refusable, Count>);

impl Refusals {
    /// Refuses so many calls from now on with this error; 0 complies again.
    pub(crate) fn set(&mut self, what: Refusable, code: i32, times: u32) {
        let count = self.0.entry(what).or_default();
        (count.code, count.left) = (code, times);
    }

    /// Calls refused so far.
    pub(crate) fn refused(&self, what: Refusable) -> u32 {
        self.0.get(&what).map_or(0, |count| count.refused)
    }

    /// Whether a call may go on, or what it says instead.
    pub(crate) fn check(&mut self, what: Refusable) -> Result<(), i32> {
        let Some(count) = self.0.get_mut(&what).filter(|count| count.left > 0) else { return Ok(()) };
        count.left -= 1;
        count.refused += 1;
        Err(count.code)
    }
}
