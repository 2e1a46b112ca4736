//! Why a run could not begin or go on. Every first line names the limit, the value and the remedy.

use super::{arguments::MAX_FILE_BYTES, remedy::Remedy, watchdog::Standing};
use frwr_engine::{EngineError, provider::CommandError};
use frwr_mempool::{
    limits::MemoryRoom,
    region::{CarveError, RegionError},
};
use frwr_nvmf::{
    controller::{MAX_CONNECTIONS, TargetError},
    host::{HostError, HostFailure},
    storage::FileError,
};
use frwr_reactor::{CoreIndex, CoreListError, LaunchError, PlacementError, RunningError};
use std::{net::SocketAddr, path::PathBuf};

/// Exit code of a run that failed, or found something wrong.
const FAILED: u8 = 1;
/// Exit code of wrong arguments.
const USAGE: u8 = 2;

/// Exit code where a core stood still and did not end: what it had in hand is not known.
const STANDING: u8 = 3;

/// What one reactor's set-up can fail with.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// No memory of the wanted kind.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The region is too small: a defect of this program.
    #[error(transparent)]
    Carve(#[from] CarveError),
    /// The engine cannot be made on this device.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The target cannot be made.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The host cannot be made.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The namespace cannot be made.
    #[error("{0}")]
    Namespace(String),
    /// The histogram cannot be made: a defect of this program.
    #[error("no latency histogram: {0}")]
    Histogram(String),
    /// A poller could not be added: a defect of this program.
    #[error("no poller: {0}")]
    Poller(String),
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A number out of range.
    #[error("{flag} is {value}: must be from {least} to {most}; choose a value inside")]
    Range {
        /// Which option.
        flag: &'static str,
        /// What it is.
        value: u64,
        /// Least value.
        least: u64,
        /// Largest value.
        most: u64,
    },
    /// An address that no connection can use.
    #[error("{flag} is {address}: {reason}")]
    Address {
        /// Which option.
        flag: &'static str,
        /// What it is.
        address: SocketAddr,
        /// Why, and what to name instead.
        reason: String,
    },
    /// A block size that no namespace has.
    #[error("--block-size is {value}: must be a power of two from {least} to {most}; 4096 suits most")]
    BlockSize {
        /// What it is.
        value: u32,
        /// Smallest block.
        least: u32,
        /// Largest block.
        most: u32,
    },
    /// A target was told how to register.
    #[error(
        "--registration: a target opens no memory to its hosts, so there is nothing that it would register by windows or by \
         lists; leave it out, it is for load"
    )]
    TargetRegistration,
    /// A device that is not known.
    #[error(
        "--device is {value:?}: must be soft or soft:PROFILE with PROFILE one of reg_mr, window, umr, umr:fixed-key, \
         rxe; RDMA devices are used by `frwr serve` and `frwr load`"
    )]
    Device {
        /// What was asked for.
        value: String,
    },
    /// A list of cores that cannot be read.
    #[error("--cores: {source}{}", or_unpinned(.source))]
    CoreList {
        /// Why.
        source: CoreListError,
    },
    /// Too many cores.
    #[error("--cores names {value} cores: the job uses 1 or 2, one for the target and one for the host; name two")]
    CoreCount {
        /// How many.
        value: usize,
    },
    /// More cores than this half of the job has reactors, or none.
    #[error("--cores names {value} cores: must be 1 to {most}; name as many")]
    Cores {
        /// How many.
        value: usize,
        /// How many at most.
        most: usize,
    },
    /// A trace of several cores.
    #[error("--trace follows one core, and --cores names {value}; name one core, or leave --trace out")]
    TraceCores {
        /// How many.
        value: usize,
    },
    /// The software NIC between two processes.
    #[error(
        "--device is {value:?}: the software NIC lives inside one process; name an RDMA device (`frwr check` lists them), \
         or run `frwr FILE` without serve or load"
    )]
    SoftDevice {
        /// What was asked for.
        value: String,
    },
    /// A path MTU that no link has.
    #[error("--mtu is {value}: must be 256, 512, 1024, 2048 or 4096; leave it out for the port's")]
    Mtu {
        /// What it is.
        value: u32,
    },
    /// Writes without a file.
    #[error("--read-share is {value}: must be 100 where the namespace is only read; give --file FILE to write")]
    ReadShare {
        /// What it is.
        value: u8,
    },
    /// No digest.
    #[error("--expect-sha256 is {value:?}: must be 64 hexadecimal digits; `sha256sum FILE` prints them")]
    ExpectedDigest {
        /// What it is.
        value: String,
    },
    /// Pages that there are not.
    #[error("--pages is {value:?}: must be auto, 2M, 1G, system, transparent or plain; leave it out for auto")]
    Pages {
        /// What was asked for.
        value: String,
    },
    /// In-capsule data of an odd size.
    #[error("--in-capsule is {value}: must be a multiple of 16; choose the next one")]
    InCapsuleBytes {
        /// What was asked for.
        value: u32,
    },
    /// More queues than one target has.
    #[error(
        "--io-queues is {io_queues} for each of {hosts} hosts: with their admin queues, those of a host that comes back, and those of \
         discovery and of who is not let in yet, {queues} queues, must be {MAX_CONNECTIONS} at most; lower one of the two"
    )]
    Queues {
        /// Of each host.
        io_queues: u16,
        /// Hosts at the same time.
        hosts: u16,
        /// All of them.
        queues: u32,
    },
    /// A transfer of an odd size.
    #[error(
        "--max-transfer is {value}: must be a power of two from {least} to {most}; choose the next one, such as 128K or 1M"
    )]
    MaxTransfer {
        /// What was asked for.
        value: u64,
        /// Lowest value.
        least: u32,
        /// Highest value.
        most: u32,
    },
    /// Not one host finds receives for its queues.
    #[error(
        "--shared-receives is {value}: the queues that one host has on a core need {wanted}, {admin} for its admin queue and \
         {entries} for each of {io_queues}; raise it, or lower the number of I/O queues or the queue depth"
    )]
    SharedReceives {
        /// What was asked for.
        value: u32,
        /// What is needed.
        wanted: u32,
        /// Entries of an admin queue.
        admin: u16,
        /// Entries of an I/O queue.
        entries: u16,
        /// I/O queues of one host on one core.
        io_queues: u16,
    },
    /// A name that somebody chose and that NVMe does not allow.
    #[error("{flag} is {value:?}: {reason}")]
    Nqn {
        /// The option that takes it.
        flag: &'static str,
        /// What was asked for.
        value: String,
        /// Limit and remedy.
        reason: String,
    },
    /// Lists of data blocks that have no room in the capsule.
    #[error(
        "--data-blocks is {value}: their descriptors need {wanted} bytes of data in the capsule, which takes {in_capsule}; \
         raise that, or lower this"
    )]
    DataBlocks {
        /// What was asked for.
        value: u8,
        /// Bytes for their descriptors.
        wanted: u32,
        /// Bytes that there are.
        in_capsule: u32,
    },
    /// The configuration cannot be read.
    #[error("--config: {path:?} cannot be read ({source}); name a readable file in TOML")]
    ConfigFile {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// More than a configuration file has.
    #[error("--config: {path:?} has more than {most} bytes; name a file in TOML, as docs/config.md says")]
    ConfigTooLong {
        /// Which.
        path: PathBuf,
        /// Most bytes.
        most: u64,
    },
    /// The configuration says something that cannot be.
    #[error("{}:{line}: {reason}", path.display())]
    Config {
        /// Which file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Key, limit, value and remedy.
        reason: String,
    },
    /// A file or block device that cannot be served.
    #[error(transparent)]
    Storage(#[from] FileError),
    /// Built without RDMA devices.
    #[error("this program was built without RDMA devices; build it with `cargo build --release --features verbs`")]
    NoRdma,
    /// The RDMA device cannot be used.
    #[error("{reason}; `frwr check --device {device}` says more")]
    OpenDevice {
        /// Which.
        device: String,
        /// Why.
        reason: String,
    },
    /// The device was removed, or works no more.
    #[error("device {device} is gone: it was removed or has failed; `rdma link` and `dmesg` say more")]
    DeviceGone {
        /// Which.
        device: String,
    },
    /// The device did not register the memory of a core.
    #[error("device {device} cannot register memory: {}", locked(.limit))]
    MemoryRefused {
        /// Which.
        device: String,
        /// Limit of locked memory in bytes; `None` where there is none, or it cannot be read.
        limit: Option<u64>,
    },
    /// Copies of a file or a namespace do not fit into memory.
    #[error(
        "copies in memory take {} MiB, {room}: this process would be ended by SIGKILL; choose a smaller file or --bytes, or raise \
         the limit", .wanted.div_ceil(1 << 20)
    )]
    TooLittleMemory {
        /// Bytes wanted.
        wanted: u64,
        /// What there is.
        room: MemoryRoom,
    },
    /// Nobody can listen there.
    #[error(
        "--listen {address}: the address is taken, or is none of the device's network interface{}; `ip address` lists \
         addresses, and another port may be free", .reason.map_or_else(String::new, |reason| format!(" ({reason})"))
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the device said.
        reason: Option<CommandError>,
    },
    /// The target was never reached.
    #[error("no session with {address} after {attempts} attempt(s): {failure}; {}", Remedy::of(.failure).text(.tries))]
    NoSession {
        /// Where.
        address: SocketAddr,
        /// How many.
        attempts: u64,
        /// Why the last failed.
        failure: HostFailure,
        /// How the program is told to try more often.
        tries: &'static str,
    },
    /// The namespace does not suit the job.
    #[error("{reason}")]
    Unsuitable {
        /// Limit, value and remedy.
        reason: String,
    },
    /// What was read cannot be written.
    #[error("--output: {path:?} cannot be written ({source}); name a file in a writable folder")]
    Output {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Cores that cannot be used.
    #[error("--cores: {source}")]
    Placement {
        /// Why.
        source: PlacementError,
    },
    /// The own executable cannot be found.
    #[error("the path of this executable is unknown ({source}); name a file to move")]
    OwnExecutable {
        /// Why.
        source: std::io::Error,
    },
    /// The file cannot be read.
    #[error(
        "{path:?} cannot be read ({source}); name a readable file of 1 byte to {MAX_FILE_BYTES} bytes, or a command: \
         `frwr --help` lists them"
    )]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not a file.
    #[error("{path:?} is a {kind}, not a regular file; name a file of 1 byte to {MAX_FILE_BYTES} bytes")]
    NoFile {
        /// Which.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// An empty file, or one that is too large.
    #[error("{path:?} has {bytes} bytes: must have 1 to {MAX_FILE_BYTES}; name another file")]
    FileSize {
        /// Which.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The trace cannot be written.
    #[error("{flag}: {path:?} cannot be written ({source}); name a file in a writable folder with room for it")]
    Trace {
        /// Which option.
        flag: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The trace would overwrite another file of the run.
    #[error("{flag} is {path:?}, and so is {other}, which it would overwrite; name another file")]
    TraceFile {
        /// Which option.
        flag: &'static str,
        /// Which.
        path: PathBuf,
        /// What else it is.
        other: &'static str,
    },
    /// No port.
    #[error("the device opened no port: {0}")]
    Port(#[from] CommandError),
    /// A reactor did not start.
    #[error("{source}")]
    Launch {
        /// Why.
        source: LaunchError<SetupError>,
    },
    /// The engine cannot be made for so much on this device. It names its own options: those of the command line that they come from
    /// are said too.
    #[error("{asked} are more than {device} can do: {source}; of this program that is: lower {lower}")]
    TooMuch {
        /// Which device.
        device: String,
        /// The options and their values.
        asked: String,
        /// Those that can be less.
        lower: &'static str,
        /// What it lacks, in the engine's words.
        source: Box<RunError>,
    },
    /// A reactor panicked: a defect of this program.
    #[error(transparent)]
    Running(#[from] RunningError),
    /// Cores that never poll again, which nobody waits for any longer.
    #[error(
        "{}; what it had in hand is lost, and there is no report; if it happens again, look at its thread while it stands \
         (gdb -p, /proc/PID/task/TID/stack)",
        list(.cores)
    )]
    Standing {
        /// Which.
        cores: Vec<Standing>,
    },
    /// A name that NVMe does not allow: a defect of this program.
    #[error("no NVMe qualified name: {0}")]
    Name(String),
    /// The host's reactor gave nothing back: a defect of this program.
    #[error("the host's core ended without a report")]
    Lost,
    /// No signal handler.
    #[error("signals cannot be caught: {0}")]
    Signal(std::io::Error),
}

fn list(cores: &[Standing]) -> String {
    cores.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn locked(limit: &Option<u64>) -> String {
    match limit {
        Some(limit) => format!(
            "the limit of locked memory is {} KiB; raise it (`ulimit -l unlimited`, LimitMEMLOCK=infinity in a service), or \
             give CAP_IPC_LOCK",
            limit >> 10
        ),
        None => "it has no registration or memory left; `rdma resource show mr` says who has them".to_owned(),
    }
}

impl RunError {
    /// A side that cannot be set up, found before its reactor was started.
    pub(super) fn from_setup(core: CoreIndex, source: SetupError) -> Self {
        Self::Launch { source: LaunchError::Init { core, error: source } }
    }

    /// An engine could not be made: the device has too little for its options.
    fn is_of_engine(&self) -> bool {
        matches!(self, Self::Launch { source: LaunchError::Init { error: SetupError::Engine(_), .. } })
    }

    /// The same where a program's options ask too much of its device.
    pub(crate) fn of_options(self, device: &str, asked: String, lower: &'static str) -> Self {
        if !self.is_of_engine() {
            return self;
        }
        Self::TooMuch { device: device.to_owned(), asked, lower, source: Box::new(self) }
    }

    /// Stable name for JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Range { .. } => "out_of_range",
            Self::TooMuch { source, .. } => source.name(),
            Self::BlockSize { .. } => "block_size",
            Self::TargetRegistration => "target_registration",
            Self::Device { .. } => "unknown_device",
            Self::CoreList { .. } => "core_list",
            Self::CoreCount { .. } => "core_count",
            Self::Cores { .. } => "core_count",
            Self::TraceCores { .. } => "trace_cores",
            Self::SoftDevice { .. } => "soft_device",
            Self::Mtu { .. } => "mtu",
            Self::ReadShare { .. } => "read_share",
            Self::ExpectedDigest { .. } => "expected_digest",
            Self::Pages { .. } => "pages",
            Self::InCapsuleBytes { .. } => "in_capsule_bytes",
            Self::Queues { .. } => "queues",
            Self::MaxTransfer { .. } => "max_transfer",
            Self::SharedReceives { .. } => "shared_receives",
            Self::Nqn { .. } => "nqn",
            Self::DataBlocks { .. } => "data_blocks",
            Self::ConfigFile { .. } | Self::ConfigTooLong { .. } => "config_file",
            Self::Address { .. } => "address",
            Self::Config { .. } => "config",
            Self::Storage(_) => "storage",
            Self::NoRdma => "no_rdma_support",
            Self::OpenDevice { .. } => "device",
            Self::DeviceGone { .. } => "device_gone",
            Self::MemoryRefused { .. } => "locked_memory",
            Self::TooLittleMemory { .. } => "memory",
            Self::Listen { .. } => "listen",
            Self::NoSession { .. } => "no_session",
            Self::Unsuitable { .. } => "namespace",
            Self::Output { .. } => "output_file",
            Self::Placement { source } => placement_name(source),
            Self::OwnExecutable { .. } => "own_executable",
            Self::File { .. } => "file_unreadable",
            Self::NoFile { .. } => "not_a_file",
            Self::FileSize { .. } => "file_size",
            Self::Trace { .. } | Self::TraceFile { .. } => "trace_file",
            Self::Port(_) => "port",
            Self::Launch { source } => launch_name(source),
            Self::Running(_) => "reactor_panicked",
            Self::Standing { .. } => "core_stands_still",
            Self::Name(_) => "name",
            Self::Lost => "lost",
            Self::Signal(_) => "signal",
        }
    }

    /// Some core has not ended: nothing that it may use is to be taken down.
    pub(crate) fn leaves_a_core(&self) -> bool {
        matches!(self, Self::Standing { .. })
    }

    /// 2 for what another command line would cure, 3 where a core did not end, 1 for the rest.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::TooMuch { source, .. } => source.exit_code(),
            Self::Standing { .. } => STANDING,
            Self::Name(_)
            | Self::Lost
            | Self::Port(_)
            | Self::Running(_)
            | Self::Signal(_)
            | Self::OwnExecutable { .. } => FAILED,
            Self::NoRdma
            | Self::Storage(_)
            | Self::ConfigFile { .. }
            | Self::OpenDevice { .. }
            | Self::DeviceGone { .. }
            | Self::MemoryRefused { .. }
            | Self::TooLittleMemory { .. }
            | Self::Listen { .. }
            | Self::NoSession { .. }
            | Self::Unsuitable { .. }
            | Self::Output { .. } => FAILED,
            Self::Launch { .. } | Self::File { .. } | Self::Trace { .. } => FAILED,
            _ => USAGE,
        }
    }
}

