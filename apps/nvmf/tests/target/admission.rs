//! Who gets into a target, who has to go for others, and what an operator reads of who does not get in.

use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Access;
use frwr_nvmf::controller::{AllowedHosts, Subsystem};
use frwr_nvmf::storage::MemoryStorage;
use frwr_nvmf::wire::{
    Command, ConnectData, DISCOVERY_SUBSYSTEM, DYNAMIC_CONTROLLER, Nqn, RejectStatus, RequestPrivateData, Status,
};
use frwr_support::nvmf_harness::raw::{Opened, Raw, connect, connect_data};
use frwr_support::nvmf_harness::{memory, subsystem, target_options};
use zerocopy::IntoBytes;

type Memory = Raw<MemoryStorage>;

const SECOND: Duration = Duration::from_secs(1);

fn name(name: &str) -> Nqn {
    Nqn::new(name).unwrap()
}

/// What a host of this number says of itself.
fn host(number: u8, controller_id: u16) -> ConnectData {
    let host = Nqn::new(&format!("nqn.host-{number}")).ok();
    ConnectData { host, host_id: [number; 16], ..connect_data(controller_id) }
}

fn discovery(number: u8) -> ConnectData {
    ConnectData { subsystem: name(DISCOVERY_SUBSYSTEM), ..host(number, DYNAMIC_CONTROLLER) }
}

fn storage() -> Vec<MemoryStorage> {
    vec![MemoryStorage::new(memory(64 << 10), 512, 64).unwrap()]
}

/// A target of as many hosts, with a place for one that comes back, and as many for discovery.
fn target(hosts: u16, discovery: u16) -> Memory {
    let places = target_options().returning_controllers(1).discovery_controllers(discovery);
    Raw::with(places.controllers(hosts + 1).io_queues(2).max_silence(20 * SECOND), storage())
}

/// The status of the Connect of an admin queue.
fn admin(raw: &mut Memory, data: &ConnectData) -> (ConnectionId, Status) {
    let admin = raw.open_queue(0, 32);
    (admin, raw.connect(admin, connect(0, 31), data).status())
}

/// A host brings up a session with two I/O queues, and uses them.
fn uses(raw: &mut Memory, number: u8) -> ConnectionId {
    let (admin, controller) = raw.controller_of(&host(number, DYNAMIC_CONTROLLER));
    for queue in 1..=2 {
        let io = raw.another_queue_of(&host(number, controller), queue);
        assert!(raw.command(io, Command::Flush { namespace: 1 }, None).status().is_success());
    }
    admin
}

/// So many connect requests that nothing follows, of any queue.
fn flood(raw: &mut Memory, connects: u16) {
    for at in 0..connects {
        let asked = RequestPrivateData::new(at % 3, 32 + at % 8);
        let opened = raw.open(asked.as_bytes());
        assert!(matches!(opened, Opened::Yes(_) | Opened::Rejected(_)), "{opened:?}");
    }
}

/// However many connections somebody opens and says nothing on: a new host gets in meanwhile, from another address and from the same one.
#[test]
fn hosts_connect_during_a_flood_of_silent_connections() {
    for same in [false, true] {
        let mut raw = target(2, 2);
        raw.another_host(Some("10.0.0.66"), true);
        let first = uses(&mut raw, 1);
        flood(&mut raw, 70);
        assert!(raw.command(first, Command::KeepAlive, None).status().is_success(), "who is in stays in");
        // From the same address two connect requests come for each of the new host's.
        if !same {
            raw.another_host(Some("10.0.0.7"), true);
        }
        let begun = raw.now;
        let (admin, controller) = raw.controller_of(&host(2, DYNAMIC_CONTROLLER));
        for queue in 1..=2 {
            if same {
                flood(&mut raw, 2);
            }
            raw.another_queue_of(&host(2, controller), queue);
        }
        assert!(raw.now - begun < SECOND, "before anybody's time-out");
        assert!(raw.command(admin, Command::KeepAlive, None).status().is_success());
        let statistics = raw.target.statistics();
        assert!(statistics.made_room > 40 && statistics.connect_timeouts == 0, "{statistics:?}");
        assert_eq!(statistics.keep_alive_expirations + statistics.silent_hosts, 0);
        let told = raw.told();
        let room = "connection ended to make room for others: no Connect in ";
        let is_room = |line: &&String| line.starts_with("peer 10.0.0.66:") && line.contains(room);
        assert!(told.iter().filter(is_room).count() > 30, "{told:#?}");
    }
}

