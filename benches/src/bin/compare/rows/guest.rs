//! Rows on soft RoCE in the virtual machine, and those that are counted here as well: A10 to A20.
//! The keys are those of the jobs in benches/guest.

use super::super::figure::Best;
use super::super::goal::Goal::{self, AtMost, Equal, RatioAtLeast, RatioAtMost};
use super::super::quantity::{Quantity, VERBS_PROGRAM};
use super::{Case, NONE, Row, instructions, least, ours};

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
    let ours = instructions(ours("write-cost", arguments).iterations(32_000, 160_000));
    Case { name: "instructions, with null port and loop", unit: "insn", ours, ..NONE }
}

/// The peers of A15, which both register the memory of each request by a system call: ours, and the bare loop.
const OWN: &str = "reg_mr per request";
const LOOP: &str = "reg_mr loop in C";
/// The peers of A19.
const GET: &str = "UCX get";
const PUT: &str = "UCX put";

/// A15: beside each of its peers the goal is the same.
const fn registered(name: &'static str, protected: &'static str, other: &'static str, peer_name: &'static str) -> Case {
    request(name, protected, other, peer_name, 0.69, &[RatioAtMost(0.75)], Some(0.70))
}

/// A19.
const fn beside_ucx(
    name: &'static str,
    protected: &'static str,
    other: &'static str,
    peer_name: &'static str,
    goals: &'static [Goal],
) -> Case {
    request(name, protected, other, peer_name, 0.0, goals, None)
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

/// A WRITE of 8 bytes in rounds of 32: as two operations of 16, as the loop in C posts them, and as 32.
const LISTS: Quantity = least("writes/write_list_8");
const ONE_DOORBELL: Quantity = least("writes/write_one_8");
const ONE_DOORBELL_EACH: Quantity = least("writes/write_each_8");
const LOOP_ONE_DOORBELL: Quantity = least("writes/batched_loop_8");
const LOOP_DOORBELL_EACH: Quantity = least("writes/each_loop_8");

/// What the loop saves.
const LOOP_GAIN: Quantity = Quantity::Sum(&[(1.0, LOOP_DOORBELL_EACH), (-1.0, LOOP_ONE_DOORBELL)]);

/// How much longer a doorbell each takes, as a share of the time with one doorbell for all. Not judged: what a program does for
/// each post counts as gain here, so that a dearer one looks better.
macro_rules! gain {
    ($each:expr, $one:expr) => {
        Quantity::Sum(&[(1.0, Quantity::Quotient(&$each, &$one)), (-1.0, Quantity::Stated(1.0))])
    };
}

/// A time of ours beside the loop's, for information.
const fn beside_loop(name: &'static str, ours: Quantity, peer: Quantity) -> Case {
    Case { name, unit: "us", ours, peer: Some(peer), peer_name: "verbs loop in C", ..NONE }
}

/// A count of a round of 32 behind one doorbell: whatever the times say, there is one for all.
const fn one_for_all(name: &'static str, key: &'static str) -> Case {
    Case { name, unit: "count", ours: least(key), floor: Some(1.0 / 32.0), goals: &[AtMost(1.0 / 32.0)], ..NONE }
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
        what: "protected against ibv_reg_mr per request, 4 KiB",
        cases: &[
            registered("depth 32", "requests/request_32", "requests/memory_32", OWN),
            registered("depth 8", "requests/request_8", "requests/memory_8", OWN),
            registered("depth 1, median", "requests/request_1_median", "requests/memory_1_median", OWN),
            registered("depth 32, to a loop", "requests/beside_32", "requests/loop_reg_mr_32", LOOP),
            registered("depth 8, to a loop", "requests/beside_8", "requests/loop_reg_mr_8", LOOP),
            registered("depth 1, median, to a loop", "requests/beside_1_median", "requests/loop_reg_mr_1_median", LOOP),
            beside("depth 1, mean", "requests/request_1", "requests/memory_1", OWN),
            beside("depth 1, mean, to a loop", "requests/beside_1", "requests/loop_reg_mr_1", LOOP),
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
        what: "gain of one doorbell for 32 WRITEs of 8 bytes that is kept",
        cases: &[
            Case {
                name: "ours as 2 operations of 16, below the loop with a doorbell each",
                unit: "us",
                ours: Quantity::Sum(&[(1.0, LOOP_DOORBELL_EACH), (-1.0, LISTS)]),
                peer: Some(LOOP_GAIN),
                peer_name: "verbs loop in C",
                floor: Some(1.0),
                goals: &[RatioAtLeast(0.95)],
                stretch: Some(0.98),
            },
            // 32 operations where the loop has one.
            Case {
                name: "ours as 32 operations",
                unit: "us",
                ours: Quantity::Sum(&[(1.0, LOOP_DOORBELL_EACH), (-1.0, ONE_DOORBELL)]),
                peer: Some(LOOP_GAIN),
                peer_name: "verbs loop in C",
                ..NONE
            },
            Case {
                name: "each side's own gain, as a share of its time with one",
                unit: "share",
                ours: gain!(ONE_DOORBELL_EACH, ONE_DOORBELL),
                peer: Some(gain!(LOOP_DOORBELL_EACH, LOOP_ONE_DOORBELL)),
                peer_name: "verbs loop in C",
                ..NONE
            },
            beside_loop("a WRITE of 2 operations", LISTS, LOOP_ONE_DOORBELL),
            beside_loop("a WRITE of 32 operations", ONE_DOORBELL, LOOP_ONE_DOORBELL),
            beside_loop("a WRITE, a doorbell each", ONE_DOORBELL_EACH, LOOP_DOORBELL_EACH),
            one_for_all("doorbells per WRITE, 2 operations", "writes/doorbells_list_8"),
            one_for_all("send completions per WRITE, 2 operations", "writes/completions_list_8"),
            Case {
                name: "work requests per WRITE, 2 operations",
                unit: "count",
                ours: least("writes/work_requests_list_8"),
                floor: Some(1.0),
                goals: &[Equal(1.0)],
                ..NONE
            },
            one_for_all("doorbells per WRITE, 32 operations", "writes/doorbells_one_8"),
            one_for_all("send completions per WRITE, 32 operations", "writes/completions_one_8"),
            Case { name: "instructions, 2 operations, with null port and loop", ..engine_alone(&["list"]) },
            Case {
                name: "instructions of a verbs port beside them",
                unit: "insn",
                ours: instructions(ours(VERBS_PROGRAM, &["list", "write"])),
                ..NONE
            },
            Case { name: "instructions, 32 operations, with null port and loop", ..engine_alone(&["each"]) },
        ],
    },
    Row {
        id: "A19",
        what: "protected request against UCX without its cache, medians",
        cases: &[
            beside_ucx("4 KiB come", "requests/come_4096_median", "requests/get_4096_median", GET, &[RatioAtMost(0.7)]),
            beside_ucx("4 KiB go", "requests/go_4096_median", "requests/put_4096_median", PUT, &[RatioAtMost(0.7)]),
            beside_ucx(
                "1 MiB come",
                "requests/come_1048576_median",
                "requests/get_1048576_median",
                GET,
                &[RatioAtMost(0.2)],
            ),
            beside_ucx(
                "1 MiB go",
                "requests/go_1048576_median",
                "requests/put_1048576_median",
                PUT,
                &[RatioAtMost(0.2)],
            ),
            beside("4 KiB come, mean", "requests/come_4096", "requests/get_4096", GET),
            beside("4 KiB go, mean", "requests/go_4096", "requests/put_4096", PUT),
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
