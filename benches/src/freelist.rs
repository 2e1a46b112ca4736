//! Rows A1 to A3: an index is taken and given back on the owner's core, alone and in bulk, and from another core.

use core::hint::black_box;
use core::str::FromStr;

use frwr_mempool::freelist::{Batch, Freelist, List, Order};

use crate::arguments::unknown;

/// Indices per batch.
const BATCH: usize = 32;
/// Indices of the freelist: twice a batch, so that no list ever runs empty.
const CAPACITY: u32 = 2 * BATCH as u32;

/// What one iteration does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Pops one index and pushes it.
    One,
    /// Takes a batch and puts it back whole: who holds it is checked by its type.
    Bulk,
    /// Pops indices into a slice and pushes them from there: each is checked.
    Slice,
    /// Takes a batch, gives it back whole as another core would, and drains it.
    Return,
    /// Pops indices into a slice, gives them back as another core would, and drains them: each is checked.
    ReturnSlice,
}

impl Operation {
    /// Indices that one iteration handles.
    #[must_use]
    pub fn indices(self) -> usize {
        match self {
            Self::One => 1,
            Self::Bulk | Self::Slice | Self::Return | Self::ReturnSlice => BATCH,
        }
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "one" => Ok(Self::One),
            "bulk" => Ok(Self::Bulk),
            "slice" => Ok(Self::Slice),
            "return" => Ok(Self::Return),
            "return-slice" => Ok(Self::ReturnSlice),
            _ => Err(unknown(name, "one, bulk, slice, return, return-slice")),
        }
    }
}

/// Reads an order: "lifo" or "fifo".
///
/// # Errors
/// A text that names both, for anything else.
pub fn parse_order(name: &str) -> Result<Order, String> {
    match name {
        "lifo" => Ok(Order::LastInFirstOut),
        "fifo" => Ok(Order::FirstInFirstOut),
        _ => Err(unknown(name, "lifo, fifo")),
    }
}

/// Runs the operation on a list of this order. Returns the indices that are free at the end: all of them.
#[must_use]
pub fn run(operation: Operation, order: Order, iterations: u64) -> u32 {
    let mut freelist = Freelist::new(CAPACITY);
    let mut list = freelist.list(order);
    let returner = freelist.returner();
    let mut batch = freelist.batch();
    let mut indices = [0; BATCH];
    for index in 0..CAPACITY {
        let _ = freelist.push(&mut list, index);
    }
    match operation {
        Operation::One => one(&mut freelist, &mut list, iterations),
        Operation::Bulk => (0..iterations).for_each(|_| {
            freelist.pop_batch(&mut list, &mut batch, BATCH);
            let _ = freelist.push_batch(&mut list, black_box::<&mut Batch>(&mut batch));
        }),
        Operation::Slice => (0..iterations).for_each(|_| {
            let count = freelist.pop_bulk(&mut list, &mut indices);
            let _ = freelist.push_bulk(&mut list, &black_box(&indices)[..count]);
        }),
        Operation::Return => (0..iterations).for_each(|_| {
            freelist.pop_batch(&mut list, &mut batch, BATCH);
            let _ = returner.give_back_batch(black_box::<&mut Batch>(&mut batch));
            freelist.drain_returns(&mut list);
        }),
        Operation::ReturnSlice => (0..iterations).for_each(|_| {
            let count = freelist.pop_bulk(&mut list, &mut indices);
            let _ = returner.give_back(&black_box(&indices)[..count]);
            freelist.drain_returns(&mut list);
        }),
    }
    freelist.count(&list)
}

// A function of its own: the list is behind a reference, as it is in a program's structures, and not in the loop's registers.
#[inline(never)]
fn one(freelist: &mut Freelist, list: &mut List, iterations: u64) {
    for _ in 0..iterations {
        // Never empty, and never refused; else there would be fewer free at the end.
        let Some(index) = freelist.pop(list) else { return };
        if freelist.push(list, black_box(index)).is_err() {
            return;
        }
    }
}
