//! Where a target listens: each address, what became of it, and who came by it.

use super::addresses::{ElsewhereListener, MAX_LISTENERS};
use super::change::ChangeError;
use super::options::MAX_TARGETS;
use super::statistics::TargetListening;
use arrayvec::ArrayVec;
use frwr_engine::{Listening, provider::CommandError};
use std::net::SocketAddr;

/// Those of all other targets that serve the same subsystems: of this machine, and of other gateways as many as a target has.
const MAX_ELSEWHERE: usize = MAX_TARGETS as usize * MAX_LISTENERS;

/// What a listener is on the way to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Hosts are told of it.
    Listed,
    /// It was added, and not all cores listen: hosts are not told yet.
    Coming,
    /// It was removed: hosts are told no longer, and it is gone when the device says so.
    Leaving,
}

#[derive(Debug)]
struct Listener {
    address: SocketAddr,
    /// PORTID: no other one has it meanwhile.
    port: u16,
    standing: Standing,
    listening: TargetListening,
    /// A change waits for what the device says.
    awaited: bool,
    /// The device was not told to stop, since Control was busy.
    unstopped: bool,
    accepted: u64,
    rejected: u64,
}

/// A listener, for whoever shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerState {
    /// Its address.
    pub address: SocketAddr,
    /// PORTID of its entries in the discovery log.
    pub port: u16,
    /// Hosts are told of it: it neither comes nor goes.
    pub listed: bool,
    /// Whether it listens, on this core.
    pub listening: TargetListening,
    /// Connect requests that came by it and were accepted, on this core.
    pub accepted: u64,
    /// Those that were rejected.
    pub rejected: u64,
}

/// What the device has said of a change that waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is as it should be.
    Taken,
    /// It does not listen there, for this reason where there is one.
    Refused(Option<CommandError>),
}

/// All listeners of one core.
#[derive(Debug)]
pub(super) struct Listeners {
    all: ArrayVec<Listener, MAX_LISTENERS>,
    /// Its lowest PORTID.
    first_port: u16,
    /// Of other targets.
    elsewhere: Vec<ElsewhereListener>,
}

impl Listeners {
    /// At these addresses from the start, of which there are no more than may be, with PORTIDs from this one on.
    pub(super) fn new(addresses: &[SocketAddr], first_port: u16) -> Self {
        let (all, elsewhere) = (ArrayVec::new(), Vec::new());
        let mut listeners = Self { all, first_port, elsewhere };
        addresses.iter().take(MAX_LISTENERS).for_each(|address| listeners.push(*address, Standing::Listed));
        listeners
    }

    fn push(&mut self, address: SocketAddr, standing: Standing) {
        let is_free = |port: &u16| self.all.iter().all(|listener| listener.port != *port);
        let Some(port) = (self.first_port..).find(is_free) else { return };
        let _ = self.all.try_push(Listener {
            address,
            port,
            standing,
            listening: TargetListening::NotAsked,
            awaited: false,
            unstopped: false,
            accepted: 0,
            rejected: 0,
        });
    }

    fn get_mut(&mut self, address: SocketAddr) -> Option<&mut Listener> {
        self.all.iter_mut().find(|listener| listener.address == address)
    }

    fn find(&self, address: SocketAddr) -> Option<&Listener> {
        self.all.iter().find(|listener| listener.address == address)
    }

