//! Sockets that are full, and processes that are gone.

use super::middleman::Middleman;
use super::{Place, device};
use crate::harness::pair::Pair;
use crate::harness::soft::ADDRESS;
use crate::harness::{Builder, MEMORY, SIZES, pattern, statuses};
use frwr_engine::provider::soft::{SoftDevice, SoftOptions};
use frwr_engine::provider::{Access, Command, ConnectionEvent, ConnectionParameters, FailureStatus};

fn pair(place: &Place) -> Pair<SoftDevice> {
    let (directory, options) = (place.directory("nics"), SoftOptions::default());
    Pair::new(device(&directory, options), device(&directory, options), ADDRESS)
}

/// Both sides send more than lanes, buffers and sockets hold to a peer that does not move: nothing blocks, nothing is lost, and
/// answers pass the requests that wait.
#[test]
fn a_peer_that_stands_still_is_waited_for() {
    const LENGTH: u32 = (MEMORY / 4) as u32;
    const MESSAGES: usize = 16;
    let place = Place::new();
    let mut pair = pair(&place);
    let ends = pair.connect();
    let mut slots = (pair.owner.slot(ends.owner), pair.peer.slot(ends.peer));
    let opened = [pair.owner.element(u64::from(LENGTH), LENGTH)];
    let (chain, of_owner) = Builder::new().register(&pair.owner, &mut slots.0, &opened, Access::RemoteWrite);
    pair.owner_runs(ends.owner, &chain.signalled(), 1);
    let opened = [pair.peer.element(u64::from(LENGTH), LENGTH)];
    let (chain, of_peer) = Builder::new().register(&pair.peer, &mut slots.1, &opened, Access::RemoteWrite);
    pair.peer_runs(ends.peer, &chain.signalled(), 1);
    let (before, there) = ((pair.owner.sent.len(), pair.peer.sent.len()), pattern(3, LENGTH as usize));
    pair.owner.write_memory(0, &there);
    let back = pattern(4, LENGTH as usize);
    pair.peer.write_memory(0, &back);
    let writes =
        |element, remote| (0..MESSAGES).fold(Builder::new(), |chain, _| chain.write(&[element], remote).signalled());
    let (to_peer, to_owner) =
        (writes(pair.owner.element(0, LENGTH), of_peer.at(0)), writes(pair.peer.element(0, LENGTH), of_owner.at(0)));
    pair.owner.post(ends.owner, &to_peer).expect("room");
    (0..500).for_each(|_| pair.owner.step());
    assert_eq!(pair.owner.sent.len(), before.0, "nobody has answered");
    pair.peer.post(ends.peer, &to_owner).expect("room");
    pair.until("all of both", |pair| {
        (pair.owner.sent.len(), pair.peer.sent.len()) == (before.0 + MESSAGES, before.1 + MESSAGES)
    });
    assert!(statuses(&pair.owner.sent).iter().chain(&statuses(&pair.peer.sent)).all(Option::is_none));
    assert_eq!(pair.owner.read_memory(LENGTH as usize, LENGTH as usize), back);
    assert_eq!(pair.peer.read_memory(LENGTH as usize, LENGTH as usize), there);
}

/// A message without a receive holds up those behind it, and no answer.
#[test]
fn answers_pass_messages_that_find_no_receive() {
    let place = Place::new();
    let mut pair = pair(&place);
    let (owner, peer) = (pair.owner.domain, pair.peer.domain);
    let endless = ConnectionParameters::default().rnr_retry_count(7);
    let ends = pair.connect_with(owner, peer, SIZES, endless);
    let local = [pair.owner.element(0, (MEMORY / 4) as u32)];
    let many = (0..SIZES.send).fold(Builder::new(), |chain, _| chain.send(&local));
    pair.owner.post(ends.owner, &many).expect("room");
    pair.settle();
    // The peer's own message is answered all the same.
    pair.owner.post_receives(ends.owner, 0, 1);
    let element = [pair.peer.element(0, 64)];
    assert_eq!(statuses(&pair.peer_runs(ends.peer, &Builder::new().send(&element).signalled(), 1)), [None]);
}

/// What a process that is killed leaves: sockets at their end, whatever was on its way.
#[test]
fn a_process_that_is_gone_is_a_peer_that_is_lost() {
    let place = Place::new();
    let (here, there) = (place.directory("here"), place.directory("there"));
    let options = SoftOptions::default();
    let mut pair = Pair::new(device(&here, options), device(&there, options), ADDRESS);
    let mut between = Middleman::new(&here, &there, &ADDRESS.to_string());
    let mut handing_on = |_, message| vec![message];
    let queue_pairs = (pair.owner.queue_pair(SIZES), pair.peer.queue_pair(SIZES));
    pair.owner.connect(queue_pairs.0, ADDRESS, Default::default());
    let mut established = 0;
    for _ in 0..100 {
        between.step(&mut handing_on);
        pair.step();
        for event in pair.peer.connection_events() {
            match event {
                ConnectionEvent::Request { incoming, private_data, parameters, .. } => {
                    let queue_pair = queue_pairs.1;
                    let accept = Command::Accept { incoming, queue_pair, private_data, parameters };
                    pair.peer.command(accept).expect("accepted");
                }
                ConnectionEvent::Established { .. } => established += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(established, 1);
    pair.owner.connection_events();
    let element = [pair.owner.element(0, 64)];
    pair.owner.post(queue_pairs.0, &Builder::new().send(&element)).expect("room");
    between.cut();
    pair.until("the end of the work", |pair| !pair.owner.sent.is_empty());
    assert_eq!(statuses(&pair.owner.sent), [Some(FailureStatus::RetryExceeded)]);
    let is_end = |events: Vec<ConnectionEvent>| matches!(events[..], [ConnectionEvent::Disconnected { .. }]);
    assert!(is_end(pair.until_owner_hears()) && is_end(pair.until_peer_hears()));
}
