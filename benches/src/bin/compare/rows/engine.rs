//! Rows of the engine on a device that completes at once: A7 to A9, A22, A25.

use super::super::goal::Goal::{self, AtMost, RatioAtMost};
use super::super::quantity::{ITERATIONS, Program, Quantity, Source, VERBS_PROGRAM};
use super::memory::REQUESTS_OF_ONE_CORE;
use super::{Case, NONE, Row, instructions, ours};

const REMOTE: Quantity = instructions(ours("request-cost", &["remote", "32"]));
const LOCAL: Quantity = instructions(ours("request-cost", &["local", "32"]));
const STATIC: Quantity = instructions(ours("request-cost", &["static", "32"]));
const INLINE: Quantity = instructions(ours("request-cost", &["inline", "32"]));
const TWO_KEYS: Quantity = instructions(ours("request-cost", &["two-keys", "32"]));
const SHARED: Quantity = instructions(ours("request-cost", &["shared", "32"]));
const TRACED: Quantity = instructions(ours("request-cost", &["traced", "32"]));
/// The program's loop and its null port: part of all of them, and not the engine's.
const BARE: Quantity = instructions(ours("request-cost", &["bare", "32"]));
/// The same of a request with a static key, which posts no registration.
const BARE_STATIC: Quantity = instructions(ours("request-cost", &["bare-static", "32"]));
const RCACHE: Program =
    Program { source: Source::Peer("ucs_rcache", &["ucx-ucs"]), arguments: &[], iterations: ITERATIONS };

/// What a verbs port does for one request or completion, over a library that does nothing: what a device costs a core beside the
/// engine, and its library. For information: the goals are of a port that does nothing.
const fn verbs_port(name: &'static str, arguments: &'static [&'static str]) -> Case {
    Case { name, unit: "insn", ours: instructions(ours(VERBS_PROGRAM, arguments)), ..NONE }
}

/// A request as our own host or an embedder submits it.
const fn shape(name: &'static str, ours: Quantity, goals: &'static [Goal], stretch: Option<f64>) -> Case {
    Case { name, unit: "insn", ours, goals, stretch, ..NONE }
}

/// Requests of one page, and of 256.
const fn list(arguments: &'static [&'static str]) -> Quantity {
    instructions(ours("segments-cost", arguments).iterations(640, 3200))
}

/// A case of A9.
const PAGE: Case = Case { unit: "insn", floor: Some(3.0), goals: &[AtMost(8.0)], stretch: Some(5.0), ..NONE };

/// A case of A22: a full iteration beside its budget times A7, each without its port and its program's loop.
const FULL: Case = Case {
    unit: "insn",
    peer: Some(Quantity::Sum(&[(1.0, REMOTE), (-1.0, BARE)])),
    peer_name: "one key, less bare loop",
    floor: Some(1.0),
    goals: &[RatioAtMost(1.2)],
    stretch: Some(1.05),
    ..NONE
};

/// An iteration whose budget is used up by completions, and what follows from them, per completion.
const fn storm(arguments: &'static [&'static str]) -> Quantity {
    instructions(ours("storm-cost", arguments).iterations(8, 56))
}

macro_rules! engine_in_storm {
    ($mode:expr) => {
        Quantity::Sum(&[(1.0, storm(&[$mode])), (-1.0, storm(&["bare", $mode]))])
    };
}

macro_rules! further_page {
    ($many:expr, $one:expr) => {
        Quantity::Sum(&[(1.0 / 255.0, list($many)), (-1.0 / 255.0, list($one))])
    };
}

/// Requests on a core with so many ready connections.
const fn on_connections(arguments: &'static [&'static str]) -> Quantity {
    instructions(ours("connections-cost", arguments))
}

/// Ends of single connections of so many: few, since all but those that end have to be there in either run.
const fn ends(arguments: &'static [&'static str]) -> Quantity {
    instructions(ours("connections-cost", arguments).iterations(8, 56))
}

/// A case of A25: with many connections, beside few.
const fn flat(name: &'static str, many: Quantity, few: Quantity, peer_name: &'static str) -> Case {
    Case {
        name,
        unit: "insn",
        ours: many,
        peer: Some(few),
        peer_name,
        floor: Some(1.0),
        goals: &[RatioAtMost(1.15)],
        stretch: Some(1.05),
    }
}

