//! `serve` and `load` on a real device: all that this crate knows of the verbs provider but for `check`'s part.

use super::{
    discover::DiscoverConfig, load_command::LoadConfig, report::RunReport, serve_command::ServeConfig,
    serve_report::ServeReport,
};
use crate::{Error, signals::Asked};
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
    super::serve(open(&config.device, DeviceRole::Responder)?, config, asked, say)
}

/// Runs `load` on the RDMA device that it names.
///
/// # Errors
/// As [`serve_on_rdma`].
pub fn load_on_rdma(config: &LoadConfig, asked: &dyn Asked, say: &mut dyn FnMut(&str)) -> Result<RunReport, Error> {
    super::load(open(&config.device, DeviceRole::Requester)?, config, asked, say)
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
    use super::{
        super::device_arguments::{MAX_INLINE_SIZE, RdmaDeviceConfig, RegistrationKind},
        DeviceRole, Error,
    };
    use frwr_engine::provider::verbs::{MAX_INLINE_BYTES, OpenError, Registration, Role, VerbsDevice, VerbsOptions};

    /// What a device without keys is good for.
    const RESPONDS: &str = "this asks for keys of its own: run `frwr serve` on this device and connect to it from another one, or \
                            measure it by `frwr latency --op send`, or with `--key memory`";

    const _: () = assert!(MAX_INLINE_SIZE == MAX_INLINE_BYTES, "what can be typed is what can be asked for");

    pub(crate) fn open(config: &RdmaDeviceConfig, role: DeviceRole) -> Result<VerbsDevice, Error> {
        let mut options = VerbsOptions::new(config.device.as_str());
        options.role = match role {
            DeviceRole::Requester => Role::Requester,
            DeviceRole::Responder => Role::Responder,
        };
        options.port = config.port;
        options.gid_index = config.gid_index;
        options.mtu = config.mtu;
        options.traffic_class = config.traffic_class;
        options.ack_timeout = config.ack_timeout;
        options.inline_bytes = config.inline_size;
        options.thread_domains = config.thread_domains;
        options.registration = match config.registration {
            RegistrationKind::Auto => Registration::Automatic,
            RegistrationKind::Windows => Registration::Windows,
            RegistrationKind::Lists => Registration::Lists,
        };
        VerbsDevice::open(&options).map_err(|error| {
            let text = format!("{}; `frwr check --device {}` says more", reason(&error), config.device);
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
    use super::{super::device_arguments::RdmaDeviceConfig, DeviceRole, Error};
    use frwr_engine::provider::soft::SoftDevice;

    /// The type is whatever device there is; none is ever opened.
    pub(crate) fn open(_: &RdmaDeviceConfig, _: DeviceRole) -> Result<SoftDevice, Error> {
        let remedy = "build it with `cargo build --release --features verbs`";
        Err(Error::failed("no_rdma_support", format!("this program was built without RDMA devices; {remedy}")))
    }
}
