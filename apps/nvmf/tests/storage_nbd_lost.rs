//! NBD servers that go away: what is sent again, what is told as failed, and that no Flush succeeds over what may be lost.

use core::time::Duration;
use frwr_nvmf::storage::{Cookie, MediumFault, NbdMedium, Operation, Storage, StorageError};
use frwr_support::storage_harness::{
    BLOCK,
    nbd::{
        Action, DISCONNECT, Export, FLUSH, FLUSH_COMMAND, HAS_FLAGS, NbdBench, READ, READ_ONLY, Seen, Server, WRITE,
    },
};

const BLOCKS: u64 = 64;

fn server() -> Server {
    Server::new(Export::new(BLOCKS))
}

fn bench(server: &Server) -> NbdBench {
    NbdBench::open(server.options(), 32).unwrap()
}

fn write_of(lba: u64, blocks: u32) -> Operation {
    Operation::Write { lba, blocks, buffer: 0 }
}

/// What is done with the first requests of a kind; the rest is carried out.
fn first(command: u16, actions: Vec<Action>) -> impl FnMut(&Seen) -> Action + Send {
    let mut actions = actions.into_iter();
    move |seen| if seen.command == command { actions.next().unwrap_or(Action::Do) } else { Action::Do }
}

fn count(server: &Server, command: u16) -> usize {
    server.seen().iter().filter(|seen| seen.command == command).count()
}

#[test]
fn what_a_server_that_went_away_has_not_answered_the_next_one_gets() {
    for action in [Action::HangUp, Action::DoAndHangUp, Action::Cut(1), Action::Cut(BLOCK), Action::Cut(12)] {
        let server = server();
        let mut bench = bench(&server);
        server.script(first(WRITE, vec![action.clone(), action.clone()]));
        assert_eq!(bench.write(3, 1, 7), Ok(()));
        server.script(first(READ, vec![action.clone(), action]));
        assert_eq!(bench.read(3, 1).unwrap(), [7; BLOCK]);
        assert_eq!(bench.storage.statistics().restarts, 4);
        assert_eq!(server.connections(), 5);
    }
}

#[test]
fn all_that_is_in_flight_goes_to_the_next_server_in_its_order_and_ends_once() {
    let mut server = server();
    let mut bench = NbdBench::open(server.options().connections(3), 32).unwrap();
    server.script(|seen| if seen.command == WRITE { Action::Hold } else { Action::Do });
    bench.buffers.fill(0, BLOCK, 9).unwrap();
    for at in 0..32 {
        bench.submit(at, write_of(at, 1));
    }
    bench.until(|_| count(&server, WRITE) == 32);
    server.stop();
    server.script(|_| Action::Do);
    server.set_disk(vec![0; BLOCK * BLOCKS as usize]);
    server.start();
    let mut ended = bench.completions(32);
    ended.sort_unstable_by_key(|ended| ended.cookie.0);
    assert!(ended.iter().zip(0..).all(|(ended, at)| ended.result.is_ok() && ended.cookie == Cookie(at)));
    assert!(server.disk()[..32 * BLOCK].iter().all(|byte| *byte == 9));
    assert_eq!(count(&server, WRITE), 64);
}

#[test]
fn a_change_that_a_later_one_of_its_bytes_has_overtaken_is_not_sent_again() {
    for (later, overtaken) in [(write_of(4, 2), true), (write_of(6, 1), false), (write_of(3, 1), false)] {
        let server = server();
        let mut bench = bench(&server);
        server.script(first(WRITE, vec![Action::Hold]));
        bench.submit(1, write_of(4, 1));
        bench.until(|_| count(&server, WRITE) == 1);
        assert_eq!(bench.run(later), Ok(()));
        server.hang_up(0);
        let ended = bench.completions(1)[0];
        let wanted = if overtaken { Err(StorageError::Unreachable) } else { Ok(()) };
        assert_eq!((ended.cookie, ended.result), (Cookie(1), wanted), "{later:?}");
        assert_eq!(count(&server, WRITE), if overtaken { 2 } else { 3 });
    }
}

