//! `frwr latency` from its configuration to what it prints: all that knows how the device is opened.

use super::{
    command_line::{Address, DeviceChoice, LatencyConfig, Role},
    failure::combination,
    files::ResultFiles,
    parameters::Parameters,
    report::LatencyReport,
    run::{measure, measure_both},
    serve::{LatencyServerReport, serve},
    sweep::LatencySweep,
};
use crate::{
    Error,
    address::{self, Purpose},
    check::Machine,
    options::DeviceArguments,
    output::{Output, success},
    report::Report as _,
    runner::{DeviceRole, open_rdma, open_soft},
    signals::Asked,
    watch::with_neighbours,
};
use core::cmp::Reverse;
use frwr_engine::provider::soft::{SoftFabric, SoftOptions};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

/// What a process came to.
#[derive(Debug)]
pub enum LatencyOutcome {
    /// A measurement, or several one after the other.
    Measured(LatencySweep),
    /// What was measured all the same, and why it is not all that was asked for: a later size failed, or a file of results.
    Partly(LatencySweep, Error),
    /// A server that was stopped.
    Served(LatencyServerReport),
}

impl LatencyOutcome {
    /// What the program prints, and how it ends.
    #[must_use]
    pub fn output(&self, json: bool) -> Output {
        match self {
            Self::Measured(report) => report.output(json),
            Self::Partly(report, error) => {
                let mut object = report.json();
                (object["error"], object["message"]) = (error.name().into(), error.to_string().into());
                let told = success(if json { object.to_string() } else { report.table() });
                Output { stdout: told.stdout, ..error.output(false) }
            }
            Self::Served(report) => report.output(json),
        }
    }
}

/// Does what was asked for, on the device that was named.
///
/// # Errors
/// [`Error`].
pub fn run(config: &LatencyConfig, asked: &dyn Asked, say: &mut dyn FnMut(&str)) -> Result<LatencyOutcome, Error> {
    let files = ResultFiles::open(config)?;
    let mut machine = Machine::this();
    machine.topology = with_neighbours(machine.topology);
    if config.role == Role::Server {
        let served = match &config.device {
            DeviceChoice::Rdma(device) => {
                let address = own_address(config, device, &machine)?;
                serve(
                    &mut || open_rdma(device, DeviceRole::Responder, config.idle),
                    address,
                    config,
                    &machine,
                    asked,
                    say,
                )
            }
            DeviceChoice::Soft(profile) => {
                serve(&mut || open_soft(*profile), soft_address(config), config, &machine, asked, say)
                    .map_err(Error::between_processes)
            }
        };
        return served.map(LatencyOutcome::Served);
    }
    let mut sizes: Vec<(usize, u32)> = config.sizes.iter().copied().enumerate().collect();
    // The largest first: a server then makes room for all of them at once.
    sizes.sort_by_key(|&(place, size)| (Reverse(size), place));
    let mut reports = Vec::new();
    for (place, size) in sizes {
        let of_size = config.with_size(size);
        match measure_size(&of_size, &machine, asked, say).map_err(|error| in_our_words(error, &of_size)) {
            // All sizes that there are were asked for: those of them that can be.
            Err(error) if config.client.all && error.is_beyond_a_key() => {
                say(&format!("--all: {} bytes are left out: {error}", of_size.parameters.size));
            }
            // Interrupted before its first request: those before it have figures.
            Ok(report) if report.requests() == 0 && report.undrained.is_empty() && !reports.is_empty() => {}
            Ok(report) => reports.push((place, report)),
            Err(error) if reports.is_empty() => return Err(error),
            // What there is goes to its files, and is told, all the same.
            Err(error) => {
                let sweep = sweep(reports, config);
                // The first that went wrong is told.
                let _ = files.write(&sweep);
                return Ok(LatencyOutcome::Partly(sweep, error));
            }
        }
        if asked.to_stop() {
            break;
        }
    }
    if reports.is_empty() {
        return Err(combination("--all", "names no size that one key of this device covers; name a --size"));
    }
    let sweep = sweep(reports, config);
    if !sweep.has_figures() {
        return Ok(LatencyOutcome::Measured(sweep));
    }
    Ok(match files.write(&sweep) {
        Ok(()) => LatencyOutcome::Measured(sweep),
        Err(error) => LatencyOutcome::Partly(sweep, error),
    })
}

/// Measurements with their places among the sizes that were asked for.
fn sweep(mut reports: Vec<(usize, LatencyReport)>, config: &LatencyConfig) -> LatencySweep {
    reports.sort_by_key(|(place, _)| *place);
    LatencySweep::new(reports.into_iter().map(|(_, report)| report).collect(), config.sizes.len())
}

/// The engine names its own options where it cannot be made: those of the command line that they come from are said too.
fn in_our_words(error: Error, config: &LatencyConfig) -> Error {
    let device = match &config.device {
        DeviceChoice::Rdma(device) => device.name().to_owned(),
        DeviceChoice::Soft(profile) => format!("soft:{profile}"),
    };
    let Parameters { size, depth, connections, batch, .. } = config.parameters;
    let asked = format!("--size {size} --depth {depth} --connections {connections}");
    let (asked, lower) = if batch > 1 {
        (format!("{asked} --batch {batch}"), "--size, --depth, --connections or --batch")
    } else {
        (asked, "--size, --depth or --connections")
    };
    error.of_options(&device, &asked, lower)
}

/// What a half needs of its device.
fn role(opens_keys: bool) -> DeviceRole {
    if opens_keys { DeviceRole::Requester } else { DeviceRole::Responder }
}

