//! The target of `frwr serve`, whatever it offers: its options, and what each of them may be.

use super::{
    super::{
        config_file,
        names::default_subsystem,
        permitted::{DhChapDigest, DhChapGroup, permitted},
        target_sizes::{RETURNING, connections, controllers, discovery_controllers, entries},
    },
    device_of,
};
use crate::{
    Error,
    address::Purpose,
    options::{Limit, Listen, QUEUE_DEPTH, RUNTIME, check_address, few_bytes_with_unit, listen_of, reactors},
};
use clap::Args;
use core::{str::FromStr, time::Duration};
use frwr_engine::ReceiveQueues;
use frwr_nvmf::{
    controller::{
        ADMIN_QUEUE_ENTRIES, MAX_BUFFER_BYTES, MAX_CONNECTIONS, MAX_DATA_BLOCKS, MAX_IN_CAPSULE_BYTES, MAX_LISTENERS,
        MAX_NAMESPACES, MAX_SUBSYSTEMS, TargetOptions,
    },
    dhchap::Permitted,
    storage::MAX_BLOCK_BYTES,
    wire::SGL_DESCRIPTOR_BYTES,
};
use frwr_reactor::Placement;
use serde::{Deserialize, Serialize};
use std::{net::SocketAddr, path::PathBuf};

/// Each host has receives, transfer slots and data buffers of its own.
const HOSTS: Limit = Limit::new("--hosts", 1, 256);
/// More than a few I/O queues on each core share nothing but memory.
const IO_QUEUES: Limit = Limit::new("--io-queues", 1, 16);
const IN_CAPSULE: Limit = Limit::new("--in-capsule", 0, MAX_IN_CAPSULE_BYTES as u64);
const DATA_BLOCKS: Limit = Limit::new("--data-blocks", 1, MAX_DATA_BLOCKS as u64);
/// Twice what devices are known to have (32767 on ConnectX), and what one core can use.
const SHARED_RECEIVES: Limit = Limit::new("--shared-receives", 1, 1 << 16);
/// As many as one subsystem may have.
const SPARE_NAMESPACES: Limit = Limit::new("--spare-namespaces", 0, MAX_NAMESPACES as u64);
const MAX_SILENCE: Limit = Limit::new("--max-silence", 0, RUNTIME.most());

/// The default of --max-transfer as people write it: what SPDK's target takes, and what its hosts do without splitting.
const DEFAULT_MAX_TRANSFER: &str = "128K";

