//! How long a test waits: in steps on devices that this process steps, by the clock on real ones.

use frwr_engine::provider::Capabilities;
use std::time::{Duration, Instant};

/// Steps after which something that should have happened on a software NIC will not.
pub const PATIENCE: usize = 20_000;
/// The same on a real device: a guard against hangs, far above the slowest retries of an emulated machine.
pub const REAL_PATIENCE: Duration = Duration::from_secs(60);
/// A real device that was silent for so long has nothing more to say: a hundred times the slowest message of the guest.
pub const SILENCE: Duration = Duration::from_millis(50);

/// The clock of the tests that wait for real devices.
pub fn now() -> Instant {
    Instant::now()
}

/// What moves a device on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Our steps alone.
    Steps,
    /// Its own clock, and the kernel.
    Clock,
}

impl Pace {
    /// Software NICs call themselves `soft:`, devices that are not there `fake`.
    pub fn of(capabilities: &Capabilities) -> Self {
        let stepped = ["soft:", "fake"].iter().any(|front| capabilities.name.starts_with(front));
        if stepped { Self::Steps } else { Self::Clock }
    }

    /// The time that something has to happen in.
    pub fn patience(self) -> Patience {
        let deadline = (self == Self::Clock).then(|| now() + REAL_PATIENCE);
        Patience { steps: PATIENCE, deadline }
    }

    /// Begins to wait for a device that says nothing more.
    pub fn silence(self) -> Silence {
        Silence { seen: 0, since: now() }
    }
}

/// What is left of the time for something to happen.
pub struct Patience {
    steps: usize,
    deadline: Option<Instant>,
}

impl Patience {
    /// Whether one more step may be taken; on a real device the kernel gets the processor first.
    pub fn is_left(&mut self) -> bool {
        match self.deadline {
            Some(deadline) => {
                std::thread::yield_now();
                now() < deadline
            }
            None => {
                self.steps = self.steps.saturating_sub(1);
                self.steps > 0
            }
        }
    }
}

/// Waits until a real device has nothing more to say.
pub struct Silence {
    seen: usize,
    since: Instant,
}

impl Silence {
    /// Told how much came so far; true once nothing was added for [`SILENCE`].
    pub fn is_long(&mut self, seen: usize) -> bool {
        std::thread::yield_now();
        if seen != self.seen {
            (self.seen, self.since) = (seen, now());
        }
        now() - self.since > SILENCE
    }
}
