//! RDMA devices as sysfs shows them, and what a program needs besides: device files and libraries. Nothing here opens a
//! device or loads a library.

use super::machine::{names, number, text};
use std::{
    fs::{self, OpenOptions},
    io::ErrorKind,
    net::{Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaDevice {
    /// Name, such as `mlx5_0`.
    pub name: String,
    /// Kernel driver, such as `mlx5_core`; `rdma_rxe` for soft RoCE, which has none in sysfs.
    pub driver: Option<String>,
    /// Its PCI device links to a physical function, whose virtual function it is. A virtual machine sees no such link.
    pub is_virtual_function: bool,
    /// Firmware version.
    pub firmware: Option<String>,
    /// NUMA node, where the kernel knows.
    pub node: Option<u32>,
    /// By number.
    pub ports: Vec<RdmaPort>,
    /// Its file for programs, such as `/dev/infiniband/uverbs0`; `None` where ib_uverbs is not loaded.
    pub verbs_file: Option<DeviceFile>,
    /// Whether the part of libibverbs that drives it is installed; `None` where nobody knows its name.
    pub provider_library: Option<ProviderLibrary>,
    /// What the start-up self-test of frwr found.
    pub self_test: SelfTest,
}

/// Whether lists of ranges can be registered on ConnectX devices. Never run on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mlx5Lists {
    /// This program was built without the feature `mlx5`.
    NotBuilt,
    /// libmlx5 is not installed.
    NoLibrary,
    /// There is no device of the driver mlx5.
    NoDevice,
    /// Each device's self-test tells.
    Possible,
}

impl Mlx5Lists {
    /// Of a machine, for this build.
    #[must_use]
    pub fn of(system: &RdmaSystem, devices: &[RdmaDevice]) -> Self {
        let is_mlx5 = |device: &RdmaDevice| device.driver.as_deref() == Some("mlx5_core");
        match (cfg!(feature = "mlx5"), system.mlx5_library, devices.iter().any(is_mlx5)) {
            (false, ..) => Self::NotBuilt,
            (true, false, _) => Self::NoLibrary,
            (true, true, false) => Self::NoDevice,
            (true, true, true) => Self::Possible,
        }
    }

    /// One word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotBuilt => "not_built",
            Self::NoLibrary => "no_library",
            Self::NoDevice => "no_device",
            Self::Possible => "possible",
        }
    }

    /// One line for people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::NotBuilt => "not built in (cargo build --release --features mlx5); never run on hardware",
            Self::NoLibrary => "no libmlx5.so.1 here (Debian: ibverbs-providers); never run on hardware",
            Self::NoDevice => "no mlx5 device here; never run on hardware",
            Self::Possible => "the self-test of each mlx5 device tells; never run on hardware before",
        }
    }
}

/// One port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaPort {
    /// From 1.
    pub number: u8,
    /// Such as `ACTIVE` or `DOWN`.
    pub state: Option<String>,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: Option<String>,
    /// All but empty ones.
    pub gids: Vec<Gid>,
}

/// An entry of a port's table of GIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its index.
    pub index: u8,
    /// The 128 bits.
    pub address: Ipv6Addr,
    /// `RoCE v2`, or `IB/RoCE v1`.
    pub kind: Option<String>,
    /// Network interface that it belongs to.
    pub interface: Option<String>,
}

/// A file that programs open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFile {
    /// Where.
    pub path: PathBuf,
    /// Whether this process may use it.
    pub access: FileAccess,
}

/// Whether this process may use a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// It may.
    Granted,
    /// There is none.
    Missing,
    /// It may not.
    Denied,
}

/// The part of libibverbs that drives a kind of device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderLibrary {
    /// As `/etc/libibverbs.d` names it, such as `rxe`.
    pub name: &'static str,
    /// Whether it is configured there.
    pub installed: bool,
}

/// What the start-up self-test of a device came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelfTest {
    /// Nobody ran it.
    NotRun,
    /// This program was built without the feature `verbs`.
    NotBuilt,
    /// The device could not be opened.
    NotOpened(String),
    /// It ran.
    Ran(Vec<Finding>),
}

/// One thing that the self-test tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Short name.
    pub name: String,
    /// How it ended.
    pub outcome: FindingOutcome,
    /// What that means.
    pub text: String,
}

/// How something that the self-test tried ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingOutcome {
    /// As the specification says.
    Passed,
    /// Otherwise, but frwr steers around it.
    Deviates,
    /// The device cannot be used for it.
    Failed,
}

