//! Rows of the NVMe-oF target and host: each detached from its NIC (A24), and both on a core that may sleep (A26) or is
//! watched (A27), also as programs.

use super::super::figure::Best;
use super::super::goal::Goal::{AtMost, RatioAtMost};
use super::super::quantity::Quantity;
use super::{Case, NONE, Row, instructions, ours};

/// A command of 4 KiB, so many at a time.
macro_rules! command {
    ($mode:expr) => {
        instructions(ours("nvmf-cost", &[$mode, "32"]))
    };
}

/// A command of one side, less what its port has of it.
macro_rules! less_port {
    ($mode:expr, $bare:expr $(, $medium:expr)?) => {
        Quantity::Sum(&[(1.0, command!($mode)), (-1.0, command!($bare)) $(, (-1.0, command!($medium)))?])
    };
}

const TARGET_READ: Quantity = less_port!("target-read", "bare-target-read", "medium-read");
const TARGET_WRITE: Quantity = less_port!("target-write", "bare-target-write", "medium-write");
const HOST_READ: Quantity = less_port!("host-read", "bare-host-read");
const HOST_WRITE: Quantity = less_port!("host-write", "bare-host-write");

/// Of what it was when it was first counted, at most so much: three fifths, and two as what would be better still.
const fn first(name: &'static str, ours: Quantity, goals: &'static [super::Goal], stretch: f64) -> Case {
    Case { name, unit: "insn", ours, goals, stretch: Some(stretch), ..NONE }
}

const fn told(name: &'static str, ours: Quantity) -> Case {
    Case { name, unit: "insn", ours, ..NONE }
}

/// A read of 4 KiB from the host's call to its completion, 32 at a time, host, target and software NIC on one core.
const fn read_on(how: &'static [&'static str]) -> Quantity {
    instructions(ours("sleep-cost", how))
}

/// An iteration of a reactor that finds nothing. Many, so that the first ones are no part of them.
const fn look_on(how: &'static [&'static str]) -> Quantity {
    instructions(ours("sleep-cost", how).iterations(20_000, 120_000))
}

/// The same on a thread of its own, whose figures are read or not; the readings of so many iterations without these.
const ALONE: Quantity = look_on(&["watched", "alone"]);
const READ: Quantity = look_on(&["watched", "read"]);
const READINGS: Quantity = look_on(&["watched", "readings"]);
const MORE_WHERE_READ: Quantity = Quantity::Sum(&[(1.0, READ), (-1.0, READINGS), (-1.0, ALONE)]);

/// p99.9 of a verified load while its target's metrics are asked for, by what it is without: so many pairs of runs, of
/// a second each.
const fn metered(cores: &'static [&'static str]) -> Quantity {
    Quantity::Timed(ours("metered", cores).iterations(1, 10), Best::Middle)
}

/// See the parent. A24 was first counted on 2026-11-27 at 6bd15ba: 2,182 and 5,331 of the target, 2,178 and 2,868 of the host.
pub(super) const ROWS: &[Row] = &[
    Row {
        id: "A24",
        what: "a command of 4 KiB, batch 32, from one port to the other, less the port",
        cases: &[
            first("target's part of a read, less its medium", TARGET_READ, &[AtMost(1309.0)], 873.0),
            first("of a write in the capsule, less its medium", TARGET_WRITE, &[AtMost(3198.0)], 2132.0),
            first("host's part of a read", HOST_READ, &[AtMost(1306.0)], 871.0),
            first("of a write in the capsule", HOST_WRITE, &[AtMost(1721.0)], 1147.0),
            told("target's read, with port and medium", command!("target-read")),
            told("the medium's part of it", command!("medium-read")),
            told("one at a time", instructions(ours("nvmf-cost", &["target-read", "1"]))),
        ],
    },
    Row {
        id: "A26",
        what: "a core with work that may sleep",
        cases: &[
            Case {
                peer: Some(read_on(&["spin", "32"])),
                peer_name: "polling on",
                floor: Some(1.0),
                goals: &[RatioAtMost(1.02)],
                ..told("a read of 4 KiB, 32 at a time, on both sides", read_on(&["sleep", "32"]))
            },
            told("the same, polling on", read_on(&["spin", "32"])),
            told("an iteration that finds nothing, before it sleeps", look_on(&["idle", "sleep"])),
            told("the same, polling on for ever", look_on(&["idle", "spin"])),
        ],
    },
    Row {
        id: "A27",
        what: "a core whose figures others read",
        cases: &[
            Case {
                goals: &[AtMost(0.5)],
                ..told("what an iteration does more where they are read each tenth", MORE_WHERE_READ)
            },
            told("an iteration that finds nothing", ALONE),
            told("the same with a tenth of a reading", READ),
            told("a tenth of a reading", READINGS),
            Case {
                unit: "x",
                floor: Some(1.0),
                goals: &[AtMost(1.02)],
                ..told("p99.9 of a load whose metrics are asked for and not read, by that without", metered(&["one"]))
            },
            Case {
                unit: "x",
                ..told("the same with a processor for each core and none for who asks", metered(&["two"]))
            },
        ],
    },
];