/// See the parent.
pub(super) const ROWS: &[Row] = &[
    Row {
        id: "A7",
        what: "a whole request, 4 KiB, batch 32, with null port and loop",
        cases: &[
            Case { floor: Some(407.0), ..shape("one key, peer invalidates", REMOTE, &[AtMost(545.0)], Some(500.0)) },
            shape("one key, LOCAL_INV", LOCAL, &[AtMost(660.0)], Some(600.0)),
            shape("static key", STATIC, &[AtMost(410.0)], Some(380.0)),
            shape("4 KiB behind the message", INLINE, &[AtMost(620.0)], Some(560.0)),
            shape("two keys, LOCAL_INV", TWO_KEYS, &[AtMost(950.0)], Some(850.0)),
            shape("one key, receives shared", SHARED, &[AtMost(600.0)], None),
            shape("one key, traced", TRACED, &[AtMost(650.0)], None),
            // What they cost in time: the processor does several instructions in a cycle.
            Case {
                name: "in a second on one core, with port and loop",
                unit: "1/s",
                ours: REQUESTS_OF_ONE_CORE,
                ..NONE
            },
            verbs_port("a verbs port beside it: bind and message, ibv_post_send", &["list", "request"]),
            verbs_port("the same with LOCAL_INV", &["list", "invalidate"]),
            verbs_port("bind and message, ibv_wr_*", &["builder", "request"]),
            verbs_port("the same with LOCAL_INV, ibv_wr_*", &["builder", "invalidate"]),
            verbs_port("a receive", &["list", "receive"]),
            verbs_port("a reply that invalidated a guarded key", &["list", "reply"]),
        ],
    },
    Row {
        id: "A8",
        what: "price of protection: a request with a key less one with a static key",
        cases: &[
            Case {
                name: "each less its bare loop",
                unit: "insn",
                ours: Quantity::Sum(&[(1.0, REMOTE), (-1.0, BARE), (-1.0, STATIC), (1.0, BARE_STATIC)]),
                peer: Some(instructions(RCACHE)),
                peer_name: "UCX cache hit",
                floor: Some(50.0),
                goals: &[AtMost(120.0), RatioAtMost(1.0)],
                stretch: Some(80.0),
            },
            Case {
                name: "with the registration's part of the null port",
                unit: "insn",
                ours: Quantity::Sum(&[(1.0, REMOTE), (-1.0, STATIC)]),
                ..NONE
            },
        ],
    },
    Row {
        id: "A9",
        what: "each further page of a scatter list",
        cases: &[
            Case { name: "merged", ours: further_page!(&["adjacent", "256"], &["adjacent", "1"]), ..PAGE },
            Case { name: "an element each", ours: further_page!(&["pages", "256"], &["pages", "1"]), ..PAGE },
            Case { name: "with gaps", ours: further_page!(&["gaps", "256"], &["gaps", "1"]), ..PAGE },
        ],
    },
    Row {
        id: "A22",
        what: "an iteration that is full to its budget, per completion, less the bare loop",
        cases: &[
            Case { name: "good", ours: engine_in_storm!("good"), ..FULL },
            Case { name: "all fails", ours: engine_in_storm!("failed"), ..FULL },
            Case { name: "stale completions", ours: engine_in_storm!("stale"), ..FULL },
        ],
    },
    Row {
        id: "A25",
        what: "many connections of a core",
        cases: &[
            flat(
                "one of 1,024 has requests",
                on_connections(&["one", "1024"]),
                on_connections(&["one", "1"]),
                "of one",
            ),
            flat(
                "1,024 have one in turns",
                on_connections(&["turns", "1024"]),
                on_connections(&["turns", "64"]),
                "64 in turns",
            ),
            flat("the end of one of 4,096", ends(&["end", "4096"]), ends(&["end", "64"]), "of 64"),
            Case {
                name: "an idle one at depth 32, its receives apart",
                unit: "bytes",
                ours: Quantity::Printed(ours("connections-cost", &["bytes", "64"]), "bytes"),
                goals: &[AtMost(65_536.0)],
                ..NONE
            },
        ],
    },
];
