//! Exports of NBD servers as storages, over a server that does what a test tells it to: what is asked of it and what its answers mean,
//! also those that no server should give.

use core::time::Duration;
use frwr_nvmf::storage::{Cookie, Features, MediumFault, NbdError, NbdMedium, Operation, Storage, StorageError};
use frwr_support::{
    Random,
    storage_harness::{
        BLOCK, BUFFER_BYTES,
        nbd::{
            ALL, Action, Export, FLUSH, FLUSH_COMMAND, FUA, HAS_FLAGS, MULTI, NbdBench, READ, READ_ONLY, Seen, Server,
            TRIM_COMMAND, WRITE, ZEROES_COMMAND, chunk,
        },
    },
};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const BLOCKS: u64 = 64;
/// What a server of the oldest handshake says in place of `IHAVEOPT`.
const OLDSTYLE: [u8; 8] = 0x0000_4202_8186_1253_u64.to_be_bytes();

fn server(change: impl FnOnce(&mut Export)) -> Server {
    let mut export = Export::new(BLOCKS);
    change(&mut export);
    Server::new(export)
}

fn bench(server: &Server) -> NbdBench {
    NbdBench::open(server.options(), 32).unwrap()
}

fn refused(server: &Server) -> String {
    NbdBench::open(server.options(), 32).map(|_| ()).unwrap_err().to_string()
}

/// What is said once, and all that is right afterwards.
fn once(command: u16, action: Action) -> impl FnMut(&Seen) -> Action + Send {
    let mut action = Some(action);
    move |seen| if seen.command == command { action.take().unwrap_or(Action::Do) } else { Action::Do }
}

#[test]
fn what_is_written_is_read_by_either_kind_of_replies_and_whatever_the_server_takes_at_once() {
    for structured in [true, false] {
        for blocks in [None, Some([1, 512, u32::MAX]), Some([512, 4096, 4097]), Some([4096, 4096, 12345])] {
            let server = server(|export| (export.structured, export.blocks) = (structured, blocks));
            let mut bench = bench(&server);
            assert_eq!(bench.storage.geometry().blocks(), BLOCKS);
            assert_eq!(bench.storage.features(), Features::default().write_zeroes(true).deallocate(true).shared(true));
            for (lba, blocks, byte) in [(0, 1, 1), (5, 7, 2), (BLOCKS - 32, 32, 3)] {
                bench.write(lba, blocks, byte).unwrap();
                assert_eq!(bench.read(lba, blocks).unwrap(), vec![byte; blocks as usize * BLOCK]);
            }
            for deallocate in [false, true] {
                bench.run(Operation::WriteZeroes { lba: 6, blocks: 2, deallocate }).unwrap();
                let zeroed = server.seen().pop().unwrap();
                assert_eq!((zeroed.command, zeroed.flags), (ZEROES_COMMAND, if deallocate { 0 } else { 2 }));
            }
            bench.run(Operation::Deallocate { lba: 9, blocks: 1 }).unwrap();
            bench.run(Operation::Flush).unwrap();
            let expected: Vec<u8> = [2, 0, 0, 2, 0, 2].iter().flat_map(|byte| [*byte; BLOCK]).collect();
            assert_eq!(bench.read(5, 6).unwrap(), expected);
            let longest = blocks.map_or(u32::MAX, |[.., longest]| longest);
            for seen in server.seen() {
                let aligned = seen.offset.is_multiple_of(4096) && seen.length.is_multiple_of(4096);
                assert!(aligned && seen.length <= longest, "{seen:?}");
            }
            let commands: Vec<_> = server.seen().iter().map(|seen| seen.command).collect();
            assert!(
                [READ, WRITE, FLUSH_COMMAND, TRIM_COMMAND, ZEROES_COMMAND].iter().all(|one| commands.contains(one))
            );
        }
    }
}