/// What every machine with a queue that is no queue yet may have of the connections, one that brings more loses its own oldest.
#[test]
fn an_address_that_brings_too_much_ends_its_own_oldest() {
    let mut raw = target(2, 2);
    raw.another_host(Some("10.0.0.5"), true);
    let waits = raw.open_queue(0, 32);
    raw.another_host(Some("10.0.0.66"), true);
    flood(&mut raw, 60);
    assert_eq!(raw.target.statistics().rejected, 0, "it ends one for each that it brings");
    let open = raw.target.engine().connections().count();
    assert!(open < 20, "{open}");
    assert_eq!(raw.former_connections(), 1, "nobody else's: {waits:?}");
}

/// Hosts that said who they are and then nothing: an admin queue whose controller was never enabled makes room, too.
#[test]
fn controllers_that_nobody_enables_keep_no_host_out() {
    let mut raw = target(2, 1);
    for number in 10..13 {
        raw.another_host(Some("10.0.0.66"), true);
        assert!(admin(&mut raw, &host(number, DYNAMIC_CONTROLLER)).1.is_success());
        assert!(admin(&mut raw, &discovery(number)).1.is_success());
    }
    raw.another_host(Some("10.0.0.7"), true);
    uses(&mut raw, 1);
    uses(&mut raw, 2);
    let told = raw.told();
    assert!(
        told.iter().any(|line| line.contains("to make room for others: its controller was not enabled in")),
        "{told:#?}"
    );
    let (_, status) = admin(&mut raw, &host(3, DYNAMIC_CONTROLLER));
    assert_eq!(status.code(), Status::CONNECT_CONTROLLER_BUSY.code(), "those that were enabled stay");
}

/// A host that asked for no keep alive and is gone without a word has its place for as long as `max_silence` says, and a little longer. One
/// whose device answers keeps it for ever.
#[test]
fn silent_hosts_stay_while_their_devices_answer_and_go_when_those_do_not() {
    let mut raw = target(2, 2);
    raw.another_host(Some("10.0.0.1"), true);
    uses(&mut raw, 1);
    raw.another_host(Some("10.0.0.2"), true);
    uses(&mut raw, 2);
    // The first one lives and says nothing, the second one is gone.
    raw.another_host(Some("10.0.0.3"), false);
    let silent = raw.former_connections();
    assert_eq!((silent, raw.target.statistics().queues), (3, 6));
    raw.pass(19 * SECOND);
    assert_eq!(raw.target.statistics().probes, 0);
    raw.pass(4 * SECOND);
    assert_eq!(raw.target.statistics().probes, 2, "each is asked once");
    raw.pass(55 * SECOND);
    assert_eq!((raw.target.statistics().queues, raw.target.statistics().silent_hosts), (6, 0));
    raw.pass(8 * SECOND);
    raw.until("ended", |raw| raw.target.statistics().queues == 3);
    let said = "host nqn.host-2, queue 0: connection ended: nothing heard in 20s without a Keep Alive Timeout, nor of the host's \
                device in 60s";
    let told = raw.told();
    assert!(told.len() == 1 && told[0].starts_with("peer 10.0.0.2:") && told[0].ends_with(said), "{told:#?}");
    uses(&mut raw, 3);
    // For many times as long, in which nobody calls.
    raw.pass(200 * SECOND);
    assert_eq!(raw.former_connections(), silent);
    let statistics = raw.target.statistics();
    assert_eq!((statistics.queues, statistics.silent_hosts), (6, 1));
    assert!(statistics.probes > 15, "{statistics:?}");
}

