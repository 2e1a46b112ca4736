//! A core that never polls again, as a person meets it: one thread of a program is stopped as a debugger stops it. Signals stop all
//! threads of a process, so that this is done by ptrace(2), which is called as C is: this file's `unsafe` code.

use clap::Parser as _;
use frwr::{
    CommandLine, Task,
    runner::{ServeConfig, serve},
    signals::Signals,
};
use frwr_engine::provider::soft::{SoftFabric, SoftOptions, SoftProfile};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader, Lines, Read as _},
    process::{Child, ChildStderr, Command, Stdio},
    ptr::null_mut,
};

/// The program with what it is told to do.
const JOB: &[&str] = &[env!("CARGO_BIN_EXE_frwr")];
const LATENCY: &[&str] = &[env!("CARGO_BIN_EXE_frwr"), "latency"];
/// Moved in no time.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

/// Set where this program is the one that is stopped.
const SERVES: &str = "FRWR_TEST_SERVES";
/// What a program says once all its reactors poll: before, each waits until the others are ready.
const POLLS: [&str; 3] = ["IOPS", "requests/s", "listening on"];

/// A program of which one reactor's thread stands still.
struct Stopped {
    child: Child,
    thread: i32,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        reap(self.thread);
        let _ = self.child.wait();
    }
}

/// Waits for the end of a thread that the calling one traces, which its process waits for.
fn reap(thread: i32) {
    let mut status = 0;
    // SAFETY: `status` takes the answer.
    while unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) } == thread && !libc::WIFSIGNALED(status) {}
}

/// Stops a thread as a debugger does. The kernel may refuse that to anybody: then the reason is returned.
fn stop_thread(thread: i32) -> Result<(), std::io::Error> {
    // SAFETY: neither request takes or gives memory.
    let refused = unsafe {
        libc::ptrace(libc::PTRACE_SEIZE, thread, null_mut::<u8>(), null_mut::<u8>()) != 0
            || libc::ptrace(libc::PTRACE_INTERRUPT, thread, null_mut::<u8>(), null_mut::<u8>()) != 0
    };
    if refused {
        return Err(std::io::Error::last_os_error());
    }
    let mut status = 0;
    // SAFETY: `status` takes the answer.
    let stopped = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
    assert!(stopped == thread && libc::WIFSTOPPED(status), "{stopped} {status}");
    Ok(())
}

impl Stopped {
    /// Starts a run that lasts and stops one of its reactors, once they poll. `None` where nobody may trace.
    fn start(program: &[&str], arguments: &[&str], reactor: usize) -> Option<Self> {
        Self::start_command(&mut lasting(program, arguments), reactor)
    }

    fn start_command(command: &mut Command, reactor: usize) -> Option<Self> {
        let (child, mut lines) = spawn(command);
        let polls = |line: &String| POLLS.iter().any(|polls| line.contains(polls));
        assert!(lines.by_ref().map(|line| line.unwrap()).any(|line| polls(&line)), "it ended");
        Self::stop(child, lines, reactor)
    }

    /// As [`Self::start`], and stops it as soon as it is there, which is before it polls most of the time.
    fn at_its_start(program: &[&str], arguments: &[&str], reactor: usize) -> Option<Self> {
        let (child, lines) = spawn(&mut lasting(program, arguments));
        Self::stop(child, lines, reactor)
    }

    fn stop(mut child: Child, lines: Lines<BufReader<ChildStderr>>, reactor: usize) -> Option<Self> {
        let thread = loop {
            if let Some(thread) = thread_called(child.id(), &format!("frwr-reactor-{reactor}")) {
                break thread;
            }
            assert_eq!(child.try_wait().unwrap(), None, "it ended");
        };
        match stop_thread(thread) {
            Ok(()) => Some(Self { child, thread, lines }),
            Err(error) => {
                println!(
                    "SKIPPED: no thread may be stopped here ({error}); ptrace(2) needs CAP_SYS_PTRACE or a parent"
                );
                let _ = child.kill();
                let _ = child.wait();
                None
            }
        }
    }

    fn signal(&self, number: i32) {
        // A builtin of every shell; programs of that name are not everywhere.
        let script = format!("kill -{number} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success(), "{script}");
    }

    /// The next line that says so.
    fn told(&mut self, what: &str) -> String {
        self.lines.by_ref().map(|line| line.unwrap()).find(|line| line.contains(what)).unwrap()
    }

    /// The line that names it.
    fn named(&mut self) -> String {
        self.told("stands still")
    }

    /// Its exit code, and what it said on standard output.
    fn ended(mut self) -> (Option<i32>, String) {
        reap(self.thread);
        let code = self.child.wait().unwrap().code();
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        (code, out)
    }
}

fn lasting(program: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]);
    command.args(["--json", "--runtime", "3600", "--cores", "unpinned"]).args(arguments);
    command
}

fn spawn(command: &mut Command) -> (Child, Lines<BufReader<ChildStderr>>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    (child, lines)
}

fn thread_called(process: u32, name: &str) -> Option<i32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let mut paths = threads.filter_map(|thread| Some(thread.ok()?.path()));
    let path = paths.find(|path| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name))?;
    path.file_name()?.to_str()?.parse().ok()
}

