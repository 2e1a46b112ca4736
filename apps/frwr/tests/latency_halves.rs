//! The two halves of `frwr latency` against each other, and against peers that are none, over the software NIC: all of them but
//! the opening of a real device.

mod latency_harness;

use frwr::Error;
use frwr::latency::{
    ConnectData, Invalidation, KeyKind, LatencyOutcome, LatencyReport, Operation, PROTOCOL_VERSION, Parameters,
    PeerDoes, Quantity, Refusal, measure, measure_both, serve,
};
use frwr::report::Report as _;
use frwr_engine::{
    ConnectionOptions, Event, MAX_INCOMING, OpenFailure, ResponseRequest, Submission,
    provider::{
        CommandError, ConnectionParameters,
        fault::{CommandKind, Faulty},
        soft::{SoftDevice, SoftFabric, SoftOptions},
    },
};
use latency_harness::{ADDRESS, Raw, Server, config, device, machine};
use serde_json::Value;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

/// What a client asks for that has nothing special.
const PLAIN: Parameters = Parameters {
    operation: Operation::Request,
    key: KeyKind::Request,
    invalidation: Invalidation::Remote,
    peer_does: PeerDoes::Write,
    size: 4096,
    segments: 1,
    ranges: 1,
    depth: 1,
    batch: 1,
    connections: 1,
};

fn client(fabric: &SoftFabric, profile: &str, arguments: &[&str]) -> Result<LatencyReport, Error> {
    let config = config(&[&["10.0.0.1", "--warm-up", "0"], arguments].concat());
    let stop = AtomicBool::new(false);
    measure(device(fabric, profile), ADDRESS.parse().unwrap(), &config, &machine(), &stop, &mut |line| panic!("{line}"))
}

fn ok(report: Result<LatencyReport, Error>, requests: u64) -> LatencyReport {
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((report.requests(), report.histogram.len()), (requests, requests));
    report
}

#[test]
fn one_server_serves_whatever_clients_ask_for() {
    for profile in ["reg_mr", "window", "rxe"] {
        let server = Server::start(profile, &[]);
        let runs: &[&[&str]] = &[
            &[],
            &["--invalidate", "local"],
            &["--key", "static", "--depth", "8"],
            &["--op", "write", "--size", "65536", "--depth", "4"],
            &["--op", "pingpong", "--size", "65536", "--depth", "4"],
            &["--op", "read", "--connections", "3"],
            &["--op", "write", "--size", "128", "--ranges", "16", "--depth", "3"],
            &["--op", "read", "--size", "8192", "--ranges", "4", "--segments", "2"],
            &["--op", "send", "--size", "16384", "--depth", "16"],
            &["--op", "register", "--batch", "16"],
            &["--peer", "read", "--size", "16384", "--segments", "4", "--depth", "64", "--cores", "unpinned:2"],
        ];
        for arguments in runs {
            ok(client(&server.fabric, profile, &[&["--iterations", "200"], *arguments].concat()), 200);
        }
        let (lines, report) = server.end();
        // Each client costs two lines, one when it comes and one when it goes.
        assert_eq!(lines.len(), 2 * runs.len(), "{lines:#?}");
        assert!(lines.iter().skip(1).step_by(2).all(|line| line.starts_with("client has ended after ")), "{lines:#?}");
        assert_eq!((report.clients, report.undrained), (runs.len() as u64, Vec::new()));
        // Requests, messages and WRITEs that are answered are commands; transfers and keys of clients are nothing to a server.
        assert_eq!(report.commands, 6 * 200);
    }
}