/// Nobody is told how soon: four times in the longest silence, once a second at most, are as good as at once.
#[test]
fn silent_hosts_are_looked_for_now_and_then() {
    const STEP: Duration = Duration::from_millis(25);
    for (max_silence, apart, period) in
        [(2 * SECOND, 5 * STEP, SECOND / 2), (4 * SECOND, 10 * STEP, SECOND), (20 * SECOND, 10 * STEP, SECOND)]
    {
        let hosts = 10;
        let options = target_options().controllers(hosts).max_silence(max_silence);
        let mut raw = Raw::with(options, storage());
        let mut at = raw.now;
        let mut asked = Vec::new();
        let mut count = 0;
        let mut poll = |raw: &mut Memory| {
            at += STEP;
            raw.step_at(at);
            let before = core::mem::replace(&mut count, raw.target.statistics().probes);
            asked.extend((count > before).then_some(at));
            count
        };
        for number in 1..=hosts {
            raw.controller_of(&host(number as u8, DYNAMIC_CONTROLLER));
            (0..apart.as_millis() / STEP.as_millis()).for_each(|_| {
                poll(&mut raw);
            });
        }
        while poll(&mut raw) < hosts.into() {}
        assert!(asked.len() > 2, "{asked:?}");
        assert!(asked.windows(2).all(|pair| pair[1] - pair[0] == period), "{max_silence:?}: {asked:?}");
    }
}

/// Where the device takes its time to end the admin queue's connection.
#[test]
fn a_silent_host_is_ended_once_and_its_io_queues_at_once() {
    let mut raw = target(1, 1);
    uses(&mut raw, 1);
    raw.another_host(None, false);
    raw.pass(79 * SECOND);
    assert_eq!((raw.target.statistics().queues, raw.target.statistics().silent_hosts), (3, 0));
    raw.controlled = false;
    raw.pass(5 * SECOND);
    assert_eq!((raw.target.statistics().queues, raw.target.statistics().silent_hosts), (1, 1));
    assert_eq!(raw.told().len(), 1);
    raw.controlled = true;
    raw.until("ended", |raw| raw.target.engine().is_disconnected());
}

/// Whoever needs a place need not wait for the longest silence: those that are silent are asked at once.
#[test]
fn a_host_without_a_place_has_silent_ones_asked_at_once() {
    let mut raw = target(1, 1);
    uses(&mut raw, 1);
    raw.another_host(None, false);
    let busy = Status::CONNECT_CONTROLLER_BUSY.code();
    raw.pass(6 * SECOND);
    assert_eq!(admin(&mut raw, &host(2, DYNAMIC_CONTROLLER)).1.code(), busy);
    raw.pass(SECOND / 5);
    assert_eq!(raw.target.statistics().probes, 1);
    raw.pass(61 * SECOND);
    raw.until("ended", |raw| raw.target.statistics().silent_hosts == 1);
    uses(&mut raw, 2);
}

#[test]
fn without_a_longest_silence_nobody_is_asked() {
    let options = target_options().max_silence(Duration::ZERO);
    let mut raw = Raw::with(options, storage());
    raw.io_queue();
    raw.another_host(None, false);
    raw.pass(400 * SECOND);
    let statistics = raw.target.statistics();
    assert_eq!((statistics.queues, statistics.probes), (2, 0));
}

/// Hosts, hosts that come back, and the discovery service have places apart.
#[test]
fn a_host_too_many_takes_no_place_of_who_comes_back_nor_of_discovery() {
    let mut raw = target(2, 2);
    uses(&mut raw, 1);
    uses(&mut raw, 2);
    raw.told();
    let busy = Status::CONNECT_CONTROLLER_BUSY;
    let (third, status) = admin(&mut raw, &host(3, DYNAMIC_CONTROLLER));
    assert_eq!((status, status.is_final()), (busy, false));
    let said = "a peer, host nqn.host-3, queue 0: Connect refused, Connect Controller Busy (0x181): all 2 places for hosts are taken, \
                and 1 more for those that come back; raise --hosts, or disconnect a host";
    assert_eq!(raw.told(), [said]);
    // One that comes back, while its former connection is there.
    let (back, status) = admin(&mut raw, &host(2, DYNAMIC_CONTROLLER));
    assert!(status.is_success());
    raw.enable(back);
    assert_eq!(admin(&mut raw, &host(1, DYNAMIC_CONTROLLER)).1, busy, "there is one such place");
    // As many as may ask the discovery service, and one more.
    for number in [3, 4] {
        let (admin, status) = admin(&mut raw, &discovery(number));
        assert!(status.is_success());
        raw.enable(admin);
    }
    raw.told();
    assert_eq!(admin(&mut raw, &discovery(5)).1, busy);
    let said = "a peer, host nqn.host-5, queue 0: Connect refused, Connect Controller Busy (0x181): all 2 places of the discovery service \
                are taken; raise --hosts, or disconnect a host from it";
    assert_eq!(raw.told(), [said]);
    raw.engine.disconnect(third);
    raw.engine.disconnect(back);
    raw.until("gone", |raw| raw.disconnected.len() == 2);
    assert_eq!(admin(&mut raw, &host(3, DYNAMIC_CONTROLLER)).1, busy);
}

