//! What a seed chooses.

use core::time::Duration;
use frwr_engine::{
    DomainPolicy, EngineOptions, InvalidateOrder, InvalidateSignalling, IovaPolicy, OnPostError, ReceiveQueues,
    ReturnPolicy, StalePolicy,
    provider::{
        Contiguity, SendQueueCost,
        soft::{SoftOptions, SoftProfile},
    },
    signal::SignalPolicy,
};
use frwr_support::Random;

/// Receives that each connection of the target has, so that the host may send so many.
pub(super) const TARGET_RECEIVES: u32 = 32;

/// Kinds of what callers do, in [`Scenario::acts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Submit,
    Register,
    Cancel,
    CancelNow,
    HostDisconnects,
    TargetDisconnects,
    Transfer,
    Connect,
    Idle,
}

/// All kinds.
pub(super) const ACTS: [Act; 9] = [
    Act::Submit,
    Act::Register,
    Act::Cancel,
    Act::CancelNow,
    Act::HostDisconnects,
    Act::TargetDisconnects,
    Act::Transfer,
    Act::Connect,
    Act::Idle,
];

/// Everything that is fixed before the first step.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) host_device: SoftOptions,
    pub(super) target_device: SoftOptions,
    pub(super) host: EngineOptions,
    pub(super) target: EngineOptions,
    /// Messages that the host may have under way unasked.
    pub(super) peer_receives: u32,
    /// Retries of receivers that are not ready: 7 is for ever.
    pub(super) rnr_retries: u8,
    /// Of what callers do, by weight.
    pub(super) acts: [u64; ACTS.len()],
    /// Acts in one step at most.
    pub(super) acts_per_step: u64,
    /// One step in so many has a fault; 0 for none.
    pub(super) fault_one_in: u64,
    pub(super) fault_weights: Vec<u64>,
    /// Longest tick, in microseconds.
    pub(super) tick: u64,
    pub(super) steps: u64,
    /// One chance in so many that the target deals with a command in a step.
    pub(super) serves_one_in: u64,
    /// Largest chunk shapes.
    pub(super) large: bool,
}

impl Scenario {
    pub(super) fn new(random: &mut Random, faults: usize) -> Self {
        let profile = random.of(&SoftProfile::ALL);
        let mut host_device = device(random, profile);
        let capabilities = &mut host_device.capabilities;
        let cost = |register, invalidate, message| SendQueueCost { register, invalidate, message };
        capabilities.send_queue_cost = random.of(&[cost(1, 1, 1), cost(1, 1, 1), cost(3, 2, 1), cost(4, 1, 2)]);
        capabilities.fence_after_registration = random.one_in(3);
        if matches!(capabilities.contiguity, Contiguity::Gaps { .. }) {
            capabilities.attributes.max_fast_reg_page_list_len = random.of(&[32, 20]);
        }
        // Short queues, in which keys and transfers stand in each other's way.
        if random.one_in(3) {
            capabilities.attributes.max_qp_wr = random.of(&[80, 100, 130]);
        }
        let connections = random.of(&[1, 2, 3]);
        let steps = random.of(&[200, 400, 400, 2000]);
        let quiet = random.one_in(4);
        let fixed = profile == SoftProfile::Umr { rotating_key_bits: 0 };
        let mut acts = [0; ACTS.len()];
        for (act, weight) in ACTS.iter().zip(&mut acts) {
            *weight = match act {
                Act::Submit => 32,
                Act::Connect | Act::Idle => 4,
                Act::HostDisconnects | Act::TargetDisconnects if quiet => 0,
                Act::HostDisconnects | Act::TargetDisconnects => random.weight() / 16,
                // With a key that never changes, who answers a cancelled request writes to the next one (U10).
                Act::Cancel | Act::CancelNow if quiet || fixed => 0,
                _ => random.weight() / 2,
            };
        }
        let mut scenario = Self {
            host_device,
            target_device: device(random, profile),
            host: host(random, connections),
            target: target(random, connections),
            peer_receives: random.of(&[1, 4, TARGET_RECEIVES]),
            rnr_retries: random.of(&[7, 7, 1]),
            acts,
            acts_per_step: random.of(&[2, 4, 8]),
            fault_one_in: if quiet { 0 } else { random.of(&[3, 10, 30, 100, 100]) },
            fault_weights: (0..faults).map(|_| random.weight()).collect(),
            tick: random.of(&[1, 2, 50, 2000]),
            steps: steps + random.below(steps),
            serves_one_in: random.of(&[1, 1, 2, 8]),
            large: random.one_in(3),
        };
        for engine in [&mut scenario.host, &mut scenario.target] {
            if random.one_in(3) {
                engine.receive_queues = ReceiveQueues::Shared { entries: 0 };
            }
        }
        scenario
    }
}

