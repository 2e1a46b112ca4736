//! Addresses as people write them, and which of them no connection can use.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::net::{SocketAddr, SocketAddrV6, ToSocketAddrs as _};

/// What stands between an address and the interface that it is of (RFC 4007, section 11).
const SCOPE: char = '%';

/// What an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To listen at it: 0.0.0.0 and :: are all of this machine's.
    Listen,
    /// To connect to it.
    Connect,
}

/// Why no connection can use an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unroutable {
    /// No port.
    #[error("port 0 is none: name one from 1 to 65535")]
    Port,
    /// Of a group.
    #[error("it is a multicast address, which no connection has: name an address of one interface")]
    Multicast,
    /// Of everybody.
    #[error("it is the broadcast address, which no connection has: name an address of one interface")]
    Broadcast,
    /// 0.0.0.0 or ::, as a peer.
    #[error("it names no machine: name an address of the target's interface")]
    Unspecified,
    /// 0.0.0.0/8 but for 0.0.0.0 (RFC 1122, section 3.2.1.3).
    #[error("addresses that begin with 0 name no machine: name an address of its interface")]
    ThisNetwork,
    /// fe80::/10 is on every link.
    #[error("it is a link-local address, and every interface has those: name the interface, as in [{0}%eth0]:4420")]
    NoScope(Ipv6Addr),
}

/// What is wrong with the text of an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    /// It is no address with a port.
    #[error("must be an IP address and a port, such as 10.0.0.1:4420, [fd00::1]:4420 or [fe80::1%eth0]:4420")]
    Syntax,
    /// There is no such interface.
    #[error("there is no network interface {0:?}; `ip link` lists them")]
    Interface(String),
    /// An interface, of an address that needs none.
    #[error("{0} is no link-local address, and only those have an interface behind a %; leave that out")]
    Scope(Ipv6Addr),
}

/// Reads an address with a port; no names are looked up but those of network interfaces.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, AddressError> {
    let Some((address, scope)) = text.split_once(SCOPE) else {
        return text.parse().map_err(|_| AddressError::Syntax);
    };
    let (scope, port) = scope.split_once("]:").ok_or(AddressError::Syntax)?;
    let port = port.parse().map_err(|_| AddressError::Syntax)?;
    with_scope(address.strip_prefix('[').ok_or(AddressError::Syntax)?, scope, port)
}

/// Reads an address without a port, as it stands without brackets.
pub(crate) fn parse_alone(text: &str, port: u16) -> Result<SocketAddr, AddressError> {
    match text.split_once(SCOPE) {
        None => text.parse().map(|address: IpAddr| SocketAddr::new(address, port)).map_err(|_| AddressError::Syntax),
        Some((address, scope)) => with_scope(address, scope, port),
    }
}

fn with_scope(address: &str, scope: &str, port: u16) -> Result<SocketAddr, AddressError> {
    let address: Ipv6Addr = address.parse().map_err(|_| AddressError::Syntax)?;
    if !address.is_unicast_link_local() && !address.is_multicast() {
        return Err(AddressError::Scope(address));
    }
    let index = interface(scope).ok_or_else(|| AddressError::Interface(scope.to_owned()))?;
    Ok(SocketAddrV6::new(address, port, 0, index).into())
}

/// The number of a network interface, by that number or by its name (if_nametoindex(3), which getaddrinfo(3) asks).
fn interface(scope: &str) -> Option<u32> {
    if let Ok(index) = scope.parse::<u32>() {
        return Some(index).filter(|index| *index > 0);
    }
    // A port of 0 is for nobody: what is asked is the scope alone.
    let found = (format!("{}{SCOPE}{scope}", Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)).as_str(), 0).to_socket_addrs();
    found.ok()?.find_map(|found| match found {
        SocketAddr::V6(found) => Some(found.scope_id()).filter(|index| *index > 0),
        SocketAddr::V4(_) => None,
    })
}

/// Refuses what no connection can use.
pub(crate) fn check(address: SocketAddr, purpose: Purpose) -> Result<(), Unroutable> {
    if address.port() == 0 {
        return Err(Unroutable::Port);
    }
    match (address.ip().to_canonical(), address) {
        (IpAddr::V4(ip), _) => check_v4(ip, purpose),
        (IpAddr::V6(ip), SocketAddr::V6(address)) if ip.is_unicast_link_local() && address.scope_id() == 0 => {
            Err(Unroutable::NoScope(ip))
        }
        (ip, _) if ip.is_multicast() => Err(Unroutable::Multicast),
        (ip, _) if ip.is_unspecified() => unspecified(purpose),
        _ => Ok(()),
    }
}

