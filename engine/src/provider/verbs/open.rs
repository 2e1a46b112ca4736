//! Opening a device: what it has to have, by what it opens keys, and what it can really do.

use super::{
    device::{Opened, VerbsDevice},
    findings::{Findings, SelfTestError},
    hardware,
    keys::{self, Facts, Ways},
    lists::NoLists,
    options::{OptionError, PostInterface, Registration, VerbsOptions},
    self_test::self_test,
    sys::{
        completion_queue::CompletionQueue,
        connection::EventChannel,
        context::Context,
        library::{Library, LibraryError},
        protection_domain::ProtectionDomain,
        queue_pair::{Posting, QueuePair, SendInterface},
        registered::KeyObjects,
        thread_domain::QueuePairDomain,
    },
    system, thread_domains,
};
use std::{io, sync::Arc};

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// libibverbs or librdmacm cannot be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// An option that no device takes.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// There is no such device.
    #[error("there is no RDMA device {device}; devices here: {known}")]
    NoDevice {
        /// The name asked for.
        device: String,
        /// Those that there are.
        known: String,
    },
    /// The system refused.
    #[error("device {device}: {step} failed: {source}; {remedy}")]
    System {
        /// The device.
        device: String,
        /// What was tried.
        step: &'static str,
        /// What a person can do.
        remedy: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The device opens no keys: it has no memory windows of type 2, nor lists.
    #[error(
        "device {device} (driver {driver}) opens no keys by work requests: it has no type 2 memory windows{known}; it can only respond"
    )]
    NoWindows {
        /// The device.
        device: String,
        /// Its driver.
        driver: String,
        /// What is known of its driver's windows: nothing, or with what separates it.
        known: String,
    },
    /// The device cannot register lists.
    #[error("device {device} (driver {driver}) cannot register lists: {source}; windows may do instead")]
    NoLists {
        /// The device.
        device: String,
        /// Its driver.
        driver: String,
        /// Why.
        source: NoLists,
    },
    /// The device has no such port or GID.
    #[error("device {device}: there is no {what} {value}; there is {known}")]
    NoSuch {
        /// The device.
        device: String,
        /// What was asked for.
        what: &'static str,
        /// Its number.
        value: u8,
        /// What there is.
        known: String,
    },
    /// The device's connections are not those of InfiniBand and RoCE.
    #[error("device {device} (driver {driver}) speaks iWARP; this provider connects InfiniBand and RoCE devices only")]
    Iwarp {
        /// The device.
        device: String,
        /// Its driver.
        driver: String,
    },
    /// The self-test found that the device cannot do what the engine relies on.
    #[error("device {device}: self-test: {source}")]
    SelfTest {
        /// The device.
        device: String,
        /// What failed.
        source: SelfTestError,
        /// What was found until then.
        findings: Findings,
    },
}

impl VerbsDevice {
    /// Opens a device and, unless told otherwise, tries what it can really do.
    ///
    /// # Errors
    /// [`OpenError`] names what is missing and the remedy.
    pub fn open(options: &VerbsOptions) -> Result<Self, OpenError> {
        options.check()?;
        Self::open_with(Library::get()?, options)
    }

