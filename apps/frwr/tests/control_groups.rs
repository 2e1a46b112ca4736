//! The programs in control groups with limits: what the kernel would do without a word is said, or refused.

use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// Prints why a test cannot run, in the form that tests/run counts.
fn skipped(reason: &str) {
    println!("SKIPPED: {reason}");
}

/// A control group of a test's own, which is removed at the end.
struct Group {
    folder: PathBuf,
    version: u8,
}

impl Group {
    /// Of one controller, below the root of its hierarchy: in version two only that may have both processes and groups.
    fn new(controller: &str, name: &str) -> Option<Self> {
        // Several tests of one process may want groups of a kind at the same time.
        static GROUPS: AtomicU32 = AtomicU32::new(0);
        let number = GROUPS.fetch_add(1, Ordering::Relaxed);
        let name = format!("frwr-test-{name}-{}-{number}", std::process::id());
        let one = Path::new("/sys/fs/cgroup").join(controller);
        let (parent, version) = if one.join("cgroup.procs").exists() {
            (one, 1)
        } else {
            let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", format!("+{controller}"));
            (PathBuf::from("/sys/fs/cgroup"), 2)
        };
        let folder = parent.join(name);
        if let Err(error) = fs::create_dir(&folder) {
            skipped(&format!("no control group {} ({error}); run as root", folder.display()));
            return None;
        }
        let group = Self { folder, version };
        if version == 2 && !fs::read_to_string(group.folder.join("cgroup.controllers")).unwrap().contains(controller) {
            skipped(&format!("control groups of version two have no controller {controller} here"));
            return None;
        }
        Some(group)
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.folder.join(file);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    fn limit_memory(&self, mebibytes: u64) {
        let file = if self.version == 1 { "memory.limit_in_bytes" } else { "memory.max" };
        self.write(file, &(mebibytes << 20).to_string());
    }

    fn limit_time(&self, microseconds: u64, period: u64) {
        if self.version == 1 {
            self.write("cpu.cfs_period_us", &period.to_string());
            self.write("cpu.cfs_quota_us", &microseconds.to_string());
        } else {
            self.write("cpu.max", &format!("{microseconds} {period}"));
        }
    }

    /// Periods in which the time was used up, as the kernel counts them.
    fn periods_used_up(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join("cpu.stat")).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix("nr_throttled ")).unwrap();
        value.parse().unwrap()
    }

    /// A program that is in the group before it is one.
    fn command(&self, program: &[&str], arguments: &[&str]) -> Command {
        let mut command = Command::new("sh");
        let procs = self.folder.join("cgroup.procs");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\"", procs.to_str().unwrap()]).args(program).args(arguments);
        command
    }

    fn run(&self, program: &[&str], arguments: &[&str]) -> Output {
        self.command(program, arguments).output().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What was in it has ended, but the kernel may need a moment to notice.
        for _ in 0..1000 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::yield_now();
        }
        eprintln!("{} was left behind", self.folder.display());
    }
}