/// A server's device needs keys for nothing but memory that it opens for the run.
#[test]
fn a_server_whose_device_opens_no_keys_serves_what_needs_none() {
    let mut options = SoftOptions::new("window".parse().unwrap()).without_registrations();
    options.capabilities.send_with_invalidate = false;
    let server = Server::on(options, config(&[]));
    for arguments in
        [&["--op", "send"][..], &["--op", "request", "--invalidate", "local", "--depth", "4"], &["--op", "register"]]
    {
        ok(client(&server.fabric, "window", &[&["--iterations", "50"], arguments].concat()), 50);
    }
    let refused = |arguments: &[&str], why: &str| {
        let error = client(&server.fabric, "window", arguments).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(&["--op", "request", "--invalidate", "remote"], "choose --invalidate local");
    refused(&["--op", "write"], "use --key memory");
    refused(&["--op", "read"], "use --key memory");
    let (lines, _) = server.end();
    assert_eq!(lines.iter().filter(|line| line.contains("this device opens no keys")).count(), 2, "{lines:#?}");
}

/// Nor does a client's for messages alone, and for what the server opens.
#[test]
fn a_client_whose_device_opens_no_keys_measures_what_needs_none() {
    let server = Server::start("window", &[]);
    let run = |arguments: &[&str]| {
        let device = server.fabric.device(SoftOptions::new("window".parse().unwrap()).without_registrations());
        let config = config(&[&["10.0.0.1", "--warm-up", "0", "--iterations", "50"], arguments].concat());
        measure(device, ADDRESS.parse().unwrap(), &config, &machine(), &AtomicBool::new(false), &mut |_| {})
    };
    for operation in ["send", "write", "read"] {
        let report = ok(run(&["--op", operation]), 50);
        assert_eq!(report.json()["registration"], "none", "{operation}");
    }
    for operation in ["request", "register"] {
        let error = run(&["--op", operation]).unwrap_err().to_string();
        assert!(error.contains("no memory management extensions"), "{error}");
    }
    server.end();
}

#[test]
fn a_server_on_two_cores_shares_its_connections() {
    let server = Server::start("reg_mr", &["--cores", "unpinned:2"]);
    ok(client(&server.fabric, "reg_mr", &["--iterations", "600", "--connections", "6", "--depth", "4"]), 600);
    assert_eq!(server.end().1.commands, 600);
}

#[test]
fn who_asks_for_too_much_or_in_another_language_is_refused_with_a_reason() {
    let server = Server::start("reg_mr", &[]);
    let mut version = ConnectData { parameters: PLAIN, client: 7 }.encode();
    version[4] = PROTOCOL_VERSION as u8 + 1;
    let of = |parameters| ConnectData { parameters, client: 7 }.encode();
    let excess = |bytes: &[u8], what| match Refusal::decode(bytes) {
        Ok(Refusal::Excess(excess)) => assert!(excess.what == what && excess.value > excess.most, "{excess:?}"),
        other => panic!("{other:?}"),
    };
    assert_eq!(Refusal::decode(&refused(&server.fabric, &version)), Ok(Refusal::Version(PROTOCOL_VERSION)));
    for garbage in [&b""[..], b"x", b"fLAT", &[0xff; 56]] {
        assert_eq!(Refusal::decode(&refused(&server.fabric, garbage)), Ok(Refusal::Malformed), "{garbage:?}");
    }
    excess(&refused(&server.fabric, &of(Parameters { depth: u32::MAX, ..PLAIN })), Quantity::Depth);
    excess(&refused(&server.fabric, &of(Parameters { size: 0xffff_fff8, ..PLAIN })), Quantity::Size);
    excess(&refused(&server.fabric, &of(Parameters { segments: 255, size: 255 * 8, ..PLAIN })), Quantity::Segments);
    excess(&refused(&server.fabric, &of(Parameters { ranges: 255, ..PLAIN })), Quantity::Ranges);
    let transfer = Parameters { operation: Operation::Write, key: KeyKind::Static, ..PLAIN };
    excess(&refused(&server.fabric, &of(Parameters { ranges: 255, ..transfer })), Quantity::Ranges);
    excess(&refused(&server.fabric, &of(Parameters { ranges: 16, segments: 15, ..transfer })), Quantity::Elements);
    excess(&refused(&server.fabric, &of(Parameters { connections: u16::MAX, ..PLAIN })), Quantity::Connections);
    let buffers = Parameters { size: 64 << 20, depth: 1024, connections: 1024, ..PLAIN };
    excess(&refused(&server.fabric, &of(buffers)), Quantity::Buffers);
    // It serves the next one as if nothing had been.
    ok(client(&server.fabric, "reg_mr", &["--iterations", "10"]), 10);
    let (lines, _) = server.end();
    assert_eq!(lines.iter().filter(|line| line.contains("refused: ")).count(), 13, "{lines:#?}");
    assert!(lines[0].contains("another version"), "{lines:#?}");
}

/// More connections at a time than a core of the server is asked about: each rejection says why.
#[test]
fn who_asks_for_many_connections_at_once_is_told_how_many_are_too_many() {
    let server = Server::start("reg_mr", &[]);
    let many = MAX_INCOMING + 72;
    let mut raw = Raw::with_connections(&server.fabric, many as u16);
    // Nobody is served with these, so that there are always as many to be answered.
    let bytes = ConnectData { parameters: Parameters { depth: u32::MAX, ..PLAIN }, client: 7 }.encode();
    let mut crowded = 0;
    while crowded == 0 {
        for _ in 0..many {
            raw.engine.connect(ADDRESS.parse().unwrap(), &bytes, &ConnectionOptions::default()).unwrap();
        }
        for _ in 0..many {
            let Event::OpenFailed { reason: OpenFailure::Rejected, private_data, .. } = raw.event() else {
                panic!("not rejected")
            };
            match Refusal::decode(&private_data) {
                Ok(Refusal::Crowded(most)) if usize::from(most) == MAX_INCOMING => crowded += 1,
                Ok(Refusal::Excess(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    let _ = server.end();
}

/// Connects with these bytes; returns those of the rejection.
fn refused(fabric: &SoftFabric, bytes: &[u8]) -> Vec<u8> {
    rejected(fabric, bytes).expect("somebody listens")
}

/// The same; nothing where nobody listens.
fn rejected(fabric: &SoftFabric, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut raw = Raw::new(fabric, 1);
    raw.engine.connect(ADDRESS.parse().unwrap(), bytes, &ConnectionOptions::default()).unwrap();
    match raw.event() {
        Event::OpenFailed { reason: OpenFailure::Rejected, private_data, .. } => Some(private_data.to_vec()),
        Event::OpenFailed { reason: OpenFailure::Unreachable(_), .. } => None,
        other => panic!("{other:?}"),
    }
}

/// A client that connects as it should, and waits for the server's word.
fn guest(fabric: &SoftFabric, parameters: Parameters) -> (Raw, frwr_engine::ConnectionId) {
    guest_that_sends(fabric, parameters, 4)
}

/// The same; it believes that the server takes so many messages that it does not answer.
fn guest_that_sends(fabric: &SoftFabric, parameters: Parameters, messages: u32) -> (Raw, frwr_engine::ConnectionId) {
    let mut raw = Raw::new(fabric, 4);
    // However long the server's thread stands still, its receives are waited for: it shall be the one who ends this.
    let patient = ConnectionParameters::default().rnr_retry_count(7);
    let options = ConnectionOptions::default().peer_receives(messages).parameters(patient);
    let data = ConnectData { parameters, client: 9 }.encode();
    let mut connection = raw.engine.connect(ADDRESS.parse().unwrap(), &data, &options).unwrap();
    loop {
        match raw.event() {
            Event::Received { received, .. } => {
                raw.engine.release(received);
                return (raw, connection);
            }
            Event::OpenFailed { private_data, .. } => {
                // It makes room, or does not listen meanwhile.
                let silent = private_data.iter().all(|byte| *byte == 0);
                assert!(silent || matches!(Refusal::decode(&private_data), Ok(Refusal::Again | Refusal::Busy)));
                connection = raw.engine.connect(ADDRESS.parse().unwrap(), &data, &options).unwrap();
            }
            Event::Connected { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_client_that_goes_without_a_word_costs_one_line() {
    let server = Server::start("reg_mr", &[]);
    let (mut raw, connection) = guest(&server.fabric, PLAIN);
    // Meanwhile another one is told that the server is busy.
    let error = client(&server.fabric, "reg_mr", &["--iterations", "1"]).unwrap_err();
    assert_eq!((error.name(), error.exit_code()), ("busy", 1), "{error}");
    raw.engine.disconnect(connection);
    while !matches!(raw.event(), Event::Disconnected { .. }) {}
    server.wait_for("client is gone after 0 command(s)");
    ok(client(&server.fabric, "reg_mr", &["--iterations", "10"]), 10);
    let (lines, report) = server.end();
    assert_eq!((lines.iter().filter(|line| line.contains("is gone")).count(), report.clients), (1, 2), "{lines:#?}");
}

/// Somebody who asks for more room than there is, and hangs up, again and again: nothing is ended or opened for it.
#[test]
fn a_stranger_who_hangs_up_costs_only_itself() {
    let server = Server::start("reg_mr", &[]);
    for stranger in 1..=40 {
        let operation = if stranger % 2 == 0 { Operation::Send } else { Operation::Read };
        let parameters = Parameters { operation, depth: stranger, ..PLAIN };
        let bytes = ConnectData { parameters, client: stranger.into() }.encode();
        assert_eq!(Refusal::decode(&refused(&server.fabric, &bytes)), Ok(Refusal::Again));
    }
    assert_eq!(server.opened(), 1);
    ok(client(&server.fabric, "reg_mr", &["--iterations", "10"]), 10);
    ok(client(&server.fabric, "reg_mr", &["--iterations", "10", "--op", "write"]), 10);
    assert_eq!(server.opened(), 2, "room is made for who comes again");
    let (lines, report) = server.end();
    assert_eq!((lines.len(), report.clients), (4, 2), "{lines:#?}");
}

/// Its host is gone, or its process is stopped: the connection never ends.
#[test]
fn a_client_that_falls_silent_is_dropped_and_the_server_is_free_again() {
    let server = Server::bearing("reg_mr", Duration::from_secs(1));
    for parameters in [PLAIN, Parameters { operation: Operation::Write, ..PLAIN }] {
        // Its engine is not stepped any more.
        let (silent, _) = guest(&server.fabric, parameters);
        server.wait_for("client is gone after 0 command(s): nothing has come of it for 1 s");
        ok(client(&server.fabric, "reg_mr", &["--iterations", "10"]), 10);
        drop(silent);
    }
    let (lines, report) = server.end();
    assert_eq!((lines.iter().filter(|line| line.contains("is gone")).count(), report.clients), (2, 4), "{lines:#?}");
}

#[test]
fn a_client_that_breaks_the_protocol_costs_its_own_connection() {
    let server = Server::start("reg_mr", &[]);
    let command = |kind: u8, count: u8, slot: u16| {
        let mut bytes = vec![0; 64];
        (bytes[0], bytes[1]) = (kind, count);
        bytes[2..4].copy_from_slice(&slot.to_le_bytes());
        bytes
    };
    let too_long = {
        let mut bytes = command(3, 1, 0);
        bytes[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        bytes
    };
    let attacks =
        [vec![0], vec![0xff; 64], command(3, 0, 0), command(3, 255, 0), command(3, 1, 1), command(4, 0, 0), too_long];
    for bytes in &attacks {
        let (mut raw, connection) = guest(&server.fabric, PLAIN);
        let submission = Submission {
            message: bytes,
            inline: &[],
            chunks: &[],
            invite_invalidation: false,
            iova_cookie: 0,
            cookie: 0,
        };
        raw.submit(connection, &submission);
        while !matches!(raw.event(), Event::Disconnected { .. }) {}
        server.wait_for("broke the protocol");
    }
    ok(client(&server.fabric, "reg_mr", &["--iterations", "10"]), 10);
    let (lines, _) = server.end();
    assert_eq!(lines.iter().filter(|line| line.contains("broke the protocol")).count(), attacks.len(), "{lines:#?}");
}

/// It asks again and again in the one slot that it has, and takes no answers, so that the server can give none: what the server owes
/// it is bounded by its depth, and it ends.
#[test]
fn a_client_that_floods_is_owed_no_more_than_its_depth() {
    const FLOOD: u32 = 2_000;
    for (peer_does, depth) in [(PeerDoes::Write, 1), (PeerDoes::Read, 3)] {
        // However long the client's thread stands still, its receives are waited for: what ends it is its own next command.
        let server = Server::start("reg_mr", &["--rnr-retry-count", "7"]);
        let parameters = Parameters { peer_does, depth, invalidation: Invalidation::Local, ..PLAIN };
        let (mut raw, connection) = guest_that_sends(&server.fabric, parameters, FLOOD);
        let grant = raw.open_page(connection);
        let mut command = vec![0; 64];
        (command[0], command[1]) = (3, 1);
        command[8..16].copy_from_slice(&grant.address.to_le_bytes());
        command[16..20].copy_from_slice(&grant.key.to_le_bytes());
        command[20..24].copy_from_slice(&grant.length.to_le_bytes());
        let (mut sent, mut is_gone) = (0, false);
        while sent < FLOOD && !is_gone {
            let slot = (sent % depth) as u16;
            command[2..4].copy_from_slice(&slot.to_le_bytes());
            let message = ResponseRequest { local: &[], remote: &[], message: &command, invalidate: None, cookie: 0 };
            sent += u32::from(raw.engine.respond(connection, &message).is_ok());
            // What it receives is never given back.
            is_gone = matches!(raw.next(), Some(Event::Disconnected { .. }));
        }
        assert!(is_gone, "{sent} commands were taken of a client with depth {depth}");
        server.wait_for("client is gone after ");
        ok(client(&server.fabric, "reg_mr", &["--iterations", "10"]), 10);
        let (lines, _) = server.end();
        let limit =
            format!("whose first one was not answered yet; it asked for depth {depth}, so {depth} at most may wait");
        let is_it =
            |line: &String| line.contains("it broke the protocol: a second command in slot ") && line.contains(&limit);
        assert!(lines.iter().any(is_it), "{lines:#?}");
    }
}

#[test]
fn a_server_that_goes_in_mid_run_is_one_line() {
    let server = Server::start("window", &[]);
    let fabric = server.fabric.clone();
    let run = thread::spawn(move || client(&fabric, "window", &["--runtime", "3600"]).unwrap_err());
    server.wait_for("client: request");
    let _ = server.end();
    let error = run.join().unwrap();
    assert_eq!((error.name(), error.exit_code()), ("peer_gone", 1), "{error}");
    let line = error.to_string();
    assert!(line.contains(ADDRESS) && line.contains("requests") && !line.contains('\n'), "{line}");
}

#[test]
fn nobody_there_is_one_line() {
    let error = client(&SoftFabric::new(), "reg_mr", &[]).unwrap_err();
    assert_eq!((error.name(), error.exit_code()), ("unreachable", 1), "{error}");
    assert!(error.to_string().contains("start `frwr latency`"), "{error}");
}

/// As where two are started on one device: which address, and that another port may be free, and not that a server is missing.
#[test]
fn both_sides_in_one_process_at_an_address_that_is_taken_are_one_line() {
    let server = Server::start("reg_mr", &[]);
    let (fabric, stop) = (&server.fabric, AtomicBool::new(false));
    let config = config(&["--one-process", "--iterations", "10", "--warm-up", "0"]);
    let [ours, other] = [0, 1].map(|_| device(fabric, "reg_mr"));
    let error =
        measure_both(ours, other, ADDRESS.parse().unwrap(), &config, &machine(), &stop, &mut |_| {}).unwrap_err();
    assert_eq!((error.name(), error.exit_code()), ("listen", 1), "{error}");
    let line = error.to_string();
    assert!(line.starts_with("--listen 127.0.0.1:49200: the address is taken") && !line.contains('\n'), "{line}");
    assert!(line.contains("EADDRINUSE"), "{line}");
    server.end();
}

/// A send queue that is too short for the depth: measured all the same, with a warning that says what is in flight.
#[test]
fn a_depth_that_the_send_queue_is_too_short_for_is_a_warning() {
    let short = |fabric: &SoftFabric| {
        let mut options = SoftOptions::new("reg_mr".parse().unwrap());
        options.capabilities.attributes.max_qp_wr = 80;
        fabric.device(options)
    };
    // A WRITE takes one entry; a request holds another one while its key is open.
    let cases = [("request", "72", true), ("request", "4", false), ("write", "100", true), ("write", "72", false)];
    for (operation, depth, is_short) in cases {
        let fabric = SoftFabric::new();
        let common = ["--one-process", "--iterations", "300", "--warm-up", "0"];
        let config = config(&[&common[..], &["--op", operation, "--depth", depth]].concat());
        let stop = AtomicBool::new(false);
        let devices = [short(&fabric), short(&fabric)];
        let [server, client] = devices;
        let report =
            measure_both(server, client, ADDRESS.parse().unwrap(), &config, &machine(), &stop, &mut |_| {}).unwrap();
        let json = report.json();
        let found = json["shortcomings"].as_array().unwrap().iter().find(|found| found["name"] == "send_queue");
        assert_eq!(found.is_some(), is_short, "{operation} {depth}: {}", json["shortcomings"]);
        if let Some(found) = found {
            assert!(
                found.to_string().contains(&format!("--depth {depth}: ")) && found.to_string().contains("80 entries"),
                "{found}"
            );
        }
    }
}

/// A device that is removed: connections fail before the kernel tells of it.
#[test]
fn a_run_on_a_device_that_was_removed_says_so() {
    let gone = |error: Error| {
        let line = error.to_string();
        assert_eq!((error.name(), error.exit_code()), ("device_gone", 1), "{line}");
        assert!(line.contains("is gone") && !line.contains('\n'), "{line}");
    };
    let run = |device: Faulty<SoftDevice>| {
        let config = config(&["10.0.0.1", "--runtime", "3600"]);
        let stop = AtomicBool::new(false);
        measure(device, ADDRESS.parse().unwrap(), &config, &machine(), &stop, &mut |_| {}).unwrap_err()
    };
    // One that never had a connection.
    let (faulty, faults) = Faulty::new(device(&SoftFabric::new(), "reg_mr"));
    faults.remove_device();
    gone(run(faulty));
    // In the middle of a measurement; the same device on the server's side.
    let server = Server::start("reg_mr", &[]);
    let (faulty, faults) = Faulty::new(device(&server.fabric, "reg_mr"));
    let client = thread::spawn(move || run(faulty));
    server.wait_for("client: request");
    faults.remove_device();
    let _ = server.end();
    gone(client.join().unwrap());
    // A server that cannot listen.
    let server = Server::start("reg_mr", &[]);
    let mut open = || {
        let (faulty, faults) = Faulty::new(device(&server.fabric, "reg_mr"));
        faults.remove_device();
        Ok(faulty)
    };
    let (address, stop) = (ADDRESS.parse().unwrap(), AtomicBool::new(false));
    gone(serve(&mut open, address, &config(&[]), &machine(), &stop, &mut |_| {}).unwrap_err());
    let _ = server.end();
}

/// A peer that listens, and answers every connect request by rejecting it with these bytes.
fn rejected_with(bytes: &'static [u8]) -> Error {
    let fabric = SoftFabric::new();
    let mut raw = Raw::new(&fabric, 1);
    raw.listen();
    let run = thread::spawn(move || client(&fabric, "reg_mr", &[]).unwrap_err());
    while !run.is_finished() {
        if let Some(Event::Incoming { incoming, .. }) = raw.next() {
            raw.engine.reject(incoming, bytes).unwrap();
        }
    }
    run.join().unwrap()
}

#[test]
fn other_versions_and_other_programs_are_told_apart() {
    for (bytes, name, part) in [
        (&b"fLAT\x09\x00"[..], "version", "version 9"),
        (b"", "foreign_peer", "no server of frwr latency"),
        (b"NVMe-oF says no", "foreign_peer", "no server of frwr latency"),
        (b"fLAT\x04\x00\xff", "foreign_peer", "no server of frwr latency"),
    ] {
        let error = rejected_with(bytes);
        let line = error.to_string();
        assert_eq!((error.name(), error.exit_code()), (name, 1), "{line}");
        assert!(line.contains(part) && !line.contains('\n'), "{line}");
    }
}

/// A server that answers every command and moves nothing.
#[test]
fn a_bench_that_moves_nothing_is_caught() {
    let fabric = SoftFabric::new();
    let mut raw = Raw::new(&fabric, 8);
    raw.listen();
    let run = thread::spawn(move || client(&fabric, "window", &["--invalidate", "local"]).unwrap_err());
    let reply = |raw: &mut Raw, connection, message: &[u8]| {
        let reply = ResponseRequest { local: &[], remote: &[], message, invalidate: None, cookie: 0 };
        raw.engine.respond(connection, &reply).unwrap();
    };
    let options = ConnectionOptions::default().peer_receives(5);
    while !run.is_finished() {
        let Some(event) = raw.next() else { continue };
        match event {
            Event::Incoming { incoming, .. } => {
                raw.engine.accept(incoming, &[], &options).unwrap();
            }
            Event::Connected { connection, .. } => reply(&mut raw, connection, &[1, 0, 0, 0, 0, 0, 0, 0]),
            Event::Received { connection, received } => {
                let mut message = [0; 24];
                raw.engine.message(&received, 0, &mut message);
                raw.engine.release(received);
                message[0] = 5;
                reply(&mut raw, connection, &message);
            }
            _ => {}
        }
    }
    let error = run.join().unwrap();
    assert_eq!((error.name(), error.exit_code()), ("not_moved", 1), "{error}");
    assert!(error.to_string().contains("do not use these figures"), "{error}");
}

#[test]
fn a_run_is_ended_early_where_the_server_never_answers() {
    let fabric = SoftFabric::new();
    let mut raw = Raw::new(&fabric, 1);
    raw.listen();
    let stop = Arc::new(AtomicBool::new(false));
    let run = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let config = config(&["10.0.0.1", "--runtime", "1"]);
            measure(device(&fabric, "reg_mr"), ADDRESS.parse().unwrap(), &config, &machine(), &stop, &mut |_| {})
        }
    });
    while !matches!(raw.event(), Event::Incoming { .. }) {}
    stop.store(true, Relaxed);
    while !run.is_finished() {
        raw.turn();
    }
    // The connection manager is still at work: it gives up by itself, or the reactors are not waited for any longer.
    let report = run.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
    assert!(report.interrupted && report.requests() == 0);
    let (table, json) = (report.table(), report.json());
    assert!(table.contains("interrupted before the first request that counts: nothing was measured"), "{table}");
    assert!(!table.contains("0.00") && !table.contains("t_typical"), "{table}");
    assert_eq!((&json["latency_us"]["typical"], &json["latency_us"]["p50"]), (&Value::Null, &Value::Null), "{json}");
}

#[test]
fn what_a_server_has_no_room_for_is_refused_and_others_are_served() {
    let server = Server::start("reg_mr", &[]);
    // So many queues of that depth are more than one completion queue of the software NIC holds.
    let much = Parameters { operation: Operation::Send, size: 64, depth: 1024, connections: 1024, ..PLAIN };
    let bytes = ConnectData { parameters: much, client: 7 }.encode();
    let refusal = loop {
        match rejected(&server.fabric, &bytes).map(|bytes| Refusal::decode(&bytes)) {
            // It makes room, or does not listen meanwhile.
            Some(Ok(Refusal::Again)) | None => {}
            Some(refusal) => break refusal,
        }
    };
    assert_eq!(refusal, Ok(Refusal::NoRoom));
    ok(client(&server.fabric, "reg_mr", &["--iterations", "10"]), 10);
    let (lines, _) = server.end();
    assert!(lines[0].starts_with("no room for what the client asks for"), "{lines:#?}");
}

/// One that is to stop waits for its connections as long as `serve` does, and says what has not ended.
#[test]
fn a_server_whose_device_never_destroys_a_queue_pair_says_so_and_names_what_has_not_ended() {
    let (fabric, stop, (sender, lines)) = (SoftFabric::new(), AtomicBool::new(false), mpsc::channel());
    let (faulty, faults) = Faulty::new(device(&fabric, "reg_mr"));
    // What works as before does not drain, so that its end waits for its destruction.
    for (kind, times) in [(CommandKind::FailQueuePair, 1), (CommandKind::DestroyQueuePair, u32::MAX)] {
        faults.fail_command(kind, CommandError::BUSY, times);
    }
    let (mut faulty, (config, address)) = (Some(faulty), (config(&[]), ADDRESS.parse().unwrap()));
    let (report, said) = thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut open = || Ok(faulty.take().unwrap());
            let mut say = |line: &str| sender.send(line.to_owned()).unwrap();
            serve(&mut open, address, &config, &machine(), &stop, &mut say)
        });
        assert!(lines.recv().unwrap().starts_with("listening on"));
        ok(client(&fabric, "reg_mr", &["--iterations", "50"]), 50);
        let mut said: Vec<String> = Vec::new();
        while !said.last().is_some_and(|line| line.starts_with("the device refuses to destroy 1 queue pair(s) ")) {
            said.push(lines.recv().unwrap());
        }
        stop.store(true, Relaxed);
        let report = server.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
        said.extend(lines.try_iter());
        (report, said)
    });
    assert_eq!(said.iter().filter(|line| line.starts_with("the device refuses")).count(), 1, "told once: {said:?}");
    assert!(!said.iter().any(|line| line.starts_with("client has ended")), "its client's end is not told: {said:?}");
    assert_eq!((report.clients, report.undrained.clone()), (1, vec!["reactor 0: server".to_owned()]));
    assert!(!report.passed() && report.table().ends_with("\nnot drained: reactor 0: server\n"), "{}", report.table());
    // What the program makes of it.
    let outcome = LatencyOutcome::Served(report);
    let (told, json) = (outcome.output(false), outcome.output(true));
    assert_eq!((told.exit_code, json.exit_code, told.stderr.as_str()), (1, 1, ""));
    assert!(told.stdout.ends_with("\nnot drained: reactor 0: server\n"), "{told:?}");
    assert!(json.stdout.contains(r#""undrained":["reactor 0: server"]"#) && json.stdout.matches('\n').count() == 1);
}

#[test]
fn both_sides_sleep_and_every_request_ends() {
    let server = Server::start("reg_mr", &["--idle", "sleep:0"]);
    for operation in ["request", "register", "send", "write", "read", "pingpong"] {
        for depth in ["1", "8"] {
            let asleep = ["--op", operation, "--depth", depth, "--iterations", "200", "--idle", "sleep:0"];
            ok(client(&server.fabric, "reg_mr", &asleep), 200);
        }
    }
    server.end();
}

#[test]
fn who_sleeps_is_told_how_often() {
    let server = Server::start("reg_mr", &["--idle", "sleep:0"]);
    let arguments = ["--iterations", "20", "--rate", "200"];
    let report = ok(client(&server.fabric, "reg_mr", &[&arguments[..], &["--idle", "sleep:0"]].concat()), 20);
    let told = report.json();
    let sleeps = told["sleeps"].as_u64().unwrap();
    assert!(sleeps > 0 && told["per_core"][0]["sleeps"] == sleeps, "{told}");
    assert_eq!(told["sleeps_per_request"].as_f64(), Some(sleeps as f64 / 20.0));
    assert!(report.table().contains(&format!(", {sleeps} times, ")), "{}", report.table());
    // Who polls on does not, whatever the server does.
    let report = ok(client(&server.fabric, "reg_mr", &arguments), 20);
    assert_eq!(report.json()["sleeps"], 0);
    assert!(!report.table().contains("asleep"), "{}", report.table());
    server.end();
}
