//! Runs test binaries, with a limit.

use crate::build::Binary;
use crate::switch::{MUTANT, REACHED};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Address space of one test binary, in KiB: a mutant that allocates without end takes no more.
const ADDRESS_SPACE_KIB: u64 = 16 << 20;

/// How a run of tests ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With the time of processors that it took, where the system tells.
    Passed(Option<Duration>),
    /// With the test that failed first.
    Failed(String),
    TimedOut,
}

/// What runs, with which mutant.
pub(crate) struct Run<'a> {
    pub(crate) binary: &'a Binary,
    pub(crate) tests: &'a [&'a str],
    pub(crate) mutant: &'a str,
    /// The file that takes the numbers of reached mutants.
    pub(crate) reached: Option<&'a Path>,
    pub(crate) limit: Duration,
}

impl Run<'_> {
    /// Runs the tests one after the other until one fails.
    pub(crate) fn end(&self) -> std::io::Result<Ended> {
        let mut child = self.command().spawn()?;
        let (sender, lines) = mpsc::channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        let ended = self.watch(&mut child, &lines)?;
        end_group(&mut child)?;
        Ok(ended)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -v {ADDRESS_SPACE_KIB}; exec \"$0\" \"$@\"")])
            .arg(&self.binary.path)
            .args(["--exact", "--test-threads=1"])
            .args(self.tests)
            .current_dir(&self.binary.folder)
            .env(MUTANT, self.mutant)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // With what it starts, so that all of it can be ended.
            .process_group(0);
        if let Some(path) = self.reached {
            command.env(REACHED, path);
        }
        command
    }

    fn watch(&self, child: &mut Child, lines: &mpsc::Receiver<String>) -> std::io::Result<Ended> {
        let until = Instant::now() + self.limit;
        let mut last = String::new();
        loop {
            match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.split(" ... ").next()) {
                        last = name.to_owned();
                    }
                    if line.starts_with("test ") && line.ends_with("FAILED") {
                        return Ok(Ended::Failed(last));
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => return Ok(Ended::TimedOut),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let busy = busy(child.id());
                    return Ok(if child.wait()?.success() {
                        Ended::Passed(busy)
                    } else {
                        Ended::Failed(format!("{last} (or behind it)"))
                    });
                }
            }
        }
    }
}

/// The time that a process and the children that it waited for have had of processors, until it is waited for itself.
fn busy(process: u32) -> Option<Duration> {
    /// `utime`, `stime`, `cutime` and `cstime` of proc(5), counted behind the name, which may have anything in it.
    const TIMES: std::ops::Range<usize> = 11..15;
    /// What a tick of these is on every Linux.
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, behind_name) = stat.rsplit_once(')')?;
    let times = behind_name.split_whitespace().skip(TIMES.start).take(TIMES.len());
    let ticks: u32 = times.map(|ticks| ticks.parse::<u32>().ok()).sum::<Option<u32>>()?;
    Some(TICK * ticks)
}

/// Ends a test binary and all that it started.
fn end_group(child: &mut Child) -> std::io::Result<()> {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status()?;
    child.wait().map(drop)
}

/// The tests of a binary.
pub(crate) fn tests_of(binary: &Binary) -> std::io::Result<Vec<String>> {
    let listed =
        Command::new(&binary.path).args(["--list", "--format", "terse"]).current_dir(&binary.folder).output()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_had_some_time_and_one_that_is_not_has_none() {
        assert!(busy(std::process::id()).is_some());
        assert_eq!(busy(u32::MAX), None);
    }
}