#[test]
fn many_operations_are_in_flight_and_end_in_any_order() {
    let server = server(|_| {});
    let mut bench = NbdBench::open(server.options().connections(4), 64).unwrap();
    let mut random = Random::new(1);
    for _ in 0..50 {
        // Blocks of their own for each, in the order of its number.
        for at in 0..64_u64 {
            bench.buffers.fill(at as usize * BLOCK, BLOCK, random.bits() as u8).unwrap();
            let operation = Operation::Write { lba: at, blocks: 1, buffer: at as usize * BLOCK };
            bench.storage.submit(Cookie(at), operation).unwrap();
        }
        assert!(bench.storage.submit(Cookie(64), Operation::Flush).is_err());
        bench.storage.flush();
        let mut cookies: Vec<_> = bench.completions(64).iter().map(|ended| (ended.result, ended.cookie.0)).collect();
        cookies.sort_unstable_by_key(|(_, cookie)| *cookie);
        assert!(cookies.iter().zip(0..).all(|(ended, at)| *ended == (Ok(()), at)));
        let mut written = vec![0; BUFFER_BYTES];
        bench.buffers.read(0, &mut written).unwrap();
        assert_eq!(server.disk(), written);
    }
    assert_eq!(server.connections(), 4);
    let used: std::collections::BTreeSet<_> = server.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(used.len(), 4);
}

#[test]
fn data_comes_in_pieces_in_any_order_with_holes() {
    let server = server(|_| {});
    let mut disk = vec![7_u8; BLOCK * BLOCKS as usize];
    disk[1000..3000].fill(0);
    for (at, byte) in disk[3000..].iter_mut().enumerate() {
        *byte = (at % 251) as u8;
    }
    server.set_disk(disk.clone());
    server.script(|_| Action::Pieces);
    let mut bench = bench(&server);
    assert_eq!(bench.read(0, 1).unwrap(), disk[..BLOCK]);
    // More at the same time than anybody sends.
    let error = bench.storage.statistics().fault;
    assert_eq!(error, None);
}

#[test]
fn errors_are_told_by_their_kind_and_leave_the_connection_as_it_is() {
    for structured in [true, false] {
        let server = server(|export| export.structured = structured);
        let mut bench = bench(&server);
        let write = Operation::Write { lba: 0, blocks: 1, buffer: 0 };
        let read = Operation::Read { lba: 0, blocks: 1, buffer: 0 };
        let trim = Operation::Deallocate { lba: 0, blocks: 1 };
        for (errno, of_write, of_read, of_trim) in [
            (1, Err(StorageError::ReadOnly), Err(StorageError::Medium), Err(StorageError::ReadOnly)),
            (5, Err(StorageError::Medium), Err(StorageError::Medium), Err(StorageError::Medium)),
            (22, Err(StorageError::Medium), Err(StorageError::Medium), Ok(())),
            (28, Err(StorageError::NoSpace), Err(StorageError::NoSpace), Err(StorageError::NoSpace)),
            (95, Err(StorageError::Medium), Err(StorageError::Medium), Ok(())),
            (4711, Err(StorageError::Medium), Err(StorageError::Medium), Err(StorageError::Medium)),
        ] {
            for (operation, wanted) in [(write, of_write), (read, of_read), (trim, of_trim)] {
                server.script(move |_| Action::Fail(errno));
                assert_eq!(bench.run(operation), wanted, "{errno} {operation:?}");
                server.script(|_| Action::Do);
                assert_eq!(bench.run(operation), Ok(()));
            }
        }
        assert_eq!((server.connections(), bench.medium.fault()), (1, None));
    }
}

#[test]
fn what_lies_outside_of_the_export_or_the_buffers_no_server_hears_of() {
    let server = server(|_| {});
    let mut bench = bench(&server);
    let outside = [
        (Operation::Read { lba: BLOCKS, blocks: 1, buffer: 0 }, StorageError::LbaOutOfRange),
        (Operation::Write { lba: u64::MAX, blocks: 1, buffer: 0 }, StorageError::LbaOutOfRange),
        (Operation::Deallocate { lba: 1, blocks: u32::MAX }, StorageError::LbaOutOfRange),
        (Operation::Read { lba: 0, blocks: 1, buffer: BUFFER_BYTES - 1 }, StorageError::BufferOutOfRange),
        (Operation::Write { lba: 0, blocks: 2, buffer: usize::MAX }, StorageError::BufferOutOfRange),
    ];
    for (operation, error) in outside {
        assert_eq!(bench.run(operation), Err(error));
    }
    assert_eq!(bench.run(Operation::Read { lba: 3, blocks: 0, buffer: 0 }), Ok(()));
    assert!(server.seen().is_empty());
}

