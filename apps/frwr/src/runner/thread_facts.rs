//! What the kernel says of a reactor's thread and of its processor, read by the main thread. It costs the core nothing.

use core::{fmt, time::Duration};
use frwr_reactor::CpuId;
use std::{fs, path::Path};

/// The unit of /proc/stat as programs see it on every architecture that frwr runs on (USER_HZ).
const TICK: Duration = Duration::from_millis(10);

/// What was counted since the thread began. What a kernel does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadFacts {
    /// The letter of its state (proc_pid_stat(5)).
    state: Option<char>,
    page_faults: Option<u64>,
    involuntary_switches: Option<u64>,
    /// Ready to run, and another one had the processor.
    waited: Option<Duration>,
    /// What the hypervisor took of its processor, in ticks of ten milliseconds.
    steal: Option<Duration>,
}

/// The same of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FactsSince {
    facts: ThreadFacts,
    time: Duration,
}

impl ThreadFacts {
    /// Of a thread of this process that is pinned to a CPU, or not; of the machine whose `proc` lies below `root`.
    pub(super) fn read(root: &Path, thread: i32, cpu: Option<CpuId>) -> Self {
        let task = root.join("proc/self/task").join(thread.to_string());
        let text = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
        let (stat, status, schedstat) = (text("stat"), text("status"), text("schedstat"));
        let steal = cpu.and_then(|cpu| steal(&fs::read_to_string(root.join("proc/stat")).ok()?, cpu));
        Self {
            state: state_of(&stat),
            page_faults: page_faults(&stat),
            involuntary_switches: status
                .lines()
                .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:")?.trim().parse().ok()),
            waited: schedstat
                .split_whitespace()
                .nth(1)
                .and_then(|waited| waited.parse().ok())
                .map(Duration::from_nanos),
            steal,
        }
    }

    /// What was counted since an earlier reading, which was so long ago.
    pub(super) fn since(self, before: Self, time: Duration) -> FactsSince {
        let facts = Self {
            state: self.state,
            page_faults: difference(self.page_faults, before.page_faults, u64::saturating_sub),
            involuntary_switches: difference(
                self.involuntary_switches,
                before.involuntary_switches,
                u64::saturating_sub,
            ),
            waited: difference(self.waited, before.waited, Duration::saturating_sub),
            steal: difference(self.steal, before.steal, Duration::saturating_sub),
        };
        FactsSince { facts, time }
    }
}

fn difference<T>(after: Option<T>, before: Option<T>, subtract: fn(T, T) -> T) -> Option<T> {
    Some(subtract(after?, before?))
}

/// For the end of a line.
impl fmt::Display for FactsSince {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let ThreadFacts { page_faults, involuntary_switches, waited, steal, .. } = self.facts;
        let known = |count: Option<u64>| count.map_or_else(|| "unknown".to_owned(), |count| count.to_string());
        let time = |time: Option<Duration>| time.map_or_else(|| "unknown".to_owned(), milliseconds);
        write!(
            f,
            "in the last {}: {} page faults, {} involuntary switches, {} waiting for its processor, {} stolen from that",
            milliseconds(self.time),
            known(page_faults),
            known(involuntary_switches),
            time(waited),
            time(steal)
        )
    }
}

impl FactsSince {
    /// What its thread does now, in words.
    pub(super) fn state(&self) -> Option<&'static str> {
        state(self.facts.state?)
    }
}

/// What the kernel says of a thread of this process, where it can be read: its number and the letter of its state.
pub(super) fn thread_state(thread: i32) -> Option<(i32, char)> {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    Some((thread, state_of(&stat)?))
}

/// What a thread whose state has this letter does.
pub(super) fn state(letter: char) -> Option<&'static str> {
    match letter {
        'R' => Some("runs, or waits for the processor"),
        'S' => Some("waits in the kernel"),
        'D' => Some("waits in the kernel for a device"),
        't' => Some("is stopped by a debugger"),
        'T' => Some("is stopped"),
        _ => None,
    }
}

/// What stands behind the thread's name, which may hold anything.
fn behind_name(stat: &str) -> Option<&str> {
    Some(stat.rsplit_once(')')?.1.trim_start())
}

fn state_of(stat: &str) -> Option<char> {
    behind_name(stat)?.chars().next()
}