/// A Connect's refusal says who wanted what, and why not, in one line that nothing of the peer's breaks.
#[test]
fn whoever_is_refused_at_connect_is_told_by_name() {
    let listed = AllowedHosts::Listed(vec![name("nqn.host-1")]);
    let subsystems = vec![
        Subsystem::new(subsystem(), storage()),
        Subsystem { hosts: listed, ..Subsystem::new(name("nqn.listed"), storage()) },
        Subsystem::new(name("nqn.Third"), storage()),
    ];
    let mut raw = Raw::with_subsystems(target_options().controllers(3), subsystems);
    raw.another_host(Some("::ffff:10.0.0.9"), true);
    let with = |number, subsystem: &str| ConnectData { subsystem: name(subsystem), ..host(number, DYNAMIC_CONTROLLER) };
    let first = subsystem();
    let refused = |raw: &mut Memory, data: &ConnectData| {
        let (connection, status) = admin(raw, data);
        let gone = raw.disconnected.len();
        raw.engine.disconnect(connection);
        raw.until("gone", |raw| raw.disconnected.len() > gone);
        let told = raw.told();
        assert!(told.len() == 1 && told[0].starts_with("peer "), "{status} {told:?}");
        told[0].split_once(", ").unwrap().1.to_owned()
    };
    let invalid = "queue 0: Connect refused, Connect Invalid Parameters (0x182): ";
    let barred = "queue 0: Connect refused, Connect Invalid Host (0x184): ";
    let strange = "nqn.x\u{1b}[2J\n\u{202e}";
    let nameless = ConnectData { host: None, ..with(2, "nqn.listed") };
    let rounds = [
        (
            with(2, "nqn.listed"),
            format!(
                "host nqn.host-2, {barred}the host is on no list of nqn.listed; allowed_hosts or --allow-host lists names"
            ),
        ),
        (
            nameless,
            format!(
                "{barred}a host that gives no name is on no list of nqn.listed; allowed_hosts or --allow-host lists names"
            ),
        ),
        (
            with(1, "nqn.nothing"),
            format!("host nqn.host-1, {invalid}no subsystem nqn.nothing; there is {} and 2 others", first.as_str()),
        ),
        (
            with(1, "nqn.third"),
            format!("host nqn.host-1, {invalid}no subsystem nqn.third; there is nqn.Third and 2 others"),
        ),
        (
            with(1, strange),
            format!(
                "host nqn.host-1, {invalid}no subsystem nqn.x\\u{{1b}}[2J\\n\\u{{202e}}; there is {} and 2 others",
                first.as_str()
            ),
        ),
        (
            ConnectData { controller_id: 5, ..with(1, "nqn.listed") },
            format!("host nqn.host-1, {invalid}CNTLID 0x0005, must be 0xffff"),
        ),
    ];
    for (data, said) in rounds {
        let line = refused(&mut raw, &data);
        assert_eq!(line, said);
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

/// What is wrong with a Connect before its names are known, and with the names themselves.
#[test]
fn a_connect_that_is_no_connect_is_told_by_its_field() {
    let mut raw = Raw::with(target_options().io_queues(2), storage());
    let admin = raw.open_queue(0, 32);
    let data = host(1, DYNAMIC_CONTROLLER);
    let connects = [
        (
            frwr_nvmf::wire::Connect { record_format: 1, ..connect(0, 31) },
            "Incompatible Format (0x180): RECFMT 1, must be 0",
        ),
        (connect(1, 31), "Invalid Parameters (0x182): QID 1, the connect request said 0"),
        (connect(0, 0), "Invalid Parameters (0x182): SQSIZE 0, must be from 1 to 31"),
        (connect(0, 32), "Invalid Parameters (0x182): SQSIZE 32, must be from 1 to 31"),
    ];
    for (wrong, said) in connects {
        assert!(!raw.connect(admin, wrong, &data).status().is_success());
        assert_eq!(raw.told(), [format!("a peer, queue 0: Connect refused, Connect {said}")]);
    }
    for (at, byte, said) in [
        (
            256,
            0,
            "a peer, queue 0: Connect refused, Connect Invalid Parameters (0x182): SUBNQN is no name of a subsystem: an NQN starts with `nqn.`",
        ),
        (
            512,
            b'x',
            "a peer, queue 0: Connect refused, Connect Invalid Parameters (0x182): HOSTNQN is no name of a host: an NQN starts with `nqn.`",
        ),
    ] {
        let mut bytes = data.to_bytes();
        bytes[at] = byte;
        raw.data.write(0, &bytes).unwrap();
        let response = raw.command(admin, Command::Connect(connect(0, 31)), Some((Access::RemoteRead, 1024)));
        assert_eq!(response.status().code(), Status::CONNECT_INVALID_PARAMETERS.code());
        assert_eq!(response.result.get(), 1 << 16 | at as u64);
        assert_eq!(raw.told(), [said]);
    }
}

/// An I/O queue is its admin queue's host's: by its names, and by where it comes from.
#[test]
fn an_io_queue_comes_from_where_its_admin_queue_does_on_every_core() {
    for cores in [1, 2] {
        let options = target_options().cores(cores).io_queues(2);
        let mut raw = Raw::spread(options, |_| vec![Subsystem::new(subsystem(), storage())]);
        raw.another_host(Some("10.0.0.1"), true);
        let (_, controller) = raw.controller_of(&host(1, DYNAMIC_CONTROLLER));
        raw.another_queue_of(&host(1, controller), 1);
        raw.another_host(Some("10.0.0.2"), true);
        for queue in 1..=2 {
            let io = raw.open_queue(queue, 33);
            let status = raw.connect(io, connect(queue, 32), &host(1, controller)).status();
            assert_eq!(status, Status::CONNECT_INVALID_HOST.do_not_retry(), "{cores} cores");
            let said = format!(
                "host nqn.host-1, queue {queue}: Connect refused, Connect Invalid Host (0x184): the controller's admin queue comes \
                 from 10.0.0.1"
            );
            let told = raw.told();
            assert!(told.len() == 1 && told[0].starts_with("peer 10.0.0.2:") && told[0].ends_with(&said), "{told:?}");
        }
        let (_, other) = raw.controller_of(&host(2, DYNAMIC_CONTROLLER));
        let io = raw.open_queue(1, 33);
        assert!(!raw.connect(io, connect(1, 32), &host(3, other)).status().is_success());
        assert!(raw.told()[0].ends_with("Connect Invalid Host (0x184): the controller is another host's"));
        assert!(!raw.connect(io, connect(1, 32), &host(2, other + 9)).status().is_success());
        let said = format!("(0x182): {} has no controller {}", subsystem().as_str(), other + 9);
        assert!(raw.told()[0].ends_with(&said));
        assert!(raw.connect(io, connect(1, 32), &host(2, other)).status().is_success());
    }
}

/// Where every connection is a queue of a host, who comes is told so and why, in a reject that says no resources.
#[test]
fn where_all_connections_are_queues_the_next_is_told_so() {
    let options = target_options().controllers(3).io_queues(4).discovery_controllers(1);
    let mut raw = Raw::with(options, storage());
    let mut controllers = Vec::new();
    for number in 1..=3 {
        let (_, controller) = raw.controller_of(&host(number, DYNAMIC_CONTROLLER));
        for queue in 1..=4 {
            raw.another_queue_of(&host(number, controller), queue);
        }
        controllers.push(controller);
    }
    // The rest may be opened, and makes room for each other.
    flood(&mut raw, 40);
    assert_eq!(raw.target.statistics().queues, 15);
    assert_eq!(raw.open(&[0; 56]), Opened::Rejected(RejectStatus::InvalidHostSendQueue as u16));
    let told = raw.told();
    let foreign =
        "connect request rejected: no NVMe over Fabrics private data: another program than an NVMe host connects here";
    assert!(told.last().unwrap().ends_with(foreign), "{told:?}");
}