#[test]
fn an_operation_that_was_not_flushed_is_taken_back_and_one_that_was_is_not() {
    let server = server(|_| {});
    let mut bench = bench(&server);
    let write = |lba| Operation::Write { lba, blocks: 1, buffer: 0 };
    bench.storage.submit(Cookie(1), write(1)).unwrap();
    bench.storage.submit(Cookie(2), write(2)).unwrap();
    assert!(bench.storage.cancel(Cookie(1)) && !bench.storage.cancel(Cookie(1)));
    bench.storage.flush();
    assert!(!bench.storage.cancel(Cookie(2)));
    assert_eq!(bench.completions(1)[0].cookie, Cookie(2));
    assert!(server.seen().iter().all(|seen| seen.offset == 2 * BLOCK as u64));
}

#[test]
fn an_export_that_cannot_be_used_is_refused_with_limit_and_remedy() {
    for (change, parts) in [
        ((|export| export.refusal = Some(5)) as fn(&mut Export), &["TLS", "not there", "--tls=off"][..]),
        (|export| export.refusal = Some(6), &["no such export", "not\\nhere", "nbdinfo"]),
        (|export| export.refusal = Some(1), &["NBD_OPT_GO"]),
        (|export| export.refusal = Some(2), &["NBD_REP_ERR 2"]),
        (|export| export.flags = 0, &["nothing valid was said"]),
        (|export| export.bytes = 4095, &["4095 bytes", "4096"]),
        (|export| export.blocks = Some([8192, 8192, 1 << 20]), &["4096", "8192", "choose blocks"]),
        (|export| export.blocks = Some([512, 512, 2048]), &["4096", "2048", "choose blocks"]),
        (|export| export.blocks = Some([3, 512, 2048]), &["contradict"]),
        (|export| export.blocks = Some([1 << 17, 1 << 17, 1 << 20]), &["contradict"]),
        (|export| export.blocks = Some([512, 4096, 512]), &["contradict"]),
    ] {
        let error = refused(&server(change));
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let gone = server(|_| {}).options();
    let error = NbdMedium::open(gone).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("start its server"), "{error}");
}

