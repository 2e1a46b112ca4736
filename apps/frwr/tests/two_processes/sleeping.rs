//! What a target costs that nobody uses.

use super::program::Machine;
use std::{fs, thread};

/// Waits of its core that are counted at a time.
const WAITS: u64 = 20;
/// A core that sleeps looks twenty times in a second; the main thread, which waits for what happens, has two or three
/// reasons to.
const MOST_OF_MAIN: u64 = WAITS / 4;
/// What else the machine does makes each of them late, and not always both.
const TRIES: u32 = 50;

/// How often these threads have waited by now (proc_pid_status(5)), the first of each name.
fn waits<const N: usize>(process: u32, names: [&str; N]) -> [u64; N] {
    let mut found = [None; N];
    for thread in fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        let at = names.iter().position(|name| *name == field("Name:"));
        at.into_iter().for_each(|at| found[at] = Some(field("voluntary_ctxt_switches:").parse().unwrap()));
    }
    found.map(Option::unwrap)
}

#[test]
fn the_main_thread_of_a_target_that_nobody_uses_waits_for_what_happens() {
    let machine = Machine::new();
    let target = machine.serve(&["--namespace", &machine.file("file"), "--idle", "sleep:0"]);
    let count = || waits(target.process(), ["frwr-main", "frwr-reactor-0"]);
    let counted = || {
        let [main, core] = count();
        loop {
            let [main_now, core_now] = count();
            if core_now >= core + WAITS {
                return main_now - main;
            }
            thread::yield_now();
        }
    };
    let all: Vec<_> = (0..TRIES).map(|_| counted()).take_while(|main| *main > MOST_OF_MAIN).collect();
    assert!(all.len() < TRIES as usize, "waits of the main thread beside {WAITS} of the core: {all:?}");
}
