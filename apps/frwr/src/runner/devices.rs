//! `serve`, `load` and `discover` on the device that is named: all of them that know how one is opened, but for `check`'s part.

use super::{
    discover::DiscoverConfig, fleet::named, load_command::LoadConfig, report::RunReport, serve::Devices,
    serve_command::ServeConfig, serve_report::ServeReport,
};
use crate::{
    Error,
    options::{DeviceArguments, IdleArgument},
    signals::Asked,
};
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftProfile, runtime_directory};
use frwr_nvmf::host::Discovered;
use std::net::{IpAddr, Ipv4Addr};

/// What a program needs of an RDMA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceRole {
    /// Keys by work requests.
    Requester,
    /// None of its own.
    Responder,
}

/// Runs `serve` on the devices that it names.
///
/// # Errors
/// An RDMA device where this was built without, a device that cannot be opened, and those of [`super::serve`].
pub fn serve_on_device(
    config: &ServeConfig,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<ServeReport, Error> {
    let (device, idle) = (&config.arguments.device, config.arguments.core.idle);
    // It was checked that all of them are software NICs, or none is.
    let of_start: Vec<_> = device.each().filter_map(|one| soft(&one).transpose()).collect::<Result<_, _>>()?;
    let arguments = device.clone();
    if !of_start.is_empty() {
        let opener = move |name: &str| soft(&named(&arguments, name))?.ok_or_else(Error::lost);
        let devices = Devices::new(of_start, Box::new(opener));
        return super::serve(devices, config, asked, say).map_err(Error::between_processes);
    }
    let responder = move |device: &DeviceArguments| open(device, DeviceRole::Responder, idle);
    let of_start = device.each().map(|one| responder(&one)).collect::<Result<_, _>>()?;
    let opener = move |name: &str| responder(&named(&arguments, name));
    super::serve(Devices::new(of_start, Box::new(opener)), config, asked, say)
}

/// Runs `load` on the device that it names.
///
/// # Errors
/// As [`serve_on_device`].
pub fn load_on_device(config: &LoadConfig, asked: &dyn Asked, say: &mut dyn FnMut(&str)) -> Result<RunReport, Error> {
    let (device, idle) = (&config.arguments.device, config.arguments.job.core.idle);
    match soft(device)? {
        Some(soft) => super::load(soft, config, asked, say).map_err(Error::between_processes),
        None => super::load(open(device, DeviceRole::Requester, idle)?, config, asked, say),
    }
}

/// Runs `discover` on the device that it names.
///
/// # Errors
/// As [`serve_on_device`].
pub fn discover_on_device(
    config: &DiscoverConfig,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Discovered>, Error> {
    match soft(&config.device)? {
        Some(soft) => super::discover(soft, config, asked, say).map_err(Error::between_processes),
        None => super::discover(open(&config.device, DeviceRole::Requester, IdleArgument::Spin)?, config, asked, say),
    }
}

/// The software NIC, if it is named; [`DeviceArguments::check`] has passed.
fn soft(device: &DeviceArguments) -> Result<Option<SoftDevice>, Error> {
    let profile = device.profile().map_err(|(option, why)| Error::usage("soft_device", format!("{option} {why}")))?;
    profile.map(open_soft).transpose()
}

/// A software NIC that reaches those of the user's other processes.
pub(crate) fn open_soft(profile: SoftProfile) -> Result<SoftDevice, Error> {
    let fabric = SoftFabric::between_processes(&runtime_directory());
    let fabric = fabric.map_err(|error| Error::failed("soft_device", error.to_string()))?;
    // What it is told of as a peer: of this machine.
    let address = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    Ok(fabric.device(SoftOptions::new(profile).address(address)))
}

#[cfg(feature = "verbs")]
pub(crate) use with_verbs::open;
#[cfg(not(feature = "verbs"))]
pub(crate) use without_verbs::open;

#[cfg(feature = "verbs")]
mod with_verbs {
    use super::{DeviceArguments, DeviceRole, Error, IdleArgument};
    use frwr_engine::provider::verbs::{OpenError, Role, VerbsDevice};

    /// What a device without keys is good for.
    const RESPONDS: &str = "this asks for keys of its own: run `frwr serve` on this device and connect to it from another one, or \
                            measure it by `frwr latency --op send`, or with `--key memory`";

    pub(crate) fn open(device: &DeviceArguments, role: DeviceRole, idle: IdleArgument) -> Result<VerbsDevice, Error> {
        // Those of cores that poll on have one too, and never ask for anything.
        let mut options = device.verbs().completion_channels(idle != IdleArgument::Spin);
        options.role = match role {
            DeviceRole::Requester => Role::Requester,
            DeviceRole::Responder => Role::Responder,
        };
        VerbsDevice::open(&options).map_err(|error| {
            let text = format!("{}; `frwr check --device {}` says more", reason(&error), device.name());
            Error::failed("device", text)
        })
    }

    fn reason(error: &OpenError) -> String {
        match error {
            OpenError::NoWindows { .. } => format!("{error}; {RESPONDS}"),
            _ => error.to_string(),
        }
    }
}

#[cfg(not(feature = "verbs"))]
mod without_verbs {
    use super::{DeviceArguments, DeviceRole, Error, IdleArgument};
    use frwr_engine::provider::soft::SoftDevice;

    /// The type is whatever device there is; none is ever opened.
    pub(crate) fn open(_: &DeviceArguments, _: DeviceRole, _: IdleArgument) -> Result<SoftDevice, Error> {
        let remedy = "build it with `cargo build --release --features verbs`, or name --device soft";
        Err(Error::failed("no_rdma_support", format!("this program was built without RDMA devices; {remedy}")))
    }
}
