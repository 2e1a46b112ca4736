//! A worker thread that parks while it has nothing to do, with the same source as that of storages.

#[path = "../../../apps/nvmf/src/storage/file/next_order.rs"]
mod next_order;

use frwr_mempool::lane;
use loom::thread;
use next_order::next_order;

/// Every order is carried out in order, those too that were given just before the end, and the worker ends: it never parks over an order
/// or over the wish to end.
#[test]
fn a_worker_parks_over_nothing_and_ends() {
    loom::model(|| {
        let (mut orders, mut orders_out) = lane::bounded::<u32>(2);
        let (mut results_in, mut results) = lane::bounded::<u32>(4);
        let worker = thread::spawn(move || {
            while let Some(order) = next_order(&mut orders_out, thread::park) {
                results_in.push(order).unwrap();
            }
        });
        // A flush hands over what there is and wakes, whether the worker sleeps or not.
        assert_eq!(orders.push_batch(&mut (0..2)), 2);
        worker.thread().unpark();
        let mut ended = Vec::new();
        results.pop_batch(1, |order| ended.push(order));
        let last = orders.push(2).is_ok();
        if last {
            worker.thread().unpark();
        }
        // The end.
        drop(orders);
        worker.thread().unpark();
        worker.join().unwrap();
        results.pop_batch(3, |order| ended.push(order));
        assert!(ended.iter().copied().eq(0..2 + u32::from(last)));
    });
}
