//! What a seed chooses.

use crate::engine_harness::{PROFILES, Setup, random::Random};
use core::time::Duration;
use frwr_engine::{
    DomainPolicy, EngineOptions, InvalidateOrder, InvalidateSignalling, IovaPolicy, OnPostError, ReceiveQueues,
    ReturnPolicy, StalePolicy,
    provider::{Contiguity, SendQueueCost, soft::SoftOptions},
    signal::SignalPolicy,
};

/// Receives that each connection of the target has, so that the host may send so many.
pub(crate) const TARGET_RECEIVES: u32 = 32;

/// What goes wrong, and how often.
pub(crate) struct Chances {
    /// One step in so many has a fault; 0 for none.
    pub(crate) fault_one_in: u64,
    /// Kinds of faults, by weight.
    pub(crate) weights: [u64; KINDS],
    /// Longest tick, in microseconds.
    pub(crate) tick: u64,
    pub(crate) steps: u32,
}

/// Kinds of faults.
pub(crate) const KINDS: usize = 13;

pub(crate) fn chances(random: &mut Random) -> Chances {
    let weights = core::array::from_fn(|_| if random.one_in(2) { 0 } else { 1 << random.below(5) });
    Chances {
        fault_one_in: random.of(&[0, 3, 10, 30]),
        weights,
        tick: random.of(&[1, 2, 50, 2000]),
        steps: 150 + random.below(350) as u32,
    }
}

fn device(random: &mut Random, profile: &str) -> SoftOptions {
    let mut device = SoftOptions::new(profile.parse().unwrap());
    if profile == "reg_mr" && random.one_in(3) {
        device = device.with_gaps();
    }
    device.mtu = random.of(&[256, 1024, 4096]);
    device.wire_packets = random.of(&[1, 2, 8, 32]);
    device.starts_at_doorbell = random.one_in(2);
    device.seed = random.next();
    device
}

pub(crate) fn setup(random: &mut Random) -> Setup {
    let profile = random.of(&PROFILES);
    let mut setup = Setup::new(profile);
    (setup.host_device, setup.target_device) = (device(random, profile), device(random, profile));
    let capabilities = &mut setup.host_device.capabilities;
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
    let return_policy = random.of(&[ReturnPolicy::OnInvalidateCompleted, ReturnPolicy::OnInvalidatePosted]);
    let order = random.of(&[InvalidateOrder::BeforeMessages, InvalidateOrder::AfterMessages]);
    let before = return_policy == ReturnPolicy::OnInvalidatePosted;
    setup.host = EngineOptions {
        connections,
        queue_depth: random.of(&[1, 1, 2, 4, 8]),
        transfer_depth: random.of(&[0, 1, 2, 8]),
        transfer_operations: random.of(&[1, 4]),
        receive_depth: random.of(&[0, 1, 2, 4, 16]),
        message_bytes: random.of(&[320, 4096]),
        registrations: random.of(&[0, 1, 2, 3, 8]),
        first_fill: random.of(&[0, 0, 1]),
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
        invalidate_order: if before { InvalidateOrder::BeforeMessages } else { order },
        return_policy,
        on_post_error: random.of(&[OnPostError::Disconnect, OnPostError::DeregisterAndContinue]),
        stale_policy: random.of(&[StalePolicy::Destroy, StalePolicy::Repair]),
        iova: random.of(&[IovaPolicy::Raw, IovaPolicy::Cookie, IovaPolicy::ZeroBased]),
        domain: random.of(&[DomainPolicy::ByKeyScope, DomainPolicy::Shared, DomainPolicy::PerConnection]),
        write_pad: random.one_in(3),
        drain_timeout: Duration::from_micros(random.of(&[0, 50, 5_000, 500_000])),
        trace_records: random.of(&[0, 0, 0, 16]),
        ..EngineOptions::default()
    };
    setup.target = EngineOptions {
        connections,
        transfer_depth: random.of(&[8, 64]),
        receive_depth: TARGET_RECEIVES,
        queue_depth: 1,
        registrations: 1,
        drain_timeout: Duration::from_millis(5),
        ..EngineOptions::default()
    };
    for engine in [&mut setup.host, &mut setup.target] {
        if random.one_in(3) {
            engine.receive_queues = ReceiveQueues::Shared { entries: 0 };
        }
    }
    setup.peer_receives(random.of(&[1, 4, TARGET_RECEIVES]))
}
