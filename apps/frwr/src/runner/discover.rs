//! `frwr discover`: what a discovery service lists.

use super::{
    main_loop::{Refusals, removed},
    plan,
    remedy::no_session,
    start::open,
    target_side::map,
};
use crate::{
    Error,
    address::Purpose,
    options::{DeviceArguments, Pages, address, check_address},
    signals::Asked,
};
use clap::Args;
use core::time::Duration;
use frwr_engine::{Engine, control::Control, provider::Device};
use frwr_nvmf::{
    authentication::Authenticator,
    host::{Discovered, Host, HostOptions},
};
use frwr_reactor::Clock;
use serde_json::{Value, json};
use std::{net::SocketAddr, sync::Arc};

/// Attempts to connect: a service that is there answers the first or second.
const ATTEMPTS: u32 = 3;
/// Pause between two looks at an idle device; nobody waits for microseconds here.
const PAUSE: Duration = Duration::from_millis(1);
/// Bytes beside what is computed: the alignment of what is carved.
const SLACK: usize = 64 << 10;

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
    ask(&mut Control::new(device), options, None, asked, say)
}

/// Reads the discovery log page that a service shows to a host with these options. Empty as well where it was ended early.
///
/// # Errors
/// [`Error`].
pub(super) fn ask<D: Device>(
    control: &mut Control<D>,
    mut options: HostOptions,
    authenticator: Option<Arc<dyn Authenticator>>,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Discovered>, Error> {
    let (capabilities, address) = (*control.device().capabilities(), options.address);
    let engine_options = options.engine();
    let (port, link) = open(control, &engine_options, &capabilities)?;
    let bytes =
        Engine::<D::Port>::region_bytes(&engine_options, &capabilities).map_err(|error| Error::of_core(0, error))?;
    options.bounce_buffers = 0;
    let admin_bytes = options.memory_bytes();
    let mut region =
        map(bytes + admin_bytes + SLACK, Pages::Auto.policy(), None).map_err(|error| Error::of_core(0, error))?;
    let engine = Engine::new(port, link, &mut region, engine_options, &capabilities);
    let engine = engine.map_err(|error| Error::of_core(0, error))?;
    let admin = region.carve(admin_bytes, 4096).map_err(|error| Error::of_core(0, error))?.into_device_memory();
    let mut host = Host::new(engine, admin, options).map_err(|error| Error::of_core(0, error))?;
    if let Some(authenticator) = authenticator {
        host.authenticates(authenticator);
    }
    host.start();
    let clock = Clock::system();
    let began = clock.now();
    let (mut found, mut refusals) = (Vec::new(), Refusals::default());
    while !host.is_stopped() {
        control.poll();
        let elapsed = clock.now().saturating_sub(began);
        refusals.tell(&[control], elapsed, say);
        if asked.to_report() {
            say(&format!(
                "{:>4} s  asking {address}, {} attempt(s) failed",
                elapsed.as_secs(),
                host.statistics().failures
            ));
        }
        let work = host.poll(elapsed);
        if host.is_ready() {
            found = host.discovered().to_vec();
            host.shut_down();
        } else if asked.to_stop() {
            host.shut_down();
        }
        host.flush();
        if work == 0 {
            pause();
        }
    }
    match host.failure() {
        None => Ok(found),
        Some(failure) => {
            if let Some(gone) = removed(control) {
                return Err(gone);
            }
            let failure = host.last_failure().unwrap_or(failure);
            let (attempts, tries) = (host.statistics().failures, "try again later");
            Err(no_session(address, attempts, &failure, tries))
        }
    }
}

/// Of a host that asks a discovery service.
pub(super) fn discovery_options(
    service: SocketAddr,
    host_nqn: Option<&str>,
    device: &DeviceArguments,
) -> Result<HostOptions, Error> {
    let (subsystem, host) = plan::discovery_names(host_nqn)?;
    let mut options = HostOptions::new(service, subsystem, host);
    options.queue_depth = 1;
    options.max_attempts = ATTEMPTS;
    options.step_timeout = plan::STEP_TIMEOUT;
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

/// Nothing else runs in this process meanwhile.
#[allow(clippy::disallowed_methods, reason = "a thread that is no reactor")]
fn pause() {
    std::thread::sleep(PAUSE);
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
