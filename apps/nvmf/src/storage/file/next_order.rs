//! How a worker thread waits for what is handed to it over a lane. It is a file of its own because loom checks it as it is
//! (reactor/tests/loom/worker.rs).

use frwr_mempool::lane::Receiver;

/// The next order, or `None` when there will be none. `park` returns when the thread was unparked, which whoever sends or goes away does
/// afterwards.
pub(super) fn next_order<O>(orders: &mut Receiver<O>, park: impl Fn()) -> Option<O> {
    loop {
        // Asked first: what is in a closed lane is all there will be.
        let closed = orders.is_closed();
        match orders.pop() {
            Some(order) => return Some(order),
            None if closed => return None,
            // Whoever filled the lane since has left a token, and this returns at once.
            None => park(),
        }
    }
}
