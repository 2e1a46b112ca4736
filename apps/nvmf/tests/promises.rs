//! Promises of target and host about queues and commands that are over: each was broken by hand, and this fails (docs/behaviours.md).

use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::{
    Access, TokenKind,
    fault::{CompletionFault, CompletionFilter},
};
use frwr_nvmf::host::HostOptions;
use frwr_nvmf::wire::{
    BlockRange, Command, ConnectData, DYNAMIC_CONTROLLER, Nqn, Property, PropertySet, PropertySize, Status,
    SubmissionQueueEntry,
};
use frwr_support::nvmf_harness::gated::{Gate, Gated, Switch};
use frwr_support::nvmf_harness::raw::{Raw, connect_data, keyed};
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Scripted};
use frwr_support::nvmf_harness::{host_options, target_options};
use std::rc::Rc;

const BLOCK: u32 = 512;
/// What a command that must not be executed would write.
const STALE: u8 = 0xAA;
/// Command identifiers of the tests, beside those that the harness counts up.
const FIRST: u16 = 1000;

fn range(lba: u64) -> BlockRange {
    BlockRange { namespace: 1, lba, blocks: 1, data: keyed(BLOCK) }
}

fn write(lba: u64, id: u16) -> SubmissionQueueEntry {
    Command::Write(range(lba)).encode(id).unwrap()
}

fn read(lba: u64, id: u16) -> SubmissionQueueEntry {
    Command::Read(range(lba)).encode(id).unwrap()
}

/// A target with room for two hosts, over a medium that a test holds.
fn target() -> (Raw<Gated>, Rc<Switch>) {
    let (storage, switch) = Gated::new(64, BLOCK, 8);
    let options = target_options().controllers(4).io_queues(2);
    (Raw::with(options, vec![storage]), switch)
}

/// Another host than the harness's usual one.
fn other_host(controller_id: u16) -> ConnectData {
    ConnectData { host: Nqn::new("nqn.other-host").ok(), host_id: [2; 16], ..connect_data(controller_id) }
}

/// A session of the other host, which keeps its controller alive by what it asks.
fn reader(raw: &mut Raw<Gated>) -> ConnectionId {
    let (_, controller) = raw.controller_of(&other_host(DYNAMIC_CONTROLLER));
    raw.another_queue_of(&other_host(controller), 1)
}

fn byte_of(raw: &mut Raw<Gated>, reader: ConnectionId, lba: u64) -> u8 {
    raw.data.write(0, &[0x11; BLOCK as usize]).unwrap();
    let status = raw.command(reader, Command::Read(range(lba)), Some((Access::RemoteWrite, BLOCK))).status();
    assert_eq!(status, Status::SUCCESS);
    let mut byte = [0];
    raw.data.read(0, &mut byte).unwrap();
    byte[0]
}

/// Where a write stands when its queue ends.
#[derive(Clone, Copy, Debug)]
enum Standing {
    /// The medium has no room for it.
    Stalled,
    /// Its data is on the way.
    Fetching,
}

/// How its queue ends, while its connection, and so its queue pair, is still there.
#[derive(Clone, Copy, Debug)]
enum End {
    Reset,
    /// The host connects anew, while its former connections still end.
    NewSession,
}

/// The host was told, or knows by its new session, that nothing of the old queue comes any more.
#[test]
fn a_command_whose_queue_has_ended_is_not_executed_whatever_it_waited_for() {
    for standing in [Standing::Stalled, Standing::Fetching] {
        for end in [End::Reset, End::NewSession] {
            let (mut raw, switch) = target();
            let reader = reader(&mut raw);
            let (admin, io) = raw.io_queue();
            let next = raw.open_queue(0, 32);
            raw.data.write(0, &[STALE; BLOCK as usize]).unwrap();
            match standing {
                Standing::Stalled => switch.gate.set(Gate::Full),
                Standing::Fetching => {
                    // Of its data alone: a new session's Connect has some as well.
                    raw.faults.on_completions(CompletionFilter::kind(TokenKind::Transfer), CompletionFault::Hold, 1);
                }
            }
            raw.send(io, write(3, FIRST), Some((Access::RemoteRead, BLOCK)));
            raw.steps(100);
            match end {
                // From here on the target's queue pairs are there until Control looks again.
                End::Reset => {
                    raw.controlled = false;
                    let disabled =
                        PropertySet { property: Property::Configuration, size: PropertySize::Four, value: 0x0046_0000 };
                    raw.command(admin, Command::PropertySet(disabled), None);
                }
                End::NewSession => {
                    raw.begin_end(&[io]);
                    raw.begin_session(next);
                }
            }
            raw.steps(50);
            switch.gate.set(Gate::Open);
            raw.faults.clear();
            raw.faults.release();
            raw.steps(200);
            raw.controlled = true;
            raw.until("gone", |raw| raw.disconnected.contains(&io));
            raw.steps(100);
            assert_eq!(byte_of(&mut raw, reader, 3), 0, "{standing:?} {end:?}");
        }
    }
}

