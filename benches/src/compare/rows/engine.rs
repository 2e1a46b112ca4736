//! Rows of the engine on a device that completes at once: A7 to A9, A22.

use super::super::goal::Goal::{AtMost, RatioAtMost};
use super::super::quantity::{ITERATIONS, Program, Quantity, Source};
use super::{Case, NONE, Row, instructions, ours};

const REMOTE: Quantity = instructions(ours("request-cost", &["remote", "32"]));
const LOCAL: Quantity = instructions(ours("request-cost", &["local", "32"]));
const STATIC: Quantity = instructions(ours("request-cost", &["static", "32"]));
/// The program's loop and its null port: part of all of them, and not the engine's.
const BARE: Quantity = instructions(ours("request-cost", &["bare", "32"]));
const RCACHE: Program =
    Program { source: Source::Peer("ucs_rcache", &["ucx-ucs"]), arguments: &[], iterations: ITERATIONS };

/// See the parent.
pub(super) const ROWS: &[Row] = &[
    Row {
        id: "A7",
        what: "a whole registered request, 4 KiB, batch 32, less the bare loop",
        cases: &[
            Case {
                name: "peer invalidates",
                unit: "insn",
                ours: Quantity::Sum(&[(1.0, REMOTE), (-1.0, BARE)]),
                floor: Some(110.0),
                goals: &[AtMost(250.0)],
                stretch: Some(180.0),
                ..NONE
            },
            Case {
                name: "LOCAL_INV",
                unit: "insn",
                ours: Quantity::Sum(&[(1.0, LOCAL), (-1.0, BARE)]),
                floor: Some(110.0),
                goals: &[AtMost(320.0)],
                stretch: Some(230.0),
                ..NONE
            },
        ],
    },
    Row {
        id: "A8",
        what: "price of protection: A7 less a static key",
        cases: &[Case {
            unit: "insn",
            ours: Quantity::Sum(&[(1.0, REMOTE), (-1.0, STATIC)]),
            peer: Some(instructions(RCACHE)),
            peer_name: "UCX cache hit",
            floor: Some(50.0),
            goals: &[AtMost(120.0), RatioAtMost(1.0)],
            stretch: Some(80.0),
            ..NONE
        }],
    },
    Row {
        id: "A9",
        what: "each further page of a scatter list",
        cases: &[Case {
            unit: "insn",
            ours: Quantity::Sum(&[
                (1.0 / 255.0, instructions(ours("request-cost", &["32", "remote", "256"]))),
                (-1.0 / 255.0, instructions(ours("request-cost", &["32", "remote", "1"]))),
            ]),
            floor: Some(3.0),
            goals: &[AtMost(8.0)],
            stretch: Some(5.0),
            ..NONE
        }],
    },
    Row {
        id: "A22",
        what: "worst iteration against what its budget allows",
        cases: &[Case {
            unit: "ratio",
            ours: Quantity::Printed(ours("worst-iteration", &[]), "ratio"),
            floor: Some(1.0),
            goals: &[AtMost(1.2)],
            stretch: Some(1.05),
            ..NONE
        }],
    },
];