impl FindingOutcome {
    /// One word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Deviates => "deviates",
            Self::Failed => "failed",
        }
    }
}

/// What all RDMA devices need of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaSystem {
    /// ib_uverbs, the kernel's side of libibverbs, is there.
    pub verbs_module: bool,
    /// rdma_ucm, the kernel's side of librdmacm, is there.
    pub connection_manager_module: bool,
    /// `/dev/infiniband/rdma_cm`.
    pub connection_manager_file: DeviceFile,
    /// libibverbs.so.1 can be found.
    pub verbs_library: bool,
    /// librdmacm.so.1 can be found.
    pub connection_manager_library: bool,
    /// libmlx5.so.1 can be found.
    pub mlx5_library: bool,
    /// The kernel's modules have soft RoCE; `None` where they cannot be seen.
    pub soft_roce_module: Option<bool>,
}

impl RdmaDevice {
    /// Ports whose state is ACTIVE.
    #[must_use]
    pub fn active_ports(&self) -> usize {
        self.ports.iter().filter(|port| port.is_active()).count()
    }
}

impl RdmaPort {
    /// Its link is up.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state.as_deref() == Some("ACTIVE")
    }

    /// The GIDs are Ethernet's.
    #[must_use]
    pub fn is_ethernet(&self) -> bool {
        self.link_layer.as_deref() == Some("Ethernet")
    }

    /// The first GID of RoCE v2 with an IPv4 address.
    #[must_use]
    pub fn routable_gid(&self) -> Option<&Gid> {
        self.gids.iter().find(|gid| gid.is_version_2() && gid.ipv4().is_some())
    }

    /// Its network interface.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.gids.iter().find_map(|gid| gid.interface.as_deref())
    }
}

impl Gid {
    /// It is of RoCE v2.
    #[must_use]
    pub fn is_version_2(&self) -> bool {
        self.kind.as_deref() == Some("RoCE v2")
    }

    /// The IPv4 address that it is made from.
    #[must_use]
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        self.address.to_ipv4_mapped()
    }
}

/// Folders where libraries lie; `ld.so.cache` knows the rest.
const LIBRARY_FOLDERS: [&str; 9] = [
    "lib",
    "lib64",
    "usr/lib",
    "usr/lib64",
    "usr/local/lib",
    "lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
];

/// Kernel drivers, as the PCI device or sysfs names them, and the providers of libibverbs (rdma-core) for them.
const PROVIDERS: [(&str, &str); 18] = [
    ("rdma_rxe", "rxe"),
    ("mlx5_core", "mlx5"),
    ("mlx4_core", "mlx4"),
    ("irdma", "irdma"),
    ("ice", "irdma"),
    ("i40e", "irdma"),
    ("idpf", "irdma"),
    ("ionic", "ionic"),
    ("ionic_rdma", "ionic"),
    ("mana", "mana"),
    ("erdma", "erdma"),
    ("efa", "efa"),
    ("hns_roce_hw_v2", "hns"),
    ("bnxt_en", "bnxt_re"),
    ("cxgb4", "cxgb4"),
    ("qede", "qedr"),
    ("hns3", "hns"),
    ("siw", "siw"),
];

pub(super) fn read_system(root: &Path) -> RdmaSystem {
    let sys = root.join("sys");
    let has = |path: &str| sys.join(path).exists();
    RdmaSystem {
        // A module that is built into the kernel shows by its class only.
        verbs_module: has("module/ib_uverbs") || has("class/infiniband_verbs"),
        connection_manager_module: has("module/rdma_ucm") || has("class/misc/rdma_cm"),
        connection_manager_file: device_file(root, "rdma_cm"),
        verbs_library: has_library(root, "libibverbs.so.1"),
        connection_manager_library: has_library(root, "librdmacm.so.1"),
        mlx5_library: has_library(root, "libmlx5.so.1"),
        soft_roce_module: has_module(root, "rdma_rxe"),
    }
}

pub(super) fn read_devices(root: &Path) -> Vec<RdmaDevice> {
    let directory = root.join("sys/class/infiniband");
    names(&directory).into_iter().map(|name| read_device(root, &directory.join(&name), name)).collect()
}

