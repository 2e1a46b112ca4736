//! Rows A1 to A3: an index is taken and given back on the owner's core, alone and in bulk, and from another core; and what the
//! engine takes for each request: a slot, and an idle MR.

use core::hint::black_box;
use core::str::FromStr;

use frwr_mempool::freelist::{Batch, FreeRing, Freelist, List, Order};
use frwr_mempool::{PagePolicy, Region, RegionOptions, Slab};

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
    /// Puts a value into a slot and discards it, as the engine does with a request; the value is a number, so that making it is not
    /// counted.
    Slot,
    /// Takes an MR out of those of a connection that are idle and puts it back.
    Idle,
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
            Self::One | Self::Slot | Self::Idle => 1,
            Self::Bulk | Self::Slice | Self::Return | Self::ReturnSlice => BATCH,
        }
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "one" => Ok(Self::One),
            "slot" => Ok(Self::Slot),
            "idle" => Ok(Self::Idle),
            "bulk" => Ok(Self::Bulk),
            "slice" => Ok(Self::Slice),
            "return" => Ok(Self::Return),
            "return-slice" => Ok(Self::ReturnSlice),
            _ => Err(unknown(name, "one, slot, idle, bulk, slice, return, return-slice")),
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

/// Runs the operation on a list of this order; slots have one order only. Returns the indices that are free at the end: all of
/// them.
///
/// # Errors
/// A text, where there is no memory for slots.
pub fn run(operation: Operation, order: Order, iterations: u64) -> Result<u32, String> {
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
        Operation::Slot => return slots(iterations),
        Operation::Idle => {
            let mut region = region(FreeRing::bytes_needed(CAPACITY))?;
            let mut idle = FreeRing::new_in(&mut region, CAPACITY, order).map_err(|error| error.to_string())?;
            (0..CAPACITY).for_each(|descriptor| idle.push(descriptor));
            idle_mrs(&mut idle, iterations);
            return Ok(idle.len());
        }
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
    Ok(freelist.count(&list))
}

fn region(bytes: Option<usize>) -> Result<Region, String> {
    let bytes = bytes.ok_or("slots do not fit the address space")?;
    let options = RegionOptions::new(bytes).pages(PagePolicy::Ladder { allow_plain: true });
    Region::map(&options).map_err(|error| error.to_string())
}

fn slots(iterations: u64) -> Result<u32, String> {
    let mut region = region(Slab::<u64>::bytes_needed(CAPACITY))?;
    let mut slab = Slab::new_in(&mut region, CAPACITY).map_err(|error| error.to_string())?;
    slot(&mut slab, iterations);
    Ok(slab.capacity() - slab.len())
}

// As `one`.
#[inline(never)]
fn slot(slab: &mut Slab<u64>, iterations: u64) {
    for at in 0..iterations {
        let Some((handle, _)) = slab.insert_new(|| at) else { return };
        if !slab.discard_at(black_box(handle.index())) {
            return;
        }
    }
}

// As `one`.
#[inline(never)]
fn idle_mrs(idle: &mut FreeRing, iterations: u64) {
    for _ in 0..iterations {
        let Some(descriptor) = idle.pop() else { return };
        idle.push(black_box(descriptor));
    }
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