#[test]
fn what_was_acknowledged_and_not_flushed_fails_every_flush_from_then_on() {
    let server = server();
    let mut bench = bench(&server);
    bench.write(0, 1, 1).unwrap();
    bench.run(Operation::Flush).unwrap();
    // Everything is durable: another server may take its place.
    server.hang_up(0);
    bench.until(|_| server.connections() == 2);
    assert_eq!(bench.read(0, 1).unwrap(), [1; BLOCK]);
    assert_eq!((bench.run(Operation::Flush), bench.medium.fault()), (Ok(()), None));
    bench.write(0, 1, 2).unwrap();
    server.hang_up(1);
    bench.until(|_| server.connections() == 3);
    assert_eq!(bench.read(0, 1).unwrap(), [2; BLOCK]);
    let flushes = count(&server, FLUSH_COMMAND);
    for byte in 3..5 {
        assert_eq!(bench.run(Operation::Flush), Err(StorageError::Medium));
        assert_eq!(bench.medium.fault(), Some(MediumFault::Interrupted));
        bench.write(0, 1, byte).unwrap();
        assert_eq!(bench.read(0, 1).unwrap(), vec![byte; BLOCK]);
    }
    assert_eq!(count(&server, FLUSH_COMMAND), flushes, "what is known to fail no server is asked for");
    assert_eq!(bench.medium.losses(), (false, 2));
}

#[test]
fn a_flush_whose_answer_was_lost_fails_where_it_covered_something() {
    for covers in [true, false] {
        let server = server();
        let mut bench = bench(&server);
        if covers {
            bench.write(0, 1, 1).unwrap();
        }
        server.script(first(FLUSH_COMMAND, vec![Action::DoAndHangUp]));
        let wanted = if covers { Err(StorageError::Medium) } else { Ok(()) };
        assert_eq!(bench.run(Operation::Flush), wanted);
        assert_eq!(bench.medium.fault().is_some(), covers);
    }
}

#[test]
fn a_flush_that_failed_is_final_on_all_cores() {
    let server = server();
    let medium = NbdMedium::open(server.options()).unwrap();
    let [mut first_core, mut second_core] = [(); 2].map(|()| NbdBench::of(medium.clone(), 8).unwrap());
    server.script(first(FLUSH_COMMAND, vec![Action::Fail(28)]));
    first_core.write(0, 1, 1).unwrap();
    assert_eq!(first_core.run(Operation::Flush), Err(StorageError::Medium));
    assert_eq!(second_core.run(Operation::Flush), Err(StorageError::Medium));
    assert_eq!(medium.fault(), Some(MediumFault::Unflushed));
}

#[test]
fn a_core_that_connects_anew_does_not_flush_over_what_another_one_has_lost() {
    let server = server();
    let medium = NbdMedium::open(server.options()).unwrap();
    let [mut one, mut other] = [(); 2].map(|()| NbdBench::of(medium.clone(), 8).unwrap());
    one.write(0, 1, 1).unwrap();
    other.run(Operation::Flush).unwrap();
    server.hang_up(1);
    other.until(|_| server.connections() == 3);
    assert_eq!((other.run(Operation::Flush), medium.fault()), (Ok(()), None), "what it flushed is durable");
    // The first core hears of its write only when the other one has reached what may be a successor.
    server.script(first(WRITE, vec![Action::Hold]));
    one.submit(1, write_of(2, 1));
    one.until(|_| count(&server, WRITE) == 2);
    server.hang_up(2);
    other.until(|_| server.connections() == 4);
    other.read(0, 1).unwrap();
    assert_eq!((other.run(Operation::Flush), medium.fault()), (Ok(()), None));
    // What was sent before is answered now by a server of which nobody knows whether it is still the same.
    server.hang_up(0);
    assert_eq!(one.completions(1)[0].result, Ok(()));
    assert_eq!(medium.fault(), None, "it was sent again, to the last one");
    one.write(3, 1, 1).unwrap();
    server.hang_up(3);
    other.until(|_| server.connections() == 6);
    other.read(0, 1).unwrap();
    assert_eq!(other.run(Operation::Flush), Err(StorageError::Medium));
}

#[test]
fn what_is_durable_when_it_has_completed_survives_any_server() {
    let server = server();
    let mut bench = NbdBench::open(server.options().write_through(true), 8).unwrap();
    bench.write(0, 1, 1).unwrap();
    server.hang_up(0);
    assert_eq!(bench.read(0, 1).unwrap(), [1; BLOCK]);
    assert_eq!((bench.run(Operation::Flush), bench.medium.fault()), (Ok(()), None));
}

