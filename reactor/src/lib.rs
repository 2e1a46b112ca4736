//! Pinned cores: poll loop, pollers, inboxes, time and statistics. It knows nothing of RDMA.
//!
//! * [`Topology`], [`Placement`]: which cores there are, and which of them shall carry a reactor.
//! * [`Reactors`]: starts one pinned thread per reactor, builds each context on its own core, joins them with a report.
//! * [`Reactor`]: the loop of one core. It may as well be stepped by hand, on one thread, with a [`VirtualClock`].
//! * [`Poller`]: what runs in the loop. The context of the core is handed to it as `&mut`: there is no hidden current core.
//! * [`Outbox`], [`ForeignOutbox`]: bounded lanes to other reactors; a full lane gives the message back. What a reactor tells a thread
//!   that is none goes through a lane of its own, whose sending end its context has (`frwr_mempool::lane`).
//!
//! ```
//! use frwr_reactor::{Context, CoreIndex, Now, Outbox, Placement, Poller, Reactor, Reactors, Schedule, Seat, Sleep, Source};
//! use std::time::Duration;
//!
//! /// The state of a core. All reactors that are started together have one type of it: an enum, where they differ.
//! struct Core {
//!     outbox: Outbox<u32>,
//!     sum: u32,
//! }
//!
//! impl Context for Core {
//!     type Message = u32;
//!
//!     fn message(&mut self, _from: Source, message: u32, _now: &Now) {
//!         self.sum += message;
//!     }
//! }
//!
//! /// Sends each number up to ten to the other core.
//! struct Count(u32);
//!
//! impl Poller<Core> for Count {
//!     fn poll(&mut self, core: &mut Core, _now: &Now) -> u32 {
//!         let other = CoreIndex(1 - core.outbox.core().0);
//!         if self.0 == 10 || core.outbox.send(other, self.0 + 1).is_err() {
//!             return 0;
//!         }
//!         self.0 += 1;
//!         1
//!     }
//!
//!     fn sleep_until(&self, _core: &Core) -> Sleep {
//!         Sleep::Busy
//!     }
//!
//!     fn drained(&self, core: &Core) -> bool {
//!         self.0 == 10 && core.sum == 55
//!     }
//! }
//!
//! // Called on the core's own thread, once it is pinned: what is mapped here is near it.
//! fn start(seat: Seat<u32>, outbox: Outbox<u32>) -> Result<Reactor<Core>, frwr_reactor::PollerError> {
//!     let mut reactor = seat.reactor(Core { outbox, sum: 0 });
//!     reactor.add("count", Schedule::Busy, Count(0))?;
//!     Ok(reactor)
//! }
//!
//! // On cores of their own: `Placement::Spread { reactors: 2 }`.
//! let running = Reactors::new(Placement::Unpinned { reactors: 2 }).launch(|_| start)?;
//! for ended in running.shutdown(Duration::from_secs(10)) {
//!     let finished = ended?;
//!     assert!(finished.report.undrained.is_empty());
//!     assert_eq!(finished.context.sum, 55);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Only threads that this crate creates are ever pinned; the affinity of the caller never changes.
//!
//! # Coming from SPDK or DPDK
//!
//! | there | here |
//! |---|---|
//! | core mask, `--lcores` | [`CoreList`], [`Placement`] |
//! | `spdk_poller_register`, with a period or without | [`Reactor::add`], on a running reactor [`PollerAdder::add`]; [`Schedule`] |
//! | `spdk_poller_unregister`, `_pause`, `_resume` | [`PollerHandle`]; dropping the handle changes nothing |
//! | `spdk_thread_send_msg` | [`Outbox::send`], from a thread that is no reactor [`ForeignOutbox::send`]; a message may be a closure, see below |
//! | a thread's I/O channel, thread-local state | the context |
//! | `spdk_thread_get_stats`, `framework_get_reactors`, `thread_get_pollers` | [`Running::statistics`] |
//! | interrupt mode | [`Idle::SleepAfter`]: messages and timed pollers wake, and what pollers arm ([`Poller::arm`]): wakers ([`Seat::waker`]) and file descriptors ([`Reactor::wake_by`], on a running reactor [`PollerAdder::wake_by`]); whoever polls a device that has neither answers [`Sleep::Busy`] |
//! | `rte_ring` SP/SC; `rte_mempool` with its cache | `frwr_mempool`'s `lane`; `freelist` and its `Batch` |
//! | `rte_ring` MP/SC | a lane for each producer; for indices that go home, `frwr_mempool::freelist::Returner` |
//! | light threads that move between cores, schedulers | none: what is on a core stays there |
//!
//! ```
//! use frwr_reactor::{Clock, Context, CoreIndex, Now, Options, Source, Step, VirtualClock, Wiring};
//!
//! /// Does what it is sent. Each message allocates, so this is not for hot paths.
//! #[derive(Default)]
//! struct Core(u32);
//! type Call = Box<dyn FnOnce(&mut Core) + Send>;
//!
//! impl Context for Core {
//!     type Message = Call;
//!
//!     fn message(&mut self, _from: Source, call: Call, _now: &Now) {
//!         call(self);
//!     }
//! }
//!
//! let wiring = Wiring::<Call>::new(1, 1, &Clock::from(&VirtualClock::new()), Options::default())?;
//! let mut reactors: Vec<_> = wiring.seats.into_iter().map(|(seat, _outbox)| seat.reactor(Core::default())).collect();
//! let mut outboxes = wiring.foreign;
//! assert!(outboxes[0].send(CoreIndex(0), Box::new(|core| core.0 += 7)).is_ok());
//! assert_eq!((reactors[0].step(), reactors[0].context().0), (Step::Worked(1), 7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("frwr runs on Linux only: pinned cores, hugepages and RDMA devices are reached through its interfaces.");

mod astray;
mod clock;
mod core_set;
mod cpu;
mod group;
mod inbox;
mod launch;
mod launch_error;
mod long;
mod options;
mod page_faults;
mod pin;
mod placement;
mod poller;
mod primitive;
mod publish;
mod reactor;
mod running;
mod seat;
mod sequence;
mod shutdown;
mod sleeper;
mod slot;
mod slots;
mod stall;
mod starting;
mod statistics;
mod text;
mod topology;
mod turn;

pub use astray::Astray;
pub use clock::{Clock, Now, VirtualClock};
pub use core_set::{CORE_LIMIT, CpuId, CpuIdError, CpuSet};
pub use inbox::{CoreIndex, ForeignOutbox, INBOX_BUDGET, LANE_CAPACITY, Outbox, SendError, Source};
pub use launch::Reactors;
pub use launch_error::LaunchError;
pub use long::{Cause, LENGTHS, LONG_ITERATION, Lengths, LongIterations};
pub use options::{Idle, Options, STALL_THRESHOLD};
pub use page_faults::PageFaults;
pub use pin::PinError;
pub use placement::{CoreList, CoreListError, Placement, PlacementError, Seats};
pub use poller::{MAX_POLLERS, PollFn, Poller, PollerAdder, PollerError, PollerHandle, Schedule, Sleep, poll_fn};
pub use reactor::{Context, Reactor, Step, TIMED_BUDGET};
pub use running::{Finished, Pulse, Running, RunningError};
pub use seat::{MAX_REACTORS, Seat, Wiring, WiringError};
pub use shutdown::{Report, ShutdownHandle};
pub use stall::Stall;
pub use statistics::{Longest, PollerStatistics, Statistics};
pub use topology::{Core, Topology};
pub use turn::Turn;
