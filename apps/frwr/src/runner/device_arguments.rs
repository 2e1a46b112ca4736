//! Which RDMA device `serve` and `load` use, and how.

use super::arguments::{range, whole};
use crate::Error;
use clap::{Args, ValueEnum};
use frwr_engine::provider::ConnectionParameters;
use frwr_reactor::{CoreList, CoreListError, CpuId, Placement};

/// Path MTUs of InfiniBand and RoCE, in bytes (IBTA 1.4, table 45).
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
/// Largest Local ACK Timeout: five bits.
const MAX_ACK_TIMEOUT: u8 = 31;
/// Most inline data that is asked for: work requests of the devices that are known end below that.
pub(crate) const MAX_INLINE_SIZE: u32 = 1024;
/// Largest retry counts: three bits.
const MAX_RETRIES: u8 = 7;

/// Arguments of an RDMA device.
#[derive(Clone, Debug, Args)]
pub struct DeviceArguments {
    /// RDMA device, such as rxe0 or mlx5_0; `frwr check` lists them.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Index in the port's table of GIDs. Default: the first of RoCE v2 with an IPv4 address, if there is one.
    #[arg(long, value_name = "N", value_parser = whole::<u8>(0, u8::MAX.into()))]
    pub gid_index: Option<u8>,
    /// Port of the device.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u8>(1, u8::MAX.into()))]
    pub ib_port: u8,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096, the same for `serve` and `load`. Default: the port's.
    #[arg(long, value_name = "BYTES", value_parser = mtu)]
    pub mtu: Option<u32>,
    /// Traffic class of what is sent (RoCE v2: the IP header's DSCP and ECN).
    #[arg(long, value_name = "N", value_parser = whole::<u8>(0, u8::MAX.into()))]
    pub traffic_class: Option<u8>,
    /// Time until a packet without an acknowledgement is sent again: 4.096 us times 2 to the power of N; 0 is for ever.
    #[arg(long, value_name = "N", value_parser = whole::<u8>(0, MAX_ACK_TIMEOUT.into()))]
    pub ack_timeout: Option<u8>,
    /// Messages and RDMA WRITEs of up to so many bytes are copied into their work request, so that the device need not fetch them; 0
    /// for none. Default: 64, on soft RoCE 0; at most what the device has room for.
    #[arg(long, value_name = "BYTES", value_parser = whole::<u32>(0, MAX_INLINE_SIZE.into()))]
    pub inline_size: Option<u32>,
    /// Let the device's library choose which registers queue pairs ring, and lock them. Default on ConnectX: a thread domain (ibv_alloc_td)
    /// for each core, whose queue pairs ring a register that no other core rings, without locks (never run on hardware).
    #[arg(long)]
    pub no_thread_domains: bool,
    /// How often a packet without an acknowledgement is sent again, 0 to 7.
    #[arg(
        long, value_name = "N", default_value_t = ConnectionParameters::default().retry_count,
        value_parser = whole::<u8>(0, MAX_RETRIES.into())
    )]
    pub retry_count: u8,
    /// How often a message that met no receive is sent again, 0 to 7; 7 is for ever.
    #[arg(
        long, value_name = "N", default_value_t = ConnectionParameters::default().rnr_retry_count,
        value_parser = whole::<u8>(0, MAX_RETRIES.into())
    )]
    pub rnr_retry_count: u8,
    /// What memory is opened by: windows, lists (ConnectX, feature mlx5, never run on hardware), or auto for lists where the
    /// device has them with keys that rotate, else windows.
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub registration: RegistrationKind,
    /// Cores of the reactors, such as 1 or 0,2-3, or `unpinned`, or `unpinned:N` for N of them; queues are spread over them.
    /// Default: the first physical core for `serve` and the second, if there is one, for `load`, so that both on one machine
    /// do not share one.
    #[arg(long, value_name = "CORES")]
    pub cores: Option<String>,
}

/// What memory is opened to peers by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RegistrationKind {
    /// Lists where the device has them with keys that rotate, else windows.
    #[default]
    Auto,
    /// Type 2 windows.
    Windows,
    /// Indirect keys of mlx5.
    Lists,
}

