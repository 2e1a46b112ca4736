//! Exports of NBD servers over TCP: servers that do not accept, and connections that our side gives up.

use core::time::Duration;
use frwr_nvmf::storage::{Completion, CompletionBatch, MediumFault, NbdMedium, Operation, Storage, StorageError};
use frwr_support::{
    Random,
    storage_harness::{
        BLOCK,
        media::time,
        nbd::{Action, Export, NbdBench, READ, Server, WRITE, flush_and_verify},
    },
};
use rustix::{
    net::{connect_unspec, getsockname, sockopt::socket_error},
    process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
};
use std::{io, net::SocketAddr};

const WRITE_ONE: Operation = Operation::Write { lba: 1, blocks: 1, buffer: 0 };

fn server() -> Server {
    Server::tcp(Export::new(256))
}

#[test]
fn a_server_over_tcp_is_served_by_and_found_again_when_it_ended() {
    let mut server = server();
    let mut bench = NbdBench::open(server.options(), 32).unwrap();
    flush_and_verify(&mut bench, &mut Random::new(11), 20);
    assert_eq!(bench.run(Operation::Flush), Ok(()));
    server.stop();
    server.start();
    assert_eq!(bench.write(1, 1, 7), Ok(()));
    assert_eq!(bench.read(1, 1).unwrap(), [7; BLOCK]);
    assert_eq!((bench.run(Operation::Flush), bench.medium.fault()), (Ok(()), None));
}

#[test]
fn operations_wait_for_a_server_that_does_not_accept_as_long_as_for_none() {
    let mut server = server();
    let patience = Duration::from_secs(25);
    let mut bench = NbdBench::open(server.options().patience(patience), 8).unwrap();
    let poll = |bench: &mut NbdBench, now| -> Vec<Completion> {
        let mut out = CompletionBatch::new();
        bench.storage.poll(now, &mut out);
        bench.storage.flush();
        out.into_iter().collect()
    };
    let mut now = Duration::from_secs(1);
    poll(&mut bench, now);
    server.stop();
    bench.submit(1, WRITE_ONE);
    while bench.medium.losses() != (true, 1) {
        assert!(poll(&mut bench, now).is_empty());
    }
    // Each attempt is given up after ten seconds, and the next one is no better.
    let until = now + patience;
    while now < until {
        assert!(poll(&mut bench, now).is_empty());
        now += Duration::from_millis(100);
    }
    let ended = poll(&mut bench, now);
    assert_eq!(ended.iter().map(|ended| ended.result).collect::<Vec<_>>(), [Err(StorageError::Unreachable)]);
    server.start();
    // By the clock from here on: patience that is over before a server on a busy machine could answer would have it connected to for ever.
    let mut elapsed = time();
    let mut result = Err(StorageError::Unreachable);
    while result == Err(StorageError::Unreachable) {
        bench.submit(1, WRITE_ONE);
        result = loop {
            let now = now + elapsed();
            if let Some(ended) = poll(&mut bench, now).pop() {
                break ended.result;
            }
            std::thread::yield_now();
        };
    }
    assert_eq!((result, bench.medium.losses(), bench.medium.fault()), (Ok(()), (false, 1), None));
}

/// The end of a connection of this process at that address ends it as the kernel does whose peer was silent for too long: no word of the
/// server's is behind that. False where nobody lets us.
fn give_up(address: SocketAddr) -> io::Result<bool> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(copy) = pidfd_getfd(&this, number, PidfdGetfdFlags::empty()) else { continue };
        if getsockname(&copy).is_ok_and(|found| SocketAddr::try_from(found) == Ok(address)) {
            connect_unspec(&copy)?;
            // The reset that this leaves behind was no server's.
            let _ = socket_error(&copy)?;
            return Ok(true);
        }
    }
    Ok(false)
}

#[test]
fn what_our_side_gave_up_is_sent_again_only_where_it_changes_nothing() {
    for (command, changes) in [(READ, false), (WRITE, true)] {
        let server = server();
        let medium = NbdMedium::open(server.options()).unwrap();
        let [mut one, mut other] = [(); 2].map(|()| NbdBench::of(medium.clone(), 8).unwrap());
        let mut held = false;
        server.script(move |_| if core::mem::replace(&mut held, true) { Action::Do } else { Action::Hold });
        one.submit(1, if changes { WRITE_ONE } else { Operation::Read { lba: 1, blocks: 1, buffer: 0 } });
        one.until(|_| server.seen().len() == 1);
        if !give_up(server.peer(0)).unwrap_or(false) {
            return println!("skipped: pidfd_getfd(2) of this process is not allowed");
        }
        let result = one.completions(1)[0].result;
        let sent = server.seen().iter().filter(|seen| seen.command == command).count();
        if changes {
            assert_eq!((result, sent, medium.fault()), (Err(StorageError::Broken), 1, Some(MediumFault::Unanswered)));
            assert_eq!(other.read(1, 1), Err(StorageError::Broken));
            assert_eq!(server.connections(), 2);
        } else {
            assert_eq!((result, sent, medium.fault()), (Ok(()), 2, None));
            assert_eq!(other.read(1, 1).unwrap(), [0; BLOCK]);
        }
    }
}