/// `poller` may be none where several have their turns on that core.
fn is_named(line: &str, reactor: usize, poller: &str) {
    let begin = format!("reactor {reactor} (unpinned) stands still: no iteration for 1.");
    assert!(line.starts_with(&begin) && line.contains(&format!(" s, in poller {poller}")), "{line}");
    assert!(line.contains("; its thread ") && line.ends_with(" is stopped by a debugger"), "{line}");
}

#[test]
fn a_core_that_never_polls_again_is_named_and_keeps_no_program_that_was_told_to_end() {
    // A threshold that no other processor's work reaches five times in a minute.
    let Some(mut run) = Stopped::start(JOB, &[FILE, "--stall-threshold", "400"], 1) else { return };
    // As a stall first, with what its thread does.
    let stalls = run.told("reactor 1 (unpinned) stalls: no iteration for ");
    assert!(stalls.contains(" ms so far, in poller host; its thread "), "{stalls}");
    is_named(&run.named(), 1, "host");
    run.signal(libc::SIGTERM);
    let (code, out) = run.ended();
    let error: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, error["error"].as_str()), (Some(3), Some("core_stands_still")), "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("reactor 1 (unpinned) did not end: no iteration for 1"), "{message}");
}

/// One that is never ready keeps all others waiting.
#[test]
fn a_core_that_is_never_set_up_is_named_and_keeps_no_program_that_was_told_to_end() {
    for (program, arguments, reactor) in [(JOB, &[FILE][..], 1), (LATENCY, &[], 0)] {
        let (mut run, line) = loop {
            let Some(mut run) = Stopped::at_its_start(program, arguments, reactor) else { return };
            let line = run.told(&format!("reactor {reactor} (unpinned) "));
            // Else it was faster, and stands in a poller.
            if line.contains(" is not ready yet: ") {
                break (run, line);
            }
        };
        let begin = format!("reactor {reactor} (unpinned) is not ready yet: its initialisation has taken 1.");
        // One that was stopped at its very first step has not said yet which thread it is.
        let stopped = line.split_once("; its thread ").is_none_or(|(_, it)| it.ends_with(" is stopped by a debugger"));
        assert!(line.starts_with(&begin) && stopped, "{line}");
        run.signal(libc::SIGUSR1);
        assert!(run.told("setting the cores up").contains(" s  "));
        run.signal(libc::SIGTERM);
        let (code, out) = run.ended();
        let error: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, error["error"].as_str()), (Some(3), Some("core_stands_still")), "{error}");
        let message = error["message"].as_str().unwrap();
        let begin = format!("reactor {reactor} (unpinned) did not end: its initialisation has taken 1");
        assert!(message.starts_with(&begin), "{message}");
    }
}

/// `serve` needs an RDMA device: so what is stopped is this program, which serves over the software NIC then.
#[test]
fn a_target_serves_on_beside_a_core_that_stands_still_and_ends_when_it_is_told_to() {
    if std::env::var_os(SERVES).is_some() {
        serve_until_told();
    }
    let me = std::env::current_exe().unwrap();
    let own =
        ["--nocapture", "--exact", "a_target_serves_on_beside_a_core_that_stands_still_and_ends_when_it_is_told_to"];
    let Some(mut run) = Stopped::start_command(Command::new(me).args(own).env(SERVES, "1"), 1) else { return };
    is_named(&run.named(), 1, "target");
    // The other core answers, and so does the main thread.
    run.signal(libc::SIGUSR1);
    run.signal(libc::SIGTERM);
    assert_eq!(run.told("has not answered"), "reactor 1 has not answered: its figures are missing");
    let line = run.told("did not end");
    assert!(line.starts_with("reactor 1 (unpinned) did not end: no iteration for 1"), "{line}");
    assert_eq!(run.ended().0, Some(3));
}

fn serve_until_told() -> ! {
    let asked = Signals::catch().unwrap();
    let line = ["frwr", "serve", "--device", "test", "--listen", "127.0.0.1:4420", "--namespace", FILE];
    let Some(Task::Serve(arguments)) =
        CommandLine::try_parse_from([&line[..], &["--cores", "unpinned:2", "--pages", "plain"]].concat()).unwrap().task
    else {
        panic!("not serve")
    };
    let device = SoftFabric::new().device(SoftOptions::new(SoftProfile::RegMr));
    let served = serve(vec![device], &ServeConfig::new(arguments).unwrap(), &asked, &mut |line| eprintln!("{line}"));
    let error = served.err().unwrap();
    eprintln!("{error}");
    std::process::exit(error.exit_code().into())
}

#[test]
fn a_later_signal_ends_a_program_whose_core_stands_still_at_once() {
    for (program, arguments, reactor, poller) in [(JOB, &[FILE][..], 0, "target"), (LATENCY, &[], 0, "")] {
        let Some(mut run) = Stopped::start(program, arguments, reactor) else { return };
        is_named(&run.named(), reactor, poller);
        run.signal(libc::SIGTERM);
        // Half a second makes it another one.
        let ended = loop {
            run.signal(libc::SIGTERM);
            let mut status = 0;
            // SAFETY: `status` takes the answer.
            if unsafe { libc::waitpid(run.thread, &raw mut status, libc::__WALL | libc::WNOHANG) } == run.thread {
                break run.child.wait().unwrap();
            }
        };
        assert_eq!(ended.code(), Some(128 + libc::SIGTERM), "{program:?}");
    }
}