#[test]
fn what_is_no_handshake_is_refused() {
    // Messages: greeting, structured replies, export, blocks, other information, acknowledgement.
    type Garble = fn(usize, &mut Vec<u8>) -> bool;
    fn at(message: usize, found: usize, change: impl FnOnce()) -> bool {
        if message == found {
            change();
        }
        false
    }
    let garbled: [(Garble, &str); 9] = [
        (|found, bytes| at(0, found, || bytes[0] = b'n'), "no NBD server"),
        (|found, bytes| at(0, found, || bytes[8] = 0), "no NBD server"),
        (|found, bytes| at(0, found, || bytes[17] = 0), "fixed newstyle"),
        (|found, bytes| at(0, found, || bytes[8..16].copy_from_slice(&OLDSTYLE)), "fixed newstyle"),
        (|found, bytes| at(1, found, || bytes[0] = 1), "magic"),
        (|found, bytes| at(1, found, || bytes[11] = 7), "option 7"),
        (|found, bytes| at(1, found, || bytes[15] = 3), "reply of type 3"),
        (|found, bytes| at(2, found, || bytes[16] = 1), "reply of type 3"),
        (|found, bytes| at(2, found, || bytes[21] = 9), "nothing valid was said"),
    ];
    for (garble, part) in garbled {
        let error = refused(&server(|export| export.garble = Some(garble)));
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn an_export_that_is_only_read_is_never_changed() {
    for server in [server(|export| export.flags |= READ_ONLY), server(|_| {})] {
        let mut bench = NbdBench::open(server.options().read_only(true), 8).unwrap();
        assert!(bench.storage.features().read_only && bench.medium.is_read_only());
        assert_eq!(bench.write(0, 1, 1), Err(StorageError::ReadOnly));
        assert_eq!(bench.run(Operation::Flush), Ok(()));
        assert_eq!(bench.read(0, 1).unwrap(), [0; BLOCK]);
        assert!(server.seen().iter().all(|seen| seen.command == READ));
    }
}

#[test]
fn without_a_promise_of_one_cache_there_is_one_connection() {
    let server = server(|export| export.flags &= !MULTI);
    let error = NbdMedium::open(server.options().connections(2)).map(|_| ()).unwrap_err();
    assert!(matches!(error, NbdError::OneConnection { .. }), "{error}");
    let medium = NbdMedium::open(server.options()).unwrap();
    let first = medium.storage(8).unwrap();
    let error = medium.storage(8).map(|_| ()).unwrap_err().to_string();
    assert!(["CAN_MULTI_CONN", "nbdkit", "--shared=0"].iter().all(|part| error.contains(part)), "{error}");
    drop(first);
    assert!(medium.storage(8).is_ok());
}

#[test]
fn each_connection_must_find_the_export_that_was_opened() {
    for change in [
        (|export| export.bytes -= 1) as fn(&mut Export),
        |export| export.flags |= READ_ONLY,
        |export| export.flags &= !FLUSH,
        |export| export.blocks = Some([512, 512, 2048]),
    ] {
        let server = server(|_| {});
        let medium = NbdMedium::open(server.options()).unwrap();
        let _first = medium.storage(8).unwrap();
        server.change_export(change);
        let error = medium.storage(8).map(|_| ()).unwrap_err();
        assert!(matches!(error, NbdError::Changed { .. }), "{error}");
        server.change_export(|export| *export = Export::new(BLOCKS));
        assert!(medium.storage(8).is_ok());
    }
}

#[test]
fn writes_ask_for_fua_where_there_is_no_flush_or_where_that_was_asked_for() {
    for (flags, asked, fua, through) in [
        (ALL, false, 0, false),
        (ALL, true, 1, true),
        (HAS_FLAGS | FUA, false, 1, true),
        (HAS_FLAGS, false, 0, true),
        (HAS_FLAGS | FLUSH, false, 0, false),
    ] {
        let server = server(|export| export.flags = flags);
        let mut bench = NbdBench::open(server.options().write_through(asked), 8).unwrap();
        assert_eq!(bench.storage.features().write_through, through);
        bench.write(0, 1, 1).unwrap();
        bench.run(Operation::Flush).unwrap();
        let seen = server.seen();
        assert_eq!(seen[0].flags, fua);
        assert_eq!(seen.iter().any(|seen| seen.command == FLUSH_COMMAND), !through);
    }
    let server = server(|export| export.flags &= !FUA);
    let error = NbdMedium::open(server.options().write_through(true)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("x-write-through") && error.contains("--filter=fua"), "{error}");
}

#[test]
fn an_answer_that_no_server_may_give_ends_everything_and_moves_nothing_elsewhere() {
    let data = |cookie, offset: u64, bytes: &[u8]| chunk(cookie, 1, 1, &[&offset.to_be_bytes()[..], bytes].concat());
    let hole = |cookie, offset: u64, bytes: u32| {
        chunk(cookie, 1, 2, &[&offset.to_be_bytes()[..], &bytes.to_be_bytes()].concat())
    };
    let simple = |cookie: u64| [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0][..], &cookie.to_be_bytes()].concat();
    let at = BLOCK as u64;
    // The cookie of the first request is this, so that answers can be made in front of it.
    let key = 1 << 32;
    let answers: Vec<(u16, Vec<u8>)> = vec![
        (READ, vec![0; 16]),
        (READ, simple(key)),
        (READ, data(key + 1, at, &[1; BLOCK])),
        (READ, data(key | 1 << 40, at, &[1; BLOCK])),
        (READ, data(key, at - 1, &[1; BLOCK])),
        (READ, data(key, at + 1, &[1; BLOCK])),
        (READ, data(key, u64::MAX, &[1; BLOCK])),
        (READ, data(key, at, &[1; BLOCK + 1])),
        (READ, data(key, at, &[1; BLOCK - 1])),
        (READ, data(key, at, &[])),
        (
            READ,
            [
                data(key, at, &[1; 8])[..4].to_vec(),
                vec![0, 0, 0, 1],
                data(key, at, &[1; 8])[8..].to_vec(),
                hole(key, at + 4, 8),
            ]
            .concat(),
        ),
        (READ, hole(key, at, 0)),
        (READ, hole(key, at, BLOCK as u32 + 1)),
        (READ, hole(key, at, u32::MAX)),
        (READ, chunk(key, 1, 0, &[])),
        (READ, chunk(key, 0, 0, &[])),
        (READ, chunk(key, 1, 0, &[0])),
        (READ, chunk(key, 1, 5, &[0; 12])),
        (READ, chunk(key, 1, 0x8001, &[0; 6])),
        (READ, chunk(key, 1, 0x8001, &[0, 0, 0, 5, 0, 1])),
        (READ, chunk(key, 1, 0x8001, &[0, 0, 0, 5, 0])),
        (READ, chunk(key, 1, 0x8001, &[1; 6000])),
        (WRITE, data(key, at, &[1; BLOCK])),
        (WRITE, hole(key, at, BLOCK as u32)),
        (WRITE, [simple(key), simple(key)].concat()),
    ];
    for (command, answer) in answers {
        let server = server(|_| {});
        let mut bench = bench(&server);
        bench.buffers.fill(0, BUFFER_BYTES, 0xaa).unwrap();
        let said = answer.clone();
        server.script(once(command, Action::Say(said)));
        let operation = match command {
            READ => Operation::Read { lba: 1, blocks: 1, buffer: BLOCK },
            _ => Operation::Write { lba: 1, blocks: 1, buffer: BLOCK },
        };
        bench.submit(1, operation);
        let mut results: Vec<_> = bench.completions(1).iter().map(|ended| ended.result).collect();
        if results == [Ok(())] {
            // What came behind a good answer.
            results = vec![bench.write(2, 1, 0xaa)];
        }
        assert_eq!(results, [Err(StorageError::Broken)], "{answer:?}");
        assert_eq!(bench.medium.fault(), Some(MediumFault::Breach));
        let mut around = vec![0; BUFFER_BYTES];
        bench.buffers.read(0, &mut around).unwrap();
        around.drain(BLOCK..2 * BLOCK);
        assert!(around.iter().all(|byte| *byte == 0xaa), "{answer:?}");
        assert_eq!(bench.run(Operation::Read { lba: 1, blocks: 1, buffer: 0 }), Err(StorageError::Broken));
        assert_eq!(server.connections(), 1);
    }
}

static SEED: AtomicU64 = AtomicU64::new(0);

fn mutate(bytes: &mut Vec<u8>) {
    let mut random = Random::new(SEED.load(SeqCst));
    for _ in 0..=random.below(2) {
        // Data may be anything; what is in front of it matters.
        let at = random.below(bytes.len().min(48) as u64) as usize;
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.bits() as u8,
            2 => bytes.truncate(at.max(1)),
            _ => bytes.insert(at, random.bits() as u8),
        }
    }
}

