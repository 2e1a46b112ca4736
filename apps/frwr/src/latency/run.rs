//! A measurement from its configuration to its report, on whatever device.

use super::{
    board::Board,
    client::{ClientPlan, Extent},
    command_line::{DeviceChoice, LatencyConfig},
    desk::Desk,
    failure::unreachable,
    pace::Pace,
    parameters::{ConnectData, Parameters},
    plan::depth,
    report::{LatencyCoreReport, LatencyReport},
    serve::crowded,
    server::ServerPlan,
    start::{Aside, Sides, Threads, drive, finished},
    warnings::{about_cores, about_depth, about_failures, about_memory},
};
use crate::{
    Error,
    check::{Machine, Shortcoming},
    options::reactors,
    runner::{Trace, cannot_listen, ended, finish_traces, for_both, for_host, leave, removed},
    signals::Asked,
    watch::{Patrol, Watch},
};
use frwr_engine::{
    OpenFailure, Statistics,
    control::Control,
    provider::{Capabilities, Contiguity, Device, Errno},
};
use frwr_reactor::{Clock, Finished, Placement};
use hdrhistogram::Histogram;
use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    net::SocketAddr,
};

/// Server and client in this process, each over a device of its own; the server listens at `address`. `say` is told of queue
/// pairs that a device refuses to destroy.
///
/// # Errors
/// [`Error`].
pub fn measure_both<D: Device<Port: Send + 'static>>(
    server: D,
    client: D,
    address: SocketAddr,
    config: &LatencyConfig,
    machine: &Machine,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<LatencyReport, Error> {
    let placement = config.placement.clone().unwrap_or_else(|| for_both(&machine.topology));
    let cores = reactors(&placement);
    let halves = if cores == 1 { 1 } else { cores / 2 };
    let capabilities = *client.capabilities();
    let parameters = config.for_cores(halves, capabilities.remote_invalidation)?;
    let (mut sides, desk) = (Sides::new(), Desk::new(parameters));
    let mut keys = config.output.trace_keys.as_deref().map(Trace::of_keys).transpose()?;
    let (mut server, mut client) = (Control::new(server), Control::new(client));
    server.tell_when_crowded(crowded());
    let plan = ServerPlan {
        capacity: parameters,
        // Bounded far below 2^16; one to spare for uneven placement.
        connections: parameters.connections.div_ceil(halves as u16) + 1,
        address,
        negotiated: config.negotiated,
        pages: config.memory.pages.policy(),
        capabilities: *server.device().capabilities(),
        moves_data_in_polls: matches!(config.device, DeviceChoice::Soft(_)),
        silence: None,
    };
    for _ in 0..halves {
        sides.add_server(&mut server, plan.clone(), keys.as_mut())?;
    }
    let run = Run { config, parameters, address, capabilities, machine, placement };
    run.clients(&mut sides, &mut client, halves, Some(cores - halves), &mut keys)?;
    let (clock, mut pace) = (Clock::system(), run.pace());
    let measured = run.go(sides, &desk, &mut keys, asked, say, |threads, board, aside, say| {
        drive(vec![&mut server, &mut client], threads, board, asked, aside, say, |say| {
            pace.pass(clock.now(), board.ended(), say);
            // Nobody will ever answer.
            if desk.listening().is_none() {
                board.fail(unreachable(OpenFailure::Unreachable(Errno::ECONNREFUSED)));
            }
            finished(board)
        })
    });
    let measured = match measured {
        Err(error) if error.leaves_a_core() => return Err(leave(error, (server, client))),
        measured => measured,
    };
    // Whoever has the address may have answered the client.
    let measured = match desk.cannot_listen() {
        Some(reason) => Err(cannot_listen(address, Some(reason))),
        None => measured,
    };
    let report = measured.map_err(|error| or_removed(error, &server)).map_err(|error| or_removed(error, &client))?;
    finish_traces(keys, say)?;
    Ok(report)
}

