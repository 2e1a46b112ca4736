//! The freelist's rows of the goals: taking and putting back on the owner's core, alone and in bulk, and giving back
//! from another core.

use core::hint::black_box;
use core::str::FromStr;

use frwr_mempool::freelist::{Freelist, Order};

/// Indices per batch.
const BATCH: usize = 32;
/// Indices of the freelist: twice a batch, so that no list ever runs empty.
const CAPACITY: u32 = 2 * BATCH as u32;

/// What one iteration does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Pops one index and pushes it.
    One,
    /// Pops a batch and pushes it.
    Bulk,
    /// Pops a batch, gives it back as another core would, and drains it.
    Return,
}

impl Operation {
    /// Indices that one iteration handles.
    #[must_use]
    pub fn indices(self) -> usize {
        match self {
            Self::One => 1,
            Self::Bulk | Self::Return => BATCH,
        }
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "one" => Ok(Self::One),
            "bulk" => Ok(Self::Bulk),
            "return" => Ok(Self::Return),
            _ => Err(format!("there is no operation \"{name}\"; operations: one, bulk, return")),
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
        _ => Err(format!("there is no order \"{name}\"; orders: lifo, fifo")),
    }
}

/// Runs the operation on a list of this order. Returns the indices that are free at the end: all of them.
#[must_use]
pub fn run(operation: Operation, order: Order, iterations: u64) -> u32 {
    let mut freelist = Freelist::new(CAPACITY);
    let mut list = freelist.list(order);
    let returner = freelist.returner();
    let mut batch = [0; BATCH];
    for index in 0..CAPACITY {
        let _ = freelist.push(&mut list, index);
    }
    match operation {
        Operation::One => (0..iterations).for_each(|_| {
            if let Some(index) = freelist.pop(&mut list) {
                let _ = freelist.push(&mut list, black_box(index));
            }
        }),
        Operation::Bulk => (0..iterations).for_each(|_| {
            let count = freelist.pop_bulk(&mut list, &mut batch);
            let _ = freelist.push_bulk(&mut list, &black_box(&batch)[..count]);
        }),
        Operation::Return => (0..iterations).for_each(|_| {
            let count = freelist.pop_bulk(&mut list, &mut batch);
            let _ = returner.give_back(&black_box(&batch)[..count]);
            freelist.drain_returns(&mut list);
        }),
    }
    list.len()
}