/// Those that memory answered and those that waited for a disk: fields 10 and 12 of proc_pid_stat(5), of which the state is the third.
fn page_faults(stat: &str) -> Option<u64> {
    let mut fields = behind_name(stat)?.split(' ');
    let minor: u64 = fields.nth(7)?.parse().ok()?;
    let major: u64 = fields.nth(1)?.parse().ok()?;
    minor.checked_add(major)
}

/// The eighth number of a CPU's line (proc_stat(5)).
fn steal(stat: &str, cpu: CpuId) -> Option<Duration> {
    let name = format!("cpu{cpu}");
    let numbers = stat.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '))?;
    let ticks: u32 = numbers.split_whitespace().nth(7)?.parse().ok()?;
    Some(TICK * ticks)
}

#[cfg(test)]
mod tests {
    use super::{ThreadFacts, state};
    use core::time::Duration;
    use frwr_reactor::CpuId;
    use std::{fs, path::Path};

    const STAT: &str = "77 (a name) b) R 1 1 1 0 -1 4194304 31 0 4 0 7 9 0 0 20 0 1 0 99";
    const STATUS: &str = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t12\n";
    const MACHINE: &str = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 1 2 3 4 5 6 7 21 0 0\ncpu11 1 2 3 4 5 6 7 80 0 0\n";

    fn machine(folder: &Path, stat: &str, status: &str, schedstat: &str, machine: &str) {
        let task = folder.join("proc/self/task/77");
        fs::create_dir_all(&task).unwrap();
        for (name, text) in [("stat", stat), ("status", status), ("schedstat", schedstat)] {
            fs::write(task.join(name), text).unwrap();
        }
        fs::write(folder.join("proc/stat"), machine).unwrap();
    }

    #[test]
    fn what_the_kernel_counts_is_told_of_the_time_between_two_looks() {
        let folder = tempfile::tempdir().unwrap();
        let cpu = CpuId::new(1).ok();
        machine(folder.path(), STAT, STATUS, "1000000 2500000 40\n", MACHINE);
        let before = ThreadFacts::read(folder.path(), 77, cpu);
        let (stat, status) = (STAT.replace(" 31 0 4 ", " 33 0 5 "), STATUS.replace("12", "13"));
        machine(folder.path(), &stat, &status, "1000000 14500000 41\n", &MACHINE.replace(" 21 ", " 23 "));
        let told = ThreadFacts::read(folder.path(), 77, cpu).since(before, Duration::from_millis(80));
        assert_eq!(
            told.to_string(),
            "in the last 80.0 ms: 3 page faults, 1 involuntary switches, 12.0 ms waiting for its processor, 20.0 ms stolen \
             from that"
        );
        assert_eq!(told.state(), Some("runs, or waits for the processor"));
        let unpinned = ThreadFacts::read(folder.path(), 77, None).since(before, Duration::ZERO);
        assert!(unpinned.to_string().ends_with(", unknown stolen from that"), "{unpinned}");
    }

    #[test]
    fn what_cannot_be_read_is_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let cpu = CpuId::new(1).ok();
        for bad in ["", "77 (x", "77 (x) ", "77 (x) R 1", "\u{0}"] {
            machine(folder.path(), bad, bad, bad, bad);
            let facts = ThreadFacts::read(folder.path(), 77, cpu);
            let told = facts.since(facts, Duration::ZERO).to_string();
            assert_eq!(told.matches("unknown").count(), 4, "{bad:?}: {told}");
        }
        assert_eq!(ThreadFacts::read(folder.path(), 78, cpu), ThreadFacts::default());
    }

    #[test]
    fn of_this_thread_the_kernel_tells_all_but_steal() {
        let thread = fs::read_link("/proc/thread-self").unwrap();
        let thread = thread.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let facts = ThreadFacts::read(Path::new("/"), thread, None);
        assert!(facts.page_faults.is_some() && facts.involuntary_switches.is_some(), "{facts:?}");
        assert_eq!(facts.state, Some('R'));
    }

    #[test]
    fn what_a_thread_does_is_told_in_words() {
        assert_eq!(state('t'), Some("is stopped by a debugger"));
        assert_eq!((state('R').is_some(), state('?')), (true, None));
    }
}