/// Which device, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaDeviceConfig {
    /// Its name.
    pub device: String,
    /// Port, from 1.
    pub port: u8,
    /// Index in the port's table of GIDs.
    pub gid_index: Option<u8>,
    /// Path MTU in bytes.
    pub mtu: Option<u32>,
    /// Traffic class.
    pub traffic_class: Option<u8>,
    /// 4.096 us times 2 to the power of this.
    pub ack_timeout: Option<u8>,
    /// Bytes that go inline; `None` for what the engine chooses.
    pub inline_size: Option<u32>,
    /// A thread domain for each core, where the device may have one.
    pub thread_domains: bool,
    /// What memory is opened by.
    pub registration: RegistrationKind,
}

impl DeviceArguments {
    /// The device.
    pub(crate) fn device(&self) -> Result<RdmaDeviceConfig, Error> {
        // Required by `load`, and by `serve` without --config.
        let device = self.device.clone().unwrap_or_default();
        if device.is_empty() || device == "soft" || device.starts_with("soft:") {
            let text = format!(
                "--device is {device:?}: the software NIC lives inside one process; name an RDMA device (`frwr check` lists \
                 them), or run `frwr FILE` without serve or load"
            );
            return Err(Error::usage("soft_device", text));
        }
        range("--ib-port", self.ib_port.into(), 1, u8::MAX.into())?;
        range("--ack-timeout", self.ack_timeout.unwrap_or(0).into(), 0, MAX_ACK_TIMEOUT.into())?;
        range("--inline-size", self.inline_size.unwrap_or(0).into(), 0, MAX_INLINE_SIZE.into())?;
        if let Some(value) = self.mtu.filter(|mtu| !MTUS.contains(mtu)) {
            let text = format!("--mtu is {value}: must be 256, 512, 1024, 2048 or 4096; leave it out for the port's");
            return Err(Error::usage("mtu", text));
        }
        let Self { gid_index, mtu, traffic_class, ack_timeout, inline_size, registration, .. } = *self;
        let (port, thread_domains) = (self.ib_port, !self.no_thread_domains);
        Ok(RdmaDeviceConfig {
            device,
            port,
            gid_index,
            mtu,
            traffic_class,
            ack_timeout,
            inline_size,
            thread_domains,
            registration,
        })
    }

    /// What its connections negotiate.
    pub(crate) fn parameters(&self) -> Result<ConnectionParameters, Error> {
        range("--retry-count", self.retry_count.into(), 0, MAX_RETRIES.into())?;
        range("--rnr-retry-count", self.rnr_retry_count.into(), 0, MAX_RETRIES.into())?;
        let (retry_count, rnr_retry_count) = (self.retry_count, self.rnr_retry_count);
        Ok(ConnectionParameters { retry_count, rnr_retry_count, ..ConnectionParameters::default() })
    }

    /// Where the reactors go, `most` at most; `None` lets the machine decide.
    pub(crate) fn placement(&self, most: usize) -> Result<Option<Placement>, Error> {
        let Some(list) = self.cores.as_deref() else { return Ok(None) };
        let (placement, value) = match unpinned(list) {
            Some(reactors) => (Placement::Unpinned { reactors }, reactors),
            None => {
                let cores = core_list(list)?;
                let count = cores.len();
                (Placement::Cores(cores), count)
            }
        };
        if !(1..=most).contains(&value) {
            let text = format!("--cores names {value} cores: must be 1 to {most}; name as many");
            return Err(Error::usage("core_count", text));
        }
        Ok(Some(placement))
    }
}

/// Numbers of cores.
pub(super) fn core_list(list: &str) -> Result<Vec<CpuId>, Error> {
    let wrong = |error: CoreListError| {
        // Where somebody wrote a word, it may have been meant for the one that there is.
        let or_unpinned = match error {
            CoreListError::NotANumber { .. } | CoreListError::Empty => ", or `unpinned`",
            _ => "",
        };
        Error::usage("core_list", format!("--cores: {error}{or_unpinned}"))
    };
    Ok(list.parse::<CoreList>().map_err(wrong)?.cores().to_vec())
}

/// A parser; which numbers there are is known to [`DeviceArguments::device`].
fn mtu(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "must be 256, 512, 1024, 2048 or 4096".to_owned())
}

/// How many reactors are to run where the kernel puts them.
fn unpinned(list: &str) -> Option<usize> {
    match list.split_once(':') {
        None => (list == "unpinned").then_some(1),
        Some((word, count)) => count.parse().ok().filter(|_| word == "unpinned"),
    }
}
