//! Receives on their way to C: a list on the stack, linked as ibv_post_recv(3) and ibv_post_srq_recv(3) want it.

use super::place_of;
use crate::provider::ReceiveRequest;
use core::ptr::null_mut;
use ibverbs_sys::ibv_recv_wr;
use std::io;

/// Room for `N` receives.
pub(super) struct ReceiveList<const N: usize>([ibv_recv_wr; N]);

impl<const N: usize> ReceiveList<N> {
    pub(super) const fn new() -> Self {
        Self([ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 0 }; N])
    }

    /// Hands receives to `call`, `N` at a time; it gets the first of a list and the place for the one that is refused.
    /// An error says how many were taken in front of that one.
    pub(super) fn post(
        &mut self,
        receives: &[ReceiveRequest],
        call: impl Fn(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> io::Result<()>,
    ) -> Result<(), (usize, io::Error)> {
        for (at, some) in receives.chunks(N).enumerate() {
            let first = self.link(some);
            let mut refused = null_mut();
            call(first, &raw mut refused).map_err(|error| (at * N + place_of(first, refused, some.len()), error))?;
        }
        Ok(())
    }

    fn link(&mut self, receives: &[ReceiveRequest]) -> *mut ibv_recv_wr {
        let start = self.0.as_mut_ptr();
        for (at, receive) in receives.iter().enumerate() {
            let more = at + 1 < receives.len();
            // SAFETY: `chunks` gives at most as many as the list has, so both places are inside of it.
            unsafe {
                *start.add(at) = ibv_recv_wr {
                    wr_id: receive.token.0,
                    next: if more { start.add(at + 1) } else { null_mut() },
                    // Only read, though C does not say so.
                    sg_list: (&raw const receive.element).cast_mut().cast(),
                    num_sge: 1,
                };
            }
        }
        start
    }
}