    /// The same by given functions.
    ///
    /// # Errors
    /// As [`VerbsDevice::open`].
    pub fn open_with(library: &'static Library, options: &VerbsOptions) -> Result<Self, OpenError> {
        options.check()?;
        let name = &options.device;
        let context = Context::open(library, name).map_err(|source| not_opened(library, name, source))?;
        let context = Arc::new(context);
        let attributes = context.attributes();
        let attributes = attributes.map_err(|source| refused(name, "querying its attributes", "see dmesg", source))?;
        let facts = Facts::of(&context, name, attributes);
        if context.is_iwarp() {
            return Err(OpenError::Iwarp { device: name.clone(), driver: facts.driver });
        }
        let Ways { keys, no_lists } = keys::ways(&context, options, &facts);
        let (mut first, mut passed_over) = (None, Vec::new());
        for keys in keys {
            let mut findings = Findings::default();
            facts.report(&passed_over, &mut findings);
            facts.report_keys(keys, no_lists.as_ref(), &mut findings);
            match Self::open_as(&context, options, &facts, keys, findings) {
                Ok(device) => return Ok(device),
                Err(error @ OpenError::SelfTest { .. }) => {
                    passed_over.push((keys, error.to_string()));
                    first = first.or(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        Err(first.unwrap_or_else(|| no_keys(name, facts.driver, no_lists, options.registration)))
    }

    /// One way to open keys.
    fn open_as(
        context: &Arc<Context>,
        options: &VerbsOptions,
        facts: &Facts,
        keys: KeyObjects,
        mut findings: Findings,
    ) -> Result<Self, OpenError> {
        let name = &options.device;
        let gids = (context.system().gids)(name, options.port);
        check_numbers(options, facts.attributes.phys_port_cnt, &gids)?;
        let remedy = "load its module (modprobe rdma_ucm) and check the permissions of /dev/infiniband/rdma_cm";
        let channel = EventChannel::new(context.library());
        let channel = channel.map_err(|source| refused(name, "opening the connection manager", remedy, source))?;
        let wants_builder = match options.post {
            _ if keys.lists().is_some() => true,
            PostInterface::Automatic => facts.known.prefers_builder,
            PostInterface::List => false,
            PostInterface::Builder => true,
        };
        let mut device = Self::new(Opened {
            context: Arc::clone(context),
            options: options.clone(),
            gids,
            channel,
            known: facts.known,
            keys,
            max_initiator_depth: u32::try_from(facts.attributes.max_qp_init_rd_atom).unwrap_or(0),
            capabilities: keys::capabilities(name, facts, keys),
        });
        device.build(wants_builder);
        if wants_builder
            && keys.lists().is_none()
            && let Err(source) = device.probe_builder()
        {
            if options.post == PostInterface::Builder {
                let remedy = "use lists (the default); newer rdma-core may help";
                return Err(refused(name, "making a queue pair for ibv_wr_*", remedy, source));
            }
            device.build(false);
        }
        thread_domains::report(device.thread_domain(), &mut findings);
        if options.self_test {
            let tested = self_test(&device, &mut findings).and_then(|()| device.believe(&findings));
            if let Err(source) = tested {
                findings.broke_off(&source);
                return Err(OpenError::SelfTest { device: name.clone(), source, findings });
            }
        }
        device.keep(findings);
        Ok(device)
    }

    /// Makes a queue pair for `ibv_wr_*` and throws it away: the library says only then whether it can.
    fn probe_builder(&self) -> io::Result<()> {
        let domain = Arc::new(ProtectionDomain::new(&self.context)?);
        let queue = Arc::new(CompletionQueue::new(&self.context, 2)?);
        let sizes = crate::provider::QueueSizes { send: 1, receive: 1, max_send_sge: 1 };
        let builder = SendInterface { posting: Posting::Builder, inline_bytes: 0 };
        let domain = QueuePairDomain::new(&domain, None)?;
        let probe = QueuePair::new(domain, &queue, &queue, sizes, None, builder)?;
        if probe.has_builder() { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }
}

fn refused(device: &str, step: &'static str, remedy: &'static str, source: io::Error) -> OpenError {
    OpenError::System { device: device.to_owned(), step, remedy, source }
}

/// Why a device opens no keys that was asked for some.
fn no_keys(device: &str, driver: String, no_lists: Option<NoLists>, wanted: Registration) -> OpenError {
    let device = device.to_owned();
    match no_lists {
        Some(source) if wanted == Registration::Lists => OpenError::NoLists { device, driver, source },
        _ => {
            let known = hardware::windows_of(&driver).map_or_else(String::new, |known| format!(" ({known})"));
            OpenError::NoWindows { device, driver, known }
        }
    }
}

/// What opening refused by itself, or for want of the device.
fn not_opened(library: &'static Library, name: &str, source: io::Error) -> OpenError {
    if source.kind() == io::ErrorKind::NotFound {
        let known = Context::names(library).unwrap_or_default();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return OpenError::NoDevice { device: name.to_owned(), known };
    }
    OpenError::System {
        device: name.to_owned(),
        step: "opening it",
        remedy: "load ib_uverbs (modprobe ib_uverbs) and check the permissions of /dev/infiniband/uverbs*",
        source,
    }
}

/// What the device has to be asked for: its ports, and the GIDs of one.
fn check_numbers(options: &VerbsOptions, ports: u8, gids: &[system::Gid]) -> Result<(), OpenError> {
    let no_such = |what, value, known| OpenError::NoSuch { device: options.device.clone(), what, value, known };
    if options.port > ports {
        return Err(no_such("port", options.port, format!("port 1 to {ports}")));
    }
    match options.gid_index {
        Some(index) if system::choose_gid(gids, Some(index)).is_none() => {
            let known: Vec<_> = gids.iter().map(|gid| gid.index.to_string()).collect();
            let known =
                if known.is_empty() { "none: give its network device an address".into() } else { known.join(", ") };
            Err(no_such("GID index", index, known))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{OpenError, VerbsOptions, check_numbers};
    use crate::provider::verbs::system::Gid;

    #[test]
    fn a_port_and_a_gid_that_the_device_lacks_are_named() {
        let gids = [1, 3].map(|index| Gid { index, bytes: [1; 16], is_roce_v2: true });
        let options = |port, gid_index| VerbsOptions::new("mlx5_0").port(port).gid_index(gid_index);
        for good in [options(1, None), options(2, Some(3))] {
            assert!(check_numbers(&good, 2, &gids).is_ok());
        }
        let said =
            |options, gids: &[Gid]| check_numbers(&options, 2, gids).map_err(|error: OpenError| error.to_string());
        assert_eq!(
            said(options(3, None), &gids).unwrap_err(),
            "device mlx5_0: there is no port 3; there is port 1 to 2"
        );
        assert_eq!(
            said(options(1, Some(2)), &gids).unwrap_err(),
            "device mlx5_0: there is no GID index 2; there is 1, 3"
        );
        assert!(
            said(options(1, Some(2)), &[]).unwrap_err().ends_with("there is none: give its network device an address")
        );
    }
}