fn read_device(root: &Path, device: &Path, name: String) -> RdmaDevice {
    let driver = driver(device);
    RdmaDevice {
        is_virtual_function: device.join("device/physfn").exists(),
        firmware: text(&device.join("fw_ver")).filter(|version| !version.is_empty()),
        node: number(&device.join("device/numa_node")).and_then(|node| u32::try_from(node).ok()),
        ports: read_ports(&device.join("ports")),
        verbs_file: verbs_file(root, &name),
        provider_library: driver.as_deref().and_then(|driver| provider_library(root, driver)),
        self_test: SelfTest::NotRun,
        driver,
        name,
    }
}

fn driver(device: &Path) -> Option<String> {
    if let Ok(link) = fs::read_link(device.join("device/driver")) {
        // A scalable function of a ConnectX is driven by `mlx5_core.sf`, of the auxiliary bus: module and name.
        return link.file_name()?.to_str()?.split('.').next().map(str::to_owned);
    }
    // Soft RoCE is no child of any hardware; it alone names the network interface that it was put on.
    device.join("parent").exists().then(|| "rdma_rxe".to_owned())
}

fn read_ports(directory: &Path) -> Vec<RdmaPort> {
    let read = |name: String| {
        let port = directory.join(&name);
        // `4: ACTIVE`
        let state = text(&port.join("state")).map(|state| state.rsplit(": ").next().unwrap_or_default().to_owned());
        Some(RdmaPort {
            number: name.parse().ok()?,
            state,
            link_layer: text(&port.join("link_layer")),
            gids: read_gids(&port),
        })
    };
    let mut ports: Vec<RdmaPort> = names(directory).into_iter().filter_map(read).collect();
    ports.sort_unstable_by_key(|port| port.number);
    ports
}

fn read_gids(port: &Path) -> Vec<Gid> {
    let read = |name: String| {
        let address: Ipv6Addr = text(&port.join("gids").join(&name))?.parse().ok()?;
        // Empty entries have no attributes; reading those fails.
        (!address.is_unspecified()).then_some(())?;
        let attribute = |kind: &str| text(&port.join("gid_attrs").join(kind).join(&name));
        Some(Gid { index: name.parse().ok()?, address, kind: attribute("types"), interface: attribute("ndevs") })
    };
    let mut gids: Vec<Gid> = names(&port.join("gids")).into_iter().filter_map(read).collect();
    gids.sort_unstable_by_key(|gid| gid.index);
    gids
}

fn verbs_file(root: &Path, device: &str) -> Option<DeviceFile> {
    let class = root.join("sys/class/infiniband_verbs");
    let belongs = |name: &String| text(&class.join(name).join("ibdev")).as_deref() == Some(device);
    names(&class).into_iter().find(belongs).map(|name| device_file(root, &name))
}

/// Opening says more than permission bits do: cgroups of containers deny devices as well. It starts nothing.
fn device_file(root: &Path, name: &str) -> DeviceFile {
    let path = root.join("dev/infiniband").join(name);
    let access = match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(_) => FileAccess::Granted,
        Err(error) if error.kind() == ErrorKind::NotFound => FileAccess::Missing,
        Err(_) => FileAccess::Denied,
    };
    DeviceFile { path, access }
}

/// The file of a library, as the link of this name leads to it: its own name ends with its version.
pub(crate) fn library_file(root: &Path, name: &str) -> Option<PathBuf> {
    LIBRARY_FOLDERS.iter().find_map(|folder| fs::canonicalize(root.join(folder).join(name)).ok())
}

pub(super) fn has_library(root: &Path, name: &str) -> bool {
    let lies = library_file(root, name).is_some();
    let cached = || {
        let cache = fs::read(root.join("etc/ld.so.cache")).unwrap_or_default();
        cache.windows(name.len()).any(|window| window == name.as_bytes())
    };
    lies || cached()
}

/// Of the kernel that runs: as a file, or built in.
fn has_module(root: &Path, name: &str) -> Option<bool> {
    let folder = root.join("lib/modules").join(text(&root.join("proc/sys/kernel/osrelease"))?);
    let lists = ["modules.dep", "modules.builtin"].map(|list| text(&folder.join(list)));
    let file = format!("/{name}.ko");
    lists.iter().any(Option::is_some).then(|| lists.iter().flatten().any(|list| list.contains(&file)))
}

fn provider_library(root: &Path, driver: &str) -> Option<ProviderLibrary> {
    let (_, name) = *PROVIDERS.iter().find(|(known, _)| *known == driver)?;
    let installed = root.join("etc/libibverbs.d").join(format!("{name}.driver")).exists();
    Some(ProviderLibrary { name, installed })
}