#[test]
fn a_server_that_shuts_down_is_left_and_what_it_did_not_do_goes_to_the_next() {
    let server = server();
    let mut bench = bench(&server);
    server.script(first(WRITE, vec![Action::Fail(108)]));
    assert_eq!(bench.write(1, 1, 5), Ok(()));
    let seen = server.seen();
    assert_eq!(seen.iter().map(|seen| seen.connection).collect::<Vec<_>>(), [0, 1]);
    assert!(seen.iter().all(|seen| seen.command != DISCONNECT));
    assert_eq!(server.disk()[BLOCK], 5);
}

#[test]
fn requests_that_end_every_server_fail_in_the_end() {
    let server = server();
    let mut bench = bench(&server);
    server.script(|seen| if seen.command == READ { Action::HangUp } else { Action::Do });
    assert_eq!(bench.run(Operation::Read { lba: 0, blocks: 1, buffer: 0 }), Err(StorageError::Unreachable));
    assert_eq!(bench.write(0, 1, 1), Ok(()));
}

#[test]
fn without_a_server_operations_fail_when_they_have_waited_and_succeed_when_it_is_back() {
    let mut server = server();
    let mut bench = NbdBench::open(server.options().patience(Duration::ZERO), 8).unwrap();
    server.stop();
    assert_eq!(bench.write(0, 1, 1), Err(StorageError::Unreachable));
    assert_eq!(bench.run(Operation::Flush), Err(StorageError::Unreachable));
    assert_eq!(bench.medium.losses(), (true, 1));
    server.start();
    while bench.write(0, 1, 2).is_err() {}
    assert_eq!(bench.read(0, 1).unwrap(), [2; BLOCK]);
    assert_eq!((bench.medium.losses(), bench.medium.fault()), ((false, 1), None));
}

#[test]
fn a_server_that_comes_back_with_something_else_is_not_used() {
    for (change, fault) in [
        ((|export| export.bytes -= 1) as fn(&mut Export), Some(BLOCKS * BLOCK as u64 - 1)),
        (|export| export.flags |= READ_ONLY, None),
        (|export| export.flags &= !FLUSH, None),
        (|export| export.blocks = Some([8192, 8192, 1 << 20]), None),
    ] {
        let server = server();
        let mut bench = bench(&server);
        server.change_export(change);
        server.hang_up(0);
        let (error, fault) = match fault {
            Some(found) => (StorageError::Shrunk, MediumFault::Shrunk { found, wanted: BLOCKS * BLOCK as u64 }),
            None => (StorageError::Broken, MediumFault::Changed),
        };
        assert_eq!(bench.write(0, 1, 1), Err(error));
        assert_eq!(bench.medium.fault(), Some(fault));
        assert_eq!(bench.read(0, 1), Err(error));
        assert!(server.seen().is_empty());
    }
    // One that has become longer, or can do more, is.
    let server = server();
    let mut bench = bench(&server);
    server.change_export(|export| export.bytes *= 2);
    server.hang_up(0);
    assert_eq!(bench.write(0, 1, 1), Ok(()));
}

#[test]
fn a_server_that_comes_back_with_a_cache_that_it_did_not_have_is_not_used() {
    let server = Server::new(Export { flags: HAS_FLAGS, ..Export::new(BLOCKS) });
    let mut bench = bench(&server);
    assert_eq!(bench.write(0, 1, 1), Ok(()));
    server.change_export(|export| export.flags |= FLUSH);
    server.hang_up(0);
    assert_eq!(bench.write(0, 1, 2), Err(StorageError::Broken));
    assert_eq!(bench.medium.fault(), Some(MediumFault::Changed));
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn late_and_doubled_answers_are_those_of_no_request() {
    let server = server();
    let mut bench = bench(&server);
    // The answer to a request comes once more with that of the next one.
    let mut before: Option<u64> = None;
    server.script(move |seen| {
        let simple = |cookie: u64| [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0][..], &cookie.to_be_bytes()].concat();
        let late = before.replace(seen.cookie);
        late.map_or(Action::Do, |late| Action::Say([simple(late), simple(seen.cookie)].concat()))
    });
    assert_eq!(bench.write(0, 1, 1), Ok(()));
    assert_eq!(bench.write(1, 1, 1), Err(StorageError::Broken));
    assert_eq!(bench.medium.fault(), Some(MediumFault::Breach));
}