/// One measurement, on a device that is opened for it.
fn measure_size(
    config: &LatencyConfig,
    machine: &Machine,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<LatencyReport, Error> {
    match (&config.role, &config.device) {
        (Role::Client(host), DeviceChoice::Rdma(device)) => {
            let role = role(config.parameters.client_opens_keys());
            measure(open_rdma(device, role, config.idle)?, resolve(host, config.port)?, config, machine, asked, say)
        }
        (_, DeviceChoice::Rdma(device)) => {
            let address = own_address(config, device, machine)?;
            let server = open_rdma(device, role(config.parameters.server_opens_keys()), config.idle)?;
            let client = open_rdma(device, role(config.parameters.client_opens_keys()), config.idle)?;
            measure_both(server, client, address, config, machine, asked, say)
        }
        (Role::Client(host), DeviceChoice::Soft(profile)) => {
            let server = resolve(host, config.port)?;
            measure(open_soft(*profile)?, server, config, machine, asked, say).map_err(Error::between_processes)
        }
        (_, DeviceChoice::Soft(profile)) => {
            let (fabric, options) = (SoftFabric::new(), SoftOptions::new(*profile));
            let address = soft_address(config);
            measure_both(fabric.device(options), fabric.device(options), address, config, machine, asked, say)
        }
    }
}

/// Where to listen on the software NIC: what was said, or the usual port.
fn soft_address(config: &LatencyConfig) -> SocketAddr {
    config.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], config.port)))
}

/// Where to listen: what was said, or the first IPv4 address among the device's GIDs.
fn own_address(config: &LatencyConfig, device: &DeviceArguments, machine: &Machine) -> Result<SocketAddr, Error> {
    if let Some(address) = config.listen {
        return Ok(address);
    }
    let found = machine.rdma_devices.iter().find(|found| found.name == device.name());
    let ports = found.map_or(&[][..], |found| &found.ports);
    let gids = ports.iter().filter(|port| port.number == device.ib_port).flat_map(|port| &port.gids);
    let wanted = gids.filter(|gid| device.gid_index.is_none_or(|index| gid.index == index));
    let address = wanted.filter_map(|gid| gid.address.to_ipv4_mapped()).next();
    match address {
        Some(address) => Ok(SocketAddr::new(IpAddr::V4(address), config.port)),
        // It may not exist at all: that is said first.
        None => {
            open_rdma(device, DeviceRole::Responder, config.idle)?;
            let text = "set one on its network interface, or give --listen ADDRESS";
            Err(Error::failed("address", format!("device {} has no IPv4 address to listen at; {text}", device.name())))
        }
    }
}

/// An address of a host, with a port or the usual one.
fn resolve(host: &str, port: u16) -> Result<SocketAddr, Error> {
    let wrong = |reason: String| {
        let remedy = "name an IP address, or a host that resolves to one, as HOST or HOST:PORT";
        Error::failed("host", format!("{host} cannot be the server ({reason}); {remedy}"))
    };
    let address = match host.parse::<Address>() {
        Ok(address) => address.or_port(port),
        // No name of a host has one of those.
        Err(reason) if host.contains('%') => return Err(wrong(reason)),
        Err(_) => look_up(host, port).map_err(wrong)?,
    };
    address::check(address, Purpose::Connect).map_err(|reason| wrong(reason.to_string()))?;
    Ok(address)
}

/// The address of a host's name.
fn look_up(host: &str, port: u16) -> Result<SocketAddr, String> {
    let with_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0));
    let found = if with_port { host.to_socket_addrs() } else { (host, port).to_socket_addrs() };
    usual(found.map_err(|error| error.to_string())?).ok_or_else(|| "it has no address".to_owned())
}

/// Of a host with addresses of both kinds an IPv4 one, as servers listen at where nobody says otherwise: resolvers name IPv6 first.
fn usual(mut addresses: impl Iterator<Item = SocketAddr>) -> Option<SocketAddr> {
    let first = addresses.next()?;
    Some(if first.is_ipv4() { first } else { addresses.find(SocketAddr::is_ipv4).unwrap_or(first) })
}

#[cfg(test)]
mod tests {
    use super::{resolve, usual};
    use crate::latency::DEFAULT_PORT;

    #[test]
    fn a_host_is_asked_at_the_kind_of_address_that_servers_listen_at() {
        for (found, wanted) in [
            (&["[fd00::1]:7", "[fd00::2]:7", "10.9.0.1:7", "10.9.0.2:7"][..], Some("10.9.0.1:7")),
            (&["10.9.0.2:7", "10.9.0.1:7"], Some("10.9.0.2:7")),
            (&["[fd00::2]:7", "[fd00::1]:7"], Some("[fd00::2]:7")),
            (&[], None),
        ] {
            let told = usual(found.iter().map(|address| address.parse().unwrap()));
            assert_eq!(told, wanted.map(|address| address.parse().unwrap()), "{found:?}");
        }
    }

    #[test]
    fn hosts_have_a_port_or_the_usual_one() {
        for (host, port) in [("10.9.0.1", DEFAULT_PORT), ("10.9.0.1:77", 77), ("::1", DEFAULT_PORT), ("[::1]:78", 78)] {
            assert_eq!(resolve(host, DEFAULT_PORT).unwrap().port(), port, "{host}");
        }
        for wrong in ["10.9.0.1:0", "10.9.0.1:99999", "no host", "nowhere.invalid", ""] {
            assert!(resolve(wrong, DEFAULT_PORT).unwrap_err().to_string().contains("name an IP address"), "{wrong}");
        }
    }
}