/// Of a fourth of the seeds.
fn mutate_handshake(message: usize, bytes: &mut Vec<u8>) -> bool {
    let seed = SEED.load(SeqCst);
    let is_it = seed % 4 == 3 && message as u64 == seed / 4 % 6;
    if is_it {
        mutate(bytes);
    }
    is_it
}

#[test]
fn a_thousand_mutated_answers_end_every_operation_once_and_move_nothing_elsewhere() {
    let server = server(|export| export.garble = Some(mutate_handshake));
    let (mut opened, mut broken) = (0, 0);
    for seed in 0..1000 {
        SEED.store(seed, SeqCst);
        server.change_export(|export| (export.structured, export.blocks) = (seed % 2 == 0, Some([1, 512, 1 << 20])));
        let mut count = 0;
        server.script(move |_| {
            count += 1;
            match count {
                3 => Action::Garble(mutate),
                // Whoever waits for more than came finds the end.
                6.. => Action::HangUp,
                _ => Action::Pieces,
            }
        });
        let Ok(mut bench) = NbdBench::open(server.options().patience(Duration::ZERO), 8) else { continue };
        opened += 1;
        bench.buffers.fill(0, BUFFER_BYTES, 0xaa).unwrap();
        for at in 0..8_u64 {
            let operation = match at % 4 {
                0 | 2 => Operation::Read { lba: at, blocks: 1, buffer: BLOCK },
                1 => Operation::Write { lba: at, blocks: 1, buffer: 2 * BLOCK },
                _ => Operation::WriteZeroes { lba: at, blocks: 1, deallocate: true },
            };
            bench.submit(at, operation);
        }
        let mut ended = bench.completions(8);
        ended.sort_unstable_by_key(|completion| completion.cookie.0);
        assert!(ended.iter().zip(0..).all(|(ended, at)| ended.cookie == Cookie(at)), "{seed}");
        broken += u32::from(bench.medium.fault() == Some(MediumFault::Breach));
        let mut around = vec![0; BUFFER_BYTES];
        bench.buffers.read(0, &mut around).unwrap();
        around.drain(BLOCK..2 * BLOCK);
        assert!(around.iter().all(|byte| *byte == 0xaa), "{seed}");
    }
    println!("{opened} opened, of which {broken} broke the protocol");
    assert!(opened > 700 && broken > 200);
}
