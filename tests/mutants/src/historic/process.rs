//! Runs one test of a binary, with a limit.

use super::build::Binary;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Passed,
    /// With the number of the first seed that it named, if it runs seeds.
    Failed(Option<u64>),
    TimedOut,
}

/// A variable of the environment.
pub(super) type Variable = (&'static str, String);

/// Runs a test with a mutant.
pub(super) fn run(
    binary: &Binary,
    test: &str,
    mutant: &str,
    variables: &[Variable],
    limit: Duration,
) -> std::io::Result<Ended> {
    let mut child = Command::new(&binary.path)
        .args(["--exact", test, "--nocapture"])
        .current_dir(&binary.folder)
        .env("FRWR_MUTANT", mutant)
        .env("RUST_BACKTRACE", "0")
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // With what it starts, so that all of it can be ended.
        .process_group(0)
        .spawn()?;
    let ended = watch(&mut child, limit)?;
    // One that has exited was waited for, and its number may be another's by now.
    if child.try_wait()?.is_none() {
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        child.wait()?;
    }
    Ok(ended)
}

fn watch(child: &mut Child, limit: Duration) -> std::io::Result<Ended> {
    let (sender, lines) = channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
    }
    let until = Instant::now() + limit;
    let mut ran = false;
    loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                ran |= line.starts_with("running 1 test");
                if let Some(seed) = named_seed(&line) {
                    // What it does to make the seed smaller is not waited for.
                    return Ok(Ended::Failed(Some(seed)));
                }
            }
            Err(RecvTimeoutError::Timeout) => return Ok(Ended::TimedOut),
            Err(RecvTimeoutError::Disconnected) if child.wait()?.success() => {
                // A test that is not there kills nobody.
                return if ran { Ok(Ended::Passed) } else { Err(std::io::Error::other("there is no such test")) };
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(Ended::Failed(None)),
        }
    }
}

/// The seed that failed, in the words of `frwr_support`.
fn named_seed(line: &str) -> Option<u64> {
    // The name of the test may stand in front.
    line.split_once("first failing seed: ")?.1.trim().parse().ok()
}
