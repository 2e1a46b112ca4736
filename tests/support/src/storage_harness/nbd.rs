//! An NBD server that does what a test tells it to, and a storage over it with a clock that goes on.

use super::{BLOCK, BUFFER_BYTES, memory};
use core::time::Duration;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::conformance::Medium;
use frwr_nvmf::storage::{
    AnyStorage, Completion, CompletionBatch, Cookie, NbdAddress, NbdError, NbdMedium, NbdOptions, Operation, Storage,
    StorageError,
};
use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

/// Transmission flags.
pub const HAS_FLAGS: u16 = 1;
pub const READ_ONLY: u16 = 2;
pub const FLUSH: u16 = 4;
pub const FUA: u16 = 8;
pub const TRIM: u16 = 32;
pub const ZEROES: u16 = 64;
pub const MULTI: u16 = 256;
/// All that a server can do.
pub const ALL: u16 = HAS_FLAGS | FLUSH | FUA | TRIM | ZEROES | MULTI;

/// Commands.
pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH_COMMAND: u16 = 3;
pub const TRIM_COMMAND: u16 = 4;
pub const ZEROES_COMMAND: u16 = 6;

/// What a server says of its export.
#[derive(Clone, Debug)]
pub struct Export {
    pub bytes: u64,
    pub flags: u16,
    /// Minimum, preferred, maximum; `None` where it does not say.
    pub blocks: Option<[u32; 3]>,
    pub structured: bool,
    /// An error in place of the export (NBD_REP_ERR_...).
    pub refusal: Option<u32>,
    /// What changes the messages of a handshake, by their number; true where it hangs up behind that one.
    pub garble: Option<fn(usize, &mut Vec<u8>) -> bool>,
}

impl Export {
    pub fn new(blocks: u64) -> Self {
        Self { bytes: blocks * BLOCK as u64, flags: ALL, blocks: None, structured: true, refusal: None, garble: None }
    }
}

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Counts connections.
    pub connection: usize,
    pub command: u16,
    pub flags: u16,
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
}

/// What to do with a request.
#[derive(Clone, Debug)]
pub enum Action {
    Do,
    Fail(u32),
    /// Carries it out, and says these bytes.
    Say(Vec<u8>),
    /// Carries it out, and says what it would have with something changed.
    Garble(fn(&mut Vec<u8>)),
    /// Carries it out, and answers in pieces: data backwards, with a hole where there are zeros.
    Pieces,
    /// Carries it out, and says nothing.
    Hold,
    /// Says all that is right, but for its last bytes, and hangs up.
    Cut(usize),
    HangUp,
    DoAndHangUp,
}

type Script = Box<dyn FnMut(&Seen) -> Action + Send>;

struct State {
    export: Mutex<Export>,
    disk: Mutex<Vec<u8>>,
    /// What a flush, or FUA, has made of that.
    durable: Mutex<Vec<u8>>,
    seen: Mutex<Vec<Seen>>,
    script: Mutex<Script>,
    /// Of either kind of sockets.
    connections: Mutex<Vec<UnixStream>>,
    ends: AtomicBool,
}

/// A server at a socket of its own.
pub struct Server {
    state: Arc<State>,
    place: Place,
    thread: Option<JoinHandle<()>>,
}

/// Where it listens.
enum Place {
    Unix {
        path: PathBuf,
        _folder: tempfile::TempDir,
    },
    /// The port stays its own while it has ended, for nobody else to get: the kernel takes connections then, and nobody serves them.
    Tcp(Arc<TcpListener>),
}

enum Listener {
    Unix(UnixListener),
    Tcp(Arc<TcpListener>),
}

impl Place {
    fn listen(&self) -> Listener {
        match self {
            Self::Unix { path, .. } => Listener::Unix(UnixListener::bind(path).unwrap()),
            Self::Tcp(listener) => Listener::Tcp(Arc::clone(listener)),
        }
    }

