//! What a host's core is made with.

use super::{command_line::Inject, intervals::IntervalSource, job_plan::JobPlan, path_log::PathDesk};
use crate::job::LoadOptions;
use core::time::Duration;
use frwr_engine::provider::Capabilities;
use frwr_mempool::region::PagePolicy;
use frwr_nvmf::{
    authentication::Authenticator,
    host::{HostOptions, PathsOptions},
};
use std::{net::SocketAddr, sync::Arc};

/// What the host's core needs to begin.
pub(super) struct HostPlan {
    pub(super) options: HostOptions,
    pub(super) job: JobPlan,
    pub(super) pages: PagePolicy,
    pub(super) capabilities: Capabilities,
    pub(super) inject: Option<Inject>,
    /// Who proves the host, and controllers to it.
    pub(super) authenticator: Option<Arc<dyn Authenticator>>,
    /// Failures of the session that do not end the run: the host reconnects after them.
    pub(super) tolerated_failures: u64,
    /// Where each interval of the load is told, where that is asked for.
    pub(super) intervals: Option<IntervalSource>,
    /// Where the paths lead, of which the first is that of `options`. There may be places for others.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) paths: PathsOptions,
    /// Where changes of several paths are told, and ordered.
    pub(super) desk: Option<PathDesk>,
    /// Of several paths, attempts that each may make before there was a session.
    pub(super) attempts: u32,
    /// How long requests may take that are in flight when the load is over.
    pub(super) drain_time: Duration,
}

impl HostPlan {
    /// The plan of one of the cores that share the job: each makes choices of its own.
    ///
    /// Where each core has several, in a namespace each, `job` is which of the `jobs` this one is.
    pub(super) fn of_member(&self, member: usize, namespace: u32, job: usize, jobs: usize) -> Self {
        let Self {
            options,
            job: plan,
            pages,
            capabilities,
            inject,
            authenticator,
            tolerated_failures,
            addresses,
            paths,
            attempts,
            drain_time,
            ..
        } = self;
        let seed = plan.seed.wrapping_add((member as u64) << 32).wrapping_add((job as u64) << 48);
        let mut options = options.clone();
        options.namespace = namespace;
        let load = LoadOptions { number: job as u64, loads: jobs as u64, ..plan.load.clone() };
        Self {
            options,
            job: JobPlan { seed, load, ..plan.clone() },
            pages: *pages,
            capabilities: *capabilities,
            inject: *inject,
            authenticator: authenticator.clone(),
            tolerated_failures: *tolerated_failures,
            intervals: None,
            addresses: addresses.clone(),
            paths: paths.clone(),
            desk: None,
            attempts: *attempts,
            drain_time: *drain_time,
        }
    }
}
