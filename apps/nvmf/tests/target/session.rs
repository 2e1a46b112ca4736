//! Connections of a target from their connect request to their end: what each of them is told, and when.

use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::fault::CommandKind;
use frwr_nvmf::controller::{Subsystem, TargetOptions};
use frwr_nvmf::storage::MemoryStorage;
use frwr_nvmf::wire::{Command, Connect, ConnectData, DYNAMIC_CONTROLLER, Nqn, RequestPrivateData};
use frwr_support::nvmf_harness::raw::{Opened, Raw, UNSAID, connect, connect_data};
use frwr_support::nvmf_harness::{memory, subsystem, target_options};
use zerocopy::IntoBytes;

type Memory = Raw<MemoryStorage>;

const MICROSECOND: Duration = Duration::from_micros(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn storage() -> Vec<MemoryStorage> {
    vec![MemoryStorage::new(memory(64 << 10), 512, 64).unwrap()]
}

fn target(options: TargetOptions) -> Memory {
    Raw::with(options, storage())
}

fn other_host(controller: u16) -> ConnectData {
    ConnectData { host: Nqn::new("nqn.other-host").ok(), host_id: [2; 16], ..connect_data(controller) }
}

/// A connection, and when the target accepted it.
fn accepted(raw: &mut Memory) -> (ConnectionId, Duration) {
    let before = raw.target.statistics().accepted;
    raw.begin_open(RequestPrivateData::new(0, 32).as_bytes());
    raw.until("accepted", |raw| raw.target.statistics().accepted > before);
    let at = raw.now;
    raw.until("opened", |raw| raw.opened().is_some());
    let Some(Opened::Yes(connection)) = raw.opened() else { panic!("{:?}", raw.opened()) };
    (connection, at)
}

/// Each at its own time, which its poll sees, however near the next one's is.
#[test]
fn connections_without_a_connect_end_one_by_one_each_told_once() {
    let connect_timeout = 3 * MILLISECOND;
    let mut raw = target(target_options().connect_timeout(connect_timeout).controllers(3));
    let (queue, _) = raw.controller();
    let opened = [0; 3].map(|_| {
        raw.now += MILLISECOND / 3;
        accepted(&mut raw)
    });
    raw.told();
    // The device takes its time to destroy them.
    raw.controlled = false;
    for (ended, (_, at)) in (1..).zip(opened) {
        let deadline = at + connect_timeout;
        raw.step_at(deadline - MICROSECOND);
        assert_eq!(raw.target.statistics().connect_timeouts, ended - 1);
        raw.step_at(deadline);
        assert_eq!(raw.target.statistics().connect_timeouts, ended);
        assert_eq!(raw.told(), ["a peer, queue 0: connection ended: no Connect in 3ms"]);
    }
    raw.pass(SECOND);
    assert_eq!((raw.target.statistics().connect_timeouts, raw.told().len()), (3, 0));
    raw.controlled = true;
    raw.until("all ended", |raw| opened.iter().all(|(connection, _)| raw.disconnected.contains(connection)));
    assert_eq!(raw.disconnected.len(), 3);
    raw.pass(SECOND);
    assert!(raw.command(queue, Command::KeepAlive, None).status().is_success(), "a queue has no such time-out");
}

/// Where commands come before it, they are answered in order as well; a queue begins behind them.
#[test]
fn the_connect_that_makes_a_queue_is_its_first_entry() {
    let mut raw = Raw::default();
    let admin = raw.open_queue(0, 32);
    let data = connect_data(DYNAMIC_CONTROLLER);
    for head in 1..=3 {
        let refused = raw.connect(admin, connect(0, 0), &data);
        assert!(!refused.status().is_success());
        assert_eq!(refused.submission_queue_head.get(), head);
    }
    let connected = raw.connect(admin, connect(0, 31), &data);
    assert_eq!((connected.status().is_success(), connected.submission_queue_head.get()), (true, 1));
    assert_eq!(raw.command(admin, Command::KeepAlive, None).submission_queue_head.get(), 2);
}

/// Who connects looks at all connections that end, of whatever host.
#[test]
fn an_io_queue_that_ends_takes_no_other_queue_of_its_controller_with_it() {
    let mut raw = target(target_options().controllers(2).io_queues(2));
    let (admin, controller) = raw.controller();
    let queues = [1, 2].map(|queue| raw.another_queue(controller, queue));
    let other = raw.open_queue(0, 32);
    raw.begin_end(&queues[..1]);
    raw.begin_session_of(other, &other_host(DYNAMIC_CONTROLLER));
    raw.until("answered", |raw| !raw.responses.is_empty());
    assert!(raw.responses[0].status().is_success());
    assert!(raw.command(queues[1], Command::Flush { namespace: 1 }, None).status().is_success());
    assert!(raw.command(admin, Command::KeepAlive, None).status().is_success());
    raw.controlled = true;
    raw.until("ended", |raw| raw.disconnected == queues[..1]);
    raw.another_queue(controller, 1);
}

/// Its engine may be somebody else's as well, and have room for more than the target does.
#[test]
fn a_connection_without_a_place_in_the_target_ends() {
    let options = target_options().controllers(1);
    let engine = |options: &TargetOptions| options.engine().connections(32);
    let places = u64::from(options.connections());
    let mut raw = Raw::over(options, engine, |_| vec![Subsystem::new(subsystem(), storage())]);
    // An address may have fewer than half of them.
    for number in 0..places {
        if number % 4 == 0 {
            raw.another_host(Some(&format!("10.0.0.{number}")), true);
        }
        raw.open_queue(0, 32);
    }
    assert_eq!(raw.open(RequestPrivateData::new(0, 32).as_bytes()), Opened::Rejected(UNSAID));
    raw.steps(100);
    let statistics = raw.target.statistics();
    assert_eq!((statistics.accepted, statistics.rejected, statistics.made_room), (places, 0, 0));
    assert_eq!(raw.target.engine().connections().count() as u64, places);
}

/// What is said of a silent host is what happened while it was there.
#[test]
fn a_standstill_before_a_host_came_is_none_of_its_silence() {
    let mut raw = Raw::default();
    raw.now += 3600 * SECOND;
    let admin = raw.open_queue(0, 32);
    let connect = Connect { keep_alive_timeout: 1000, ..connect(0, 31) };
    assert!(raw.connect(admin, connect, &connect_data(DYNAMIC_CONTROLLER)).status().is_success());
    raw.pass(2 * SECOND);
    let said = "a peer, host nqn.host, queue 0: connection ended: nothing heard in the Keep Alive Timeout of 1s";
    assert_eq!(raw.told(), [said]);
}

/// A connect request that is read together with the end of another connection is served, and that connection's controller ends: where
/// there is one place for a controller, the newcomer has it.
#[test]
fn a_controller_ends_with_its_connection_whoever_comes_at_that_moment() {
    for controllers in [2, 1] {
        let mut raw = target(target_options().controllers(controllers));
        let (former, _) = raw.controller();
        raw.faults.hold_answers(CommandKind::DestroyQueuePair);
        raw.engine.disconnect(former);
        raw.until("ended here", |raw| raw.disconnected.contains(&former));
        raw.steps(100);
        raw.begin_open_at_the_end_of_another(RequestPrivateData::new(0, 32).as_bytes());
        let Some(Opened::Yes(admin)) = raw.opened() else { panic!("{:?}", raw.opened()) };
        let status = raw.connect(admin, connect(0, 31), &other_host(DYNAMIC_CONTROLLER)).status();
        assert!(status.is_success(), "{controllers}: {status}");
    }
}