/// The target, whatever it offers.
#[derive(Clone, Debug, PartialEq, Eq, Args, Deserialize, Serialize)]
#[serde(default)]
pub struct TargetArguments {
    /// Where to listen: an IP address of the device's network interface, and a port; may be given more than once. Where there are several
    /// devices each has one at least, with its name in front: mlx5_0/10.0.0.1:4420.
    #[arg(long, value_name = "[DEVICE/]ADDR:PORT", required_unless_present = "config")]
    #[serde(deserialize_with = "listen_of")]
    pub listen: Vec<Listen>,
    /// Requests in flight that a host may have at most.
    #[arg(
        long, value_name = "N", default_value_t = Self::default().queue_depth,
        value_parser = QUEUE_DEPTH.parser::<u32>()
    )]
    pub queue_depth: u32,
    /// Hosts at the same time; one that uses several subsystems counts for each. Beside these there is a place for one that comes back
    /// before its former connection is gone, and the discovery service has places of its own, one for each host and one more.
    #[arg(long, value_name = "N", default_value_t = Self::default().hosts, value_parser = HOSTS.parser::<u16>())]
    pub hosts: u16,
    /// I/O queues of a host.
    #[arg(long, value_name = "N", default_value_t = Self::default().io_queues, value_parser = IO_QUEUES.parser::<u16>())]
    pub io_queues: u16,
    /// Bytes of data that may come with a command, a multiple of 16; 0 for none.
    #[arg(
        long, value_name = "BYTES", default_value_t = Self::default().in_capsule,
        value_parser = IN_CAPSULE.parser::<u32>()
    )]
    pub in_capsule: u32,
    /// Pieces of memory that a command may list; more than one travel in the capsule's data, 16 bytes each.
    #[arg(
        long, value_name = "N", default_value_t = Self::default().data_blocks,
        value_parser = DATA_BLOCKS.parser::<u8>()
    )]
    pub data_blocks: u8,
    /// Receives of a core that all its connections share, where the device has shared receive queues: memory for the
    /// commands that are admitted together, and one post for all of them. Hosts for whom none are left are refused. "off": each
    /// connection has as many as its largest queue.
    #[arg(long, value_name = "N|off", default_value = "off")]
    pub shared_receives: SharedReceives,
    /// Bytes of the largest transfer of a command, a power of two from 64K to 8M. Each data buffer has as many, and all of them some
    /// 200 MiB on each core, at 1M 330 MiB and at 8M 600 MiB: a line says how many there are.
    #[arg(long, value_name = "BYTES", default_value = DEFAULT_MAX_TRANSFER, value_parser = transfer_bytes)]
    #[serde(deserialize_with = "config_file::bytes_of")]
    pub max_transfer: u64,
    /// Seconds that a host which asked for no keep alive may be silent, until its device is asked whether it is there; one that answers
    /// stays. 0: for ever, so that hosts which vanish keep their places.
    #[arg(
        long, value_name = "SECONDS", default_value_t = Self::default().max_silence,
        value_parser = MAX_SILENCE.parser::<u64>()
    )]
    pub max_silence: u64,
    /// Namespaces that may be added while it serves, over its control socket; one that was removed makes room for another. Each costs
    /// some hundred bytes on each core and some for each subsystem, and hosts are told that there may be so many more.
    #[arg(
        long, value_name = "N", default_value_t = Self::default().spare_namespaces,
        value_parser = SPARE_NAMESPACES.parser::<u32>()
    )]
    pub spare_namespaces: u32,
    /// Every host has to prove itself: who has no key of a `[[host]]` in --config, or by `frwr ctl set_host_key`, is refused. Without, a
    /// host that has no key need not.
    #[arg(long)]
    pub require_authentication: bool,
    /// Hash functions that hosts may prove themselves with, the best first; the first that the host offers is used.
    #[arg(
        long, value_name = "DIGEST,...", value_enum, value_delimiter = ',',
        default_values_t = Self::default().dhchap_digests
    )]
    pub dhchap_digests: Vec<DhChapDigest>,
    /// Diffie-Hellman groups that they may do so with, the best first; the first that the host offers is used. The largest costs 60 ms of
    /// processor time for each queue that connects, whoever asks; null is no exchange.
    #[arg(
        long, value_name = "GROUP,...", value_enum, value_delimiter = ',',
        default_values_t = Self::default().dhchap_dhgroups
    )]
    pub dhchap_dhgroups: Vec<DhChapGroup>,
    /// The file in which reservations are kept that hosts want to survive a restart (persist through power loss); made where there is
    /// none. Without, no host may ask for that, and all reservations end with this process.
    #[arg(long, value_name = "FILE")]
    pub reservations: Option<PathBuf>,
    /// Ends after so many seconds. Default: at SIGINT or SIGTERM.
    #[arg(long, value_name = "SECONDS", value_parser = RUNTIME.parser::<u64>())]
    pub runtime: Option<u64>,
}

impl Default for TargetArguments {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            queue_depth: 128,
            hosts: 8,
            io_queues: 4,
            // A block.
            in_capsule: 4096,
            data_blocks: 1,
            shared_receives: SharedReceives(None),
            max_transfer: transfer_bytes(DEFAULT_MAX_TRANSFER).unwrap_or_default(),
            // Long enough to cost nothing, and short enough that places of hosts that are gone come back before somebody looks for them
            // by hand.
            max_silence: 300,
            // What somebody adds by hand before he has time to start it again.
            spare_namespaces: 8,
            require_authentication: false,
            dhchap_digests: DhChapDigest::usual(),
            dhchap_dhgroups: DhChapGroup::usual(),
            reservations: None,
            runtime: None,
        }
    }
}