/// The client's half, against a server at `address`. `say` is told of queue pairs that the device refuses to destroy.
///
/// # Errors
/// [`Error`].
pub fn measure<D: Device<Port: Send + 'static>>(
    device: D,
    address: SocketAddr,
    config: &LatencyConfig,
    machine: &Machine,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<LatencyReport, Error> {
    let placement = config.placement.clone().unwrap_or_else(|| for_host(&machine.topology));
    let cores = reactors(&placement);
    let capabilities = *device.capabilities();
    let parameters = config.for_cores(cores, capabilities.remote_invalidation)?;
    let (mut sides, desk) = (Sides::new(), Desk::new(parameters));
    let mut keys = config.output.trace_keys.as_deref().map(Trace::of_keys).transpose()?;
    let mut control = Control::new(device);
    let run = Run { config, parameters, address, capabilities, machine, placement };
    run.clients(&mut sides, &mut control, cores, None, &mut keys)?;
    let (clock, mut pace) = (Clock::system(), run.pace());
    let measured = run.go(sides, &desk, &mut keys, asked, say, |threads, board, aside, say| {
        drive(vec![&mut control], threads, board, asked, aside, say, |say| {
            pace.pass(clock.now(), board.ended(), say);
            finished(board)
        })
    });
    let report = match measured {
        Err(error) if error.leaves_a_core() => return Err(leave(error, control)),
        measured => measured.map_err(|error| or_removed(error, &control))?,
    };
    finish_traces(keys, say)?;
    Ok(report)
}

/// Why a run failed, or that its device was removed, which is why then.
pub(super) fn or_removed<D: Device>(error: Error, control: &Control<D>) -> Error {
    removed(control).unwrap_or(error)
}

/// What a measurement is made of.
struct Run<'a> {
    config: &'a LatencyConfig,
    parameters: Parameters,
    address: SocketAddr,
    capabilities: Capabilities,
    machine: &'a Machine,
    placement: Placement,
}

