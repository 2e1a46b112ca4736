//! The programs and the signals that terminals, shells and operators send.

use serde_json::Value;
use std::{
    fs::{self, OpenOptions},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    process::{Child, ChildStderr, Command, Stdio},
};

/// The program with what it is told to do.
const JOB: &[&str] = &[env!("CARGO_BIN_EXE_frwr")];
const LATENCY: &[&str] = &[env!("CARGO_BIN_EXE_frwr"), "latency"];
const ENDING: [i32; 9] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGXCPU,
    libc::SIGPWR,
];
/// Moved in no time.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
const HARMLESS: [i32; 6] = [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGIO, libc::SIGSTKFLT, libc::SIGCHLD, libc::SIGWINCH];

/// A program that ignores nothing, whatever the tests were started by: what nohup(1) starts ignores SIGHUP, and so do its children.
fn program_of_its_own(program: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal").args(program);
    command
}

/// Ends what a test that fails leaves behind.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    /// One that goes on until it is told, and has its handlers: in front of that a signal would end it.
    fn lasting(program: &[&str]) -> Self {
        let file = if program == JOB { &[FILE][..] } else { &[] };
        Self::start(program_of_its_own(program).args(["--json", "--runtime", "3600", "--cores", "unpinned"]).args(file))
    }

    fn start(command: &mut Command) -> Self {
        let mut program = Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        program.has_its_handlers();
        program
    }

    fn has_its_handlers(&mut self) {
        let status = format!("/proc/{}/status", self.0.id());
        loop {
            let status = fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
            if u64::from_str_radix(caught, 16).unwrap() >> (libc::SIGTERM - 1) & 1 == 1 {
                return;
            }
            assert_eq!(self.0.try_wait().unwrap(), None, "it ended");
        }
    }

    fn signal(&self, number: i32) {
        // A builtin of every shell; programs of that name are not everywhere.
        let script = format!("kill -{number} {}", self.0.id());
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success(), "{script}");
    }

    fn standard_error(&mut self) -> BufReader<ChildStderr> {
        BufReader::new(self.0.stderr.take().unwrap())
    }

    /// Its exit code and its report.
    fn ended(mut self) -> (Option<i32>, Value) {
        let mut out = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let code = self.0.wait().unwrap().code();
        (code, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out:?}")))
    }
}

#[test]
fn whatever_a_terminal_or_an_operator_sends_ends_a_run_in_order() {
    for program in [JOB, LATENCY] {
        for number in ENDING {
            let run = Program::lasting(program);
            run.signal(number);
            let (code, report) = run.ended();
            assert_eq!((code, &report["interrupted"]), (Some(0), &Value::Bool(true)), "{program:?} {number}: {report}");
        }
    }
}

#[test]
fn a_signal_with_another_meaning_ends_nothing() {
    for program in [JOB, LATENCY] {
        let run = Program::lasting(program);
        for number in HARMLESS.into_iter().chain([libc::SIGUSR1, libc::SIGUSR2]) {
            run.signal(number);
        }
        run.signal(libc::SIGTERM);
        let (code, report) = run.ended();
        assert_eq!((code, &report["interrupted"]), (Some(0), &Value::Bool(true)), "{program:?}: {report}");
    }
}

/// nohup(1) ignores it for what it starts, and a terminal that is closed then ends nothing.
#[test]
fn a_signal_that_was_ignored_at_the_start_stays_so() {
    let script =
        format!("trap '' HUP; exec {} {FILE} --json --runtime 3600 --cores unpinned --stall-threshold 0", JOB[0]);
    let mut run = Program::start(Command::new("sh").args(["-c", &script]));
    run.signal(libc::SIGHUP);
    let mut lines = run.standard_error().lines();
    // It would have ended before the second of them.
    for _ in 0..2 {
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains("IOPS"), "{line}");
    }
    run.signal(libc::SIGTERM);
    let (code, report) = run.ended();
    assert_eq!((code, &report["interrupted"]), (Some(0), &Value::Bool(true)), "{report}");
}

/// Whoever reads no further from its pipe holds it up for ever.
#[test]
fn a_later_signal_ends_a_program_that_waits() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut at_once = OpenOptions::new();
    at_once.custom_flags(libc::O_NONBLOCK);
    let _reader = at_once.clone().read(true).open(&pipe).unwrap();
    let mut filler = at_once.write(true).open(&pipe).unwrap();
    while filler.write(&[0; 4096]).is_ok() {}
    for (program, short, number) in [
        (JOB, ["--runtime=0", FILE], libc::SIGTERM),
        (JOB, ["--runtime=0", FILE], libc::SIGHUP),
        (LATENCY, ["--iterations", "50"], libc::SIGINT),
    ] {
        let full = OpenOptions::new().write(true).open(&pipe).unwrap();
        let mut asked = program_of_its_own(program);
        let child = asked.args(["--cores", "unpinned"]).args(short).stdout(full).stderr(Stdio::null()).spawn();
        let mut run = Program(child.unwrap());
        run.has_its_handlers();
        let ended = loop {
            if let Some(ended) = run.0.try_wait().unwrap() {
                break ended;
            }
            run.signal(number);
        };
        assert_eq!(ended.code(), Some(128 + number), "{program:?}");
    }
}
