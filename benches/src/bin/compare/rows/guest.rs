//! Rows on soft RoCE in the virtual machine, and those that are counted here as well: A10 to A20.
//! The keys are those of the jobs in benches/guest.

use super::super::figure::Best;
use super::super::goal::Goal::{self, AtMost, Equal, RatioAtLeast, RatioAtMost};
use super::super::quantity::{Program, Quantity, VERBS_PROGRAM, VERBS_WRITE_PROGRAM};
use super::{Case, NONE, Row, instructions, least, ours, peer};

const KERNEL: &str = "nvme-rdma (stated)";

/// A protected request beside another way of giving the peer a key.
const fn request(
    name: &'static str,
    protected: &'static str,
    other: &'static str,
    peer_name: &'static str,
    floor: f64,
    goals: &'static [Goal],
    stretch: Option<f64>,
) -> Case {
    Case {
        name,
        unit: "us",
        ours: least(protected),
        peer: Some(least(other)),
        peer_name,
        floor: Some(floor),
        goals,
        stretch,
    }
}

/// A WRITE on a device that completes at once, with that device and the program's loop: what a change of ours changes, exactly.
const fn engine_alone(arguments: &'static [&'static str]) -> Case {
    let ours = instructions(ours("write-cost", arguments).iterations(FEW_WRITES, MANY_WRITES));
    Case { name: "instructions, with null port and loop", unit: "insn", ours, ..NONE }
}

/// A15: what a key adds to a request, made by work requests or by ibv_reg_mr, each beside the same request with a key that is
/// there already.
macro_rules! price {
    ($key:literal, $without:literal) => {
        Quantity::Sum(&[(1.0, Quantity::Guest($key, Best::Least)), (-1.0, Quantity::Guest($without, Best::Least))])
    };
}

/// A15.
const fn key_of_a_request(
    name: &'static str,
    ours: Quantity,
    registered: Quantity,
    goals: &'static [Goal],
    stretch: f64,
) -> Case {
    let peer = Some(registered);
    Case { name, unit: "us", ours, peer, peer_name: OWN, floor: Some(0.25), goals, stretch: Some(stretch) }
}

/// The peer of A15: the same program.
const OWN: &str = "reg_mr per request";
/// The peer of A19.
const UCX: &str = "ucp_mem_map + unmap";

/// A19.
const fn beside_ucx(
    name: &'static str,
    ours: &'static str,
    other: &'static str,
    goals: &'static [Goal],
    stretch: f64,
) -> Case {
    Case { goals, stretch: Some(stretch), ..beside(name, ours, other, UCX) }
}

/// Two times in turns, for information.
const fn beside(name: &'static str, ours: &'static str, other: &'static str, peer_name: &'static str) -> Case {
    Case { name, unit: "us", ours: least(ours), peer: Some(least(other)), peer_name, ..NONE }
}

/// Keys made and killed by work requests, beside ibv_reg_mr and ibv_dereg_mr.
const fn keys(
    name: &'static str,
    windows: &'static str,
    peer: &'static str,
    floor: f64,
    goals: &'static [Goal],
    stretch: Option<f64>,
) -> Case {
    Case {
        name,
        unit: "us",
        ours: least(windows),
        peer: Some(least(peer)),
        peer_name: "reg_mr + dereg_mr",
        floor: Some(floor),
        goals,
        stretch,
    }
}

/// Counted on the null port, beside what the kernel's host does by its source.
const fn counted(
    name: &'static str,
    words: &'static str,
    arguments: &'static [&'static str],
    kernel: f64,
    floor: f64,
    goals: &'static [Goal],
) -> Case {
    let ours = Quantity::Told(ours("per-request", arguments), words);
    Case {
        name,
        unit: "count",
        ours,
        peer: Some(Quantity::Stated(kernel)),
        peer_name: KERNEL,
        floor: Some(floor),
        goals,
        ..NONE
    }
}

/// The same on soft RoCE.
const fn in_guest(name: &'static str, key: &'static str, kernel: f64, floor: f64, goals: &'static [Goal]) -> Case {
    let peer = Some(Quantity::Stated(kernel));
    Case { name, unit: "count", ours: least(key), peer, peer_name: KERNEL, floor: Some(floor), goals, ..NONE }
}

