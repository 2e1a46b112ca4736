//! Which device is under test: a profile of the software NIC, a device that is not there (`fake`), or a real device named by
//! the environment.

use super::any::AnyDevice;
use super::deviations::Row;
#[cfg(feature = "verbs")]
use super::fake::{Fake, FakeNetwork};
use super::pair::Pair;
use super::soft::ADDRESS;
use super::{Host, TestPair};
use frwr_engine::provider::FailureStatus;
use frwr_engine::provider::soft::{SoftFabric, SoftOptions, SoftProfile};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use tempfile::TempDir;

/// Names a real device, such as `rxe0`, or one that is not there, such as `fake:window`; the suite then runs on it alone.
/// `fake` stands for all of those.
pub const DEVICE: &str = "FRWR_CONFORMANCE_DEVICE";

/// A device under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Soft(SoftProfile),
    /// Two software NICs that reach each other as those of two processes do.
    Sockets(SoftProfile),
    #[cfg(feature = "verbs")]
    Fake(Fake),
    #[cfg(feature = "verbs")]
    Verbs(&'static str),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Soft(profile) => write!(f, "soft:{profile}"),
            Self::Sockets(profile) => write!(f, "sockets:{profile}"),
            #[cfg(feature = "verbs")]
            Self::Fake(fake) => write!(f, "fake:{}", fake.name()),
            #[cfg(feature = "verbs")]
            Self::Verbs(name) => f.write_str(name),
        }
    }
}

/// The device that the environment names.
fn named_device() -> Option<String> {
    std::env::var(DEVICE).ok().filter(|name| !name.is_empty())
}

impl Subject {
    /// What the environment names, else all profiles of the software NIC, within one process and between two.
    pub fn all() -> Vec<Self> {
        match named_device() {
            #[cfg(feature = "verbs")]
            Some(name) if name.starts_with("fake") => fakes(&name),
            #[cfg(feature = "verbs")]
            Some(name) => vec![Self::Verbs(Box::leak(name.into_boxed_str()))],
            #[cfg(not(feature = "verbs"))]
            Some(name) => panic!("{DEVICE}={name}, but this test was built without the feature verbs"),
            None => [Self::Soft, Self::Sockets].into_iter().flat_map(|kind| SoftProfile::ALL.map(kind)).collect(),
        }
    }

    /// Reached through libibverbs, whoever stands for it.
    pub const fn is_real(self) -> bool {
        !matches!(self, Self::Soft(_) | Self::Sockets(_))
    }

    /// The software profile where it is one.
    pub const fn profile(self) -> Option<SoftProfile> {
        match self {
            Self::Soft(profile) | Self::Sockets(profile) => Some(profile),
            #[cfg(feature = "verbs")]
            Self::Fake(_) | Self::Verbs(_) => None,
        }
    }

    /// Linux soft RoCE, or the profile that imitates it.
    pub fn is_rxe(self) -> bool {
        match self {
            Self::Soft(profile) | Self::Sockets(profile) => profile == SoftProfile::Rxe,
            #[cfg(feature = "verbs")]
            Self::Fake(_) => false,
            #[cfg(feature = "verbs")]
            Self::Verbs(name) => name.starts_with("rxe"),
        }
    }

    /// The provider refuses a second invalidation, which could be deadly, instead of the device.
    pub fn is_guarded(self) -> bool {
        match self {
            Self::Soft(_) | Self::Sockets(_) => false,
            #[cfg(feature = "verbs")]
            Self::Fake(fake) => fake == Fake::Ionic,
            #[cfg(feature = "verbs")]
            Self::Verbs(name) => {
                use frwr_engine::provider::verbs::{known_device, system::driver};
                self.has_windows() && known_device(&driver(name)).quirks.crashes_on_double_invalidate
            }
        }
    }

    /// AMD's ionic, or what stands for it.
    pub fn is_ionic(self) -> bool {
        match self {
            Self::Soft(_) | Self::Sockets(_) => false,
            #[cfg(feature = "verbs")]
            Self::Fake(fake) => fake == Fake::Ionic,
            #[cfg(feature = "verbs")]
            Self::Verbs(name) => frwr_engine::provider::verbs::system::driver(name) == "ionic",
        }
    }

