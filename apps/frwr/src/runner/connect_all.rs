//! `--connect-all`: the paths of a load as a discovery service lists them, at first and while the load goes on ([decision
//! 211](../../../../docs/decisions/211-a-discovery-log-is-followed-by-places.md)).

use super::{
    discover::discovery_options,
    inquiry::Inquiry,
    load_command::{LoadArguments, LoadConfig},
    path_log::PathLog,
};
use crate::{Error, signals::Asked};
use core::time::Duration;
use frwr_engine::{
    control::Control,
    provider::{Device, Port},
};
use frwr_nvmf::{
    host::{Discovered, MAX_PATHS},
    wire::{DiscoveryEntry, Nqn},
};
use std::net::{IpAddr, SocketAddr};

/// Where the service is asked, the load with paths to what it lists, and who hears of changes of that; `None` where its addresses were
/// named.
///
/// # Errors
/// [`Error`].
#[expect(clippy::type_complexity, reason = "a load, and who follows")]
pub(super) fn connect_all<D: Device>(
    control: &mut Control<D>,
    config: &LoadConfig,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<Option<(LoadConfig, Option<Following<D::Port>>)>, Error> {
    let Some(service) = config.arguments.connect_all else { return Ok(None) };
    let subsystem = config.subsystem()?;
    let (mut inquiry, listed) = ask(control, config, service, asked, say)?;
    let addresses = addresses(&listed, &subsystem);
    if addresses.is_empty() {
        inquiry.end(control, say);
        return Err(none(service, &subsystem, &listed));
    }
    let names: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
    say(&format!("{service} lists {} path(s) to {}: {}", names.len(), subsystem.as_str(), names.join(", ")));
    let every = every(config);
    if every.is_zero() {
        inquiry.end(control, say);
        return Ok(Some((config.clone().with_paths(addresses, None)?, None)));
    }
    let following = Following::new(inquiry, service, subsystem, every, say);
    Ok(Some((config.clone().with_paths(addresses, Some(MAX_PATHS))?, Some(following))))
}

/// Keep Alive Timeout of a session with the service, and how often one is asked that keeps none. Zero where nothing is to be followed:
/// nothing keeps the paths' own sessions either, or something follows one path alone.
fn every(config: &LoadConfig) -> Duration {
    if config.traces_one_path() { Duration::ZERO } else { config.arguments.paths.keep_alive() }
}

/// What is listed there. The service is asked to keep the session where changes are to be heard of.
fn ask<D: Device>(
    control: &mut Control<D>,
    config: &LoadConfig,
    service: SocketAddr,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<(Inquiry<D::Port>, Vec<Discovered>), Error> {
    let LoadArguments { device, host_nqn, .. } = &config.arguments;
    let mut options = discovery_options(service, host_nqn.as_deref(), device)?;
    options.keep_alive = every(config);
    let mut begin = |options| -> Result<_, Error> { Inquiry::begin(control, options, config.authenticator()?) };
    let mut inquiry = begin(options.clone())?;
    let mut first = inquiry.first(control, asked, say);
    if first.is_err() && inquiry.refuses_to_stay() {
        // It has no persistent connections (Base 3.1.2.3).
        options.keep_alive = Duration::ZERO;
        inquiry = Inquiry::begin(control, options, config.authenticator()?)?;
        first = inquiry.first(control, asked, say);
    }
    Ok((inquiry, first?))
}

/// A discovery service that is followed.
pub(super) struct Following<P: Port> {
    inquiry: Inquiry<P>,
    service: SocketAddr,
    subsystem: Nqn,
    /// Its Keep Alive Timeout, and how often it is asked where it keeps no session.
    every: Duration,
    course: Course,
    /// Log pages that were read when it was looked at last.
    reads: u64,
    /// That it cannot be asked was told.
    lost: bool,
}

/// How it is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// It tells of changes, in a session that lasts.
    Told {
        /// When the session began.
        since: Duration,
        /// Sessions in a row that it ended within a Keep Alive Timeout.
        short: u32,
    },
    /// It is being asked, in a session for that.
    Asks {
        /// When that began.
        since: Duration,
    },
    /// It was asked, and is asked again then.
    Rests { until: Duration },
}

/// So many short sessions in a row are no accident: a service that is started anew ends one.
const SHORT_SESSIONS: u32 = 2;

impl<P: Port> Following<P> {
    /// By a session in which the log page was read.
    fn new(
        inquiry: Inquiry<P>,
        service: SocketAddr,
        subsystem: Nqn,
        every: Duration,
        say: &mut dyn FnMut(&str),
    ) -> Self {
        let (since, reads) = (inquiry.elapsed(), inquiry.host().statistics().discovery_reads);
        let course = Course::Told { since, short: 0 };
        let mut following = Self { inquiry, service, subsystem, every, course, reads, lost: false };
        if !following.inquiry.host().follows_discovery() {
            following.ask_again(since, "does not tell of changes", say);
        }
        following
    }

    /// One iteration, on the thread that polls its Control. Returns the work done.
    pub(super) fn poll(&mut self, paths: &mut PathLog, say: &mut dyn FnMut(&str)) -> u32 {
        let work = self.inquiry.poll();
        let reads = self.inquiry.host().statistics().discovery_reads;
        let was_read = core::mem::replace(&mut self.reads, reads) != reads;
        self.tell_whether_lost(was_read, say);
        if was_read {
            paths.list(self.service, &addresses(self.inquiry.host().discovered(), &self.subsystem), say);
        }
        self.go_on(was_read);
        work
    }

    /// A line where it cannot be asked, and where it can be again.
    fn tell_whether_lost(&mut self, was_read: bool, say: &mut dyn FnMut(&str)) {
        let host = self.inquiry.host();
        let lost = match self.course {
            Course::Rests { .. } => return,
            _ if was_read || host.is_ready() => None,
            Course::Told { .. } => host.failure().or(host.last_failure()),
            // Until then what is known of it is what it was.
            Course::Asks { .. } => match host.last_failure() {
                None => return,
                failure => failure,
            },
        };
        if self.lost == lost.is_some() {
            return;
        }
        if let Course::Told { since, short } = &mut self.course {
            let now = self.inquiry.elapsed();
            if lost.is_none() {
                *since = now;
            } else {
                *short = if now.saturating_sub(*since) < self.every { *short + 1 } else { 0 };
                if *short == SHORT_SESSIONS {
                    let since = *since;
                    return self.ask_again(since, "keeps no session", say);
                }
            }
        }
        self.lost = lost.is_some();
        match lost {
            Some(failure) => {
                say(&format!("{} cannot be asked for paths: {failure}; they stay as they are", self.service))
            }
            None => say(&format!("{} can be asked for paths again", self.service)),
        }
    }

    /// It is asked from now on, and has been at a time.
    fn ask_again(&mut self, since: Duration, why: &str, say: &mut dyn FnMut(&str)) {
        say(&format!("{} {why}: it is asked for paths every {} s", self.service, self.every.as_secs()));
        self.inquiry.rest();
        self.course = Course::Rests { until: since + self.every };
    }

    /// What follows from that the page was read, or was not.
    fn go_on(&mut self, was_read: bool) {
        let now = self.inquiry.elapsed();
        self.course = match self.course {
            Course::Asks { since } if was_read => {
                self.inquiry.rest();
                Course::Rests { until: since + self.every }
            }
            Course::Rests { until } if until <= now && self.inquiry.host().is_stopped() => {
                self.inquiry.go_on();
                Course::Asks { since: now }
            }
            course => course,
        };
    }

    /// Ends it in order.
    pub(super) fn end<D: Device<Port = P>>(&mut self, control: &mut Control<D>, say: &mut dyn FnMut(&str)) {
        self.inquiry.end(control, say);
    }
}

/// Where the subsystem can be reached, each once, in the order of the list.
fn addresses(listed: &[Discovered], subsystem: &Nqn) -> Vec<SocketAddr> {
    let is_ours =
        |one: &&Discovered| one.transport == DiscoveryEntry::RDMA && has_namespaces(one) && one.subsystem == *subsystem;
    let mut addresses = Vec::new();
    for address in listed.iter().filter(is_ours).filter_map(address) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// It is no discovery service.
fn has_namespaces(one: &Discovered) -> bool {
    one.subsystem_type == DiscoveryEntry::NVM_SUBSYSTEM
}

/// `None` where the service lists what is no address.
fn address(listed: &Discovered) -> Option<SocketAddr> {
    let address: IpAddr = listed.address.parse().ok()?;
    Some(SocketAddr::new(address, listed.service.parse().ok()?))
}

fn none(service: SocketAddr, subsystem: &Nqn, listed: &[Discovered]) -> Error {
    let mut others: Vec<_> =
        listed.iter().filter(|one| has_namespaces(one)).map(|one| one.subsystem.as_str()).collect();
    others.sort_unstable();
    others.dedup();
    let lists = if others.is_empty() {
        "it lists no subsystem for this host".to_owned()
    } else {
        // They are the service's: what is no text must not reach the terminal.
        format!("it lists {}", others.join(", ").escape_debug())
    };
    let text = format!(
        "--connect-all {service}: no address of {} over RDMA is listed there; {lists}; name one of these with --subsystem, or \
         look with `frwr discover --connect {service}`",
        subsystem.as_str()
    );
    Error::refused("connect_all", text)
}

#[cfg(test)]
mod tests {
    use super::{addresses, none};
    use arrayvec::ArrayString;
    use frwr_nvmf::{host::Discovered, wire::Nqn};

    fn listed(transport: u8, kind: u8, subsystem: &str, address: &str, service: &str) -> Discovered {
        Discovered {
            transport,
            address_family: 1,
            subsystem_type: kind,
            port: 1,
            controller_id: 0xffff,
            subsystem: Nqn::new(subsystem).unwrap(),
            address: ArrayString::from(address).unwrap(),
            service: ArrayString::from(service).unwrap(),
        }
    }

    #[test]
    fn addresses_of_the_subsystem_over_rdma_are_taken_each_once_in_their_order() {
        let list = [
            listed(1, 2, "nqn.a", "10.0.0.2", "4420"),
            listed(3, 2, "nqn.a", "10.0.0.3", "4420"),
            listed(1, 3, "nqn.a", "10.0.0.4", "4420"),
            listed(1, 2, "nqn.b", "10.0.0.5", "4420"),
            listed(1, 2, "nqn.a", "10.0.0.1", "4421"),
            listed(1, 2, "nqn.a", "10.0.0.2", "4420"),
            listed(1, 2, "nqn.a", "fe80::1", "4420"),
            listed(1, 2, "nqn.a", "storage", "4420"),
            listed(1, 2, "nqn.a", "10.0.0.1", "nvme"),
        ];
        let taken = addresses(&list, &Nqn::new("nqn.a").unwrap());
        let expected = ["10.0.0.2:4420", "10.0.0.1:4421", "[fe80::1]:4420"].map(|address| address.parse().unwrap());
        assert_eq!(taken, expected);
        let missing = none("10.0.0.9:8009".parse().unwrap(), &Nqn::new("nqn.c").unwrap(), &list).to_string();
        for part in ["--connect-all 10.0.0.9:8009", "nqn.c", "it lists nqn.a, nqn.b", "--subsystem"] {
            assert!(missing.contains(part), "{missing}");
        }
    }
}
