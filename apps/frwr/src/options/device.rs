//! Which device a program uses, and how.

use super::{Limit, listen::devices};
use crate::Error;
use clap::{ArgAction, Args, ValueEnum};
use frwr_engine::provider::{ConnectionParameters, soft::SoftProfile};
use frwr_nvmf::controller::MAX_TARGETS;
use frwr_reactor::{CoreList, CoreListError, CpuId, Placement};
use serde::{Deserialize, Serialize};

/// Path MTUs of InfiniBand and RoCE, in bytes (IBTA 1.4, table 45).
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
const GID_INDEX: Limit = Limit::new("--gid-index", 0, u8::MAX as u64);
const IB_PORT: Limit = Limit::new("--ib-port", 1, u8::MAX as u64);
const TRAFFIC_CLASS: Limit = Limit::new("--traffic-class", 0, u8::MAX as u64);
/// Behind the profile of a software NIC, its name.
const NAMED: char = '@';
/// Letters of such a name: it stands in lines of text, and in labels of metrics.
const MAX_NAME: usize = 32;
/// Local ACK Timeout: five bits.
const ACK_TIMEOUT: Limit = Limit::new("--ack-timeout", 0, 31);
/// Inline data that is asked for: work requests of the devices that are known end below that.
const INLINE_SIZE: Limit = Limit::new("--inline-size", 0, 1024);
/// Three bits.
const RETRY_COUNT: Limit = Limit::new("--retry-count", 0, 7);
/// Three bits.
const RNR_RETRY_COUNT: Limit = Limit::new("--rnr-retry-count", 0, 7);

/// Arguments of a device.
#[derive(Clone, Debug, PartialEq, Eq, Args, Deserialize, Serialize)]
#[serde(default)]
pub struct DeviceArguments {
    /// RDMA device, such as rxe0 or mlx5_0, of those that `frwr check` lists; or soft, or soft:PROFILE (reg_mr, window, umr,
    /// umr:fixed-key, rxe): a NIC in software, which reaches those of this user's other processes on this machine.
    #[arg(long, value_name = "DEVICE", action = ArgAction::Set)]
    #[serde(with = "devices")]
    pub device: Vec<String>,
    /// Index in the port's table of GIDs. Default: the first of RoCE v2 with an IPv4 address, if there is one.
    #[arg(long, value_name = "N", value_parser = GID_INDEX.parser::<u8>())]
    pub gid_index: Option<u8>,
    /// Port of the device.
    #[arg(long, value_name = "N", default_value_t = Self::default().ib_port, value_parser = IB_PORT.parser::<u8>())]
    pub ib_port: u8,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096, the same for `serve` and `load`. Default: the port's.
    #[arg(long, value_name = "BYTES", value_parser = mtu)]
    pub mtu: Option<u32>,
    /// Traffic class of what is sent (RoCE v2: the IP header's DSCP and ECN).
    #[arg(long, value_name = "N", value_parser = TRAFFIC_CLASS.parser::<u8>())]
    pub traffic_class: Option<u8>,
    /// Time until a packet without an acknowledgement is sent again: 4.096 us times 2 to the power of N; 0 is for ever.
    #[arg(long, value_name = "N", value_parser = ACK_TIMEOUT.parser::<u8>())]
    pub ack_timeout: Option<u8>,
    /// Messages and RDMA WRITEs of up to so many bytes are copied into their work request, so that the device need not fetch them; 0
    /// for none. Default: 64, on soft RoCE 0; at most what the device has room for.
    #[arg(long, value_name = "BYTES", value_parser = INLINE_SIZE.parser::<u32>())]
    pub inline_size: Option<u32>,
    /// Let the device's library choose which registers queue pairs ring, and lock them. Default on ConnectX: a thread domain (ibv_alloc_td)
    /// for each core, whose queue pairs ring a register that no other core rings, without locks (never run on hardware).
    #[arg(long = "no-thread-domains", action = ArgAction::SetFalse)]
    pub thread_domains: bool,
    /// How often a packet without an acknowledgement is sent again, 0 to 7.
    #[arg(
        long, value_name = "N", default_value_t = Self::default().retry_count,
        value_parser = RETRY_COUNT.parser::<u8>()
    )]
    pub retry_count: u8,
    /// How often a message that met no receive is sent again, 0 to 7; 7 is for ever.
    #[arg(
        long, value_name = "N", default_value_t = Self::default().rnr_retry_count,
        value_parser = RNR_RETRY_COUNT.parser::<u8>()
    )]
    pub rnr_retry_count: u8,
    /// What memory is opened by: windows, lists (ConnectX, feature mlx5, never run on hardware), or auto for lists where the
    /// device has them with keys that rotate, else windows.
    #[arg(long, value_name = "KIND", default_value = "auto")]
    #[serde(skip)]
    pub registration: RegistrationKind,
    /// Cores of the reactors, such as 1 or 0,2-3, or `unpinned`, or `unpinned:N` for N of them; queues are spread over them.
    /// Default: the first physical core for `serve` and the second, if there is one, for `load`, so that both on one machine
    /// do not share one.
    #[arg(long, value_name = "CORES")]
    pub cores: Option<String>,
}