/// What memory asked of the kernel.
const fn page_faults(name: &'static str, key: &'static str, goals: &'static [Goal]) -> Case {
    Case { name, unit: "per request", ours: least(key), floor: Some(0.0), goals, ..NONE }
}

/// A18: 32 WRITEs of 8 bytes by engine and verbs port, over a library that does nothing, beside a loop in C over the same.
const fn beside_loop(name: &'static str, arguments: &'static [&'static str], goals: &'static [Goal]) -> Case {
    Case {
        name,
        unit: "insn",
        ours: instructions(ours(VERBS_WRITE_PROGRAM, arguments).iterations(FEW_WRITES, MANY_WRITES)),
        peer: Some(instructions(peer("null_write", &["libibverbs"]).iterations(FEW_WRITES, MANY_WRITES))),
        peer_name: "verbs loop in C",
        goals,
        ..NONE
    }
}

/// Rounds of 32 each.
const FEW_WRITES: u64 = 32_000;
const MANY_WRITES: u64 = 160_000;

const LISTS: Program = ours("write-cost", &["list"]).iterations(FEW_WRITES, MANY_WRITES);

/// What a program says of all of its WRITEs, by their number.
macro_rules! of_a_write {
    ($words:literal) => {
        Quantity::Quotient(&Quantity::Told(LISTS, $words), &Quantity::Told(LISTS, "iterations"))
    };
}

/// Of a round of 32 WRITEs.
const fn counted_of_a_write(name: &'static str, ours: Quantity, goals: &'static [Goal]) -> Case {
    Case { name, unit: "count", ours, goals, ..NONE }
}

/// See the parent.
pub(super) const ROWS: &[Row] = &[
    Row {
        id: "A10",
        what: "doorbells per request",
        cases: &[
            counted("depth 32", "doorbells", &["remote", "1", "32"], 1.0, 1.0 / 32.0, &[AtMost(2.0 / 32.0)]),
            counted("depth 32, LOCAL_INV", "doorbells", &["local", "1", "32"], 2.0, 1.0 / 32.0, &[AtMost(2.0 / 32.0)]),
            counted("depth 1", "doorbells", &["remote", "1", "1"], 1.0, 1.0, &[Equal(1.0)]),
            counted("depth 1, LOCAL_INV", "doorbells", &["local", "1", "1"], 2.0, 2.0, &[Equal(2.0)]),
            in_guest("depth 32, guest", "requests/doorbells_32", 1.0, 1.0 / 32.0, &[AtMost(2.0 / 32.0)]),
            in_guest("depth 1, guest", "requests/doorbells_1", 1.0, 1.0, &[AtMost(1.0)]),
        ],
    },
    Row {
        id: "A11",
        what: "work requests per request",
        cases: &[
            counted("peer invalidates", "work requests", &["remote", "1", "32"], 2.0, 2.0, &[Equal(2.0)]),
            counted("LOCAL_INV", "work requests", &["local", "1", "32"], 3.0, 3.0, &[Equal(3.0)]),
            counted("four keys, peer invalidates", "work requests", &["remote", "4", "8"], 8.0, 8.0, &[Equal(8.0)]),
            counted("four keys, LOCAL_INV", "work requests", &["local", "4", "8"], 9.0, 9.0, &[Equal(9.0)]),
            in_guest("peer invalidates, guest", "requests/work_requests_32", 2.0, 2.0, &[Equal(2.0)]),
        ],
    },
    Row {
        id: "A12",
        what: "send completions per request, depth 32",
        cases: &[
            counted(
                "peer invalidates",
                "send completions",
                &["remote", "1", "32"],
                1.0,
                1.0 / 32.0,
                &[AtMost(2.0 / 32.0)],
            ),
            counted("LOCAL_INV", "send completions", &["local", "1", "32"], 2.0, 1.0 / 32.0, &[AtMost(2.0 / 32.0)]),
            in_guest("guest", "requests/completions_32", 1.0, 1.0 / 32.0, &[AtMost(2.0 / 32.0)]),
        ],
    },
    Row {
        id: "A13",
        what: "steady state asks nothing of the system",
        cases: &[
            Case {
                name: "system calls but posts",
                unit: "per request",
                ours: least("calls/calls_but_posts"),
                floor: Some(0.0),
                goals: &[AtMost(0.001)],
                ..NONE
            },
            Case {
                name: "posts, to doorbells",
                unit: "per request",
                ours: least("calls/posts"),
                peer: Some(least("calls/posts_expected")),
                peer_name: "doorbells",
                floor: Some(1.0),
                goals: &[RatioAtMost(1.0), RatioAtLeast(1.0)],
                ..NONE
            },
            Case {
                name: "allocations",
                unit: "per request",
                ours: Quantity::Allocations(ours("request-cost", &["remote", "32"])),
                floor: Some(0.0),
                goals: &[Equal(0.0)],
                ..NONE
            },
            page_faults(
                "page faults of the reactor's thread, 24,000 requests",
                "calls/faults_of_reactor",
                &[Equal(0.0)],
            ),
            page_faults("page faults of the process meanwhile", "calls/faults_of_process", &[AtMost(0.001)]),
            page_faults("page faults of whole processes, a long less a short one", "calls/faults_of_run", &[]),
        ],
    },
    // One request at a time by its median: a mean has the moments in it in which the host took the processor away.
    Row {
        id: "A14",
        what: "protected against one static key, 4 KiB request",
        cases: &[
            request(
                "depth 32",
                "requests/request_32",
                "requests/static_32",
                "static key",
                1.07,
                &[RatioAtMost(1.15)],
                Some(1.10),
            ),
            request(
                "depth 8",
                "requests/request_8",
                "requests/static_8",
                "static key",
                1.13,
                &[RatioAtMost(1.22)],
                Some(1.18),
            ),
            request(
                "depth 1, median",
                "requests/request_1_median",
                "requests/static_1_median",
                "static key",
                1.15,
                &[RatioAtMost(1.42)],
                Some(1.35),
            ),
            beside("depth 1, mean", "requests/request_1", "requests/static_1", "static key"),
            beside(
                "depth 1, median, to a loop",
                "requests/beside_1_median",
                "requests/loop_static_1_median",
                "static key loop in C",
            ),
        ],
    },
    Row {
        id: "A15",
        what: "price of a key against ibv_reg_mr per request, 4 KiB, each less one static key",
        cases: &[
            key_of_a_request(
                "depth 1, medians",
                price!("requests/request_1_median", "requests/static_1_median"),
                price!("requests/memory_1_median", "requests/static_1_median"),
                &[RatioAtMost(0.40)],
                0.33,
            ),
            key_of_a_request(
                "depth 8",
                price!("requests/request_8", "requests/static_8"),
                price!("requests/memory_8", "requests/static_8"),
                &[RatioAtMost(0.25)],
                0.2,
            ),
            key_of_a_request(
                "depth 32",
                price!("requests/request_32", "requests/static_32"),
                price!("requests/memory_32", "requests/static_32"),
                &[RatioAtMost(0.20)],
                0.15,
            ),
            // Whether what ours is measured by is no dearer than need be.
            Case {
                name: "depth 1, medians, ibv_reg_mr in ours beside a loop",
                unit: "us",
                ours: price!("requests/memory_1_median", "requests/static_1_median"),
                peer: Some(price!("requests/loop_reg_mr_1_median", "requests/loop_static_1_median")),
                peer_name: "reg_mr loop in C",
                ..NONE
            },
            // What a key is to a whole request, most of which is the device's.
            beside("depth 1, medians, the whole request", "requests/request_1_median", "requests/memory_1_median", OWN),
        ],
    },
    Row {
        id: "A16",
        what: "make and kill a key, 32 per doorbell",
        cases: &[
            keys("4 KiB", "register/windows_4096", "register/reg_mr_4096", 0.2, &[RatioAtMost(0.25)], Some(0.21)),
            keys("1 MiB", "register/windows_1048576", "register/reg_mr_1048576", 0.06, &[RatioAtMost(0.08)], None),
            keys("16 MiB", "register/windows_16777216", "register/reg_mr_16777216", 0.02, &[RatioAtMost(0.03)], None),
            Case {
                name: "4 KiB, C loop",
                unit: "us",
                ours: least("register/windows_4096"),
                peer: Some(least("register/windows_loop_4096")),
                peer_name: "bind + inv loop in C",
                ..NONE
            },
        ],
    },
    Row {
        id: "A17",
        what: "unprotected WRITE 4 KiB, post to callback, median",
        cases: &[
            Case {
                name: "to a C loop",
                unit: "us",
                ours: least("writes/write_4096"),
                peer: Some(least("writes/write_loop_4096")),
                peer_name: "verbs loop in C",
                floor: Some(1.0),
                goals: &[RatioAtMost(1.05)],
                stretch: Some(1.02),
            },
            Case {
                name: "to perftest, mean of one at a time",
                unit: "us",
                ours: least("writes/write_mean_4096"),
                peer: Some(least("writes/perftest_one_4096")),
                peer_name: "ib_write_bw, one in flight",
                goals: &[RatioAtMost(1.1)],
                ..NONE
            },
            // What the device's check of a window adds; the loop's key is of ibv_reg_mr.
            Case {
                name: "under a window for the run",
                unit: "us",
                ours: least("writes/write_window_4096"),
                peer: Some(least("writes/write_loop_4096")),
                peer_name: "verbs loop in C",
                ..NONE
            },
            // Half of a ping-pong of two processes, which waits for no acknowledgement: another experiment.
            Case {
                name: "beside half a ping-pong",
                unit: "us",
                ours: least("writes/write_4096"),
                peer: Some(least("writes/perftest_4096")),
                peer_name: "ib_write_lat typical",
                ..NONE
            },
            engine_alone(&["one"]),
        ],
    },
    Row {
        id: "A18",
        what: "a WRITE of 8 bytes, 32 behind one doorbell: engine and port over a library that does nothing",
        cases: &[
            Case {
                floor: Some(1.0),
                stretch: Some(1.25),
                ..beside_loop("as 2 operations of 16", &["list"], &[RatioAtMost(1.5)])
            },
            // An event for each, where the loop has one for 32.
            beside_loop("as 32 operations", &["each"], &[]),
            counted_of_a_write("doorbells of a WRITE", of_a_write!("doorbells"), &[Equal(1.0 / 32.0)]),
            counted_of_a_write("send completions of a WRITE", of_a_write!("send completions"), &[Equal(1.0 / 32.0)]),
            counted_of_a_write("work requests of a WRITE", of_a_write!("work requests"), &[Equal(1.0)]),
            Case { name: "2 operations, with null port and loop", ..engine_alone(&["list"]) },
            Case {
                name: "a verbs port alone",
                unit: "insn",
                ours: instructions(ours(VERBS_PROGRAM, &["list", "write"])),
                ..NONE
            },
            Case { name: "32 operations, with null port and loop", ..engine_alone(&["each"]) },
        ],
    },
    Row {
        id: "A19",
        what: "a key made and killed, 32 per doorbell, against UCX without its cache",
        cases: &[
            beside_ucx("4 KiB", "register/beside_4096", "register/ucx_4096", &[RatioAtMost(0.25)], 0.2),
            beside_ucx("1 MiB", "register/beside_1048576", "register/ucx_1048576", &[RatioAtMost(0.10)], 0.07),
            beside("4 KiB, one at a time", "register/single_4096", "register/ucx_4096", UCX),
            beside("1 MiB, one at a time", "register/single_1048576", "register/ucx_1048576", UCX),
        ],
    },
    Row {
        id: "A20",
        what: "our host against the kernel's, null_blk behind nvmet, 4 KiB reads",
        cases: &[
            Case {
                name: "median, depth 1",
                unit: "us",
                ours: least("kernel/ours_median_1"),
                peer: Some(least("kernel/kernel_median_1")),
                peer_name: "nvme-rdma, fio",
                floor: Some(1.0),
                goals: &[RatioAtMost(0.9)],
                stretch: Some(0.8),
            },
            Case {
                name: "IOPS, depth 32",
                unit: "1/s",
                ours: Quantity::Guest("kernel/ours_iops_32", Best::Most),
                peer: Some(Quantity::Guest("kernel/kernel_iops_32", Best::Most)),
                peer_name: "nvme-rdma, fio",
                floor: Some(1.0),
                goals: &[RatioAtLeast(1.2)],
                stretch: Some(1.5),
            },
        ],
    },
];