fn device(random: &mut Random, profile: SoftProfile) -> SoftOptions {
    let mut device = SoftOptions::new(profile);
    if profile == SoftProfile::RegMr && random.one_in(3) {
        device = device.with_gaps();
    }
    device.mtu = random.of(&[256, 1024, 4096]);
    device.wire_packets = random.of(&[1, 2, 8, 32]);
    device.starts_at_doorbell = random.one_in(2);
    device.seed = random.bits();
    device.watches_buffers = true;
    device
}

fn target(random: &mut Random, connections: u16) -> EngineOptions {
    EngineOptions::default()
        .connections(connections)
        .transfer_depth(random.of(&[8, 64]))
        .transfer_operations(random.of(&[1, 4]))
        .receive_depth(TARGET_RECEIVES)
        .queue_depth(1)
        .registrations(1)
        .signal(signal(random))
        .drain_timeout(Duration::from_millis(5))
}

fn signal(random: &mut Random) -> SignalPolicy {
    random.of(&[
        SignalPolicy::Sparse,
        SignalPolicy::Sparse,
        SignalPolicy::KernelBudget { batch: 0 },
        SignalPolicy::KernelBudget { batch: 8 },
        SignalPolicy::SendsOnly { batch: 0 },
        SignalPolicy::SendsOnly { batch: 4 },
        SignalPolicy::GlobalCounter { max_send_wr: 32 },
    ])
}

fn host(random: &mut Random, connections: u16) -> EngineOptions {
    let return_policy = random.of(&[ReturnPolicy::OnInvalidateCompleted, ReturnPolicy::OnInvalidatePosted]);
    let order = random.of(&[InvalidateOrder::BeforeMessages, InvalidateOrder::AfterMessages]);
    let before = return_policy == ReturnPolicy::OnInvalidatePosted;
    EngineOptions::default()
        .connections(connections)
        .queue_depth(random.of(&[1, 1, 2, 4, 8]))
        .transfer_depth(random.of(&[0, 1, 2, 8]))
        .transfer_operations(random.of(&[1, 4]))
        .receive_depth(random.of(&[0, 1, 2, 4, 16]))
        .message_bytes(random.of(&[320, 4096]))
        .registrations(random.of(&[0, 1, 2, 3, 8]))
        .first_fill(random.of(&[0, 0, 1]))
        .signal(signal(random))
        .invalidate_signalling(random.of(&[InvalidateSignalling::LastOfChain, InvalidateSignalling::Every]))
        .invalidate_order(if before { InvalidateOrder::BeforeMessages } else { order })
        .return_policy(return_policy)
        .on_post_error(random.of(&[OnPostError::Disconnect, OnPostError::DeregisterAndContinue]))
        .stale_policy(random.of(&[StalePolicy::Destroy, StalePolicy::Repair]))
        .iova(random.of(&[IovaPolicy::Raw, IovaPolicy::Cookie, IovaPolicy::ZeroBased]))
        .domain(random.of(&[DomainPolicy::ByKeyScope, DomainPolicy::Shared, DomainPolicy::PerConnection]))
        .write_pad(random.one_in(3))
        .drain_timeout(Duration::from_micros(random.of(&[0, 50, 5_000, 500_000])))
        .trace_records(random.of(&[0, 0, 0, 16]))
}