impl TargetArguments {
    /// Checks the numbers, each and together.
    pub(super) fn check(&self) -> Result<(), Error> {
        let Self { hosts, io_queues, in_capsule, data_blocks, .. } = *self;
        QUEUE_DEPTH.check(self.queue_depth)?;
        RUNTIME.check_said(self.runtime)?;
        HOSTS.check(hosts)?;
        IO_QUEUES.check(io_queues)?;
        let queues = connections(hosts, io_queues);
        if queues > MAX_CONNECTIONS {
            let text = format!(
                "--io-queues is {io_queues} for each of {hosts} hosts: with their admin queues, those of a host that comes back, \
                 and those of discovery and of who is not let in yet, {queues} queues, must be {MAX_CONNECTIONS} at most; lower \
                 one of the two"
            );
            return Err(Error::usage("queues", text));
        }
        IN_CAPSULE.check(in_capsule)?;
        if !in_capsule.is_multiple_of(16) {
            let text = format!("--in-capsule is {in_capsule}: must be a multiple of 16; choose the next one");
            return Err(Error::usage("in_capsule_bytes", text));
        }
        DATA_BLOCKS.check(data_blocks)?;
        let wanted = u32::from(data_blocks) * SGL_DESCRIPTOR_BYTES as u32;
        if data_blocks > 1 && wanted > in_capsule {
            let text = format!(
                "--data-blocks is {data_blocks}: their descriptors need {wanted} bytes of data in the capsule, which takes \
                 {in_capsule}; raise that, or lower this"
            );
            return Err(Error::usage("data_blocks", text));
        }
        MAX_SILENCE.check(self.max_silence)?;
        SPARE_NAMESPACES.check(self.spare_namespaces)?;
        self.check_permitted()?;
        self.check_max_transfer()
    }

    /// With none of either no host could prove itself.
    fn check_permitted(&self) -> Result<(), Error> {
        for (flag, is_empty) in [
            ("--dhchap-digests", self.dhchap_digests.is_empty()),
            ("--dhchap-dhgroups", self.dhchap_dhgroups.is_empty()),
        ] {
            if is_empty {
                let text = format!("{flag} names none: must be one at least; name some, or leave it out");
                return Err(Error::usage("dhchap", text));
            }
        }
        Ok(())
    }

    /// What hosts may prove themselves with.
    pub(in super::super) fn permitted(&self) -> Permitted {
        permitted(&self.dhchap_digests, &self.dhchap_dhgroups)
    }

    /// Each address can be, is there once, and is of one of these devices, each of which has one. What has no device in front where there is
    /// one is that one's, and says so by naming none.
    pub(super) fn check_listen(&mut self, devices: &[String]) -> Result<(), Error> {
        let wrong = |text: String| Err(Error::usage("listen", text));
        for one in &mut self.listen {
            check_address("--listen", one.address, Purpose::Listen)?;
            one.device = device_of("--listen", one, devices).map_err(|text| Error::usage("listen", text))?;
        }
        for device in devices {
            let count = self.of_device(devices, device).count();
            let (of, example) = match devices {
                [_] => (String::new(), "10.0.0.1:4420".to_owned()),
                _ => (format!(" for {device}"), format!("{device}/10.0.0.1:4420")),
            };
            if count > MAX_LISTENERS {
                return wrong(format!(
                    "--listen is given {count} times{of}: may be {MAX_LISTENERS} times at most; leave some out"
                ));
            }
            if count == 0 {
                return wrong(format!(
                    "--listen is given no time{of}: each device has one at least; add one, such as {example}"
                ));
            }
        }
        for (at, one) in self.listen.iter().enumerate() {
            if self.listen[..at].iter().any(|other| other.address == one.address) {
                return wrong(format!("--listen has {} twice; name it once", one.address));
            }
        }
        Ok(())
    }

    /// Controllers that there may be on each device, those of discovery included.
    pub(super) fn controllers(&self) -> u32 {
        u32::from(controllers(self.hosts)) + u32::from(discovery_controllers(self.hosts))
    }

