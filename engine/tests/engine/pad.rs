//! Section 1.I: the write pad.

use frwr_engine::{
    OnPostError,
    provider::{
        Access, Port, PostRefusal, QueuePairId,
        record::{Record, RecordedOperation},
    },
};
use frwr_support::engine_harness::{self, Setup, Watched};

fn padded() -> Setup {
    Setup::new("reg_mr").host(|host| host.write_pad = true)
}

fn grant(pair: &Watched) -> Option<frwr_engine::mr::Grant> {
    pair.pair.host.engine.write_pad(pair.pair.host.connection.unwrap())
}

#[test]
fn s90_one_registration_of_four_bytes_after_connect() {
    let mut pair = padded().watched();
    assert_eq!(pair.host.chains(), ["R"], "alone, unsignalled, no message");
    let wr = pair.host.wrs()[0];
    let RecordedOperation::Register { key, access, iova, elements, .. } = wr.operation else { panic!("{wr:?}") };
    assert_eq!((wr.length, access, elements, iova >> 32), (4, Access::RemoteWrite, 1, 0));
    let told = grant(&pair).unwrap();
    assert_eq!((told.key, told.address, told.length), (key, iova, 4));
    pair.steps(5);
    assert_eq!(pair.pair.host.engine.port().remote_bytes_open(), Some(4));
    // It takes an MR beside those of the requests, and a send queue entry that no request can reserve (S92, D19).
    let descriptors = pair.pair.host.engine.descriptors(pair.pair.host.connection.unwrap());
    assert_eq!((descriptors.free, descriptors.used), (32, 1));
}

#[test]
fn s90_without_the_option_there_is_none() {
    let mut pair = Setup::new("reg_mr").watched();
    assert_eq!(grant(&pair), None);
    assert_eq!(pair.host.chains(), Vec::<String>::new());
}

#[test]
fn s91_the_peer_rounds_up_into_the_pad() {
    for profile in engine_harness::PROFILES {
        let mut pair = Setup::new(profile).host(|host| host.write_pad = true).watched();
        let pad = grant(&pair).unwrap();
        let segment = pair.pair.host.segment(0, 4093);
        pair.pair.host.submit(1, Access::RemoteWrite, &[segment], true).unwrap();
        pair.until("arrived", |pair| !pair.target.commands.is_empty());
        let (name, mut grants) = pair.pair.target.take_command().unwrap();
        // The upper layer names the pad behind the data; here the test does.
        let data = grants[0].key;
        grants.push(pad);
        pair.pair.target.data.fill(0, 4097, 7).unwrap();
        pair.pair.target.answer(name, &grants, Some(data));
        pair.until("ended", |pair| pair.host.ended.len() == 1);
        let mut bytes = [0; 4096];
        pair.pair.host.data.read(0, &mut bytes).unwrap();
        assert_eq!((bytes[4092], bytes[4093]), (7, 0), "{profile}: padding is not data");
    }
}

#[test]
fn s92_one_pad_for_a_thousand_requests_and_another_for_the_next_connection() {
    let mut pair = padded().watched();
    let pad = grant(&pair).unwrap();
    for cookie in 0..1000 {
        pair.request(cookie, 1, false, cookie % 2 == 0);
        assert_eq!(grant(&pair), Some(pad));
    }
    let records = pair.host.log();
    let registers = |record: &&Record| matches!(record, Record::Posted { operation: RecordedOperation::Register { key, .. }, .. } if *key == pad.key);
    let kills = |record: &&Record| matches!(record, Record::Posted { operation: RecordedOperation::Invalidate { key, .. }, .. } if *key == pad.key);
    assert_eq!((records.iter().filter(registers).count(), records.iter().filter(kills).count()), (1, 0));
    let connection = pair.pair.host.connection.unwrap();
    pair.pair.host.engine.disconnect(connection);
    pair.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
    assert_eq!(pair.pair.host.engine.port().remote_bytes_open(), Some(0), "destroyed with the others");
    assert_eq!(pair.pair.host.engine.write_pad(connection), None);
    pair.pair.connect();
    assert_ne!(grant(&pair).unwrap().key, pad.key);
}

