//! What `frwr load` is told of several paths, and what it tells of them.

use super::ana_name::ana_name;
use crate::{Error, options::Limit};
use clap::{Args, ValueEnum};
use core::time::Duration;
use frwr_nvmf::host::{MAX_PATHS, PathPolicy, PathState, PathStatistics, PathsOptions};
use serde::Serialize;
use std::net::SocketAddr;

/// In seconds.
const PATH_TIMEOUT: Limit = Limit::new("--path-timeout", 1, 3600);
/// In seconds; 0 for none. More is what no lost path should be waited for.
const KEEP_ALIVE: Limit = Limit::new("--keep-alive", 0, 3600);
/// In seconds. More is what no timer is late by.
const QUIESCE_MARGIN: Limit = Limit::new("--quiesce-margin", 0, 3600);

/// Which of equal paths a request takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// The one with most room in its queues.
    #[default]
    QueueRoom,
    /// One after the other.
    RoundRobin,
}

/// What several paths take.
#[derive(Clone, Debug, Args)]
pub struct PathArguments {
    /// Which of the paths that are as good as each other a request takes.
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = Policy::QueueRoom)]
    pub path_policy: Policy,
    /// Seconds that requests wait while the namespace can be reached by no path, before they fail, and with them the run. The only path is
    /// tried again as often as --reconnects says where it is lost.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = PATH_TIMEOUT.parser::<u64>())]
    pub path_timeout: u64,
    /// Keep Alive Timeout in seconds, 0 for none. A write that a lost path has not answered goes to another one when its target must have
    /// ended it for silence: after this time, twice where the target counts any command as a sign of life, and --quiesce-margin; or when
    /// the same path is back.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = KEEP_ALIVE.parser::<u64>())]
    pub keep_alive: u64,
    /// The storage behind several targets sees to it that one that was lost writes nothing any more before another one serves, as Ceph does
    /// for images with exclusive=1: such a write goes on at once. Not for two addresses of one target.
    #[arg(long)]
    pub storage_fences: bool,
    /// An address may lead to another machine than before, or a target lets this host in again while its storage still works on what the lost
    /// connection had (`frwr serve` does not): that the same path is back then ends no wait of such a write.
    #[arg(long, conflicts_with = "storage_fences")]
    pub addresses_move: bool,
    /// Seconds beside the Keep Alive Timeout for which such a write waits: as long as a message may be on its way, and what a target's timer
    /// and its storage are late by.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = QUIESCE_MARGIN.parser::<u64>())]
    pub quiesce_margin: u64,
}

impl PathArguments {
    /// Checks what was said of several paths. `traced`: an option that follows one connection.
    pub(super) fn check(&self, paths: &[SocketAddr], traced: Option<&str>) -> Result<(), Error> {
        PATH_TIMEOUT.check(self.path_timeout)?;
        KEEP_ALIVE.check(self.keep_alive)?;
        QUIESCE_MARGIN.check(self.quiesce_margin)?;
        let count = paths.len();
        if count > MAX_PATHS {
            let text = format!("--connect names {count} addresses: must be 1 to {MAX_PATHS}; name fewer");
            return Err(Error::usage("paths", text));
        }
        let twice = paths.iter().enumerate().find(|(at, path)| paths[..*at].contains(path));
        if let Some((_, path)) = twice {
            let text = format!("--connect names {path} twice: it is one path; name it once");
            return Err(Error::usage("paths", text));
        }
        if let (2.., Some(option)) = (count, traced) {
            let text =
                format!("{option} follows one path, and --connect names {count}; name one, or leave {option} out");
            return Err(Error::usage("trace_paths", text));
        }
        Ok(())
    }

    pub(super) fn path_timeout(&self) -> Duration {
        Duration::from_secs(self.path_timeout)
    }

    pub(super) fn keep_alive(&self) -> Duration {
        Duration::from_secs(self.keep_alive)
    }

    /// How long a write waits at most that a lost path has not answered, where its target ends silent hosts: it counts any command as a
    /// sign of life.
    pub(super) fn longest_fence(&self) -> Duration {
        2 * self.keep_alive() + Duration::from_secs(self.quiesce_margin)
    }

    pub(super) fn options(&self, retries: u16) -> PathsOptions {
        let policy = match self.path_policy {
            Policy::QueueRoom => PathPolicy::QueueRoom,
            Policy::RoundRobin => PathPolicy::RoundRobin,
        };
        PathsOptions::default()
            .policy(policy)
            .path_timeout(self.path_timeout())
            .command_retries(Some(retries))
            .storage_fences(self.storage_fences)
            .reconnect_ends_former(!self.addresses_move)
            .quiesce_margin(Duration::from_secs(self.quiesce_margin))
    }
}

/// How long requests of a load may wait, as its options say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoadedWaits {
    /// Seconds for a path.
    pub(super) path_timeout: u64,
    /// Seconds for an answer.
    pub(super) io_timeout: u64,
    /// How often a command is sent again.
    pub(super) io_retries: u16,
    /// Attempts in a row that may fail where there is one path.
    pub(super) reconnects: u32,
    /// Seconds for the controller of a lost path to be over; `None` where no time says that.
    pub(super) longest_fence: Option<u64>,
}

/// A state in a line.
pub(super) fn state_name(state: PathState) -> String {
    match state {
        PathState::Connecting => "connecting".to_owned(),
        PathState::Connected(ana) => format!("connected, {}", ana_name(ana)),
        PathState::Lost(failure) => format!("lost: {failure}"),
        PathState::Refused(refusal) => format!("not used: {refusal}"),
        PathState::Failed(failure) => format!("given up: {failure}"),
        PathState::Vacant => "gone, and not tried again while it is not listed".to_owned(),
        _ => "shut down".to_owned(),
    }
}

/// What a path of a load did.
#[derive(Clone, Debug, Serialize)]
pub struct LoadedPath {
    /// The core that has it, counted from 0.
    pub core: u16,
    /// The namespace.
    pub nsid: u32,
    /// Where it leads.
    pub address: String,
    /// How it was at the end of the load.
    pub state: String,
    /// Requests handed to it; one that came back and was handed to it again counts again.
    pub requests: u64,
    /// Those of them that a path had given back before.
    pub sent_again: u64,
    /// Requests that it did not answer before its connection ended.
    pub lost: u64,
    /// Writes among them, which waited until its controller was over.
    pub fenced: u64,
    /// Requests that it gave back unsent, or refused because of how the namespace could be reached.
    pub refused: u64,
    /// How often it came to serve, and how often it ceased to.
    pub came: u64,
    /// See `came`.
    pub went: u64,
}

impl LoadedPath {
    pub(super) fn new(
        (core, nsid): (u16, u32),
        address: SocketAddr,
        state: PathState,
        counted: PathStatistics,
    ) -> Self {
        let PathStatistics { requests, resubmitted, lost, fenced, refused, came, went, .. } = counted;
        let (address, state, sent_again) = (address.to_string(), state_name(state), resubmitted);
        Self { core, nsid, address, state, requests, sent_again, lost, fenced, refused, came, went }
    }

    /// What stands above a table of them.
    pub(super) const HEADER: &str =
        "core  path                     requests  sent again        lost     refused  came  went";

    /// A row of it.
    pub(super) fn row(&self) -> String {
        let Self { core, address, requests, sent_again, lost, refused, came, went, .. } = self;
        format!(
            "{core:>4}  {address:<21}  {requests:>10}  {sent_again:>10}  {lost:>10}  {refused:>10}  {came:>4}  {went:>4}"
        )
    }
}
