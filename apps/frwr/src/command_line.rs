//! What a person can ask of `frwr`, and what is said of what nobody can.

use crate::{
    About, Error, check,
    ctl::{self, CtlArguments},
    diagnostics::LogFormat,
    latency,
    output::{Output, success, usage_line},
    runner::{Arguments, DiscoverArguments, LoadArguments, ServeArguments},
    top::TopArguments,
};
use clap::{CommandFactory as _, Parser, Subcommand, error::ErrorKind};
use clap_complete::Shell;
use serde_json::json;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Moves a file through registered requests between a storage target and a host, each on its own core.
///
/// Writes FILE into a namespace, reads it back in random order, checks its SHA-256, then keeps a mixed load with
/// per-block verification going. Without FILE it moves its own executable. Target and host are in this process, over the
/// software NIC; `serve` and `load` are the two halves in two processes, over an RDMA device or, with --device soft, over the
/// software NIC. A file of such a name is given as ./serve.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "frwr",
    version,
    propagate_version = true,
    allow_negative_numbers = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub struct CommandLine {
    /// What is done, if not the whole job.
    #[command(subcommand)]
    pub task: Option<Task>,
    /// Tells more while it runs, on standard error, each line with its time and level. Without it RUST_LOG says what is told
    /// (error, warn, info, debug, off), and where that is not set it is info.
    #[arg(long, short, global = true)]
    pub verbose: bool,
    /// What such a line looks like, in JSON as an object. Default: plain, and full with --verbose.
    #[arg(long, value_name = "FORMAT", global = true)]
    pub log_format: Option<LogFormat>,
    /// Arguments of the whole job.
    #[command(flatten)]
    pub arguments: Arguments,
}

/// What is done instead of the whole job.
#[derive(Clone, Debug, Subcommand)]
pub enum Task {
    /// The target: serves a file's bytes as a namespace over an RDMA device, until SIGINT or SIGTERM.
    ///
    /// The namespace holds the file's bytes, padded with zeros to whole blocks. It lives in memory: hosts may write to it,
    /// the file itself is never written, unless --backing says that the namespace is the file. With --config, whatever the
    /// file says.
    Serve(ServeArguments),
    /// The host: moves a namespace, or a file, over an RDMA device from or to a target, then keeps a load going.
    ///
    /// Connects to a target and reads its namespace in random order, or writes FILE there first; prints the SHA-256 of what
    /// was read, then keeps a load going in which every block is checked: against FILE and what was written since, or
    /// against the first copy. Nobody else may write to the same blocks meanwhile. A connection that ends is set up again.
    Load(LoadArguments),
    /// Lists what a discovery service knows: transport, address, port, kind and name of each subsystem.
    Discover(DiscoverArguments),
    /// Asks and changes a `serve` that runs, over its control socket.
    ///
    /// METHOD is one of those that --list tells, such as status, namespaces or set_ana_state; docs/operating.md has them with their
    /// answers. The answer is JSON.
    Ctl(CtlArguments),
    /// Shows what a `serve` that runs does, live: its cores, namespaces and hosts, and what waits.
    ///
    /// Shares and rates are of the last interval, not of all time. In a terminal q ends it; with --json, or where standard output is no
    /// terminal, each interval is told on it.
    Top(TopArguments),
    /// Measures how fast memory is opened to a peer, used, and closed again.
    Latency(Box<latency::Arguments>),
    /// What this machine offers to frwr, and what falls short.
    Check(check::Arguments),
    /// Prints what makes a shell complete the command line: `frwr completions bash > /etc/bash_completion.d/frwr`.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Writes manual pages, one for each subcommand, into a folder that exists: `frwr man /usr/local/share/man/man1`.
    Man {
        /// Where they are written.
        folder: PathBuf,
    },
}

/// What is printed where the arguments, of which the first is the program's name, are no command line: help that was asked for, or
/// what is wrong in one line.
#[must_use]
pub fn mistaken(arguments: &[OsString], error: clap::Error) -> Output {
    let says = |word: &str| arguments.iter().any(|argument| argument == word);
    let json = says("--json");
    if error.kind() == ErrorKind::DisplayVersion && says("--version") {
        let about = About::this();
        return success(if json { json!(about).to_string() } else { about.to_string() });
    }
    if !error.use_stderr() {
        let asks_ctl = error.kind() == ErrorKind::DisplayHelp && arguments.get(1).is_some_and(|task| task == "ctl");
        let of_method = if asks_ctl { ctl::help(arguments) } else { None };
        return success(of_method.unwrap_or_else(|| error.to_string()));
    }
    let message = match arguments.get(1).and_then(|task| task.to_str()) {
        Some("latency") => {
            // What is no text is no flag either.
            let said: Vec<String> = arguments.iter().skip(2).map(|said| said.to_string_lossy().into_owned()).collect();
            latency::explained(error, &said, &latency::Arguments::command())
        }
        Some("check") => check::explained(&error, says("sizing")),
        Some(half @ ("serve" | "load" | "discover" | "ctl" | "top")) => usage_line(&format!("frwr {half}"), &error),
        _ => behind_task(arguments, usage_line("frwr", &error)),
    };
    Error::usage("usage", message).output(json)
}

/// Where options stand in front of what is done, that was taken for a file of the whole job: what cures it.
fn behind_task(arguments: &[OsString], message: String) -> String {
    let command = CommandLine::command();
    let is_task = |word: &&OsString| command.get_subcommands().any(|task| **word == task.get_name());
    let Some(task) = arguments.iter().skip(2).find(is_task) else { return message };
    let task = task.to_string_lossy();
    format!("{message}; what is said to `{task}` stands behind it: `frwr {task} ...`")
}

/// What makes a shell complete the command line.
#[must_use]
pub fn completions(shell: Shell) -> Output {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), "frwr", &mut script);
    success(String::from_utf8_lossy(&script).into_owned())
}

/// Writes the manual pages.
///
/// # Errors
/// They cannot be written there.
pub fn manual(folder: &Path) -> Result<Output, Error> {
    clap_mangen::generate_to(CommandLine::command(), folder).map_err(|error| {
        let remedy = "name a folder that exists and that you may write to";
        Error::failed("manual", format!("no manual pages in {}: {error}; {remedy}", folder.display()))
    })?;
    Ok(success(format!("manual pages are in {}", folder.display())))
}

#[cfg(test)]
mod tests {
    use super::{CommandLine, OsString, mistaken};
    use clap::Parser as _;

    #[test]
    fn who_says_options_in_front_of_the_task_hears_where_they_belong() {
        let told = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            mistaken(&words, CommandLine::try_parse_from(&words).unwrap_err()).stderr
        };
        let line = told(&["frwr", "--log-format", "json", "load", "--connect", "10.0.0.1:4420"]);
        assert!(line.contains("--connect") && line.contains("stands behind it: `frwr load ...`"), "{line}");
        assert!(!told(&["frwr", "--nonsense"]).contains("behind it"));
    }
}
