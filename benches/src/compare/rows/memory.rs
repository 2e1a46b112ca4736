//! Rows of mempool and the reactor: A1 to A6, A21, A23.

use super::super::figure::Best;
use super::super::goal::Goal::{AtMost, RatioAtLeast, RatioAtMost};
use super::super::quantity::{Program, Quantity, Source};
use super::{Case, NONE, Row, dpdk, instructions, ours};

const ROUNDS: &str = "200000";

const PING_PONG: Quantity = Quantity::Timed(ours("ping-pong", &["lane", ROUNDS]), Best::Least);
const RAW_PING_PONG: Quantity = Quantity::Timed(ours("ping-pong", &["raw", ROUNDS]), Best::Least);
const RING_PING_PONG: Quantity = Quantity::Timed(dpdk("ring_ping_pong", &["single", ROUNDS]), Best::Least);

const fn raw(name: &'static str, arguments: &'static [&'static str]) -> Program {
    Program { source: Source::Ours(name), arguments }
}

/// See the parent.
pub(super) const ROWS: &[Row] = &[
    Row {
        id: "A1",
        what: "take and give back one slot, own core",
        cases: &[Case {
            unit: "insn",
            ours: instructions(ours("freelist-cost", &["one", "lifo"])),
            peer: Some(instructions(dpdk("rte_mempool", &["one"]))),
            peer_name: "rte_mempool",
            floor: Some(4.0),
            goals: &[RatioAtMost(0.5), AtMost(23.0)],
            stretch: Some(0.25),
            ..NONE
        }],
    },
    Row {
        id: "A2",
        what: "the same, 32 at once, per slot",
        cases: &[Case {
            unit: "insn",
            ours: instructions(ours("freelist-cost", &["bulk", "lifo"])),
            peer: Some(instructions(dpdk("rte_mempool", &["bulk"]))),
            peer_name: "rte_mempool",
            floor: Some(1.3),
            goals: &[RatioAtMost(0.5), AtMost(4.7)],
            stretch: Some(0.25),
            ..NONE
        }],
    },
    Row {
        id: "A3",
        what: "give back from another core, 32 at once, per slot",
        cases: &[Case {
            unit: "insn",
            ours: instructions(ours("freelist-cost", &["return", "lifo"])),
            peer: Some(instructions(dpdk("rte_stack", &["one"]))),
            peer_name: "rte_stack",
            floor: Some(6.0),
            goals: &[RatioAtMost(0.25), AtMost(31.0)],
            stretch: Some(0.1),
            ..NONE
        }],
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
        ],
    },
    Row {
        id: "A5",
        what: "send and receive a message, own core",
        cases: &[
            Case {
                name: "one",
                unit: "insn",
                ours: instructions(ours("lane-cost", &["lane", "one"])),
                peer: Some(instructions(raw("lane-cost", &["rtrb", "one"]))),
                peer_name: "rtrb",
                floor: Some(10.0),
                goals: &[AtMost(49.0)],
                stretch: Some(30.0),
            },
            Case {
                name: "batch 32",
                unit: "insn",
                ours: instructions(ours("lane-cost", &["lane", "batch"])),
                peer: Some(instructions(raw("lane-cost", &["rtrb", "batch"]))),
                peer_name: "rtrb",
                floor: Some(2.0),
                goals: &[AtMost(5.3)],
                stretch: Some(4.0),
            },
            Case {
                name: "one, rte_ring",
                unit: "insn",
                ours: instructions(ours("lane-cost", &["lane", "one"])),
                peer: Some(instructions(dpdk("rte_ring", &["single", "one"]))),
                peer_name: "rte_ring SP/SC",
                ..NONE
            },
            Case {
                name: "batch 32, rte_ring",
                unit: "insn",
                ours: instructions(ours("lane-cost", &["lane", "batch"])),
                peer: Some(instructions(dpdk("rte_ring", &["single", "batch"]))),
                peer_name: "rte_ring SP/SC",
                ..NONE
            },
        ],
    },
    Row {
        id: "A6",
        what: "idle poll iteration",
        cases: &[Case {
            name: "one queue, inboxes",
            unit: "insn",
            ours: instructions(ours("idle-cost", &["1"])),
            floor: Some(15.0),
            goals: &[AtMost(60.0)],
            stretch: Some(35.0),
            ..NONE
        }],
    },
    Row {
        id: "A21",
        what: "two cores against one, disjoint queue pairs",
        cases: &[Case {
            name: "throughput",
            unit: "1/s",
            ours: Quantity::Timed(ours("cores", &["2", ROUNDS]), Best::Most),
            peer: Some(Quantity::Timed(ours("cores", &["1", ROUNDS]), Best::Most)),
            peer_name: "one core",
            floor: Some(2.0),
            goals: &[RatioAtLeast(1.9)],
            stretch: Some(1.95),
        }],
    },
    Row {
        id: "A23",
        what: "hot bytes",
        cases: &[Case {
            name: "per MR",
            unit: "bytes",
            ours: Quantity::Printed(ours("hot-bytes", &[]), "mr"),
            floor: Some(64.0),
            goals: &[AtMost(64.0)],
            ..NONE
        }],
    },
];
