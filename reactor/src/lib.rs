//! Pinned cores: poll loop, pollers, inboxes, time and statistics. It knows nothing of RDMA.
//!
//! * [`Topology`], [`Placement`]: which cores there are, and which of them shall carry a reactor.
//! * [`Reactors`]: starts one pinned thread per reactor, builds each context on its own core, joins them with a report.
//! * [`Reactor`]: the loop of one core. It may as well be stepped by hand, on one thread, with a [`VirtualClock`].
//! * [`Poller`]: what runs in the loop. The context of the core is handed to it as `&mut`: there is no hidden current core.
//! * [`Outbox`], [`ForeignOutbox`]: bounded lanes to other reactors; a full lane gives the message back.
//!
//! Only threads that this crate creates are ever pinned; the affinity of the caller never changes.

#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("frwr runs on Linux only: pinned cores, hugepages and RDMA devices are reached through its interfaces.");

mod clock;
mod core_set;
mod cpu;
mod group;
mod inbox;
mod launch;
mod page_faults;
mod pin;
mod placement;
mod poller;
mod publish;
mod reactor;
mod running;
mod seat;
mod shutdown;
mod slot;
mod slots;
mod statistics;
mod topology;

pub use clock::{Clock, Now, VirtualClock};
pub use core_set::{CORE_LIMIT, CpuId, CpuIdError, CpuSet};
pub use inbox::{CoreIndex, ForeignOutbox, LANE_CAPACITY, Outbox, SendError, Source};
pub use launch::{LaunchError, Reactors};
pub use page_faults::PageFaults;
pub use pin::PinError;
pub use placement::{CoreList, CoreListError, Placement, PlacementError, Seats};
pub use poller::{MAX_POLLERS, PollFn, Poller, PollerAdder, PollerError, PollerHandle, Schedule, Sleep, poll_fn};
pub use reactor::{Context, INBOX_BUDGET, Reactor, Step, TIMED_BUDGET};
pub use running::{Finished, Running, RunningError};
pub use seat::{Idle, MAX_REACTORS, Options, Seat, Wiring, WiringError};
pub use shutdown::{Report, ShutdownHandle};
pub use statistics::{LONG_ITERATION, Longest, PollerStatistics, Statistics};
pub use topology::{Core, Topology};
