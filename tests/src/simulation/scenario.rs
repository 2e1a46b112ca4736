//! What a seed chooses: devices, sizes, policies, work, and which faults there are.

use super::{desk::Kind, faults::FAULTS, ledger::Work};
use core::time::Duration;
use frwr_engine::{
    DomainPolicy, EngineOptions, InvalidateOrder, InvalidateSignalling, IovaPolicy, OnPostError, ReceiveQueues,
    ReturnPolicy, StalePolicy,
    provider::soft::{SoftOptions, SoftProfile},
    signal::SignalPolicy,
};
use frwr_nvmf::{
    controller::{ADMIN_QUEUE_ENTRIES, MIN_BUFFER_BYTES, TargetOptions},
    host::HostOptions,
    storage::{Features, Geometry},
    wire::Nqn,
};
use frwr_support::Random;
use std::net::SocketAddr;

/// Where the target listens.
const PORT: u16 = 4420;
const SUBSYSTEM: &str = "nqn.2026-11.invalid.frwr:disk";
/// A clock that judges peers looks so rarely ([`frwr_engine::WatchedClock`]), so that shorter time-outs are not what they say.
const LEAST_TIMEOUT: Duration = Duration::from_millis(50);
/// One seed in this many has no faults at all: in it nothing may happen that a fault would explain.
const FAULTLESS: u64 = 8;
/// One seed with reservations in this many has no file of them.
const KEEPS_NOTHING: u64 = 4;
/// The least weight of power cuts where there is one.
const POWER_CUTS: u64 = 16;

/// What a pair takes of a disk, one behind the other: all that was begun has ended, its blocks are read, then written.
const PAIR_STEPS: u32 = 3;

/// One host program, over one core or several.
#[derive(Clone, Debug)]
pub(super) struct HostScenario {
    pub(super) device: SoftOptions,
    pub(super) options: HostOptions,
    pub(super) engine: EngineOptions,
}

impl HostScenario {
    /// Its target may count on hearing from it.
    pub(super) fn keeps_alive(&self) -> bool {
        !self.options.keep_alive.is_zero()
    }
}

/// Everything that is fixed before the first step.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) hosts: Vec<HostScenario>,
    /// The target's device.
    pub(super) target_device: SoftOptions,
    /// The target.
    pub(super) target: TargetOptions,
    /// Its engine's policies.
    pub(super) target_engine: EngineOptions,
    /// The namespace.
    pub(super) geometry: Geometry,
    /// What its disk can do.
    pub(super) features: Features,
    /// Bytes of the largest request.
    pub(super) request_bytes: u32,
    /// Data buffers of the target beyond the least.
    pub(super) busy_buffers: u32,
    /// Operations that each way to the disk holds.
    pub(super) disk_depth: usize,
    /// Longest delay of the disk, while it is well.
    pub(super) disk_delay: Duration,
    /// What hosts are asked for.
    pub(super) work: Work,
    /// Requests that a host is given in one step at most.
    pub(super) burst: u64,
    /// Hosts have reservations of the namespace, and compare and write.
    pub(super) reserves: bool,
    /// These survive where hosts ask for it.
    pub(super) persists: bool,
    /// Somebody asks the discovery service.
    pub(super) asks_discovery: bool,
    /// Steps of the phase with faults.
    pub(super) steps: u64,
    /// Longest time between two steps, in nanoseconds.
    pub(super) tick: u64,
    /// How often each party steps.
    pub(super) party_weights: Vec<u64>,
    /// How long the rarest party lets others wait, on average.
    pub(super) round: Duration,
    /// What any request takes at most where nothing goes wrong.
    pub(super) patience: Duration,
    /// Messages that cores of one program leave unread at most before they wait.
    pub(super) lane: usize,
    /// Faults also strike while the first session is being set up.
    pub(super) faults_from_start: bool,
    /// One step in this many is followed by a fault; 0 for none.
    pub(super) fault_one_in: u64,
    /// How likely each kind of fault is.
    pub(super) fault_weights: [u64; FAULTS.len()],
}

/// What the time-outs of a scenario follow from.
struct Pace {
    tick: u64,
    weights: Vec<u64>,
    patience: Duration,
}

