//! How reactors behave, as whoever wires them says.

use core::time::Duration;

use crate::inbox::LANE_CAPACITY;

/// What [`Options::stall_threshold`] is by default: a thousand times what makes an iteration a long one, and less than any host waits for.
pub const STALL_THRESHOLD: Duration = Duration::from_millis(5);

/// What a reactor does while nothing is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Polls on: lowest latency, the whole core.
    #[default]
    Spin,
    /// Sleeps where nothing was found for so long, as long as all pollers allow; messages, changes of pollers and shutdown wake it, and
    /// what pollers arm. Each send costs a fence then.
    SleepAfter(Duration),
}

frwr_mempool::options! {
    /// How reactors behave; the same for all reactors of one wiring.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Options {
        /// Messages per lane, 2 to 65536; rounded up to a power of two.
        pub lane_capacity: usize,
        /// What to do while nothing is to do; a reactor may be kept from sleeping ([`crate::Seat::awake`]).
        pub idle: Idle,
        /// Charge time to each poller: two clock reads around each poll. Off by default.
        pub time_pollers: bool,
        /// An iteration that takes longer is told as a [`crate::Stall`]; `Duration::MAX` is none.
        pub stall_threshold: Duration,
        /// How long the other reactors may drain after one panicked.
        pub panic_grace: Duration,
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lane_capacity: LANE_CAPACITY,
            idle: Idle::default(),
            time_pollers: false,
            stall_threshold: STALL_THRESHOLD,
            panic_grace: Duration::from_secs(1),
        }
    }
}
