//! Connections that share one receive queue: one post for all of them, grants, ends, and no buffer lost or doubled.

mod deadline;
mod grants;
mod late;
mod refusals;

use frwr_engine::{ConnectionId, ReceiveBuffers, ReceiveQueues, Received, provider::Access};
use frwr_support::engine_harness::{Setup, scripted::Scripted};

/// Receives that a connection is granted.
const GRANT: u32 = 8;

/// A target whose connections share `entries` receives; nobody is connected yet.
fn apart(profile: &str, connections: u16, entries: u32) -> Scripted {
    let setup = Setup::new(profile).peer_receives(GRANT).host(|host| host.connections = connections).target(|target| {
        target.connections = connections;
        target.receive_depth = GRANT;
        target.receive_queues = ReceiveQueues::Shared { entries };
    });
    let mut test = Scripted::of(setup);
    test.target.every_command = Some(Vec::new());
    test
}

/// The same with this many connections, by the names of the host.
fn connected(profile: &str, connections: u16) -> (Scripted, Vec<ConnectionId>) {
    let mut test = apart(profile, connections, 0);
    let opened = (0..connections).map(|_| open(&mut test)).collect();
    (test, opened)
}

fn open(test: &mut Scripted) -> ConnectionId {
    let ready = test.target.connections.len() + 1;
    test.connect();
    test.until("both ends", |pair| pair.target.connections.len() >= ready);
    test.host.connection.unwrap()
}

fn send(test: &mut Scripted, connection: ConnectionId, cookie: u64) {
    test.host.connection = Some(connection);
    let segment = [test.host.segment(4096 * (cookie % 64), 512)];
    test.host.submit(cookie, Access::RemoteWrite, &segment, true).unwrap();
}

fn until_received(test: &mut Scripted, count: usize) {
    test.until("commands", |pair| pair.target.every_command.as_ref().unwrap().len() >= count);
}

fn take(test: &mut Scripted) -> Vec<(ConnectionId, Received)> {
    test.target.every_command.as_mut().unwrap().drain(..).collect()
}

/// Answers what the target has, each on its own connection.
fn answer(test: &mut Scripted) {
    for (connection, received) in take(test) {
        let (name, grants) = test.target.read_command(&received);
        test.target.engine.release(received);
        test.target.connection = Some(connection);
        let key = grants.first().map(|grant| grant.key);
        let _ = test.target.try_answer(name, &grants, key);
    }
}

fn round_trip(test: &mut Scripted, connection: ConnectionId, cookie: u64) {
    send(test, connection, cookie);
    until_received(test, 1);
    answer(test);
    test.until("a round trip", |pair| pair.host.ended.iter().any(|(ended, _)| *ended == cookie));
    assert_eq!(test.status(cookie), Some("replied"));
}

fn free(test: &Scripted) -> u32 {
    test.target.engine.statistics().shared_receives_free as u32
}

/// All buffers that nobody holds are posted, and all receives but those of `open` connections can be granted.
fn assert_all_there(test: &Scripted, entries: u32, open: u32) {
    let buffers = ReceiveBuffers { posted: entries, held: 0, idle: 0 };
    assert_eq!((test.target.engine.receive_buffers(), free(test)), (buffers, entries - open * GRANT));
}