impl Scenario {
    /// The scenario of a seed. `reserves`: of hosts that have reservations.
    ///
    /// # Errors
    /// A text, where constants of this file are wrong.
    pub(super) fn new(random: &mut Random, reserves: bool) -> Result<Self, String> {
        let profile = random.of(&SoftProfile::ALL);
        let block_bytes = random.of(&[512, 512, 512, 4096]);
        let geometry =
            Geometry::new(random.of(&[16, 40, 64, 250, 1000]), block_bytes).map_err(|error| error.to_string())?;
        let features = Features::default().write_zeroes(true).deallocate(true).write_through(random.one_in(3));
        let mut fault_weights = fault_weights(random);
        let (count, followers, cores) =
            (random.of(&[1, 1, 2, 3]), random.of(&[0, 0, 0, 1, 2]), random.of(&[1, 1, 1, 2, 3]));
        let (queue_depth, queues) = (random.of(&[1, 2, 3, 8, 8, 32, 32]), random.of(&[1, 1, 2]));
        let request_bytes = block_bytes * random.of(&[1, 2, 4]);
        // One host alone has nobody to shut out, and a pair has two blocks.
        let (count, request_bytes) =
            if reserves { (count.max(2), request_bytes.max(2 * block_bytes)) } else { (count, request_bytes) };
        let target_device = device(random, profile);
        let disk_delay = Duration::from_micros(random.of(&[0, 0, 1, 50, 5000]));
        let disk_depth = random.of(&[1, 4, 64, 64]);
        let asks_discovery = random.one_in(4);
        let persists = reserves && !random.one_in(KEEPS_NOTHING);
        if let Some(at) = FAULTS.iter().position(|fault| persists && fault.name() == "power cut") {
            fault_weights[at] = fault_weights[at].max(POWER_CUTS);
        }
        let parties = usize::from(count * (2 + followers) + cores + 1) + if asks_discovery { 2 } else { 0 };
        let parties = parties + usize::from(persists);
        let mut pace = pace(random, parties);
        let round = pace.patience;
        // Packets that all requests of all queues take, and the commands of the disk, one behind the other at worst.
        let commands = u64::from(queue_depth * count * (1 + followers));
        let packets = u64::from(request_bytes / target_device.mtu + 4);
        let waits = 30 + 2 * commands * packets / u64::from(target_device.wire_packets.min(16));
        pace.patience = pace.patience * waits as u32 + disk_delay * (commands as u32 + 2) * 2;
        if reserves {
            pace.patience *= PAIR_STEPS;
        }
        let target = target(random, &pace, count, queues * (followers + 1), cores)?;
        let hosts = (0..count).map(|index| {
            let options = host(random, &pace, index, &fault_weights)?
                .queue_depth(queue_depth)
                .queues(queues)
                .followers(followers);
            let engine = engine(random, options.engine());
            let engine = engine
                .registrations(random.of(&[0, 0, 1, 2, 5]).max(u32::from(followers > 0)))
                .first_fill(random.of(&[0, 0, 1]));
            Ok(HostScenario { device: device(random, profile), options, engine })
        });
        let hosts = hosts.collect::<Result<Vec<_>, String>>()?;
        let target_engine = engine(random, target.engine()).write_pad(false);
        let mut weights = [(); Kind::ALL.len()].map(|()| random.weight());
        weights[0] = weights[0].max(1);
        // A flush is rare on every machine, and is what makes all writes before it durable.
        weights[Kind::Flush as usize] = weights[Kind::Flush as usize].min(2);
        let mut scenario = Self {
            hosts,
            target_device,
            geometry,
            features,
            request_bytes,
            target,
            target_engine,
            busy_buffers: random.of(&[0, 1, 8]),
            disk_depth,
            disk_delay,
            work: Work { weights, blocks: u64::from(request_bytes / block_bytes) },
            reserves,
            persists,
            asks_discovery,
            burst: random.of(&[1, 4, 8, 16, 16]),
            steps: random.of(&[2_000, 10_000, 40_000]) + random.below(10_000),
            tick: pace.tick,
            party_weights: pace.weights,
            round,
            patience: pace.patience,
            lane: random.of(&[1, 2, 64]),
            faults_from_start: random.one_in(4),
            fault_one_in: if random.one_in(FAULTLESS) { 0 } else { random.of(&[30, 100, 300, 1000, 3000]) },
            fault_weights,
        };
        scenario.share_receives(random);
        Ok(scenario)
    }

