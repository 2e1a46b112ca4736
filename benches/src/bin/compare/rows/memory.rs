//! Rows of mempool and the reactor: A1 to A6, A21, A23.

use super::super::figure::Best;
use super::super::goal::Goal::{AtLeast, AtMost, Equal, RatioAtLeast, RatioAtMost};
use super::super::quantity::{Program, Quantity};
use super::{Case, NONE, Row, dpdk, instructions, ours};

const RTRB_ONE: Quantity = instructions(ours("lane", &["one", "rtrb"]));
const RTRB_BATCH: Quantity = instructions(ours("lane", &["batch", "rtrb"]));
const LANE_ONE: Quantity = instructions(ours("lane", &["one", "frwr"]));
const LANE_BATCH: Quantity = instructions(ours("lane", &["batch", "frwr"]));

/// Round trips of a run. Between two runs the host may move a processor, so that all of them are several times as fast or as slow:
/// the median is what most turns saw, where the least of one could lie beside none of the other.
const ROUND_TRIPS: u64 = 400_000;
const PING_PONG: Quantity = timed(ours("ping-pong", &["lane"]), ROUND_TRIPS, Best::Middle);
const RAW_PING_PONG: Quantity = timed(ours("ping-pong", &["raw"]), ROUND_TRIPS, Best::Middle);
const RING_PING_PONG: Quantity = timed(dpdk("ring_ping_pong", &["single"]), ROUND_TRIPS, Best::Middle);
const RING_PAUSE_PING_PONG: Quantity = timed(dpdk("ring_ping_pong", &["single-pause"]), ROUND_TRIPS, Best::Middle);
const RINGS_PING_PONG: Quantity = timed(dpdk("ring_ping_pong", &["multiple"]), ROUND_TRIPS, Best::Middle);

/// Rounds of a run of turns.
const ROUNDS: u64 = 100;
/// Requests per core of a timing program.
const REQUESTS: u64 = 1_000_000;
const ONE_CORE: Program = ours("scaling", &["engine", "1"]);
const TWO_CORES: Program = ours("scaling", &["engine", "2"]);

/// What two cores are worth, by turns; rounds of some 15 to 30 ms.
const fn turns(arguments: &'static [&'static str]) -> Quantity {
    timed(ours("scaling", arguments), ROUNDS, Best::Middle)
}

const ONE_INDEX: Program = ours("freelist", &["one", "lifo"]);
const ONE_SLOT: Program = ours("freelist", &["slot", "lifo"]);
const ONE_IDLE: Program = ours("freelist", &["idle", "lifo"]);

const ONE_QUEUE: Quantity = idle(&["1", "1"]);
const EIGHT_QUEUES: Quantity = idle(&["1", "8"]);

const fn timed(program: Program, iterations: u64, best: Best) -> Quantity {
    Quantity::Timed(program.iterations(0, iterations), best)
}

/// Registered requests per second of one core, over a device that completes at once.
pub(super) const REQUESTS_OF_ONE_CORE: Quantity = timed(ONE_CORE, REQUESTS, Best::Most);

/// Many iterations: what the reactor copies out every 10 ms, however many iterations those are, is then little of each.
const fn idle(arguments: &'static [&'static str]) -> Quantity {
    instructions(ours("idle", arguments).iterations(200_000, 2_200_000))
}

/// The same figure of ours beside one more peer, for information.
const fn beside(name: &'static str, ours: Quantity, peer: Quantity, peer_name: &'static str) -> Case {
    Case { name, unit: "insn", ours, peer: Some(peer), peer_name, ..NONE }
}

/// A case of A1.
const OWN_CORE: Case = Case {
    unit: "insn",
    peer: Some(instructions(dpdk("rte_mempool", &["one"]))),
    peer_name: "rte_mempool",
    floor: Some(4.0),
    goals: &[RatioAtMost(0.5), AtMost(23.0)],
    stretch: Some(0.25),
    ..NONE
};

/// A case of A2.
const AT_ONCE: Case = Case {
    unit: "insn",
    peer: Some(instructions(dpdk("rte_mempool", &["bulk"]))),
    peer_name: "rte_mempool",
    floor: Some(1.3),
    goals: &[RatioAtMost(0.5), AtMost(4.7)],
    stretch: Some(0.25),
    ..NONE
};

