//! `frwr discover`: what a discovery service lists.

use super::{
    inquiry::Inquiry,
    names::{STEP_TIMEOUT, discovery_names},
};
use crate::{
    Error,
    address::Purpose,
    options::{DeviceArguments, address, check_address},
    signals::Asked,
};
use clap::Args;
use frwr_engine::{control::Control, provider::Device};
use frwr_nvmf::host::{Discovered, HostOptions};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Asks a discovery service.
#[derive(Clone, Debug, Args)]
#[command(allow_negative_numbers = true, mut_arg("device", |device| device.required(true)))]
pub struct DiscoverArguments {
    /// The device.
    #[command(flatten)]
    pub device: DeviceArguments,
    /// Where the discovery service listens.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub connect: SocketAddr,
    /// The host's NQN, where subsystems admit some hosts only.
    #[arg(long, value_name = "NQN")]
    pub host_nqn: Option<String>,
    /// One line of JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `discover`, checked.
#[derive(Clone, Debug)]
pub struct DiscoverConfig {
    /// The device.
    pub device: DeviceArguments,
    /// Where the service listens.
    pub connect: SocketAddr,
    /// The host's name.
    pub host_nqn: Option<String>,
}

impl DiscoverConfig {
    /// Checks arguments.
    ///
    /// # Errors
    /// [`Error`] names limit, value and remedy.
    pub fn new(arguments: DiscoverArguments) -> Result<Self, Error> {
        let DiscoverArguments { device, connect, host_nqn, .. } = arguments;
        check_address("--connect", connect, Purpose::Connect)?;
        device.check()?;
        Ok(Self { device, connect, host_nqn })
    }
}

/// Reads the discovery log page. `asked` may end it early; `say` is told of a queue pair that the device refuses to destroy, which it waits for.
///
/// # Errors
/// [`Error`].
pub fn discover<D: Device>(
    device: D,
    config: &DiscoverConfig,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Discovered>, Error> {
    let options = discovery_options(config.connect, config.host_nqn.as_deref(), &config.device)?;
    ask(&mut Control::new(device), options, asked, say)
}

/// Reads the discovery log page that a service shows to a host with these options. Empty as well where it was ended early.
fn ask<D: Device>(
    control: &mut Control<D>,
    options: HostOptions,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Discovered>, Error> {
    let mut inquiry = Inquiry::begin(control, options, None)?;
    let found = inquiry.first(control, asked, say)?;
    inquiry.end(control, say);
    Ok(found)
}

/// Of a host that asks a discovery service.
pub(super) fn discovery_options(
    service: SocketAddr,
    host_nqn: Option<&str>,
    device: &DeviceArguments,
) -> Result<HostOptions, Error> {
    let (subsystem, host) = discovery_names(host_nqn)?;
    let mut options = HostOptions::new(service, subsystem, host);
    options.queue_depth = 1;
    options.step_timeout = STEP_TIMEOUT;
    options.parameters = device.parameters();
    Ok(options)
}

/// One object, on one line.
#[must_use]
pub fn discovered_json(found: &[Discovered]) -> Value {
    let entry = |entry: &Discovered| {
        json!({
            "transport": transport(entry.transport),
            "type": kind(entry.subsystem_type),
            "address": entry.address.as_str(),
            "service": entry.service.as_str(),
            "port": entry.port,
            "subsystem": entry.subsystem.as_str(),
        })
    };
    json!({ "entries": found.iter().map(entry).collect::<Vec<_>>() })
}

/// A line for each.
#[must_use]
pub fn discovered_table(found: &[Discovered]) -> String {
    let line = |entry: &Discovered| {
        let (transport, kind) = (transport(entry.transport), kind(entry.subsystem_type));
        // They are the target's: what is no text must not reach the terminal.
        let [address, service, name] = [entry.address.as_str(), entry.service.as_str(), entry.subsystem.as_str()]
            .map(|text| text.escape_debug().to_string());
        format!("{transport:<5} {address:<39} {service:<6} {kind:<9} {name}\n")
    };
    found.iter().map(line).collect()
}

/// TRTYPE (Base figure 265).
fn transport(number: u8) -> &'static str {
    match number {
        1 => "rdma",
        2 => "fc",
        3 => "tcp",
        254 => "loop",
        _ => "other",
    }
}

/// SUBTYPE (Base figure 265).
fn kind(number: u8) -> &'static str {
    match number {
        1 | 3 => "discovery",
        2 => "nvm",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::discovered_table;
    use arrayvec::ArrayString;
    use frwr_nvmf::{host::Discovered, wire::Nqn};

    #[test]
    fn what_a_target_sends_is_one_line_of_text() {
        let hostile = Discovered {
            transport: 1,
            address_family: 1,
            subsystem_type: 2,
            port: 1,
            controller_id: 0xffff,
            subsystem: Nqn::new("nqn.a\n\u{1b}[2Jrdma").unwrap(),
            address: ArrayString::from("10.0.0.1\n").unwrap(),
            service: ArrayString::from("4420\u{7}").unwrap(),
        };
        let table = discovered_table(&[hostile]);
        assert!(!table.trim_end_matches('\n').chars().any(char::is_control), "{table:?}");
        assert!(table.starts_with("rdma  10.0.0.1\\n"), "{table:?}");
    }
}
