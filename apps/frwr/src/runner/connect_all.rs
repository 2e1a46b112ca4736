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
    if !inquiry.host().follows_discovery() {
        inquiry.end(control, say);
        return Ok(Some((config.clone().with_paths(addresses, None)?, None)));
    }
    let following =
        Following { reads: inquiry.host().statistics().discovery_reads, inquiry, service, subsystem, lost: false };
    Ok(Some((config.clone().with_paths(addresses, Some(MAX_PATHS))?, Some(following))))
}

/// What is listed there. Changes are heard of where Keep Alives keep the session, and nothing follows one path alone.
fn ask<D: Device>(
    control: &mut Control<D>,
    config: &LoadConfig,
    service: SocketAddr,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<(Inquiry<D::Port>, Vec<Discovered>), Error> {
    let LoadArguments { device, host_nqn, paths, .. } = &config.arguments;
    let mut options = discovery_options(service, host_nqn.as_deref(), device)?;
    options.keep_alive = if config.traces_one_path() { Duration::ZERO } else { paths.keep_alive() };
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

/// A discovery service that tells of changes.
pub(super) struct Following<P: Port> {
    inquiry: Inquiry<P>,
    service: SocketAddr,
    subsystem: Nqn,
    /// Log pages that were read when it was looked at last.
    reads: u64,
    /// That it cannot be asked was told.
    lost: bool,
}

impl<P: Port> Following<P> {
    /// One iteration, on the thread that polls its Control. Returns the work done.
    pub(super) fn poll(&mut self, paths: &mut PathLog, say: &mut dyn FnMut(&str)) -> u32 {
        let work = self.inquiry.poll();
        let host = self.inquiry.host();
        let lost = host.failure().or(host.last_failure()).filter(|_| !host.is_ready());
        if self.lost != lost.is_some() {
            self.lost = lost.is_some();
            match lost {
                Some(failure) => {
                    say(&format!("{} cannot be asked for paths: {failure}; they stay as they are", self.service))
                }
                None => say(&format!("{} can be asked for paths again", self.service)),
            }
        }
        let reads = host.statistics().discovery_reads;
        if self.reads != reads {
            self.reads = reads;
            paths.list(self.service, &addresses(host.discovered(), &self.subsystem), say);
        }
        work
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