/// The program with what it is told to do.
const JOB: &[&str] = &[env!("CARGO_BIN_EXE_frwr")];
const LATENCY: &[&str] = &[env!("CARGO_BIN_EXE_frwr"), "latency"];
const CHECK: &[&str] = &[env!("CARGO_BIN_EXE_frwr"), "check"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A file of so many bytes; holes read as zeros.
fn file(bytes: u64) -> tempfile::TempPath {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(bytes).unwrap();
    file.into_temp_path()
}

/// Where populating would have ended the process by SIGKILL, it ends with both numbers.
#[test]
fn memory_beyond_the_groups_limit_is_refused_with_both_numbers() {
    let Some(group) = Group::new("memory", "memory") else { return };
    group.limit_memory(40);
    let small = file(4096);
    let runs: [(&[&str], Vec<&str>); 2] = [
        (
            JOB,
            vec!["--pages", "plain", "--cores", "unpinned", "--queue-depth", "1024", "--block-size", "64K", "--json"],
        ),
        (LATENCY, vec!["--pages", "plain", "--cores", "unpinned", "--size", "1M", "--depth", "64", "--json"]),
    ];
    for (program, mut arguments) in runs {
        if program == JOB {
            arguments.push(small.to_str().unwrap());
        }
        let output = group.run(program, &arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{program:?}: {:?} {errors}", output.status);
        for part in ["MiB wanted", "left of the 40 MiB of cgroup", "SIGKILL"] {
            assert!(errors.contains(part), "{part}: {errors}");
        }
    }
    // Copies of a file are on the heap.
    let large = file(64 << 20);
    let output = group.run(JOB, &["--cores", "unpinned", large.to_str().unwrap()]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{:?} {errors}", output.status);
    assert!(errors.contains("copies in memory take 192 MiB") && errors.contains("of the 40 MiB"), "{errors}");
    let check = group.run(CHECK, &[]);
    assert!(text(&check.stdout).contains("left of the 40 MiB of cgroup"), "{}", text(&check.stdout));
}

#[test]
fn a_quota_of_processor_time_is_told_before_and_after() {
    let Some(group) = Group::new("cpu", "quota") else { return };
    group.limit_time(20_000, 100_000);
    // For ten periods: how long a number of requests takes is the machine's affair. Where others leave it less than its quota it uses up
    // none; what is used up by its end, when it has looked, is not told.
    let output = group.run(LATENCY, &["--cores", "unpinned", "--pages", "plain", "--runtime", "1", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("may use 0.20 cores"), "{warnings}");
    let (told, used_up) = (warnings.contains("quota was used up in"), group.periods_used_up());
    assert!(told && warnings.contains("periods") || used_up <= 1, "{used_up}: {warnings}");
    let small = file(4096);
    let job = ["--cores", "unpinned", "--pages", "plain", "--runtime", "1", "--json", small.to_str().unwrap()];
    let output = group.run(JOB, &job);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let (found, errors) = (report["shortcomings"].to_string(), text(&output.stderr));
    let says = |part: &str| found.contains(part) && errors.contains(part);
    assert!(says("may use 0.20 cores"), "{found} {errors}");
    let used_up = group.periods_used_up() - used_up;
    assert!(says("quota was used up in") || used_up <= 1, "{used_up}: {found} {errors}");
    let check: Value = serde_json::from_slice(&group.run(CHECK, &["--json"]).stdout).unwrap();
    assert_eq!(check["cpu_quota"]["quota_us"], 20_000, "{check}");
    assert!(check["shortcomings"].to_string().contains("cpu_quota"), "{check}");
}

/// The cores that this process may use, as the kernel lists them.
fn allowed() -> Vec<usize> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
    let range = |part: &str| -> std::ops::RangeInclusive<usize> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse().unwrap()..=last.parse().unwrap()
    };
    list.split(',').flat_map(range).collect()
}

/// What a program says, and its report, when it is moved from one core to another while it runs.
fn moved(program: &[&str], arguments: &[&str], cores: impl Fn(&Value) -> &Value) {
    let &[home, other, ..] = allowed().as_slice() else { return skipped("one core is allowed: nobody can be moved") };
    let Some(group) = Group::new("cpuset", "cpuset") else { return };
    if group.version == 1 {
        group.write("cpuset.mems", fs::read_to_string("/sys/fs/cgroup/cpuset/cpuset.mems").unwrap().trim());
    }
    group.write("cpuset.cpus", &format!("{home},{other}"));
    let home_text = home.to_string();
    let arguments = [arguments, &["--cores", &home_text, "--pages", "plain", "--runtime", "4", "--json"]].concat();
    let mut program = group.command(program, &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It is moved once its reactor runs where it was told to.
    let tasks = PathBuf::from(format!("/proc/{}/task", program.id()));
    while !reactor_runs(&tasks, home) {
        assert!(program.try_wait().unwrap().is_none(), "it ended before it was moved");
        std::thread::yield_now();
    }
    group.write("cpuset.cpus", &other.to_string());
    let mut errors = BufReader::new(program.stderr.take().unwrap()).lines();
    let told = errors.by_ref().map(Result::unwrap).find(|line| line.contains("was moved from"));
    let told = told.expect("a line says so");
    assert!(told.contains(&format!("from core {home} to core {other}, and may not go back")), "{told}");
    for line in errors {
        line.unwrap();
    }
    let output = program.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["shortcomings"].to_string().contains("moved away from core"), "{report}");
    assert!(cores(&report).as_array().unwrap().iter().all(|core| core["core"] == other), "{report}");
}

#[test]
fn a_write_to_the_cpuset_is_told_and_the_figures_are_of_the_core_that_made_them() {
    moved(LATENCY, &[], |report| &report["per_core"]);
}

#[test]
fn the_main_job_says_where_it_ended_up_too() {
    moved(JOB, &[file(4096).to_str().unwrap()], |report| &report["cores"]);
}

/// Whether a reactor is pinned there, and has used so much time that it must be past its start.
fn reactor_runs(tasks: &Path, core: usize) -> bool {
    /// In ticks of 10 ms.
    const PAST_ITS_START: u64 = 20;
    let Ok(entries) = fs::read_dir(tasks) else { return false };
    entries.flatten().any(|task| {
        let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (status, stat) = (read("status"), read("stat"));
        let pinned = status.lines().any(|line| line == format!("Cpus_allowed_list:\t{core}"));
        // Field 14, utime; the name is the second, in brackets.
        let used = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().nth(14 - 3)?.parse().ok());
        read("comm").starts_with("frwr-reactor-") && pinned && used.is_some_and(|used: u64| used > PAST_ITS_START)
    })
}