    /// A ConnectX, or what stands for one below libmlx5.
    pub fn is_connectx(self) -> bool {
        match self {
            #[cfg(feature = "verbs")]
            Self::Verbs(name) => frwr_engine::provider::verbs::system::driver(name) == "mlx5",
            _ => false,
        }
    }

    /// Registrations are type 2 windows: one range, bound to a queue pair.
    pub fn has_windows(self) -> bool {
        match self {
            Self::Soft(profile) | Self::Sockets(profile) => matches!(profile, SoftProfile::Window | SoftProfile::Rxe),
            #[cfg(feature = "verbs")]
            Self::Fake(fake) => fake.has_windows(),
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => !super::verbs::has_lists(),
        }
    }

    /// Registrations are lists that the provider of mlx5 posts.
    pub fn has_lists(self) -> bool {
        self.is_real() && !self.has_windows()
    }

    /// A peer's SEND_WITH_INV ends keys.
    pub const fn invalidates_remotely(self) -> bool {
        match self {
            #[cfg(feature = "verbs")]
            Self::Fake(fake) => fake.invalidates_remotely(),
            _ => true,
        }
    }

    /// Strict with bounds and invalidation.
    pub fn is_strict(self) -> bool {
        !self.is_rxe()
    }

    /// How a registration is refused.
    pub const fn register_failure(self) -> Option<FailureStatus> {
        match self.profile() {
            Some(SoftProfile::RegMr) => Some(FailureStatus::LocalOperation),
            _ => Some(FailureStatus::Bind),
        }
    }

    /// Whether this is how a bad local key, or memory that must not be written to, fails.
    pub fn is_local_failure(self, status: Option<FailureStatus>) -> bool {
        let known = status == Some(FailureStatus::LocalOperation);
        status == Some(FailureStatus::LocalProtection) || known && self.deviates(Row::StatusOfALocalKey)
    }

    /// Two devices, one listening.
    pub fn pair(self) -> TestPair {
        let network = Network::new(self);
        Pair::new(network.device(), network.device(), network.address())
    }

    /// The same, with options where it is a software NIC: whatever they are, the outcome must be that of the defaults.
    pub fn pair_with(self, change: impl Fn(&mut SoftOptions)) -> TestPair {
        let network = Network::with(self, change);
        Pair::new(network.device(), network.device(), network.address())
    }

    /// Says that something is not run on this subject.
    pub fn not_run(self, why: &str) {
        say(&format!("NOT RUN on {self}: {why}"));
    }
}

/// The devices that are not there: all, or the one of this name.
#[cfg(feature = "verbs")]
fn fakes(name: &str) -> Vec<Subject> {
    let is_meant = |fake: &Fake| name == "fake" || name.strip_prefix("fake:") == Some(fake.name());
    let found: Vec<_> = Fake::ALL.into_iter().filter(is_meant).map(Subject::Fake).collect();
    assert!(!found.is_empty(), "{DEVICE}={name}; it must be fake, or fake: and one of {:?}", Fake::ALL.map(Fake::name));
    found
}

/// Says something although the test passes: the test harness catches what is printed, and not what is written.
pub fn say(line: &str) {
    use std::io::Write;
    // The test harness has not ended its own line yet.
    let _ = writeln!(std::io::stdout().lock(), "\n{line}");
}

/// Where devices of one subject reach each other.
pub struct Network {
    subject: Subject,
    options: SoftOptions,
    fabric: SoftFabric,
    /// Where those find each other that are of several processes.
    rendezvous: Option<Arc<TempDir>>,
    #[cfg(feature = "verbs")]
    fake: Option<FakeNetwork>,
    address: SocketAddr,
}

impl Network {
    pub fn new(subject: Subject) -> Self {
        Self::with(subject, |_| {})
    }