    /// No fault at all may strike.
    pub(super) fn is_faultless(&self) -> bool {
        self.fault_one_in == 0 || self.fault_weights.iter().all(|&weight| weight == 0)
    }

    /// The shortest time-out of any: what lasts as long may end a session.
    pub(super) fn shortest_timeout(&self) -> Duration {
        let of_host = |host: &HostScenario| {
            let HostOptions { keep_alive, step_timeout, command_timeout, .. } = host.options;
            let keep_alive = if keep_alive.is_zero() { Duration::MAX } else { keep_alive / 2 };
            keep_alive.min(step_timeout).min(command_timeout)
        };
        self.hosts.iter().map(of_host).min().unwrap_or_default().min(self.target.connect_timeout)
    }

    /// The longest one.
    pub(super) fn longest_timeout(&self) -> Duration {
        let of_host = |host: &HostScenario| {
            let HostOptions { keep_alive, step_timeout, command_timeout, .. } = host.options;
            keep_alive.max(step_timeout * 2).max(command_timeout)
        };
        self.hosts.iter().map(of_host).max().unwrap_or_default().max(self.target.max_silence)
    }

    /// Either side, or both, may share their receives among connections.
    fn share_receives(&mut self, random: &mut Random) {
        // Where a queue pair cannot be moved to the error state nobody knows what it took: its receives stay withdrawn, and
        // there is an end to how often that can happen.
        let refuses = FAULTS.iter().position(|fault| fault.name() == "refused command");
        if refuses.is_some_and(|at| self.fault_weights[at] > 0) {
            return;
        }
        let engines = self.hosts.iter_mut().map(|host| &mut host.engine).chain([&mut self.target_engine]);
        for engine in engines {
            if random.one_in(2) {
                engine.receive_queues = ReceiveQueues::Shared { entries: 0 };
                // The clock jumps, and must not make a drain that goes well look as if it did not.
                engine.drain_timeout = Duration::from_secs(3600);
            }
        }
        self.target.receive_queues = self.target_engine.receive_queues;
    }
}

fn fault_weights(random: &mut Random) -> [u64; FAULTS.len()] {
    [(); FAULTS.len()].map(|()| random.weight())
}

/// How fast time passes, who steps how often, and how long the rarest one lets others wait.
fn pace(random: &mut Random, parties: usize) -> Pace {
    let tick = random.of(&[5_000, 50_000, 100_000, 200_000, 500_000]);
    let weights: Vec<u64> = (0..parties).map(|_| 1 << random.below(3)).collect();
    let least = weights.iter().min().copied().unwrap_or(1);
    let patience = Duration::from_nanos(tick / 2 * weights.iter().sum::<u64>() / least);
    Pace { tick, weights, patience }
}

fn device(random: &mut Random, profile: SoftProfile) -> SoftOptions {
    let mut options = SoftOptions::new(profile);
    if profile == SoftProfile::RegMr && random.one_in(3) {
        options = options.with_gaps();
    }
    // What a program gets is less than it would like.
    options.capabilities.attributes.max_rdma_reads = random.of(&[1, 4, 16]);
    let list = &mut options.capabilities.attributes.max_fast_reg_page_list_len;
    *list = (*list).min(random.of(&[32, 256]));
    options.mtu = random.of(&[256, 1024, 4096, 4096]);
    options.wire_packets = random.of(&[1, 2, 8, 8, 32]);
    options.seed = random.bits();
    options.watches_buffers = true;
    options
}

