//! A connection over which a core sleeps whenever it may, with nothing but its socket to wake it: no timer.

use super::super::{
    connection::Connection,
    socket::Place,
    tasks::{Part, Sent, Tasks},
    wire::{Command, Request},
};
use super::*;
use crate::storage::{Cookie, Operation};
use frwr_mempool::{PagePolicy, PageSize, Region, RegionOptions};
use rustix::net::SocketAddrUnix;
use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixListener,
    sync::mpsc,
    thread,
};

/// Bytes of a write that no socket takes at once.
const LENGTH: u32 = 8 << 20;

/// A core that waits for a storage's descriptor, as a target does.
struct Core {
    wakeup: Wakeup,
    epoll: OwnedFd,
    /// Hears of each sleep before it begins.
    sleeps: mpsc::Sender<()>,
}

impl Core {
    fn new(sleeps: mpsc::Sender<()>) -> Self {
        let (wakeup, epoll) = (Wakeup::new().unwrap(), epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        epoll::add(&epoll, wakeup.descriptor(), nobody(), told_of(false)).unwrap();
        Self { wakeup, epoll, sleeps }
    }

    /// Polls until there is a result, and sleeps in between: for ever, where nobody tells of what comes.
    fn until<T>(&self, connection: &mut Connection, mut poll: impl FnMut(&mut Connection) -> Option<T>) -> T {
        loop {
            connection.tell_just(&self.wakeup);
            if let Some(result) = poll(connection) {
                return result;
            }
            connection.tell(&self.wakeup);
            if connection.rests() {
                // Whoever heard enough is gone.
                let _ = self.sleeps.send(());
                epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut Vec::with_capacity(1)), None).unwrap();
            }
        }
    }
}

/// All that a server says until an export is open.
fn handshake() -> Vec<u8> {
    let reply = |option: u32, kind: u32, data: &[u8]| {
        let length = (data.len() as u32).to_be_bytes();
        let magic = 0x0003_e889_0455_65a9_u64.to_be_bytes();
        [&magic[..], &option.to_be_bytes(), &kind.to_be_bytes(), &length, data].concat()
    };
    let export = [&[0, 0][..], &u64::from(LENGTH).to_be_bytes(), &[0, 1]].concat();
    [&b"NBDMAGICIHAVEOPT\0\x03"[..], &reply(8, 1, &[]), &reply(7, 3, &export), &reply(7, 1, &[])].concat()
}

/// What a client says meanwhile: its flags, and two options, of an export whose name is one byte.
const CLIENT_BYTES: usize = 4 + 16 + 16 + 4 + 1 + 4;
const REQUEST: Request = Request { command: Command::Write, flags: 0, cookie: 0, offset: 0, length: LENGTH };

/// Says a byte whenever the core sleeps, and reads a request when it does so next.
fn serve(listener: &UnixListener, core_sleeps: &mpsc::Receiver<()>) {
    let (stream, _) = listener.accept().unwrap();
    let say = |bytes: &[u8]| {
        for byte in bytes {
            core_sleeps.recv().unwrap();
            (&stream).write_all(&[*byte]).unwrap();
        }
    };
    say(&handshake());
    core_sleeps.recv().unwrap();
    let mut request = vec![0; CLIENT_BYTES + 28 + LENGTH as usize];
    (&stream).read_exact(&mut request).unwrap();
    let cookie = &request[CLIENT_BYTES + 8..][..8];
    say(&[&0x6744_6698_u32.to_be_bytes()[..], &[0; 4], cookie].concat());
}

#[test]
fn a_socket_wakes_for_each_byte_that_comes_and_for_room_of_what_has_to_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd");
    let listener = UnixListener::bind(&path).unwrap();
    let (sleeps, core_sleeps) = mpsc::channel();
    let server = thread::spawn(move || serve(&listener, &core_sleeps));

    let (core, mut connection) = (Core::new(sleeps), Connection::new());
    connection.connect(&Place::Unix(SocketAddrUnix::new(&path).unwrap())).unwrap();
    core.until(&mut connection, |connection| connection.negotiate("e").unwrap());

    let options = RegionOptions::new(LENGTH as usize).pages(PagePolicy::Exactly(PageSize::Plain));
    let buffers = Region::map(&options).unwrap().carve(LENGTH as usize, 4096).unwrap().into_device_memory();
    let mut tasks = Tasks::new(1);
    let operation = Operation::Write { lba: 0, blocks: LENGTH / 4096, buffer: 0 };
    let slot = tasks.add(Cookie(0), operation, 0, LENGTH.into()).unwrap();
    let (key, part) = (tasks.key(slot), Part { offset: 0, length: LENGTH, buffer: 0 });
    let sent = Sent { connection: 0, key, part, age: 0, flush: None, coverage: Default::default(), error: 0 };
    tasks.send(slot, sent);
    connection.put(Request { cookie: key, ..REQUEST }, part, &buffers);
    let answer = core.until(&mut connection, |connection| {
        connection.receive().unwrap();
        let answer = connection.answer(0, &mut tasks, &buffers).unwrap();
        if connection.is_sending() {
            connection.send(&buffers).unwrap();
        }
        answer
    });
    assert_eq!((answer.slot, answer.error), (slot, 0));
    server.join().unwrap();
}