    /// Those of one of the devices.
    fn of_device<'a>(&'a self, devices: &[String], device: &'a str) -> impl Iterator<Item = &'a Listen> {
        let is_alone = devices.len() == 1;
        self.listen.iter().filter(move |one| is_alone || one.device.as_deref() == Some(device))
    }

    /// Every block size that a namespace may have, and what one data block can describe.
    fn check_max_transfer(&self) -> Result<(), Error> {
        let (value, least, most) = (self.max_transfer, u64::from(MAX_BLOCK_BYTES), u64::from(MAX_BUFFER_BYTES));
        if value.is_power_of_two() && (least..=most).contains(&value) {
            return Ok(());
        }
        let remedy = "choose the next one, such as 128K or 1M";
        let text = format!("--max-transfer is {value}: must be a power of two from {least} to {most}; {remedy}");
        Err(Error::usage("max_transfer", text))
    }

    /// Checks that there are receives for all queues of one host, at least; the device's own limit is told when it is opened.
    pub(super) fn check_shared_receives(&self, placement: Option<&Placement>) -> Result<(), Error> {
        let Some(value) = self.shared_receives.0 else { return Ok(()) };
        SHARED_RECEIVES.check(value)?;
        let cores = placement.map_or(1, reactors).max(1);
        // The core that has the admin queue has as many I/O queues as any. Both are far below 2^16.
        let (entries, io_queues) = (entries(self.queue_depth), usize::from(self.io_queues).div_ceil(cores) as u16);
        let wanted = u32::from(ADMIN_QUEUE_ENTRIES) + u32::from(entries) * u32::from(io_queues);
        if value >= wanted {
            return Ok(());
        }
        let text = format!(
            "--shared-receives is {value}: the queues that one host has on a core need {wanted}, {ADMIN_QUEUE_ENTRIES} for its \
             admin queue and {entries} for each of {io_queues}; raise it, or lower the number of I/O queues or the queue depth"
        );
        Err(Error::usage("shared_receives", text))
    }

    /// Where the target of one of the devices listens.
    pub(super) fn addresses(&self, devices: &[String], device: &str) -> Vec<SocketAddr> {
        self.of_device(devices, device).map(|one| one.address).collect()
    }

    /// The target that listens at these addresses, at least one.
    pub(super) fn options(&self, addresses: Vec<SocketAddr>) -> Result<TargetOptions, Error> {
        let first = *addresses.first().ok_or_else(Error::lost)?;
        // Its subsystem is not looked at where subsystems are given, as here.
        let mut options = TargetOptions::new(first, default_subsystem()?);
        options.addresses = addresses;
        options.io_queues = self.io_queues;
        options.in_capsule_bytes = self.in_capsule;
        options.data_blocks = self.data_blocks;
        if let SharedReceives(Some(entries)) = self.shared_receives {
            options.receive_queues = ReceiveQueues::Shared { entries };
        }
        options.queue_entries = entries(self.queue_depth);
        // Checked: 8 MiB at most.
        options.buffer_bytes = self.max_transfer as u32;
        options.controllers = controllers(self.hosts);
        // Those that are added while it serves have room: an entry each.
        options.subsystems = MAX_SUBSYSTEMS as u16;
        options.returning_controllers = RETURNING;
        options.discovery_controllers = discovery_controllers(self.hosts);
        options.max_silence = Duration::from_secs(self.max_silence);
        Ok(options)
    }
}

/// The value of `--shared-receives`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct SharedReceives(pub Option<u32>);

impl FromStr for SharedReceives {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be off, or a whole number up to {}", SHARED_RECEIVES.most());
        if text == "off" {
            Ok(Self(None))
        } else {
            text.parse().map(|entries| Self(Some(entries))).map_err(|_| wrong())
        }
    }
}

/// A parser of the bytes of the largest transfer; which of them are too many, or no power of two, is known where they are used.
fn transfer_bytes(text: &str) -> Result<u64, String> {
    few_bytes_with_unit(text).map(u64::from).ok_or_else(|| {
        format!("must be a power of two from {MAX_BLOCK_BYTES} to {MAX_BUFFER_BYTES} bytes, such as 128K or 1M")
    })
}
