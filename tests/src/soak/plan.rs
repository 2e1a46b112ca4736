//! What one host does in one round, as drawn.

use frwr_support::Random;

/// NICs that hosts may have.
const PROFILES: [&str; 5] = ["reg_mr", "window", "umr", "umr:fixed-key", "rxe"];
/// Requests that end before the session does; as many again at most behind it.
const MOST_REQUESTS: u64 = 300;

/// One session in so many ends because its core stood still.
const STANDSTILL_ONE_IN: u64 = 24;

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The host shuts down, with requests in flight.
    ShutDown,
    /// The target drops all its connections.
    TargetDrops,
    /// The host's engine is dropped in the middle, and its Control cleans up: a core that died.
    CoreDied,
    /// Engine, Control and device are dropped together: a process that died.
    ProcessDied,
    /// A queue pair fails.
    QueuePairFailed,
    /// The host's core stands still until the target has given its keep alive up.
    StoodStill,
}

impl End {
    /// All; the one that takes seconds comes last.
    pub(super) const ALL: [Self; 6] =
        [Self::ShutDown, Self::TargetDrops, Self::CoreDied, Self::ProcessDied, Self::QueuePairFailed, Self::StoodStill];

    /// One of them; standing still takes seconds, and is drawn seldom.
    fn draw(random: &mut Random) -> Self {
        match random.below(STANDSTILL_ONE_IN) {
            0 => Self::StoodStill,
            _ => Self::ALL[random.below(Self::ALL.len() as u64 - 1) as usize],
        }
    }
}

/// One host's round.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) profile: &'static str,
    pub(super) queues: u16,
    pub(super) queue_depth: u16,
    pub(super) remote_invalidation: bool,
    pub(super) in_capsule_data: bool,
    pub(super) data_blocks: u8,
    /// In percent.
    pub(super) read_share: u64,
    pub(super) end: End,
    /// Requests that end before the session does.
    pub(super) before: u64,
    /// And on the session behind it.
    pub(super) behind: u64,
    /// Chance of everything later.
    pub(super) seed: u64,
}

impl Plan {
    /// That of a host in a round.
    pub(super) fn new(seed: u64, round: u64, host: u64) -> Self {
        let mut random = Random::new(seed ^ (round << 8) ^ (host + 1));
        Self {
            profile: PROFILES[random.below(PROFILES.len() as u64) as usize],
            queues: 1 + random.below(2) as u16,
            queue_depth: 1 + random.below(16) as u16,
            remote_invalidation: random.below(4) > 0,
            in_capsule_data: random.below(2) == 0,
            data_blocks: 1 + random.below(4) as u8,
            read_share: random.below(101),
            end: End::draw(&mut random),
            before: random.below(MOST_REQUESTS),
            behind: random.below(MOST_REQUESTS),
            seed: random.bits(),
        }
    }
}
