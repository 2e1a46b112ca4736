//! `--connect-all`: the paths of a load as a discovery service lists them.

use super::{
    discover::{ask, discovery_options},
    load_command::{LoadArguments, LoadConfig},
};
use crate::{Error, signals::Asked};
use frwr_engine::{control::Control, provider::Device};
use frwr_nvmf::{
    host::Discovered,
    wire::{DiscoveryEntry, Nqn},
};
use std::net::{IpAddr, SocketAddr};

/// Where the service is asked, the load with paths to what it lists; `None` where its addresses were named.
///
/// # Errors
/// [`Error`].
pub(super) fn connect_all<D: Device>(
    control: &mut Control<D>,
    config: &LoadConfig,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<Option<LoadConfig>, Error> {
    let LoadArguments { device, host_nqn, connect_all, .. } = &config.arguments;
    let Some(service) = *connect_all else { return Ok(None) };
    let options = discovery_options(service, host_nqn.as_deref(), device)?;
    let listed = ask(control, options, config.authenticator()?, asked, say)?;
    let subsystem = config.subsystem()?;
    let addresses = addresses(&listed, &subsystem);
    if addresses.is_empty() {
        return Err(none(service, &subsystem, &listed));
    }
    let names: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
    say(&format!("{service} lists {} path(s) to {}: {}", names.len(), subsystem.as_str(), names.join(", ")));
    config.clone().with_paths(addresses).map(Some)
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