impl Run<'_> {
    /// `servers`: the reactors in front of the clients', where there are servers in this process.
    fn clients<D: Device<Port: Send + 'static>>(
        &self,
        sides: &mut Sides<D::Port>,
        control: &mut Control<D>,
        cores: usize,
        servers: Option<usize>,
        keys: &mut Option<Trace>,
    ) -> Result<(), Error> {
        let data = ConnectData { parameters: self.parameters, client: random() };
        for core in 0..cores {
            let plan = ClientPlan {
                parameters: self.parameters,
                connections: self.config.parameters.connections,
                core,
                cores,
                address: self.address,
                private_data: data.encode(),
                negotiated: self.config.negotiated,
                extent: share(self.config.extent, core as u64, cores as u64),
                warm_up: self.config.client.warm_up.0,
                rate: self.config.client.rate,
                rounds: self.config.client.rounds,
                patient: servers.is_some(),
                pages: self.config.memory.pages.policy(),
                capabilities: self.capabilities,
            };
            sides.add_client(control, plan, servers.unwrap_or(0) + core, keys.as_mut())?;
        }
        Ok(())
    }

    fn go<P: frwr_engine::provider::Port + Send + 'static>(
        self,
        sides: Sides<P>,
        desk: &Desk,
        keys: &mut Option<Trace>,
        asked: &dyn Asked,
        say: &mut dyn FnMut(&str),
        drive: impl FnOnce(&Threads<P>, &Board, Aside<'_>, &mut dyn FnMut(&str)) -> Result<(), Error>,
    ) -> Result<LatencyReport, Error> {
        let board = Board::new(sides.clients());
        let (watch, mut patrol) = (Watch::begin(), Patrol::default());
        let threads = sides.launch(
            self.machine.topology.clone(),
            self.placement.clone(),
            (&board, desk),
            self.config.idle,
            asked,
            say,
        )?;
        let cpus: Vec<_> = threads.cpus().collect();
        keys.iter_mut().for_each(|keys| keys.started(&cpus));
        let mut warnings = about_cores(self.machine, &cpus, self.rdma_device(), &watch);
        let driven = drive(&threads, &board, Aside { patrol: &mut patrol, keys }, say);
        let (mut cores, mut undrained, mut engines) = (Vec::new(), Vec::new(), Statistics::default());
        for ended in ended(threads, driven)? {
            let Finished { core, context, report } = ended?;
            engines = engines + context.engine();
            undrained.extend(report.undrained.iter().map(|name| format!("reactor {core}: {name}")));
            if let Some(client) = context.client {
                cores.push(LatencyCoreReport { measured: client.measured(), reactor: report.statistics });
            }
        }
        keys.iter_mut().try_for_each(|keys| keys.ended(engines.trace_records_dropped))?;
        warnings.extend(about_failures(&engines));
        if let Some(failure) = board.failure() {
            return Err(failure.of(self.address));
        }
        warnings.extend(about_depth(depth(&self.parameters, self.config.parameters.connections, &self.capabilities)));
        warnings.extend(watch.meanwhile(&self.machine.topology, &cpus));
        warnings.extend(patrol.shortcomings());
        warnings.extend(about_memory(cores.iter().map(|core| &core.measured.memory)));
        self.report(cores, warnings, undrained)
    }

    /// What is said while it goes on; keys alone move no bytes.
    fn pace(&self) -> Pace {
        Pace::new(self.parameters.operation.moved_bytes(self.parameters.size))
    }

    fn rdma_device(&self) -> Option<&str> {
        self.config.rdma_device()
    }

    fn report(
        self,
        cores: Vec<LatencyCoreReport>,
        warnings: Vec<Shortcoming>,
        undrained: Vec<String>,
    ) -> Result<LatencyReport, Error> {
        let histograms = cores.iter().map(|core| core.measured.histogram.clone());
        let histogram = histograms.reduce(|mut sum, histogram| {
            // All have the same bounds.
            let _ = Histogram::add(&mut sum, histogram);
            sum
        });
        let device = match &self.config.device {
            DeviceChoice::Rdma(device) => device.name().to_owned(),
            DeviceChoice::Soft(profile) => format!("soft:{profile}"),
        };
        let found = self.machine.rdma_devices.iter().find(|found| Some(found.name.as_str()) == self.rdma_device());
        let interrupted = cores.iter().any(|core| core.measured.interrupted);
        Ok(LatencyReport {
            histogram: histogram.ok_or_else(Error::lost)?,
            driver: found.and_then(|found| found.driver.clone()),
            device,
            registration: registration(&self.capabilities),
            address: self.address,
            parameters: self.parameters,
            connections: self.config.parameters.connections,
            warm_up: self.config.client.warm_up.0,
            rate: self.config.client.rate,
            rounds: self.config.client.rounds,
            interrupted,
            cores,
            warnings,
            undrained,
        })
    }
}

/// What keys cover on a device.
pub(super) fn registration(capabilities: &Capabilities) -> &'static str {
    match capabilities.contiguity {
        _ if !capabilities.attributes.memory_management_extensions => "none",
        Contiguity::PageList { .. } => "page_lists",
        Contiguity::Gaps { .. } => "lists",
        Contiguity::SingleRange => "windows",
    }
}

/// One core's part of what all of them measure.
fn share(extent: Extent, core: u64, cores: u64) -> Extent {
    match extent {
        Extent::Requests(all) => Extent::Requests(all / cores + u64::from(core < all % cores)),
        time @ Extent::Time(_) => time,
    }
}

/// A number that no other client has, never 0.
fn random() -> u64 {
    RandomState::new().build_hasher().finish() | 1
}

#[cfg(test)]
mod tests {
    use super::{Extent, share};

    #[test]
    fn shares_add_up() {
        for (all, cores) in [(10, 3), (2, 4), (7, 7), (1000, 1)] {
            let shares = (0..cores).map(|core| match share(Extent::Requests(all), core, cores) {
                Extent::Requests(requests) => requests,
                Extent::Time(_) => panic!(),
            });
            assert_eq!(shares.sum::<u64>(), all);
        }
    }
}
