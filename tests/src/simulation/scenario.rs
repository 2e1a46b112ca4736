//! What a seed chooses: devices, sizes, policies, and which faults there are.

use super::{faults::Fault, random::Random};
use core::time::Duration;
use frwr_apps::{
    host::HostOptions,
    nvmf::Nqn,
    storage::Geometry,
    target::{ADMIN_QUEUE_ENTRIES, MIN_BUFFER_BYTES, TargetOptions},
};
use frwr_engine::{
    DomainPolicy, EngineOptions, InvalidateOrder, InvalidateSignalling, IovaPolicy, OnPostError, ReceiveQueues,
    ReturnPolicy, StalePolicy,
    provider::soft::{SoftOptions, SoftProfile},
    signal::SignalPolicy,
};
use std::net::SocketAddr;

/// Where the target listens.
const PORT: u16 = 4420;

/// Everything that is fixed before the first step.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    /// The host's device.
    pub(super) host_device: SoftOptions,
    /// The target's device.
    pub(super) target_device: SoftOptions,
    /// The host.
    pub(super) host: HostOptions,
    /// Its engine.
    pub(super) host_engine: EngineOptions,
    /// The target.
    pub(super) target: TargetOptions,
    /// Its engine.
    pub(super) target_engine: EngineOptions,
    /// The namespace.
    pub(super) geometry: Geometry,
    /// Bytes of the largest request.
    pub(super) request_bytes: u32,
    /// Data buffers of the target beyond the least.
    pub(super) busy_buffers: u32,
    /// Operations that the disk holds.
    pub(super) disk_depth: usize,
    /// Longest delay of the disk.
    pub(super) disk_delay: Duration,
    /// One operation of the disk in this many fails; 0 for none.
    pub(super) disk_fails_one_in: u64,
    /// Reads, in percent.
    pub(super) read_share: u64,
    /// Steps of the phase with faults.
    pub(super) steps: u64,
    /// Longest time between two steps, in nanoseconds.
    pub(super) tick: u64,
    /// How often each party steps.
    pub(super) party_weights: [u64; 4],
    /// Faults also strike while the first session is being set up.
    pub(super) faults_from_start: bool,
    /// One step in this many is followed by a fault; 0 for none.
    pub(super) fault_one_in: u64,
    /// How likely each kind of fault is.
    pub(super) fault_weights: [u64; super::faults::KINDS],
}

impl Scenario {
    /// The scenario of a seed.
    ///
    /// # Errors
    /// A text, where constants of this file are wrong.
    pub(super) fn new(random: &mut Random) -> Result<Self, String> {
        let profile = random.of(&SoftProfile::ALL);
        let block_bytes = random.of(&[512, 4096]);
        let geometry = Geometry::new(16 + random.below(64), block_bytes).map_err(|error| error.to_string())?;
        let (mut host, target) = (host(random)?, target(random)?);
        let request_bytes = (block_bytes * random.of(&[1, 2, 4])).min(target.buffer_bytes);
        let (host_engine, target_engine) = (engine(random, host.engine()), engine(random, target.engine()));
        let fault_weights = [(); super::faults::KINDS].map(|()| random.weight());
        if fault_weights[Fault::Command as usize] == 0 && random.one_in(4) {
            // Without Keep Alive a target never learns of a connection whose end could not be told.
            host.keep_alive = Duration::ZERO;
        }
        let mut scenario = Self {
            host_device: device(random, profile),
            target_device: device(random, profile),
            geometry,
            request_bytes,
            host_engine: EngineOptions {
                registrations: random.of(&[0, 0, 1, 2, 5]),
                first_fill: random.of(&[0, 0, 1]),
                ..host_engine
            },
            target_engine: EngineOptions { write_pad: false, ..target_engine },
            host,
            target,
            busy_buffers: random.of(&[0, 1, 8]),
            disk_depth: random.of(&[1, 4, 64]),
            // Below the host's first pause: a host may take a lost command's effects for over when it reconnects.
            disk_delay: Duration::from_micros(random.of(&[0, 1, 50, 5000])),
            disk_fails_one_in: random.of(&[0, 0, 0, 20]),
            read_share: random.of(&[0, 30, 50, 70, 100]),
            steps: 500 + random.below(6000),
            tick: random.of(&[100, 1_000, 1_000, 5_000, 5_000, 20_000, 1_000_000]),
            faults_from_start: random.one_in(4),
            party_weights: [1, 1, 1, 1].map(|_: u64| 1 << random.below(4)),
            fault_one_in: random.of(&[0, 10, 30, 100, 300, 300, 1000]),
            fault_weights,
        };
        scenario.share_receives(random);
        Ok(scenario)
    }