/// The queue pair that the first connection of a host gets.
fn first_queue_pair() -> QueuePairId {
    padded().watched().queue_pair()
}

#[test]
fn s93_f08_a_refused_pad_is_never_announced() {
    let setup = padded().host(|host| host.on_post_error = OnPostError::DeregisterAndContinue).peer_receives(64);
    let mut pair = setup.watched_apart();
    pair.host.faults.refuse_post(first_queue_pair(), 0, PostRefusal::QueueFull);
    pair.pair.connect();
    assert_eq!(pair.host.faults.faults(), 1);
    pair.steps(10);
    assert_eq!(grant(&pair), None, "the upper layer falls back on memory of the request");
    assert_eq!(pair.pair.host.engine.port().remote_bytes_open(), Some(0));
    let connection = pair.pair.host.connection.unwrap();
    let descriptors = pair.pair.host.engine.descriptors(connection);
    assert_eq!((descriptors.free, descriptors.used, descriptors.absent), (32, 0, 1), "its object is destroyed");
    // More requests than there are MRs: the pad's descriptor gets a new object and serves a request.
    for cookie in 0..40 {
        pair.pair.host.submit(cookie, Access::RemoteWrite, &[pair.pair.host.segment(0, 64)], true).unwrap();
    }
    pair.until("all in use", |pair| pair.host.engine.descriptors(connection).used == 33);
    assert_eq!(grant(&pair), None, "the key of a request is nobody's pad");
    pair.until("ended", |pair| {
        pair.serve(true);
        pair.host.ended.len() == 40
    });
}

/// Neither is the one that a former connection in the same place had.
#[test]
fn s93_f08_a_refused_pad_is_not_the_former_connections() {
    let setup = || {
        let setup = padded().host(|host| {
            (host.on_post_error, host.connections) = (OnPostError::DeregisterAndContinue, 1);
        });
        setup.peer_receives(64).watched()
    };
    let end = |pair: &mut Watched| {
        let connection = pair.pair.host.connection.unwrap();
        pair.pair.host.engine.disconnect(connection);
        pair.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
    };
    let mut twin = setup();
    end(&mut twin);
    twin.pair.connect();
    let mut pair = setup();
    assert!(grant(&pair).is_some());
    end(&mut pair);
    pair.host.faults.refuse_post(twin.queue_pair(), 0, PostRefusal::QueueFull);
    pair.pair.connect();
    assert_eq!(pair.host.faults.faults(), 1);
    assert_eq!(grant(&pair), None);
    let connection = pair.pair.host.connection.unwrap();
    // Every MR is a request's, also the one in the place of the former pad.
    for cookie in 0..40 {
        pair.pair.host.submit(cookie, Access::RemoteWrite, &[pair.pair.host.segment(0, 64)], true).unwrap();
    }
    pair.until("all in use", |pair| pair.host.engine.descriptors(connection).used == 33);
    assert_eq!(grant(&pair), None, "the key of a request is nobody's pad");
}

#[test]
fn s93_d07_a_refused_pad_ends_the_connection_where_a_refused_post_does() {
    let mut pair = padded().watched_apart();
    pair.host.faults.refuse_post(first_queue_pair(), 0, PostRefusal::QueueFull);
    let options = frwr_engine::ConnectionOptions::default().peer_receives(8);
    pair.pair.host.engine.connect(engine_harness::address(), b"", &options).unwrap();
    pair.until("disconnected", |pair| pair.host.disconnected == 1);
    let statistics = pair.pair.host.engine.statistics();
    assert_eq!((statistics.disconnects, statistics.mrs_destroyed), (1, statistics.mrs_allocated));
    assert!(pair.pair.host.events.iter().any(|event| event.contains("cause: PostRefused")));
}

#[test]
fn s90_a_device_without_a_free_mr_gives_no_pad() {
    let mut pair = padded().device(|soft| soft.capabilities.attributes.max_registrations = 0).watched();
    assert_eq!(grant(&pair), None);
    pair.request(1, 0, false, false);
}
