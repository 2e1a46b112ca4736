//! Who asked a server to make room, from which address: making room ends its engines and opens its device anew, so nobody gets
//! that for a connect request alone, and who gets it and does not come waits longer each time.

use super::parameters::ConnectData;
use arrayvec::ArrayVec;
use core::time::Duration;
use frwr_reactor::Clock;
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

/// Addresses that are remembered; who asks from one more takes the place of the one that asked least recently.
const MAX_ADDRESSES: usize = 64;
/// Clients of one address that may ask at the same time: one more takes the place of the first.
const MAX_CLIENTS: usize = 4;
/// A client that was told to come again comes after 50 ms: what arrives sooner was on its way before it heard.
const COMES_BACK_AFTER: Duration = Duration::from_millis(20);
/// How long an address waits that got room once and did not come; twice as long each further time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// At most so long: less than a client is patient, so that one that is honest gets in, whoever has its address.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

#[derive(Debug)]
struct Asker {
    address: Option<IpAddr>,
    /// What its clients asked for, and when for the first time.
    asked: ArrayVec<(ConnectData, Duration), MAX_CLIENTS>,
    /// When one did last.
    last: Duration,
    /// The client that room was made for last.
    client: u64,
    /// Times that room was made since such a client was served to its end.
    in_vain: u32,
    not_before: Duration,
}

/// Those that asked, over all lives of a server's engines; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Askers {
    known: Arc<Mutex<Vec<Asker>>>,
    clock: Clock,
}

impl Askers {
    pub(super) fn new(clock: Clock) -> Self {
        Self { known: Arc::new(Mutex::new(Vec::with_capacity(MAX_ADDRESSES))), clock }
    }

    /// Somebody asks for more room than there is. Whether it is made now: it has heard that it shall come again, and has.
    pub(super) fn ask(&self, data: &ConnectData, peer: Option<SocketAddr>) -> bool {
        let (now, address) = (self.clock.now(), peer.map(|peer| peer.ip()));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(asker) = known.iter_mut().find(|asker| asker.address == address) else {
            if known.len() == MAX_ADDRESSES
                && let Some((oldest, _)) = known.iter().enumerate().min_by_key(|(_, asker)| asker.last)
            {
                known.swap_remove(oldest);
            }
            let asked = core::iter::once((*data, now)).collect();
            known.push(Asker { address, asked, last: now, client: 0, in_vain: 0, not_before: now });
            return false;
        };
        asker.last = now;
        let Some((_, first)) = asker.asked.iter().find(|(asked, _)| asked == data) else {
            if asker.asked.is_full() {
                asker.asked.remove(0);
            }
            asker.asked.push((*data, now));
            return false;
        };
        if now < first.saturating_add(COMES_BACK_AFTER) || now < asker.not_before {
            return false;
        }
        asker.client = data.client;
        let pause = FIRST_PAUSE.saturating_mul(1_u32.checked_shl(asker.in_vain).unwrap_or(u32::MAX));
        asker.not_before = now.saturating_add(pause.min(LONGEST_PAUSE));
        asker.in_vain = asker.in_vain.saturating_add(1);
        true
    }

    /// A client of this number was served, and took its leave.
    pub(super) fn served(&self, client: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for asker in known.iter_mut().filter(|asker| asker.client == client) {
            (asker.in_vain, asker.not_before) = (0, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Askers, COMES_BACK_AFTER, LONGEST_PAUSE, MAX_ADDRESSES};
    use crate::latency::{
        operation::Operation,
        parameters::{ConnectData, Invalidation, KeyKind, Parameters, PeerDoes},
    };
    use core::time::Duration;
    use frwr_reactor::{Clock, VirtualClock};
    use std::net::SocketAddr;

    fn data(client: u64, depth: u32) -> ConnectData {
        let parameters = Parameters {
            operation: Operation::Send,
            key: KeyKind::Static,
            invalidation: Invalidation::Local,
            peer_does: PeerDoes::Write,
            size: 4096,
            segments: 1,
            ranges: 1,
            depth,
            batch: 1,
            connections: 1,
        };
        ConnectData { parameters, client }
    }

    fn from(address: u8) -> Option<SocketAddr> {
        Some(SocketAddr::from(([10, 0, 0, address], 7)))
    }

    #[test]
    fn who_does_not_come_back_gets_nothing() {
        let time = VirtualClock::new();
        let askers = Askers::new(Clock::from(&time));
        for client in 1..1000 {
            assert!(!askers.ask(&data(client, 1), from(1)), "asked, and hung up");
            assert!(!askers.ask(&data(client, 1), from(1)), "two at once");
            time.advance(Duration::from_secs(1));
        }
    }

    #[test]
    fn who_gets_room_and_does_not_come_waits_longer_each_time_and_nobody_else_does() {
        let time = VirtualClock::new();
        let askers = Askers::new(Clock::from(&time));
        let (mut made, mut client) = (Vec::new(), 1);
        assert!(!askers.ask(&data(client, 1), from(1)));
        while made.len() < 12 {
            time.advance(Duration::from_millis(50));
            if askers.ask(&data(client, 1), from(1)) {
                made.push(time.now());
                client += 1;
                assert!(!askers.ask(&data(client, 1), from(1)));
            }
        }
        let pauses: Vec<_> = made.windows(2).map(|two| (two[1] - two[0]).as_millis()).collect();
        assert_eq!(pauses[..4], [1000, 2000, 4000, 8000]);
        assert!(pauses[4..].iter().all(|pause| *pause == LONGEST_PAUSE.as_millis()), "{pauses:?}");
        // Somebody else, who comes each time, never waits for more than the word.
        for client in 5000..5100 {
            assert!(!askers.ask(&data(client, 2), from(2)));
            time.advance(COMES_BACK_AFTER);
            assert!(askers.ask(&data(client, 2), from(2)));
            askers.served(client);
        }
        // And once it comes itself, neither does the first.
        time.advance(LONGEST_PAUSE);
        assert!(askers.ask(&data(client, 1), from(1)));
        askers.served(client);
        assert!(!askers.ask(&data(client + 1, 1), from(1)));
        time.advance(COMES_BACK_AFTER);
        assert!(askers.ask(&data(client + 1, 1), from(1)));
    }

    #[test]
    fn two_clients_of_one_address_do_not_hold_each_other_up() {
        let time = VirtualClock::new();
        let askers = Askers::new(Clock::from(&time));
        for client in [1, 2, 3] {
            assert!(!askers.ask(&data(client, 1), from(1)));
            time.advance(COMES_BACK_AFTER / 2);
        }
        time.advance(COMES_BACK_AFTER / 2);
        assert!(askers.ask(&data(1, 1), from(1)));
        askers.served(1);
        assert!(askers.ask(&data(2, 1), from(1)));
    }

    #[test]
    fn addresses_are_bounded() {
        let time = VirtualClock::new();
        let askers = Askers::new(Clock::from(&time));
        for address in 0..=255 {
            time.advance(COMES_BACK_AFTER);
            assert!(!askers.ask(&data(1, 1), from(address)));
        }
        assert_eq!(askers.known.lock().unwrap().len(), MAX_ADDRESSES);
        time.advance(COMES_BACK_AFTER);
        assert!(askers.ask(&data(1, 1), from(255)) && !askers.ask(&data(1, 1), from(0)), "the oldest is forgotten");
    }
}