impl Default for DeviceArguments {
    fn default() -> Self {
        let ConnectionParameters { retry_count, rnr_retry_count, .. } = ConnectionParameters::default();
        Self {
            device: Vec::new(),
            gid_index: None,
            ib_port: 1,
            mtu: None,
            traffic_class: None,
            ack_timeout: None,
            inline_size: None,
            thread_domains: true,
            retry_count,
            rnr_retry_count,
            registration: RegistrationKind::Auto,
            cores: None,
        }
    }
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

impl DeviceArguments {
    /// The device's name; of several, which only `serve` takes, the first one's. Required by `load`, and by `serve` without --config.
    pub(crate) fn name(&self) -> &str {
        self.device.first().map(String::as_str).unwrap_or_default()
    }

    /// The same of each device by itself.
    pub(crate) fn each(&self) -> impl Iterator<Item = Self> {
        self.device.iter().map(|device| Self { device: vec![device.clone()], ..self.clone() })
    }

    /// As reports name it: the software NIC with its profile.
    pub(crate) fn label(&self) -> String {
        match (self.profile(), self.name().split_once(NAMED)) {
            (Ok(Some(profile)), None) => format!("soft:{profile}"),
            (Ok(Some(profile)), Some((_, name))) => format!("soft:{profile}{NAMED}{name}"),
            _ => self.name().to_owned(),
        }
    }

    /// Checks several: each by itself, that no two of them are one, and that what drives them is one.
    fn check_several(&self) -> Result<(), Error> {
        let each: Vec<_> = self.each().collect();
        if each.len() > usize::from(MAX_TARGETS) {
            let text =
                format!("--device is given {} times: may be {MAX_TARGETS} times at most; leave some out", each.len());
            return Err(Error::usage("devices", text));
        }
        each.iter().try_for_each(Self::check)?;
        for (at, device) in each.iter().enumerate() {
            if each[..at].iter().any(|other| other.label() == device.label()) {
                let name = device.name();
                let text = format!(
                    "--device has {name} twice; name each device once, and several software NICs by {NAMED}, as in soft{NAMED}a"
                );
                return Err(Error::usage("devices", text));
            }
        }
        let is_soft = |device: &Self| device.profile().is_ok_and(|profile| profile.is_some());
        let kinds = (each.iter().find(|one| is_soft(one)), each.iter().find(|one| !is_soft(one)));
        if let (Some(soft), Some(other)) = kinds {
            let (soft, other) = (soft.name(), other.name());
            let text = format!(
                "--device has {soft} and {other}: software NICs and RDMA devices are not served together; run \
                                serve twice"
            );
            return Err(Error::usage("devices", text));
        }
        Ok(())
    }

    /// Which profile of the software NIC it is; `None` for an RDMA device.
    ///
    /// # Errors
    /// An option that the software NIC does not have, and why not.
    pub(crate) fn profile(&self) -> Result<Option<SoftProfile>, (&'static str, String)> {
        let name = self.name();
        let (kind, own) = name.split_once(NAMED).map_or((name, None), |(kind, own)| (kind, Some(own)));
        let named = match kind.split_once(':') {
            None if kind == "soft" => None,
            Some(("soft", profile)) => Some(profile),
            _ => return Ok(None),
        };
        if let Some(own) = own {
            check_name(own).map_err(|why| ("--device", format!("is {name:?}: {why}")))?;
        }
        if let Some(option) = self.of_port() {
            return Err((option, format!("is of an RDMA device's port, and {name} has none; leave it out")));
        }
        let profile = match (named, self.registration) {
            (None, RegistrationKind::Auto) => SoftProfile::RegMr,
            (None, RegistrationKind::Windows) => SoftProfile::Window,
            (None, RegistrationKind::Lists) => SoftProfile::Umr { rotating_key_bits: 8 },
            (Some(profile), RegistrationKind::Auto) => profile.parse().map_err(|_| {
                ("--device", format!("is {name:?}: PROFILE must be reg_mr, window, umr, umr:fixed-key or rxe"))
            })?,
            (Some(_), _) => {
                return Err(("--registration", "is what a soft:PROFILE says; leave one of both out".to_owned()));
            }
        };
        Ok(Some(profile))
    }

