//! `frwr top` in a terminal: tmux is one, and tells what stands on it.

use super::{HOST, Target};
use std::process::{Command, Output};

/// A terminal of its own, which ends with the test.
struct Terminal(String);

impl Terminal {
    /// With this in it, if there is a tmux.
    fn start(program: &[&str]) -> Option<Self> {
        let terminal = Self(format!("frwr-top-{}", std::process::id()));
        let size = ["-d", "-x", "100", "-y", "30"];
        let started = terminal.tmux(&[&["-f", "/dev/null", "new-session"], &size[..], program].concat());
        started.is_some_and(|output| output.status.success()).then_some(terminal)
    }

    /// `None` where there is no tmux.
    fn tmux(&self, arguments: &[&str]) -> Option<Output> {
        Command::new("tmux").args(["-L", &self.0]).args(arguments).output().ok()
    }

    /// What stands on it; nothing once its program has ended.
    fn screen(&self) -> Option<String> {
        let output = self.tmux(&["capture-pane", "-p"])?;
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn top_draws_on_a_terminal_and_leaves_it_when_it_is_told() {
    let target = Target::start(2);
    let host = target.host("3600");
    let socket = target.socket();
    let program = [env!("CARGO_BIN_EXE_frwr"), "top", "--control", socket.to_str().unwrap()];
    let Some(terminal) = Terminal::start(&program) else {
        let why = "there is no tmux";
        assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "SKIPPED under CI: {why}");
        println!("SKIPPED: {why}");
        host.end().unwrap();
        target.end();
        return;
    };
    // Until the host has come, and an interval is over in which it did something.
    let screen = loop {
        let screen = terminal.screen().expect("it goes on");
        let of_host = screen.lines().find(|line| line.contains(HOST));
        let moves = |line: &str| line.split_whitespace().nth(2).is_some_and(|rate| rate != "0");
        if of_host.is_some_and(moves) {
            break screen;
        }
    };
    for part in [
        "test at 127.0.0.1:4420, serving",
        "cores",
        "busy",
        "stalls",
        "IOPS",
        "MiB/s",
        "namespaces",
        "p50<=",
        "p99<=",
        "errors/s",
        "hosts",
        "q ends",
    ] {
        assert!(screen.contains(part), "{part}:\n{screen}");
    }
    terminal.tmux(&["send-keys", "q"]);
    while terminal.screen().is_some() {}
    host.end().unwrap();
    target.end();
}
