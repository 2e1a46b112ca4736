//! NVMe over Fabrics on RDMA: what storage authors embed.
//!
//! * [`wire`]: the bytes of the standards, and nothing else.
//! * [`storage`]: what a namespace lies on; memory, files, block devices, exports of NBD servers and images of Ceph clusters are here,
//!   others implement [`storage::Storage`].
//! * [`host`]: sessions with controllers, reads and writes as registered requests.
//! * [`controller`]: the target: subsystems, their controllers and queues, on one core or on several.
//! * [`authentication`]: how both prove who they are, whoever has the keys.
//!
//! Both sides are poll-style and take the time as an argument: they never block, read a clock or allocate once they were made. They are
//! made over an engine and memory of [`frwr_engine`] and [`frwr_mempool`], which are re-exported, so that this is the one crate to depend
//! on. `docs/embedding.md` leads through it.
//!
//! | feature, none of them on by itself | what it brings |
//! |---|---|
//! | `reactor` | `controller::TargetPoller`, a target on a pinned core, and `frwr_reactor`, re-exported |
//! | `conformance` | a suite that shows what storages promise, over any one; for `dev-dependencies` |
//! | `dhchap` | DH-HMAC-CHAP, for [`authentication`] |
//! | `verbs`, `mlx5` | devices of libibverbs, and lists on ConnectX (`frwr_engine::provider::verbs`) |
//! | `serde` | statistics as serde's `Serialize` |
//!
//! A target of 4 MiB of memory, on a software NIC as others are on a verbs device:
//!
//! ```
//! use core::time::Duration;
//! use frwr_nvmf::{
//!     controller::{Target, TargetOptions},
//!     frwr_engine::{control::Control, provider::soft::{SoftFabric, SoftOptions}},
//!     frwr_mempool::{PagePolicy, Region, RegionOptions},
//!     storage::MemoryStorage,
//!     wire::Nqn,
//! };
//!
//! let fabric = SoftFabric::new();
//! let mut control = Control::new(fabric.device(SoftOptions::default()));
//! let mut region = Region::map(&RegionOptions::new(32 << 20).pages(PagePolicy::Ladder { allow_plain: true }))?;
//!
//! let options = TargetOptions::new("127.0.0.1:4420".parse()?, Nqn::new("nqn.2026-11.invalid.example:disk")?);
//! let engine = control.open_engine(options.engine())?.build(&mut region)?;
//! let buffers = region.carve(options.buffer_memory_bytes(8), 4096)?.into_device_memory();
//! let namespace = MemoryStorage::new(region.carve(4 << 20, 4096)?.into_device_memory(), 4096, 64)?;
//! let mut target = Target::new(engine, vec![namespace], buffers, options)?;
//! target.listen()?;
//!
//! // Whatever loop there is, some times of it here.
//! for milliseconds in 0..10 {
//!     control.poll();
//!     target.poll(Duration::from_millis(milliseconds));
//!     target.flush();
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// `storage::file::sys` and `storage::rbd::sys` are its rooms.
#![deny(unsafe_code)]

pub mod authentication;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod controller;
#[cfg(feature = "dhchap")]
pub mod dhchap;
pub mod host;
mod stood_still;
pub mod storage;
pub mod wire;

pub use frwr_engine;
pub use frwr_mempool;
#[cfg(feature = "reactor")]
pub use frwr_reactor;