    fn address(&self) -> NbdAddress {
        match self {
            Self::Unix { path, .. } => NbdAddress::Unix(path.clone()),
            Self::Tcp(listener) => {
                let address = listener.local_addr().unwrap();
                NbdAddress::Tcp { host: address.ip().to_string(), port: address.port() }
            }
        }
    }

    /// A connection, for whoever waits for one.
    fn wake(&self) {
        match self {
            Self::Unix { path, .. } => drop(UnixStream::connect(path)),
            Self::Tcp(listener) => drop(TcpStream::connect(listener.local_addr().unwrap())),
        }
    }
}

impl Listener {
    /// The next one; what can be done with one of TCP is the same.
    fn accept(&self) -> io::Result<UnixStream> {
        match self {
            Self::Unix(listener) => Ok(listener.accept()?.0),
            Self::Tcp(listener) => Ok(OwnedFd::from(listener.accept()?.0).into()),
        }
    }
}

impl Server {
    pub fn new(export: Export) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::at(Place::Unix { path: folder.path().join("nbd"), _folder: folder }, export)
    }

    /// At a port of this machine's own address. Where it has ended it is one that takes connections and says nothing.
    pub fn tcp(export: Export) -> Self {
        Self::at(Place::Tcp(Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())), export)
    }

    fn at(place: Place, export: Export) -> Self {
        let state = Arc::new(State {
            disk: Mutex::new(vec![0; export.bytes as usize]),
            durable: Mutex::new(vec![0; export.bytes as usize]),
            export: Mutex::new(export),
            seen: Mutex::default(),
            script: Mutex::new(Box::new(|_| Action::Do)),
            connections: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        let mut server = Self { state, place, thread: None };
        server.start();
        server
    }

    pub fn options(&self) -> NbdOptions {
        let patience = Duration::from_secs(24 * 60 * 60);
        NbdOptions::new(self.place.address(), "e").patience(patience)
    }

    /// From now on requests are treated so.
    pub fn script(&self, script: impl FnMut(&Seen) -> Action + Send + 'static) {
        *self.state.script.lock().unwrap() = Box::new(script);
    }

    pub fn change_export(&self, change: impl FnOnce(&mut Export)) {
        change(&mut self.state.export.lock().unwrap());
    }

    pub fn disk(&self) -> Vec<u8> {
        self.state.disk.lock().unwrap().clone()
    }

    /// Its disk is as it was at some other time.
    pub fn set_disk(&self, disk: Vec<u8>) {
        *self.state.disk.lock().unwrap() = disk;
    }

    /// It ends with what it had in its cache, and begins again.
    pub fn lose_power(&mut self) {
        self.stop();
        self.set_disk(self.state.durable.lock().unwrap().clone());
        self.start();
    }

    /// Requests that came by now.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    /// Connections that came by now.
    pub fn connections(&self) -> usize {
        self.state.connections.lock().unwrap().len()
    }

    /// The other end of that connection, which is one of TCP.
    pub fn peer(&self, connection: usize) -> SocketAddr {
        let stream = self.state.connections.lock().unwrap()[connection].try_clone().unwrap();
        TcpStream::from(OwnedFd::from(stream)).peer_addr().unwrap()
    }

    /// Ends that connection.
    pub fn hang_up(&self, connection: usize) {
        let _ = self.state.connections.lock().unwrap()[connection].shutdown(Shutdown::Both);
    }

    /// Ends, as a process that is killed.
    pub fn stop(&mut self) {
        self.state.ends.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            self.place.wake();
            thread.join().unwrap();
        }
        if let Place::Unix { path, .. } = &self.place {
            let _ = std::fs::remove_file(path);
        }
    }

    pub fn start(&mut self) {
        self.state.ends.store(false, SeqCst);
        let listener = self.place.listen();
        let state = Arc::clone(&self.state);
        self.thread = Some(thread::spawn(move || accept(&state, &listener)));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept(state: &Arc<State>, listener: &Listener) {
    let mut served = Vec::new();
    while let Ok(stream) = listener.accept() {
        if state.ends.load(SeqCst) {
            break;
        }
        let number = {
            let mut connections = state.connections.lock().unwrap();
            connections.push(stream.try_clone().unwrap());
            connections.len() - 1
        };
        let state = Arc::clone(state);
        served.push(thread::spawn(move || {
            // However it ends, both see it.
            let _ = serve(&state, number, &stream);
            let _ = stream.shutdown(Shutdown::Both);
        }));
    }
    for connection in state.connections.lock().unwrap().iter() {
        let _ = connection.shutdown(Shutdown::Both);
    }
    served.into_iter().for_each(|thread| thread.join().unwrap());
}

fn take<const N: usize>(mut stream: &UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn reply_to_option(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
    for number in [option, kind, data.len() as u32] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(data);
    bytes
}

fn serve(state: &State, number: usize, mut stream: &UnixStream) -> io::Result<()> {
    let export = state.export.lock().unwrap().clone();
    let mut said = 0;
    let mut out = stream;
    let mut say = |mut bytes: Vec<u8>| -> io::Result<()> {
        let over = export.garble.is_some_and(|garble| garble(said, &mut bytes));
        said += 1;
        out.write_all(&bytes)?;
        if over { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    };
    say([&b"NBDMAGICIHAVEOPT"[..], &3_u16.to_be_bytes()].concat())?;
    assert_eq!(take(stream)?, [0, 0, 0, 3]);
    loop {
        assert_eq!(&take(stream)?, b"IHAVEOPT");
        let option = u32::from_be_bytes(take(stream)?);
        let mut data = vec![0; u32::from_be_bytes(take(stream)?) as usize];
        stream.read_exact(&mut data)?;
        match (option, export.refusal) {
            (8, Some(5)) => say(reply_to_option(8, 1 << 31 | 5, b"TLS"))?,
            (8, _) if export.structured => say(reply_to_option(8, 1, &[]))?,
            (7, Some(refusal)) => say(reply_to_option(7, 1 << 31 | refusal, b"not\nhere"))?,
            (7, None) => {
                assert_eq!(data, [&[0, 0, 0, 1, b'e'][..], &[0, 1, 0, 3]].concat());
                let info = [&[0, 0][..], &export.bytes.to_be_bytes(), &export.flags.to_be_bytes()].concat();
                say(reply_to_option(7, 3, &info))?;
                if let Some(blocks) = export.blocks {
                    let sizes: Vec<u8> = blocks.iter().flat_map(|size| size.to_be_bytes()).collect();
                    say(reply_to_option(7, 3, &[&[0, 3][..], &sizes].concat()))?;
                }
                say(reply_to_option(7, 3, &[0, 77, 1, 2]))?;
                say(reply_to_option(7, 1, &[]))?;
                break;
            }
            _ => say(reply_to_option(option, 1 << 31 | 1, b"what?"))?,
        }
    }
    loop {
        assert_eq!(take(stream)?, 0x2560_9513_u32.to_be_bytes());
        let (flags, command) = (u16::from_be_bytes(take(stream)?), u16::from_be_bytes(take(stream)?));
        let (cookie, offset) = (u64::from_be_bytes(take(stream)?), u64::from_be_bytes(take(stream)?));
        let length = u32::from_be_bytes(take(stream)?);
        let seen = Seen { connection: number, command, flags, cookie, offset, length };
        let mut data = vec![0; if command == WRITE { length as usize } else { 0 }];
        stream.read_exact(&mut data)?;
        if command == DISCONNECT {
            return Ok(());
        }
        let action = (state.script.lock().unwrap())(&seen);
        state.seen.lock().unwrap().push(seen.clone());
        if matches!(action, Action::HangUp) {
            return Ok(());
        }
        let error = if let Action::Fail(error) = action { error } else { carry_out(state, &seen, &mut data) };
        let mut reply = reply(&seen, error, &data, export.structured, matches!(action, Action::Pieces));
        match action {
            Action::Say(bytes) => reply = bytes,
            Action::Garble(garble) => garble(&mut reply),
            Action::Hold => continue,
            Action::Cut(bytes) => {
                stream.write_all(&reply[..reply.len().saturating_sub(bytes)])?;
                return Ok(());
            }
            Action::DoAndHangUp => return Ok(()),
            _ => {}
        }
        stream.write_all(&reply)?;
    }
}

fn carry_out(state: &State, seen: &Seen, data: &mut Vec<u8>) -> u32 {
    let mut disk = state.disk.lock().unwrap();
    let start = seen.offset as usize;
    let Some(place) = disk.get_mut(start..start + seen.length as usize) else { return 22 };
    match seen.command {
        READ => data.extend_from_slice(place),
        WRITE => place.copy_from_slice(data),
        TRIM_COMMAND | ZEROES_COMMAND => place.fill(0),
        _ => {}
    }
    let mut durable = state.durable.lock().unwrap();
    if seen.flags & 1 != 0 {
        durable[start..start + seen.length as usize].copy_from_slice(place);
    }
    if seen.command == FLUSH_COMMAND {
        durable.clone_from(&disk);
    }
    0
}

/// What answers a request.
pub fn reply(seen: &Seen, error: u32, data: &[u8], structured: bool, pieces: bool) -> Vec<u8> {
    let simple = [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &seen.cookie.to_be_bytes()].concat();
    if seen.command != READ || !structured {
        let data = if seen.command == READ && error == 0 { data } else { &[] };
        return [&simple, data].concat();
    }
    if error != 0 {
        return chunk(seen.cookie, 1, 0x8001, &[&error.to_be_bytes()[..], &[0, 2], b"no"].concat());
    }
    if !pieces {
        return chunk(seen.cookie, 1, 1, &[&seen.offset.to_be_bytes()[..], data].concat());
    }
    let mut bytes = Vec::new();
    for (at, piece) in data.chunks(1000).enumerate().collect::<Vec<_>>().into_iter().rev() {
        let offset = (seen.offset + at as u64 * 1000).to_be_bytes();
        if piece.iter().all(|byte| *byte == 0) {
            bytes.extend(chunk(seen.cookie, 0, 2, &[&offset[..], &(piece.len() as u32).to_be_bytes()].concat()));
        } else {
            bytes.extend(chunk(seen.cookie, 0, 1, &[&offset[..], piece].concat()));
        }
    }
    bytes.extend(chunk(seen.cookie, 1, 0, &[]));
    bytes
}

/// One chunk of a structured reply.
pub fn chunk(cookie: u64, flags: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let magic = 0x668e_33ef_u32.to_be_bytes();
    [&magic[..], &flags.to_be_bytes(), &kind.to_be_bytes(), &cookie.to_be_bytes(), &length, payload].concat()
}

/// A storage with buffers, and a clock that goes on.
pub struct NbdBench {
    pub medium: NbdMedium,
    pub storage: AnyStorage,
    pub buffers: DeviceMemory,
    began: Instant,
}

impl NbdBench {
    pub fn open(options: NbdOptions, depth: usize) -> Result<Self, NbdError> {
        Self::of(NbdMedium::open(options)?, depth)
    }

    /// One core's way to a medium.
    pub fn of(medium: NbdMedium, depth: usize) -> Result<Self, NbdError> {
        let mut storage = medium.storage(depth)?;
        let buffers = memory(BUFFER_BYTES);
        storage.attach(buffers.clone()).unwrap();
        Ok(Self { medium, storage, buffers, began: Instant::now() })
    }

    pub fn submit(&mut self, cookie: u64, operation: Operation) {
        self.storage.submit(Cookie(cookie), operation).unwrap();
        self.storage.flush();
    }

    /// What its clock says.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// One poll.
    pub fn poll(&mut self) -> Vec<Completion> {
        let mut out = CompletionBatch::new();
        self.storage.poll(self.now(), &mut out);
        thread::yield_now();
        out.into_iter().collect()
    }

    /// Polls until as many operations have ended.
    pub fn completions(&mut self, count: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.poll());
        }
        assert_eq!(all.len(), count);
        all
    }

    /// Polls until something is so.
    pub fn until(&mut self, mut is_so: impl FnMut(&Self) -> bool) {
        while !is_so(self) {
            assert!(self.poll().is_empty());
        }
    }

    pub fn run(&mut self, operation: Operation) -> Result<(), StorageError> {
        self.submit(7, operation);
        let ended = self.completions(1);
        assert_eq!(ended[0].cookie, Cookie(7));
        ended[0].result
    }

    pub fn write(&mut self, lba: u64, blocks: u32, byte: u8) -> Result<(), StorageError> {
        self.buffers.fill(0, blocks as usize * BLOCK, byte).unwrap();
        self.run(Operation::Write { lba, blocks, buffer: 0 })
    }

    /// Reads blocks by way of the end of the buffers.
    pub fn read(&mut self, lba: u64, blocks: u32) -> Result<Vec<u8>, StorageError> {
        let bytes = blocks as usize * BLOCK;
        self.buffers.fill(BUFFER_BYTES - bytes, bytes, 0x55).unwrap();
        self.run(Operation::Read { lba, blocks, buffer: BUFFER_BYTES - bytes })?;
        let mut found = vec![0; bytes];
        self.buffers.read(BUFFER_BYTES - bytes, &mut found).unwrap();
        Ok(found)
    }
}

/// Reads and writes at random with many in flight, against what each block holds; a Flush in between, and all blocks read at the end.
pub fn flush_and_verify(bench: &mut NbdBench, random: &mut crate::Random, rounds: u64) {
    let blocks = bench.storage.geometry().blocks();
    let batch = (BUFFER_BYTES / BLOCK).min(16) as u64;
    let mut model = std::collections::BTreeMap::new();
    for round in 0..rounds {
        // Blocks of their own for each of a batch.
        let first = random.below(blocks - batch * 3);
        for at in 0..batch {
            let (lba, buffer, byte) = (first + at * 3, at as usize * BLOCK, random.bits() as u8);
            bench.buffers.fill(buffer, BLOCK, byte).unwrap();
            bench.storage.submit(Cookie(at), Operation::Write { lba, blocks: 1, buffer }).unwrap();
            model.insert(lba, byte);
        }
        bench.storage.flush();
        assert!(bench.completions(batch as usize).iter().all(|ended| ended.result.is_ok()));
        if round % 7 == 0 {
            assert_eq!(bench.run(Operation::Flush), Ok(()));
        }
    }
    for (lba, byte) in model {
        assert_eq!(bench.read(lba, 1).unwrap(), vec![byte; BLOCK], "{lba}");
    }
}

/// An export as the conformance suite takes it: on a server with a volatile cache.
pub struct OnNbd {
    server: Server,
    write_through: bool,
    medium: Option<NbdMedium>,
}

impl OnNbd {
    pub fn new(write_through: bool) -> Self {
        Self { server: Server::new(Export::new(128)), write_through, medium: None }
    }

    fn opened(&mut self, read_only: bool) -> Option<Box<dyn Storage>> {
        let options = self.server.options().write_through(self.write_through).read_only(read_only);
        self.medium = Some(NbdMedium::open(options).unwrap());
        self.open_beside()
    }
}

impl Medium for OnNbd {
    fn open(&mut self) -> Option<Box<dyn Storage>> {
        self.opened(false)
    }

    fn open_beside(&mut self) -> Option<Box<dyn Storage>> {
        Some(Box::new(self.medium.as_ref()?.storage(64).unwrap()))
    }

    fn open_read_only(&mut self) -> Option<Box<dyn Storage>> {
        self.opened(true)
    }

    fn lose_power(&mut self) -> bool {
        self.server.lose_power();
        true
    }

    fn fail_below(&mut self) -> bool {
        self.server.script(|seen| if seen.command == FLUSH_COMMAND { Action::Fail(5) } else { Action::Do });
        !self.write_through
    }

    fn mend_below(&mut self) {
        self.server.script(|_| Action::Do);
    }

    fn cut(&mut self, blocks: u64) -> bool {
        self.server.change_export(|export| export.bytes = blocks * BLOCK as u64);
        // Who serves less does so as a new server.
        self.server.stop();
        self.server.start();
        true
    }
}
