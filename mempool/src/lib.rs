//! Memory that one core owns: regions of hugepages, slabs, freelists, and the lane between two cores.
//!
//! A [`Region`] is one mapping, made by a ladder of page kinds and carved into
//! [`Block`]s that never overlap. A block becomes either of two things, never both:
//!
//! * memory of one core with a type: a [`Slab`], which hands out `&T` and `&mut T`;
//! * [`DeviceMemory`], which a device may read and write at any time, and which is
//!   therefore only ever copied from and to, by relaxed atomics.
//!
//! So a peer's RDMA WRITE can never race with a Rust reference.
//!
//! What crosses cores goes through three doors: a [`lane`] carries values between two cores, the
//! [`Returner`](freelist::Returner) of a [`Freelist`] gives indices back to the core that owns
//! them, and a [`Bell`] wakes one that sleeps. Besides these and [`DeviceMemory`], everything belongs to one core and uses
//! no atomic instruction.
//!
//! Nothing here allocates after construction, waits, or makes a system call on a hot path.
//!
//! ```
//! use frwr_mempool::freelist::{Freelist, Order};
//! use frwr_mempool::{PagePolicy, Region, RegionOptions, Slab};
//!
//! let options = RegionOptions::new(1 << 20).pages(PagePolicy::Ladder { allow_plain: true });
//! let mut region = Region::map(&options)?;
//! println!("{}, after {:?}", region.kind(), region.failed_rungs());
//!
//! let buffers = region.carve(64 * 1024, 4096)?.into_device_memory();
//! buffers.write(100, b"payload")?;
//!
//! let mut requests = Slab::new_in(&mut region, 128)?;
//! let handle = requests.insert("a request")?;
//! assert_eq!(requests.remove(handle), Some("a request"));
//! assert_eq!(requests.get(handle), None);
//!
//! let mut freelist = Freelist::new(16);
//! let mut idle = freelist.list(Order::LastInFirstOut);
//! freelist.push(&mut idle, 3)?;
//! assert!(freelist.push(&mut idle, 3).is_err(), "freed twice");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What belongs to one core cannot be shared with another:
//!
//! ```compile_fail,E0277
//! fn shared<T: Sync>() {}
//! shared::<frwr_mempool::Slab<u32>>();
//! ```

#![deny(unsafe_code)]
#[cfg(not(target_os = "linux"))]
compile_error!("frwr runs on Linux only: pinned cores, hugepages and RDMA devices are reached through its interfaces.");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("frwr needs 64-bit addresses: work requests carry them, and regions are larger than 4 GiB.");

pub mod bell;
#[allow(unsafe_code, reason = "copies to and from memory that a device may change at any time")]
pub mod device_memory;
pub mod freelist;
mod full;
#[allow(unsafe_code, reason = "slots that change hands between two cores")]
pub mod lane;
pub mod limits;
#[doc(hidden)]
pub mod mutant;
mod options;
mod primitive;
#[allow(unsafe_code, reason = "mapping memory, and sharing the raw range between blocks")]
pub mod region;
#[allow(unsafe_code, reason = "typed slots in raw memory")]
pub mod slab;
pub mod statistics;

pub use bell::Bell;
pub use device_memory::DeviceMemory;
pub use freelist::Freelist;
pub use full::Full;
pub use region::{Block, OwnedMemory, PagePolicy, PageSize, Region, RegionKind, RegionOptions};
pub use slab::{Handle, Slab};
