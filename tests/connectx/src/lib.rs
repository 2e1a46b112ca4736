//! An emulated ConnectX below libmlx5, for tests.
//!
//! A library to be preloaded (`LD_PRELOAD=libfrwr_connectx.so PROGRAM`). It answers what libibverbs, libmlx5 and librdmacm of the
//! machine ask the kernel for, shows them one mlx5 device in sysfs, and executes the work requests that libmlx5 writes into its queues
//! in the card's own format. So a program that was written for libmlx5 runs with the libraries that a card's owner has, and what it
//! hands to the card is looked at by something that is strict about it: where a card could not have understood it, that is told on
//! stderr, and the program ends with [`VIOLATED`].
//!
//! What the card itself would say to a misuse is not known here: that part is what manual pages and libmlx5's source let expect.
//! Both ends of every connection are in one process. Nothing of a card's timing is emulated.
//!
//! | room | what lives there |
//! |---|---|
//! | `interpose` | the functions of libc that programs and libraries call instead of the real ones |
//! | `files` | which descriptors are ours, and the tree that stands for sysfs |
//! | `world` | the one kernel of the process, under one lock, and the thread that moves its card |
//! | `kernel` | the uverbs interface: commands, objects, firmware commands, events |
//! | `rdma_cm` | the interface of rdma_ucm |
//! | `card` | queues, work requests, keys, completions |
//! | `memory` | all that is read and written of the program's memory by its address |
//! | `attributes`, `layouts`, `waiting` | what `kernel` and `rdma_cm` share: bits, checked structures, descriptors to poll |
#![allow(unsafe_code, reason = "it stands below C; docs/architecture.md")]

mod attributes;
mod card;
mod files;
mod interpose;
mod kernel;
mod layouts;
mod memory;
mod rdma_cm;
mod waiting;
mod world;

/// Status of a process whose work requests, or whose calls, a card and its driver would not have understood.
pub const VIOLATED: i32 = 97;