    /// Either side, or both, may share their receives among connections.
    fn share_receives(&mut self, random: &mut Random) {
        // Where a queue pair cannot be moved to the error state nobody knows what it took: its receives stay withdrawn, and
        // there is an end to how often that can happen.
        if self.fault_weights[Fault::Command as usize] > 0 {
            return;
        }
        for engine in [&mut self.host_engine, &mut self.target_engine] {
            if random.one_in(2) {
                engine.receive_queues = ReceiveQueues::Shared { entries: 0 };
                // The clock jumps, and must not make a drain that goes well look as if it did not.
                engine.drain_timeout = Duration::from_secs(3600);
            }
        }
        self.target.receive_queues = self.target_engine.receive_queues;
    }
}

fn device(random: &mut Random, profile: SoftProfile) -> SoftOptions {
    let mut options = SoftOptions::new(profile);
    if profile == SoftProfile::RegMr && random.one_in(3) {
        options = options.with_gaps();
    }
    options.mtu = random.of(&[256, 1024, 4096]);
    options.wire_packets = random.of(&[1, 2, 8, 32]);
    options.seed = random.bits();
    options
}

fn host(random: &mut Random) -> Result<HostOptions, String> {
    let name = |text| Nqn::new(text).map_err(|error| error.to_string());
    let address = SocketAddr::from(([127, 0, 0, 1], PORT));
    Ok(HostOptions {
        queue_depth: random.of(&[1, 2, 3, 8, 32]),
        remote_invalidation: !random.one_in(3),
        in_capsule_data: random.one_in(4),
        keep_alive: Duration::from_millis(random.of(&[20, 500, 500])),
        step_timeout: Duration::from_millis(random.of(&[5, 500, 500, 500])),
        longest_back_off: Duration::from_millis(random.of(&[10, 100])),
        command_timeout: Duration::from_millis(random.of(&[50, 500, 500])),
        max_attempts: u32::MAX,
        // Requests wait for a path as long as it takes: whatever goes comes back.
        inaccessible_timeout: Duration::MAX,
        ..HostOptions::new(address, name("nqn.2026-11.invalid.frwr:disk")?, name("nqn.2026-11.invalid.frwr:host")?)
    })
}

fn target(random: &mut Random) -> Result<TargetOptions, String> {
    let name = Nqn::new("nqn.2026-11.invalid.frwr:disk").map_err(|error| error.to_string())?;
    Ok(TargetOptions {
        controllers: random.of(&[1, 2, 3]),
        // The host's deepest queue, and the entry that a queue never uses.
        queue_entries: random.of(&[ADMIN_QUEUE_ENTRIES + 1, 40]),
        buffer_bytes: random.of(&[MIN_BUFFER_BYTES, 32 << 10]),
        connect_timeout: Duration::from_millis(500),
        in_capsule_bytes: random.of(&[0, 0, 4096]),
        ..TargetOptions::new(SocketAddr::from(([127, 0, 0, 1], PORT)), name)
    })
}

/// Policies; sizes stay.
fn engine(random: &mut Random, options: EngineOptions) -> EngineOptions {
    let return_policy = random.of(&[ReturnPolicy::OnInvalidateCompleted, ReturnPolicy::OnInvalidatePosted]);
    let order = random.of(&[InvalidateOrder::BeforeMessages, InvalidateOrder::AfterMessages]);
    EngineOptions {
        signal: random.of(&[
            SignalPolicy::Sparse,
            SignalPolicy::Sparse,
            SignalPolicy::KernelBudget { batch: 0 },
            SignalPolicy::KernelBudget { batch: 8 },
            SignalPolicy::SendsOnly { batch: 0 },
            SignalPolicy::SendsOnly { batch: 4 },
            SignalPolicy::GlobalCounter { max_send_wr: 32 },
        ]),
        invalidate_signalling: random.of(&[InvalidateSignalling::LastOfChain, InvalidateSignalling::Every]),
        invalidate_order: match return_policy {
            ReturnPolicy::OnInvalidatePosted => InvalidateOrder::BeforeMessages,
            ReturnPolicy::OnInvalidateCompleted => order,
        },
        return_policy,
        on_post_error: random.of(&[OnPostError::Disconnect, OnPostError::DeregisterAndContinue]),
        stale_policy: random.of(&[StalePolicy::Destroy, StalePolicy::Repair]),
        iova: random.of(&[IovaPolicy::Raw, IovaPolicy::Cookie, IovaPolicy::ZeroBased]),
        domain: random.of(&[DomainPolicy::ByKeyScope, DomainPolicy::Shared, DomainPolicy::PerConnection]),
        write_pad: random.one_in(3),
        drain_timeout: Duration::from_micros(random.of(&[50, 5_000, 500_000])),
        ..options
    }
}