/// Where somebody wrote a word, it may have been meant for the one that there is.
fn or_unpinned(error: &CoreListError) -> &'static str {
    match error {
        CoreListError::NotANumber { .. } | CoreListError::Empty => ", or `unpinned`",
        _ => "",
    }
}

fn placement_name(error: &PlacementError) -> &'static str {
    match error {
        PlacementError::Offline { .. } => "core_offline",
        PlacementError::NotAllowed { .. } => "core_not_allowed",
        PlacementError::Twice { .. } => "core_twice",
        PlacementError::Siblings { .. } => "core_siblings",
        _ => "placement",
    }
}

fn launch_name(error: &LaunchError<SetupError>) -> &'static str {
    match error {
        LaunchError::Placement(error) => placement_name(error),
        LaunchError::Init { error, .. } => match error {
            SetupError::Region(_) => "memory",
            SetupError::Engine(_) => "engine",
            SetupError::Target(_) => "target",
            SetupError::Host(_) => "host",
            _ => "setup",
        },
        LaunchError::Panicked { .. } => "reactor_panicked",
        _ => "launch",
    }
}

impl From<LaunchError<SetupError>> for RunError {
    fn from(source: LaunchError<SetupError>) -> Self {
        match source {
            LaunchError::Placement(source) => Self::Placement { source },
            source => Self::Launch { source },
        }
    }
}