    pub fn with(subject: Subject, change: impl Fn(&mut SoftOptions)) -> Self {
        let mut options = subject.profile().map_or_else(SoftOptions::default, SoftOptions::new);
        change(&mut options);
        let fabric = SoftFabric::new();
        let rendezvous =
            matches!(subject, Subject::Sockets(_)).then(|| Arc::new(tempfile::tempdir().expect("a directory")));
        #[cfg(feature = "verbs")]
        {
            let fake = if let Subject::Fake(fake) = subject { Some(FakeNetwork::new(fake)) } else { None };
            let address = match &fake {
                Some(fake) => fake.address(),
                None if subject.is_real() => real_address(),
                None => ADDRESS,
            };
            Self { subject, options, fabric, rendezvous, fake, address }
        }
        #[cfg(not(feature = "verbs"))]
        Self { subject, options, fabric, rendezvous, address: ADDRESS }
    }

    pub fn device(&self) -> AnyDevice {
        match self.subject {
            Subject::Soft(_) => AnyDevice::soft(self.fabric.device(self.options)),
            Subject::Sockets(_) => {
                let rendezvous = self.rendezvous.as_ref().expect("made with the network");
                AnyDevice::between_processes(rendezvous, self.options)
            }
            #[cfg(feature = "verbs")]
            Subject::Fake(_) => self.fake.as_ref().expect("made with the network").open(),
            #[cfg(feature = "verbs")]
            Subject::Verbs(name) => AnyDevice::verbs(super::verbs::open(name)),
        }
    }

    pub fn host(&self) -> Host<AnyDevice> {
        Host::new(self.device())
    }

    /// Where the peer of this network's pair listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// An address of the real device that no other pair of this process has, nor soon one of another test binary.
#[cfg(feature = "verbs")]
fn real_address() -> SocketAddr {
    use std::sync::atomic::{AtomicU16, Ordering};
    /// Below the ports that Linux hands out by itself.
    const FIRST_PORT: u16 = 20_000;
    /// Pairs of one test binary.
    const PORTS_PER_BINARY: u16 = 800;
    const BINARIES: u32 = 15;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let address = std::env::var("FRWR_CONFORMANCE_ADDRESS").unwrap_or_else(|_| "10.9.0.1".to_owned());
    let ip = address.parse().unwrap_or_else(|error| panic!("FRWR_CONFORMANCE_ADDRESS={address}: {error}"));
    let binary = std::env::current_exe().unwrap_or_default();
    let name = binary.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let place = name.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte))) % BINARIES;
    let port = NEXT.fetch_add(1, Ordering::Relaxed) % PORTS_PER_BINARY;
    SocketAddr::new(ip, FIRST_PORT + place as u16 * PORTS_PER_BINARY + port)
}

/// Runs a test on every subject; a failure names it.
pub fn on_all(test: impl Fn(Subject)) {
    for subject in Subject::all() {
        eprintln!("subject {subject}");
        test(subject);
    }
}

/// Runs a test on the subjects that it applies to. A real one that it does not apply to is named, with the reason.
pub fn on(applies: impl Fn(Subject) -> bool, why: &str, test: impl Fn(Subject)) {
    on_all(|subject| match (applies(subject), subject.is_real()) {
        (true, _) => test(subject),
        (false, true) => subject.not_run(why),
        (false, false) => {}
    });
}

/// Runs a test on the subjects that run a row of the table of deviations; the others say why they do not.
pub fn on_row(row: Row, test: impl Fn(Subject)) {
    on_all(|subject| {
        if subject.runs(row) {
            test(subject);
        }
    });
}

/// Runs a test on every profile of the software NIC; on a real device it says why it cannot be run there.
pub fn on_soft(why: &str, test: impl Fn(SoftProfile)) {
    on_all(|subject| match (subject, subject.profile()) {
        // It is the software NIC's own, whoever is at the other end.
        (Subject::Sockets(_), _) => {}
        (_, Some(profile)) => test(profile),
        (_, None) => subject.not_run(why),
    });
}
