//! What the cores gave back, and the report that it makes.

use super::{
    command_line::Config,
    cores::Core,
    error::RunError,
    host_side::HostSide,
    load_file::LoadedFile,
    report::{CoreReport, RunReport},
};
use frwr_engine::{control::ControlStatistics, provider::Port};
use frwr_reactor::{Finished, RunningError};

/// The ended cores: the host, which knows what became of the job, and figures of all.
pub(super) struct Outcome<H: Port> {
    host: HostSide<H>,
    cores: Vec<CoreReport>,
    undrained: Vec<String>,
}

impl<H: Port> Outcome<H> {
    pub(super) fn collect<T: Port>(ended: Vec<Result<Finished<Core<T, H>>, RunningError>>) -> Result<Self, RunError> {
        let (mut host, mut cores, mut undrained) = (None, Vec::new(), Vec::new());
        for finished in ended {
            let Finished { core, context, report } = finished?;
            undrained.extend(report.undrained.iter().map(|name| format!("reactor {core}: {name}")));
            if let Some(memory) = context.memory() {
                let (role, memory, requests) = (context.role(), memory.clone(), context.requests());
                cores.push(CoreReport { role, memory, requests, reactor: report.statistics });
            }
            host = context.host.or(host);
        }
        Ok(Self { host: host.ok_or(RunError::Lost)?, cores, undrained })
    }

    pub(super) fn report(self, config: &Config, file: &LoadedFile, control: ControlStatistics) -> RunReport {
        let Self { host, cores, undrained } = self;
        let (reconnects, resubmitted) = host.recovery();
        RunReport {
            device: format!("soft:{}", config.profile),
            file: config.file.display().to_string(),
            file_bytes: file.bytes.len() as u64,
            block_bytes: config.block_bytes,
            queue_depth: config.queue_depth,
            read_share: config.read_share,
            verified: host.job().verified(),
            interrupted: host.interrupted(),
            caught: host.caught(),
            reconnects,
            resubmitted,
            elapsed: host.elapsed(),
            engine: host.engine(),
            control,
            remote_bytes_open: host.remote_bytes_open(),
            latency: host.job().latency().clone(),
            cores,
            undrained,
        }
    }
}
