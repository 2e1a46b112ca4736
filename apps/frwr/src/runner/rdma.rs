//! `serve` and `load` on a real device: all that this crate knows of the verbs provider but for `check`'s part.

use super::{
    discover::DiscoverConfig, load_command::LoadConfig, report::RunReport, serve_command::ServeConfig,
    serve_report::ServeReport,
};
use crate::{Error, options::DeviceArguments, signals::Asked};
use frwr_nvmf::host::Discovered;

/// What a program needs of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceRole {
    /// Keys by work requests.
    Requester,
    /// None of its own.
    Responder,
}

/// Runs `serve` on the RDMA device that it names.
///
/// # Errors
/// Built without RDMA devices, a device that cannot be opened, and those of [`super::serve`].
pub fn serve_on_rdma(config: &ServeConfig, asked: &dyn Asked, say: &mut dyn FnMut(&str)) -> Result<ServeReport, Error> {
    super::serve(open(&config.arguments.device, DeviceRole::Responder)?, config, asked, say)
}

/// Runs `load` on the RDMA device that it names.
///
/// # Errors
/// As [`serve_on_rdma`].
pub fn load_on_rdma(config: &LoadConfig, asked: &dyn Asked, say: &mut dyn FnMut(&str)) -> Result<RunReport, Error> {
    super::load(open(&config.arguments.device, DeviceRole::Requester)?, config, asked, say)
}

/// Runs `discover` on the RDMA device that it names.
///
/// # Errors
/// As [`serve_on_rdma`].
pub fn discover_on_rdma(
    config: &DiscoverConfig,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Discovered>, Error> {
    super::discover(open(&config.device, DeviceRole::Requester)?, config, asked, say)
}

#[cfg(feature = "verbs")]
pub(crate) use with_verbs::open;
#[cfg(not(feature = "verbs"))]
pub(crate) use without_verbs::open;

#[cfg(feature = "verbs")]
mod with_verbs {
    use super::{DeviceArguments, DeviceRole, Error};
    use frwr_engine::provider::verbs::{OpenError, Role, VerbsDevice};

    /// What a device without keys is good for.
    const RESPONDS: &str = "this asks for keys of its own: run `frwr serve` on this device and connect to it from another one, or \
                            measure it by `frwr latency --op send`, or with `--key memory`";

    pub(crate) fn open(device: &DeviceArguments, role: DeviceRole) -> Result<VerbsDevice, Error> {
        let mut options = device.verbs();
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
    use super::{DeviceArguments, DeviceRole, Error};
    use frwr_engine::provider::soft::SoftDevice;

    /// The type is whatever device there is; none is ever opened.
    pub(crate) fn open(_: &DeviceArguments, _: DeviceRole) -> Result<SoftDevice, Error> {
        let remedy = "build it with `cargo build --release --features verbs`";
        Err(Error::failed("no_rdma_support", format!("this program was built without RDMA devices; {remedy}")))
    }
}