/// Nobody could say which of two commands an answer is for.
#[test]
fn a_command_identifier_that_is_not_answered_ends_the_connection_and_executes_nothing() {
    let (mut raw, switch) = target();
    let reader = reader(&mut raw);
    let (_, io) = raw.io_queue();
    switch.gate.set(Gate::Running);
    raw.send(io, read(0, FIRST), Some((Access::RemoteWrite, BLOCK)));
    raw.steps(50);
    raw.data.write(0, &[STALE; BLOCK as usize]).unwrap();
    raw.send(io, write(5, FIRST), Some((Access::RemoteRead, BLOCK)));
    raw.until("ended", |raw| raw.disconnected == [io]);
    let incident = raw.target.next_incident().map(|incident| incident.to_string()).unwrap_or_default();
    assert!(incident.contains("a second command with identifier 0x03e8"), "{incident}");
    assert_eq!(raw.target.statistics().protocol_errors, 1);
    switch.gate.set(Gate::Open);
    raw.steps(100);
    assert_eq!(byte_of(&mut raw, reader, 5), 0, "the second one");
}

/// It is free again behind its answer, and on every other queue at any time.
#[test]
fn a_command_identifier_is_free_behind_its_answer_and_on_other_queues() {
    let (mut raw, switch) = target();
    let (_, controller) = raw.controller();
    let queues = [1, 2].map(|queue| raw.another_queue(controller, queue));
    for _ in 0..40 {
        switch.gate.set(Gate::Running);
        raw.responses.clear();
        for io in queues {
            raw.send(io, read(0, FIRST), Some((Access::RemoteWrite, BLOCK)));
        }
        raw.steps(30);
        switch.gate.set(Gate::Open);
        raw.until("answered", |raw| raw.responses.len() == 2);
    }
    assert_eq!((raw.target.statistics().protocol_errors, raw.disconnected.len()), (0, 0));
}

fn is_io(asked: &Asked) -> bool {
    asked.queue_id > 0 && !matches!(asked.command, Command::Connect(_))
}

/// A host with a controller that grants two queues and answers no command of I/O by itself.
fn silent(options: HostOptions) -> Scripted {
    Scripted::ready("reg_mr", options.longest_back_off(Duration::from_millis(1)), |controller| {
        controller.rule = Box::new(|asked| match asked.command {
            Command::SetFeatures(_) => Some(Answer::Status(Status::SUCCESS, 0x0001_0001)),
            _ => is_io(asked).then_some(Answer::Silence),
        });
    })
}

fn submit(scripted: &mut Scripted, cookie: u64) -> Asked {
    let segment = [scripted.segment(cookie, 1)];
    let before = scripted.controller.count(is_io);
    scripted.lone.host.write(cookie, &segment, cookie).unwrap();
    scripted.until("asked", |scripted| scripted.controller.count(is_io) == before + 1);
    scripted.controller.last(is_io).unwrap()
}

fn succeed(scripted: &mut Scripted, asked: &Asked) {
    scripted.controller.answer(asked, Answer::Status(Status::SUCCESS, 0));
}

#[test]
fn an_answer_that_comes_twice_answers_no_later_command() {
    let mut scripted = silent(host_options().queues(1).queue_depth(1));
    let mut identifiers = Vec::new();
    for cookie in 0..50 {
        let asked = submit(&mut scripted, cookie);
        identifiers.push(asked.entry.command_id.get());
        succeed(&mut scripted, &asked);
        scripted.until("ended", |scripted| scripted.completions.len() as u64 == cookie + 1);
    }
    let used = identifiers.len();
    identifiers.sort_unstable();
    identifiers.dedup();
    assert_eq!(identifiers.len(), used, "an identifier is not used again soon");
    // The answer to the last one comes once more, when the next one is under way.
    let last = scripted.controller.last(is_io).unwrap();
    submit(&mut scripted, 60);
    succeed(&mut scripted, &last);
    let sessions = scripted.lone.host.statistics().sessions;
    scripted.until("another session", |scripted| scripted.lone.host.statistics().sessions > sessions);
    scripted.until("sent again", |scripted| scripted.controller.count(is_io) == used + 2);
    assert_eq!(scripted.completions.len(), used, "nobody has answered it");
    let again = scripted.controller.last(is_io).unwrap();
    succeed(&mut scripted, &again);
    scripted.until("ended", |scripted| scripted.completions.len() == used + 1);
    scripted.finish();
}