    /// Checks that there is a device, and the numbers.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.device.len() > 1 {
            return self.check_several();
        }
        if self.name().is_empty() {
            let text = "--device is empty; name soft, or an RDMA device (`frwr check` lists them)";
            return Err(Error::usage("no_device", text));
        }
        let profile = self.profile().map_err(|(option, why)| Error::usage("soft_device", format!("{option} {why}")))?;
        if profile.is_some() {
            return self.check_retries();
        }
        IB_PORT.check(self.ib_port)?;
        ACK_TIMEOUT.check_said(self.ack_timeout)?;
        INLINE_SIZE.check_said(self.inline_size)?;
        if let Some(value) = self.mtu.filter(|mtu| !MTUS.contains(mtu)) {
            let text = format!("--mtu is {value}: must be 256, 512, 1024, 2048 or 4096; leave it out for the port's");
            return Err(Error::usage("mtu", text));
        }
        self.check_retries()
    }

    /// Checks what holds on any device.
    pub(crate) fn check_retries(&self) -> Result<(), Error> {
        RETRY_COUNT.check(self.retry_count)?;
        RNR_RETRY_COUNT.check(self.rnr_retry_count)
    }

    /// The first option that is said of an RDMA device's port.
    fn of_port(&self) -> Option<&'static str> {
        let said = [
            ("--gid-index", self.gid_index.is_some()),
            ("--ib-port", self.ib_port != Self::default().ib_port),
            ("--mtu", self.mtu.is_some()),
            ("--traffic-class", self.traffic_class.is_some()),
            ("--ack-timeout", self.ack_timeout.is_some()),
            ("--inline-size", self.inline_size.is_some()),
            ("--no-thread-domains", !self.thread_domains),
        ];
        said.into_iter().find_map(|(option, is_said)| is_said.then_some(option))
    }

    /// What its connections negotiate.
    pub(crate) fn parameters(&self) -> ConnectionParameters {
        let (retry_count, rnr_retry_count) = (self.retry_count, self.rnr_retry_count);
        ConnectionParameters::default().retry_count(retry_count).rnr_retry_count(rnr_retry_count)
    }

    /// What the device is opened with.
    #[cfg(feature = "verbs")]
    pub(crate) fn verbs(&self) -> frwr_engine::provider::verbs::VerbsOptions {
        use frwr_engine::provider::verbs::{MAX_INLINE_BYTES, Registration, VerbsOptions};
        const _: () =
            assert!(INLINE_SIZE.most == MAX_INLINE_BYTES as u64, "what can be typed is what can be asked for");
        let mut options = VerbsOptions::new(self.name());
        options.port = self.ib_port;
        options.gid_index = self.gid_index;
        options.mtu = self.mtu;
        options.traffic_class = self.traffic_class;
        options.ack_timeout = self.ack_timeout;
        options.inline_bytes = self.inline_size;
        options.thread_domains = self.thread_domains;
        options.registration = match self.registration {
            RegistrationKind::Auto => Registration::Automatic,
            RegistrationKind::Windows => Registration::Windows,
            RegistrationKind::Lists => Registration::Lists,
        };
        options
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

/// The name that tells one software NIC from another.
fn check_name(name: &str) -> Result<(), String> {
    let is_plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'));
    if is_plain && (1..=MAX_NAME).contains(&name.len()) {
        return Ok(());
    }
    Err(format!("behind {NAMED} must be a name of 1 to {MAX_NAME} letters, digits, _ and -; choose one"))
}

/// Numbers of cores.
pub(crate) fn core_list(list: &str) -> Result<Vec<CpuId>, Error> {
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

/// Where reactors go, as --cores says it.
pub(crate) fn cores_of(placement: &Placement) -> String {
    match placement {
        Placement::Cores(cores) => cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        Placement::Unpinned { reactors: reactors @ 2.. } => format!("unpinned:{reactors}"),
        Placement::Spread { .. } | Placement::Unpinned { .. } => "unpinned".to_owned(),
    }
}

/// How many reactors a placement has.
pub(crate) fn reactors(placement: &Placement) -> usize {
    match placement {
        Placement::Cores(cores) => cores.len(),
        Placement::Spread { reactors } | Placement::Unpinned { reactors } => *reactors,
    }
}

/// A parser; which numbers there are is known to [`DeviceArguments::check`].
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