fn host(
    random: &mut Random,
    pace: &Pace,
    index: u16,
    fault_weights: &[u64; FAULTS.len()],
) -> Result<HostOptions, String> {
    let name = |text: &str| Nqn::new(text).map_err(|error| error.to_string());
    let address = SocketAddr::from(([127, 0, 0, 1], PORT));
    let refuses = FAULTS.iter().position(|fault| fault.name() == "refused command");
    let refuses = refuses.is_some_and(|at| fault_weights[at] > 0);
    // Without Keep Alive a target never learns of a connection whose end could not be told.
    let keeps_alive = refuses || !random.one_in(8);
    let mut times = |factors: &[u32]| (pace.patience * random.of(factors)).max(LEAST_TIMEOUT);
    let (keep_alive, step_timeout, command_timeout) = (times(&[4, 8]), times(&[2, 4]), times(&[2, 4]));
    Ok(HostOptions::new(address, name(SUBSYSTEM)?, name(&format!("nqn.2026-11.invalid.frwr:host{index}"))?)
        .remote_invalidation(!random.one_in(3))
        .in_capsule_data(random.one_in(4))
        .data_blocks(random.of(&[1, 2, 8]))
        // The protocol counts it in milliseconds.
        .keep_alive(if keeps_alive { Duration::from_millis(keep_alive.as_millis() as u64 + 1) } else { Duration::ZERO })
        .step_timeout(step_timeout)
        .longest_back_off(Duration::from_millis(random.of(&[10, 100])))
        .command_timeout(command_timeout)
        .max_attempts(u32::MAX)
        .controller_loss_timeout(Duration::ZERO)
        // Requests wait for a path as long as it takes: whatever goes comes back.
        .inaccessible_timeout(Duration::MAX))
}

fn target(random: &mut Random, pace: &Pace, hosts: u16, io_queues: u16, cores: u16) -> Result<TargetOptions, String> {
    let name = Nqn::new(SUBSYSTEM).map_err(|error| error.to_string())?;
    let in_capsule_bytes = random.of(&[0, 0, 4096]);
    Ok(TargetOptions::new(SocketAddr::from(([127, 0, 0, 1], PORT)), name)
        .controllers(hosts + random.of(&[0, 1, 2]))
        .cores(cores)
        .io_queues(io_queues)
        // The host's deepest queue, and the entry that a queue never uses.
        .queue_entries(random.of(&[ADMIN_QUEUE_ENTRIES + 1, 40]))
        .buffer_bytes(random.of(&[MIN_BUFFER_BYTES, MIN_BUFFER_BYTES, 32 << 10]))
        .connect_timeout((pace.patience * 8).max(LEAST_TIMEOUT * 2))
        .max_silence((pace.patience * 16).max(LEAST_TIMEOUT * 4))
        .in_capsule_bytes(in_capsule_bytes)
        .data_blocks(if in_capsule_bytes > 0 { random.of(&[1, 8]) } else { 1 }))
}

/// Policies; sizes stay.
fn engine(random: &mut Random, options: EngineOptions) -> EngineOptions {
    let return_policy = random.of(&[ReturnPolicy::OnInvalidateCompleted, ReturnPolicy::OnInvalidatePosted]);
    let order = random.of(&[InvalidateOrder::BeforeMessages, InvalidateOrder::AfterMessages]);
    options
        .signal(random.of(&[
            SignalPolicy::Sparse,
            SignalPolicy::Sparse,
            SignalPolicy::KernelBudget { batch: 0 },
            SignalPolicy::KernelBudget { batch: 8 },
            SignalPolicy::SendsOnly { batch: 0 },
            SignalPolicy::SendsOnly { batch: 4 },
            SignalPolicy::GlobalCounter { max_send_wr: 32 },
        ]))
        .invalidate_signalling(random.of(&[InvalidateSignalling::LastOfChain, InvalidateSignalling::Every]))
        .invalidate_order(match return_policy {
            ReturnPolicy::OnInvalidatePosted => InvalidateOrder::BeforeMessages,
            ReturnPolicy::OnInvalidateCompleted => order,
        })
        .return_policy(return_policy)
        .on_post_error(random.of(&[OnPostError::Disconnect, OnPostError::DeregisterAndContinue]))
        .stale_policy(random.of(&[StalePolicy::Destroy, StalePolicy::Repair]))
        .iova(random.of(&[IovaPolicy::Raw, IovaPolicy::Cookie, IovaPolicy::ZeroBased]))
        .domain(random.of(&[DomainPolicy::ByKeyScope, DomainPolicy::Shared, DomainPolicy::PerConnection]))
        .write_pad(random.one_in(3))
        .drain_timeout(Duration::from_micros(random.of(&[50, 5_000, 500_000])))
}