#[test]
fn an_answer_on_another_queue_answers_nothing() {
    let mut scripted = silent(host_options().queues(2).queue_depth(2));
    let (first, second) = (submit(&mut scripted, 0), submit(&mut scripted, 1));
    assert_ne!(first.connection, second.connection);
    succeed(&mut scripted, &Asked { connection: second.connection, ..first });
    let sessions = scripted.lone.host.statistics().sessions;
    scripted.until("another session", |scripted| scripted.lone.host.statistics().sessions > sessions);
    assert!(scripted.completions.is_empty(), "{:?}", scripted.completions);
    scripted.until("sent again", |scripted| scripted.controller.count(is_io) == 4);
    for asked in scripted.controller.asked.clone().iter().filter(|asked| is_io(asked)).skip(2) {
        succeed(&mut scripted, asked);
    }
    scripted.until("ended", |scripted| scripted.completions.len() == 2);
    assert!(scripted.completions.iter().all(|completion| completion.result == Ok(())));
    scripted.finish();
}

/// What a former session had in flight may still reach memory until its queue pairs are gone: nothing is sent again before.
#[test]
fn no_session_begins_before_all_connections_of_the_former_one_are_gone() {
    for admin_first in [true, false] {
        let mut scripted = silent(host_options().queues(2).queue_depth(2));
        let answered = submit(&mut scripted, 0);
        succeed(&mut scripted, &answered);
        scripted.until("ended", |scripted| scripted.completions.pop().is_some());
        submit(&mut scripted, 1);
        submit(&mut scripted, 2);
        let (admins, asked) = (admin_connects(&scripted), scripted.controller.count(is_io));
        // Nothing that this could answer: one queue ends by it, and with that the session.
        let again = if admin_first { scripted.controller.asked[0] } else { answered };
        assert_eq!(again.queue_id == 0, admin_first);
        succeed(&mut scripted, &again);
        scripted.until("it ends", |scripted| !scripted.lone.host.is_ready());
        // From now on the host's Control sleeps: queue pairs that are there stay.
        let left = scripted.lone.host.engine().connections().count();
        assert!(left > 0);
        for _ in 0..200 {
            scripted.lone.now += Duration::from_millis(1);
            let now = scripted.lone.now;
            scripted.lone.host.poll(now);
            scripted.lone.host.flush();
            scripted.controller.step(now);
            let open = scripted.lone.host.engine().connections().count();
            assert_eq!(open, left, "none was opened beside those that still end");
        }
        assert!(scripted.completions.is_empty(), "{:?}", scripted.completions);
        assert_eq!((admin_connects(&scripted), scripted.controller.count(is_io)), (admins, asked));
        scripted.until("sent again", |scripted| scripted.controller.count(is_io) == asked + 2);
        assert_eq!(admin_connects(&scripted), admins + 1);
    }
}

fn admin_connects(scripted: &Scripted) -> usize {
    scripted.controller.count(|asked| asked.queue_id == 0 && matches!(asked.command, Command::Connect(_)))
}

/// A queue takes as many commands as it is deep, whatever happened to earlier ones.
#[test]
fn no_queue_has_more_commands_than_it_is_deep_and_none_is_lost_count_of() {
    const DEPTH: usize = 3;
    let mut scripted = silent(host_options().queues(2).queue_depth(DEPTH as u16));
    let mut cookie = 0;
    for round in 0..6 {
        while scripted.lone.host.free_requests() > 0 {
            let segment = [scripted.segment(cookie % 64, 1)];
            scripted.lone.host.write(cookie % 64, &segment, cookie).unwrap();
            cookie += 1;
        }
        // Every second time the session ends with all that is in flight.
        if round % 2 == 1 {
            let sessions = scripted.lone.host.statistics().sessions;
            scripted.controller.hang_up();
            scripted.until("another session", |scripted| scripted.lone.host.statistics().sessions > sessions);
            let session = scripted.controller.asked.last().unwrap().session;
            scripted.controller.asked.retain(|asked| asked.session == session);
        }
        scripted.steps(100);
        let held: Vec<_> = scripted.controller.asked.drain(..).filter(is_io).collect();
        for queue_id in [1, 2] {
            let of_queue = held.iter().filter(|asked| asked.queue_id == queue_id).count();
            assert_eq!(of_queue, DEPTH, "round {round}, queue {queue_id}");
        }
        for asked in &held {
            succeed(&mut scripted, asked);
        }
        let (ended, rest) = (scripted.completions.len() + held.len(), scripted.lone.host.statistics().outstanding);
        assert!(rest >= held.len() as u64);
        scripted.until("ended", |scripted| scripted.completions.len() >= ended);
        // What waited behind them is answered as well, so that the next round begins with none.
        while scripted.lone.host.statistics().outstanding > 0 {
            let rest: Vec<_> = scripted.controller.asked.drain(..).filter(is_io).collect();
            rest.iter().for_each(|asked| succeed(&mut scripted, asked));
            scripted.steps(20);
        }
        scripted.completions.clear();
    }
}