/// A case of A3.
const FROM_AFAR: Case = Case {
    unit: "insn",
    peer: Some(instructions(dpdk("rte_stack", &["one"]))),
    peer_name: "rte_stack",
    floor: Some(6.0),
    goals: &[RatioAtMost(0.25), AtMost(31.0)],
    stretch: Some(0.1),
    ..NONE
};

/// See the parent.
pub(super) const ROWS: &[Row] = &[
    Row {
        id: "A1",
        what: "take and give back one, own core",
        cases: &[
            Case { name: "an index of a freelist", ours: instructions(ONE_INDEX), ..OWN_CORE },
            Case { name: "a request slot", ours: instructions(ONE_SLOT), ..OWN_CORE },
            Case { name: "an idle MR", ours: instructions(ONE_IDLE), ..OWN_CORE },
            Case {
                name: "locked operations, all three",
                unit: "count",
                ours: Quantity::Sum(&[
                    (1.0, Quantity::Locked(ONE_INDEX)),
                    (1.0, Quantity::Locked(ONE_SLOT)),
                    (1.0, Quantity::Locked(ONE_IDLE)),
                ]),
                peer: Some(Quantity::Locked(dpdk("rte_stack", &["one"]))),
                peer_name: "rte_stack",
                floor: Some(0.0),
                goals: &[Equal(0.0)],
                ..NONE
            },
        ],
    },
    Row {
        id: "A2",
        what: "the same, 32 indices at once, per index",
        cases: &[
            Case { name: "as a batch", ours: instructions(ours("freelist", &["bulk", "lifo"])), ..AT_ONCE },
            Case {
                name: "by a slice, each checked",
                ours: instructions(ours("freelist", &["slice", "lifo"])),
                goals: &[],
                stretch: None,
                ..AT_ONCE
            },
        ],
    },
    Row {
        id: "A3",
        what: "give back from another core, 32 indices at once, per index",
        cases: &[
            Case { name: "as a batch", ours: instructions(ours("freelist", &["return", "lifo"])), ..FROM_AFAR },
            Case {
                name: "by a slice, each checked, as Control does",
                ours: instructions(ours("freelist", &["return-slice", "lifo"])),
                goals: &[],
                stretch: None,
                ..FROM_AFAR
            },
            beside(
                "by a slice, to 32 at once",
                instructions(ours("freelist", &["return-slice", "lifo"])),
                instructions(dpdk("rte_stack", &["bulk"])),
                "rte_stack, 32 at once",
            ),
        ],
    },
    Row {
        id: "A4",
        what: "round trip of a message between two cores",
        cases: &[
            Case {
                name: "to two cache lines",
                unit: "ns",
                ours: PING_PONG,
                peer: Some(RAW_PING_PONG),
                peer_name: "raw cache lines",
                floor: Some(1.0),
                goals: &[RatioAtMost(1.3)],
                stretch: Some(1.15),
            },
            Case {
                name: "to a ring",
                unit: "ns",
                ours: PING_PONG,
                peer: Some(RING_PING_PONG),
                peer_name: "rte_ring SP/SC",
                goals: &[RatioAtMost(0.9)],
                ..NONE
            },
            Case {
                name: "to a ring that waits with PAUSE, as ours does",
                unit: "ns",
                ours: PING_PONG,
                peer: Some(RING_PAUSE_PING_PONG),
                peer_name: "rte_ring SP/SC",
                goals: &[RatioAtMost(0.9)],
                ..NONE
            },
            Case {
                name: "to a ring of many",
                unit: "ns",
                ours: PING_PONG,
                peer: Some(RINGS_PING_PONG),
                peer_name: "rte_ring MP/MC",
                ..NONE
            },
        ],
    },
    Row {
        id: "A5",
        what: "send and receive a message, own core",
        cases: &[
            Case {
                name: "one",
                unit: "insn",
                ours: LANE_ONE,
                peer: Some(RTRB_ONE),
                peer_name: "rtrb",
                floor: Some(10.0),
                goals: &[AtMost(49.0)],
                stretch: Some(30.0),
            },
            Case {
                name: "batch 32",
                unit: "insn",
                ours: LANE_BATCH,
                peer: Some(RTRB_BATCH),
                peer_name: "rtrb",
                floor: Some(2.0),
                goals: &[AtMost(5.3)],
                stretch: Some(4.0),
            },
            beside("one, ring", LANE_ONE, instructions(dpdk("rte_ring", &["single", "one"])), "rte_ring SP/SC"),
            beside("batch, ring", LANE_BATCH, instructions(dpdk("rte_ring", &["single", "batch"])), "rte_ring SP/SC"),
            beside(
                "one, rings of many",
                LANE_ONE,
                instructions(dpdk("rte_ring", &["multiple", "one"])),
                "rte_ring MP/MC",
            ),
            beside("one, array", LANE_ONE, instructions(ours("lane", &["one", "array-queue"])), "crossbeam ArrayQueue"),
            beside("one, segments", LANE_ONE, instructions(ours("lane", &["one", "seg-queue"])), "crossbeam SegQueue"),
            beside("one, channel", LANE_ONE, instructions(ours("lane", &["one", "channel"])), "std mpsc"),
        ],
    },
    Row {
        id: "A6",
        what: "idle poll iteration",
        cases: &[
            Case {
                name: "one queue, inboxes",
                unit: "insn",
                ours: ONE_QUEUE,
                floor: Some(15.0),
                goals: &[AtMost(60.0)],
                stretch: Some(35.0),
                ..NONE
            },
            Case {
                name: "each further queue",
                unit: "insn",
                ours: Quantity::Sum(&[(1.0 / 7.0, EIGHT_QUEUES), (-1.0 / 7.0, ONE_QUEUE)]),
                floor: Some(6.0),
                goals: &[AtMost(15.0)],
                stretch: Some(10.0),
                ..NONE
            },
            Case {
                name: "with an idle engine: two queues",
                unit: "insn",
                ours: idle(&["1", "engine"]),
                floor: Some(15.0 + 6.0),
                // The engine's second queue is a further one.
                goals: &[AtMost(60.0 + 15.0)],
                ..NONE
            },
            Case {
                name: "each further inbox",
                unit: "insn",
                ours: Quantity::Sum(&[(1.0, idle(&["2", "1"])), (-1.0, ONE_QUEUE)]),
                ..NONE
            },
            Case {
                name: "an idle engine without a reactor",
                unit: "insn",
                ours: instructions(ours("idle-cost", &[])),
                ..NONE
            },
        ],
    },
    Row {
        id: "A21",
        what: "two cores against one, disjoint queue pairs",
        cases: &[
            Case {
                name: "throughput, in turns",
                unit: "x",
                ours: turns(&["turns", "engine"]),
                floor: Some(2.0),
                goals: &[AtLeast(1.9)],
                stretch: Some(1.95),
                ..NONE
            },
            Case { name: "a loop that computes, in turns", unit: "x", ours: turns(&["turns", "wide"]), ..NONE },
            Case {
                name: "the first by the second, in the same rounds",
                unit: "x",
                ours: turns(&["turns", "engine/wide"]),
                ..NONE
            },
            Case {
                name: "best of separate runs",
                unit: "1/s",
                ours: timed(TWO_CORES, REQUESTS, Best::Most),
                peer: Some(REQUESTS_OF_ONE_CORE),
                peer_name: "one core",
                ..NONE
            },
            Case {
                name: "instructions per request",
                unit: "insn",
                ours: Quantity::Sum(&[(0.5, instructions(TWO_CORES))]),
                peer: Some(instructions(ONE_CORE)),
                peer_name: "one core",
                floor: Some(1.0),
                goals: &[RatioAtMost(1.01), RatioAtLeast(0.99)],
                ..NONE
            },
        ],
    },
    Row {
        id: "A23",
        what: "hot bytes",
        cases: &[
            Case {
                name: "per MR",
                unit: "bytes",
                ours: Quantity::Printed(ours("hot-bytes", &[]), "mr"),
                floor: Some(64.0),
                goals: &[AtMost(64.0)],
                ..NONE
            },
            Case {
                name: "per request slot",
                unit: "bytes",
                ours: Quantity::Printed(ours("hot-bytes", &[]), "request"),
                floor: Some(128.0),
                goals: &[AtMost(256.0)],
                ..NONE
            },
        ],
    },
];