    /// There is one at this address, also one that comes or goes.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        self.find(address).is_some()
    }

    /// All addresses, those included that come and go.
    pub(super) fn addresses(&self) -> ArrayVec<SocketAddr, MAX_LISTENERS> {
        self.all.iter().map(|listener| listener.address).collect()
    }

    /// There may be one more, at this address.
    pub(super) fn check_new(&self, address: SocketAddr) -> Result<(), ChangeError> {
        if self.has(address) {
            return Err(ChangeError::ListenerTaken { address });
        }
        if self.all.is_full() { Err(ChangeError::Listeners) } else { Ok(()) }
    }

    /// One may go from this address: hosts are told of it, whether the device listens there or has failed since.
    pub(super) fn check_old(&self, address: SocketAddr) -> Result<(), ChangeError> {
        let is_listed = |listener: &&Listener| listener.standing == Standing::Listed;
        self.find(address).filter(is_listed).map(drop).ok_or(ChangeError::Listener { address })
    }

    /// One comes, and the device was asked for it.
    pub(super) fn add(&mut self, address: SocketAddr) {
        self.push(address, Standing::Coming);
        if let Some(listener) = self.get_mut(address) {
            (listener.listening, listener.awaited) = (TargetListening::Asked, true);
        }
    }

    /// Hosts are told of one that came.
    pub(super) fn list(&mut self, address: SocketAddr) {
        if let Some(listener) = self.get_mut(address) {
            listener.standing = Standing::Listed;
        }
    }

    /// One goes. `told`: the device was told to stop.
    pub(super) fn begin_removal(&mut self, address: SocketAddr, told: bool) {
        if let Some(listener) = self.get_mut(address) {
            (listener.standing, listener.awaited, listener.unstopped) = (Standing::Leaving, true, !told);
        }
    }

    /// A change waits for what the device says of it.
    pub(super) fn is_awaited(&self, address: SocketAddr) -> bool {
        self.find(address).is_some_and(|listener| listener.awaited)
    }

    /// One that goes, and of which the device was not told to stop.
    pub(super) fn unstopped(&self) -> Option<SocketAddr> {
        self.all.iter().find(|listener| listener.unstopped).map(|listener| listener.address)
    }

    /// Now it was.
    pub(super) fn is_stopped(&mut self, address: SocketAddr) {
        if let Some(listener) = self.get_mut(address) {
            listener.unstopped = false;
        }
    }

    /// One is gone without the device, or never was.
    pub(super) fn forget(&mut self, address: SocketAddr) {
        self.all.retain(|listener| listener.address != address);
    }

    /// The device was asked to listen.
    pub(super) fn asked(&mut self, address: SocketAddr) {
        if let Some(listener) = self.get_mut(address) {
            listener.listening = TargetListening::Asked;
        }
    }

    /// What the device says, and what that means for a change that waits for it.
    pub(super) fn heard(&mut self, address: SocketAddr, state: Listening) -> Option<Heard> {
        let listener = self.get_mut(address)?;
        listener.listening = listener.listening.then(state);
        let heard = match (listener.standing, state) {
            (Standing::Listed, _) => None,
            (Standing::Coming, Listening::Began) => Some(Heard::Taken),
            (Standing::Coming, Listening::Failed(reason)) => Some(Heard::Refused(Some(reason))),
            (Standing::Coming, Listening::Stopped) => Some(Heard::Refused(None)),
            (Standing::Leaving, Listening::Stopped) => Some(Heard::Taken),
            // What it said before it heard.
            (Standing::Leaving, Listening::Began | Listening::Failed(_)) => return None,
        };
        let is_gone = listener.standing == Standing::Leaving || matches!(heard, Some(Heard::Refused(_)));
        let waits = core::mem::take(&mut listener.awaited);
        if is_gone {
            self.forget(address);
        }
        heard.filter(|_| waits)
    }

    /// Whether the target listens, where all that hosts are told of do.
    pub(super) fn listening(&self) -> TargetListening {
        let listed = self.all.iter().filter(|listener| listener.standing == Standing::Listed);
        let all = listed.map(|listener| listener.listening);
        all.reduce(TargetListening::with).unwrap_or(TargetListening::Stopped)
    }

    /// The listener that a peer has called by this address; `None` where that cannot be said. Two that listen at one port are of two
    /// addresses, or one of them is of IPv4 and the other of all.
    pub(super) fn called(&self, local: Option<SocketAddr>) -> Option<SocketAddr> {
        let Some(local) = local else {
            // It can only be that one.
            return match &self.all[..] {
                [only] => Some(only.address),
                _ => None,
            };
        };
        let of_port = || self.all.iter().map(|listener| listener.address).filter(|one| one.port() == local.port());
        let (exactly, ip) = (|one: &SocketAddr| one.ip() == local.ip(), local.ip().to_canonical());
        let is_any = |one: &SocketAddr| one.ip().is_unspecified();
        let of_family = |one: &SocketAddr| is_any(one) && one.is_ipv4() == ip.is_ipv4();
        of_port().find(exactly).or_else(|| of_port().find(of_family)).or_else(|| of_port().find(is_any))
    }

    /// It was removed, and takes nobody any more.
    pub(super) fn is_leaving(&self, address: SocketAddr) -> bool {
        self.find(address).is_some_and(|listener| listener.standing == Standing::Leaving)
    }

    /// A connect request that came by it was accepted, or rejected.
    pub(super) fn count(&mut self, address: Option<SocketAddr>, is_accepted: bool) {
        if let Some(listener) = address.and_then(|address| self.get_mut(address)) {
            listener.accepted += u64::from(is_accepted);
            listener.rejected += u64::from(!is_accepted);
        }
    }

    /// Other targets listen there: false where it is so already.
    pub(super) fn list_elsewhere(&mut self, listeners: &[ElsewhereListener]) -> Result<bool, ChangeError> {
        if listeners.len() > MAX_ELSEWHERE {
            return Err(ChangeError::ListenersElsewhere { count: listeners.len(), limit: MAX_ELSEWHERE });
        }
        let is_news = self.elsewhere != listeners;
        if is_news {
            self.elsewhere = listeners.to_vec();
        }
        Ok(is_news)
    }

    /// Where a host reaches the target that has called it by `local`: PORTID, and an address to connect to. Where one listens at all of
    /// the machine's addresses, that is the one that the host has called, as Linux's target says it, too; where the host has called one
    /// of another family it is none, and where another target does so nobody here knows one. What other targets have follows behind its
    /// own.
    pub(super) fn seen_from(&self, local: Option<SocketAddr>) -> impl Iterator<Item = (u16, SocketAddr)> {
        // What is IPv4 is called so, also where it came by a listener of IPv6.
        let called = local.map(|local| local.ip().to_canonical());
        let listed = self.all.iter().filter(|listener| listener.standing == Standing::Listed);
        let own = listed.filter_map(move |Listener { address, port, .. }| match called {
            Some(_) if !address.ip().is_unspecified() => Some((*port, *address)),
            Some(called) if called.is_ipv4() || address.is_ipv6() => {
                Some((*port, SocketAddr::new(called, address.port())))
            }
            Some(_) => None,
            None => Some((*port, *address)),
        });
        let elsewhere = self.elsewhere.iter().filter(|one| !one.address.ip().is_unspecified());
        own.chain(elsewhere.map(|one| (one.port, one.address)))
    }

    /// All of them, for whoever shows them.
    pub(super) fn states(&self) -> impl Iterator<Item = ListenerState> {
        self.all.iter().map(|&Listener { address, port, standing, listening, accepted, rejected, .. }| ListenerState {
            address,
            port,
            listed: standing == Standing::Listed,
            listening,
            accepted,
            rejected,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ElsewhereListener, Heard, Listeners};
    use frwr_engine::{Listening, provider::CommandError};
    use std::net::SocketAddr;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_connection_is_of_the_listener_that_its_peer_has_called() {
        let all = ["10.0.0.1:4420", "10.0.0.2:4420", "0.0.0.0:4421", "[::]:4421", "[::]:4422"].map(address);
        let listeners = Listeners::new(&all, 1);
        for (called, by) in [
            ("10.0.0.2:4420", Some(1)),
            ("10.0.0.3:4420", None),
            ("10.0.0.3:4421", Some(2)),
            ("[fd00::1]:4421", Some(3)),
            ("[::ffff:10.0.0.1]:4422", Some(4)),
            ("10.0.0.1:4423", None),
        ] {
            assert_eq!(listeners.called(Some(address(called))), by.map(|at: usize| all[at]), "{called}");
        }
        assert_eq!(listeners.called(None), None);
        assert_eq!(Listeners::new(&all[..1], 1).called(None), Some(all[0]));
    }

    #[test]
    fn one_that_hosts_are_told_of_may_go_also_where_the_device_has_failed() {
        let (one, other) = (address("10.0.0.1:4420"), address("10.0.0.1:4421"));
        let mut listeners = Listeners::new(&[one], 1);
        listeners.heard(one, Listening::Failed(CommandError::EXHAUSTED));
        listeners.check_old(one).unwrap();
        listeners.add(other);
        assert!(listeners.check_old(other).is_err(), "it comes");
        listeners.begin_removal(one, true);
        assert!(listeners.check_old(one).is_err(), "it goes");
        assert!(listeners.states().all(|state| !state.listed));
        assert_eq!(listeners.heard(one, Listening::Stopped), Some(Heard::Taken));
        assert!(!listeners.has(one));
    }

    #[test]
    fn a_host_is_told_addresses_that_it_can_connect_to() {
        let all = ["10.0.0.1:4420", "0.0.0.0:4421", "[::]:4422"].map(address);
        let listeners = Listeners::new(&all, 1);
        let told = |local: Option<&str>| {
            let seen = listeners.seen_from(local.map(address));
            seen.map(|(port, address)| (port, address.to_string())).collect::<Vec<_>>()
        };
        let said = |all: &[(u16, &str)]| all.iter().map(|(port, text)| (*port, (*text).to_owned())).collect::<Vec<_>>();
        let ipv4 = said(&[(1, "10.0.0.1:4420"), (2, "10.0.0.7:4421"), (3, "10.0.0.7:4422")]);
        assert_eq!(told(Some("10.0.0.7:4420")), ipv4);
        assert_eq!(told(Some("[::ffff:10.0.0.7]:4422")), ipv4);
        assert_eq!(told(Some("[fd00::1]:4422")), said(&[(1, "10.0.0.1:4420"), (3, "[fd00::1]:4422")]));
        assert_eq!(told(None), said(&[(1, "10.0.0.1:4420"), (2, "0.0.0.0:4421"), (3, "[::]:4422")]));
    }
    #[test]
    fn a_host_is_told_of_other_targets_with_their_ports_where_those_have_an_address() {
        let mut listeners = Listeners::new(&[address("10.0.0.1:4420")], 33);
        let elsewhere = [(1, "10.0.1.1:4420"), (2, "0.0.0.0:4421"), (17, "[fd00::1]:4420")];
        let elsewhere = elsewhere.map(|(port, text)| ElsewhereListener { port, address: address(text) });
        assert_eq!(listeners.list_elsewhere(&elsewhere), Ok(true));
        assert_eq!(listeners.list_elsewhere(&elsewhere), Ok(false), "it was told so");
        let seen: Vec<_> = listeners.seen_from(None).map(|(port, address)| (port, address.to_string())).collect();
        assert_eq!(
            seen,
            [(33, "10.0.0.1:4420"), (1, "10.0.1.1:4420"), (17, "[fd00::1]:4420")].map(|(at, a)| (at, a.to_owned()))
        );
        let many = [elsewhere[0]; super::MAX_ELSEWHERE + 1];
        assert!(listeners.list_elsewhere(&many).unwrap_err().to_string().contains("128 at most"));
        assert_eq!(listeners.seen_from(None).count(), 3, "nothing was changed");
    }
}