fn check_v4(ip: Ipv4Addr, purpose: Purpose) -> Result<(), Unroutable> {
    match ip {
        _ if ip.is_multicast() => Err(Unroutable::Multicast),
        _ if ip.is_broadcast() => Err(Unroutable::Broadcast),
        _ if ip.is_unspecified() => unspecified(purpose),
        _ if ip.octets()[0] == 0 => Err(Unroutable::ThisNetwork),
        _ => Ok(()),
    }
}

fn unspecified(purpose: Purpose) -> Result<(), Unroutable> {
    match purpose {
        Purpose::Listen => Ok(()),
        Purpose::Connect => Err(Unroutable::Unspecified),
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressError, Purpose, Unroutable, check, parse, parse_alone};
    use std::net::SocketAddr;

    #[test]
    fn addresses_may_have_an_interface_by_name_or_number() {
        // The loopback interface is there in every network namespace, as number 1.
        for (text, scope, port) in [("[fe80::1%lo]:4420", 1, 4420), ("[fe80::9%7]:1", 7, 1), ("[ff02::1%lo]:1", 1, 1)] {
            match parse(text) {
                Ok(SocketAddr::V6(found)) => assert_eq!((found.scope_id(), found.port()), (scope, port), "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert_eq!(parse_alone("fe80::1%lo", 7), parse("[fe80::1%lo]:7"));
        assert_eq!(parse_alone("10.0.0.1", 7), parse("10.0.0.1:7"));
        for text in ["10.0.0.1:4420", "[fd00::1]:4420", "[::1]:1", "0.0.0.0:1", "[fe80::1]:1"] {
            assert_eq!(parse(text), Ok(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_told_why() {
        let none = |name: &str| AddressError::Interface(name.to_owned());
        for (text, error) in [
            ("[fe80::1%nowhere0]:1", none("nowhere0")),
            ("[fe80::1%]:1", none("")),
            ("[fe80::1%0]:1", none("0")),
            ("[fe80::1%../lo]:1", none("../lo")),
            ("[fe80::1%lo%lo]:1", none("lo%lo")),
            ("[fd00::1%lo]:1", AddressError::Scope("fd00::1".parse().unwrap())),
            ("[::1%lo]:1", AddressError::Scope("::1".parse().unwrap())),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
        for text in [
            "",
            "4420",
            "10.0.0.1",
            "[fe80::1%lo]",
            "fe80::1%lo:1",
            "[fe80::1%lo]:",
            "[fe80::1%lo]:99999",
            "10.0.0.1%lo:1",
            "[10.0.0.1%lo]:1",
            "name:1",
            "[%lo]:1",
        ] {
            assert_eq!(parse(text), Err(AddressError::Syntax), "{text}");
        }
    }

    #[test]
    fn what_no_connection_can_use_is_refused_by_its_reason() {
        use Unroutable::{Broadcast, Multicast, NoScope, Port, ThisNetwork, Unspecified};
        let local = "fe80::1".parse().unwrap();
        for (text, listen, connect) in [
            ("10.0.0.1:4420", None, None),
            ("127.0.0.1:1", None, None),
            ("169.254.1.1:1", None, None),
            ("[fd00::1]:1", None, None),
            ("[fe80::1%lo]:1", None, None),
            ("[::ffff:10.0.0.1]:1", None, None),
            ("0.0.0.0:1", None, Some(Unspecified)),
            ("[::]:1", None, Some(Unspecified)),
            ("[::ffff:0.0.0.0]:1", None, Some(Unspecified)),
            ("10.0.0.1:0", Some(Port), Some(Port)),
            ("[fe80::1]:1", Some(NoScope(local)), Some(NoScope(local))),
            ("224.0.0.1:1", Some(Multicast), Some(Multicast)),
            ("239.255.255.255:1", Some(Multicast), Some(Multicast)),
            ("[::ffff:224.0.0.1]:1", Some(Multicast), Some(Multicast)),
            ("[ff02::1]:1", Some(Multicast), Some(Multicast)),
            ("[ff02::1%lo]:1", Some(Multicast), Some(Multicast)),
            ("255.255.255.255:1", Some(Broadcast), Some(Broadcast)),
            ("0.1.2.3:1", Some(ThisNetwork), Some(ThisNetwork)),
        ] {
            let address = parse(text).unwrap();
            assert_eq!(check(address, Purpose::Listen).err(), listen, "{text} to listen");
            assert_eq!(check(address, Purpose::Connect).err(), connect, "{text} to connect");
        }
    }
}
