//! A file system that does not answer for a while: of one file, over /dev/fuse, as root. The test is its server, and whoever uses the file
//! has to be another process: one that ends while it serves itself would wait for itself.
#![allow(unreachable_pub, reason = "a module of a test binary, not of a library")]

use super::disks::{SmallDisk, skipped};
use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

/// What a file system is asked (include/uapi/linux/fuse.h, version 7.31): the operations that the one file needs.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
const VERSION: [u32; 2] = [7, 31];

/// Nodes: the folder, and its file.
const ROOT: u64 = 1;
const ONE: u64 = 2;
const NAME: &str = "disk";
/// A folder of mode 0755, a file of mode 0600.
const FOLDER_MODE: u32 = 0o040_755;
const FILE_MODE: u32 = 0o100_600;
const BLOCK: u32 = 4096;
/// Bytes of data that a request may have, and of what is in front of them at most.
const MOST_DATA: u32 = 128 << 10;
const MOST_FRONT: usize = 4096;
/// Of a request's own header: length, operation, number, node.
const HEADER: usize = 40;

/// Numbers of an answer, one behind the other.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn u16s(mut self, all: &[u16]) -> Self {
        all.iter().for_each(|one| self.0.extend(one.to_ne_bytes()));
        self
    }

    fn u32s(mut self, all: &[u32]) -> Self {
        all.iter().for_each(|one| self.0.extend(one.to_ne_bytes()));
        self
    }

    fn u64s(mut self, all: &[u64]) -> Self {
        all.iter().for_each(|one| self.0.extend(one.to_ne_bytes()));
        self
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// As the kernel sends it.
struct Request(Vec<u8>);

impl Request {
    fn operation(&self) -> u32 {
        u32_at(&self.0, 4)
    }

    fn node(&self) -> u64 {
        u64_at(&self.0, 16)
    }

    fn body(&self) -> &[u8] {
        &self.0[HEADER..]
    }

    /// Nobody waits for an answer.
    fn is_told_only(&self) -> bool {
        matches!(self.operation(), FORGET | BATCH_FORGET | INTERRUPT)
    }
}

#[derive(Default)]
struct State {
    data: Vec<u8>,
    hangs: bool,
    /// What has no answer yet.
    held: Vec<Request>,
}

struct Shared {
    kernel: File,
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until there is no such file system any more.
    fn serve(&self) {
        let mut buffer = vec![0; MOST_FRONT + MOST_DATA as usize];
        while let Ok(bytes) = (&self.kernel).read(&mut buffer) {
            let request = Request(buffer[..bytes].to_vec());
            let mut state = self.state();
            if request.is_told_only() {
                continue;
            }
            if state.hangs {
                state.held.push(request);
            } else {
                self.answer(&mut state, &request);
            }
        }
    }

    fn answer(&self, state: &mut State, request: &Request) {
        let (errno, body) = state.answer(request).map_or_else(|errno| (-errno, Vec::new()), |body| (0, body));
        let bytes = 16 + body.len() as u32;
        let mut answer = Words::default().u32s(&[bytes]).0;
        answer.extend(errno.to_ne_bytes());
        answer.extend(&request.0[8..16]);
        answer.extend(body);
        // Whoever asked may be gone.
        let _ = (&self.kernel).write(&answer);
    }
}

impl State {
    fn answer(&mut self, request: &Request) -> Result<Vec<u8>, i32> {
        let body = request.body();
        let words = Words::default();
        Ok(match request.operation() {
            INIT => {
                words.u32s(&VERSION).u32s(&[0, 0]).u16s(&[0, 0]).u32s(&[MOST_DATA, 1]).u16s(&[0; 2]).u32s(&[0; 8]).0
            }
            LOOKUP if request.node() == ROOT && body == [NAME.as_bytes(), b"\0"].concat() => {
                // Known for no time: whoever wants to know asks.
                let mut entry = words.u64s(&[ONE, 0, 0, 0]).u32s(&[0, 0]).0;
                entry.extend(self.attributes(ONE));
                entry
            }
            LOOKUP => return Err(libc::ENOENT),
            GETATTR => self.told_attributes(request.node()),
            SETATTR => {
                const OF_SIZE: u32 = 1 << 3;
                if u32_at(body, 0) & OF_SIZE != 0 {
                    self.data.resize(u64_at(body, 16) as usize, 0);
                }
                self.told_attributes(request.node())
            }
            OPEN => words.u64s(&[0, 0]).0,
            READ => {
                let from = (u64_at(body, 8) as usize).min(self.data.len());
                let to = (from + u32_at(body, 16) as usize).min(self.data.len());
                self.data[from..to].to_vec()
            }
            WRITE => {
                let (at, bytes) = (u64_at(body, 8) as usize, u32_at(body, 16));
                let data = &body[40..40 + bytes as usize];
                self.data.resize(self.data.len().max(at + data.len()), 0);
                self.data[at..at + data.len()].copy_from_slice(data);
                words.u32s(&[bytes, 0]).0
            }
            STATFS => words.u64s(&[1 << 20, 1 << 20, 1 << 20, 2, 2]).u32s(&[BLOCK, 255, BLOCK, 0]).u32s(&[0; 6]).0,
            RELEASE | FSYNC | FLUSH => Vec::new(),
            _ => return Err(libc::ENOSYS),
        })
    }

    fn told_attributes(&self, node: u64) -> Vec<u8> {
        let mut told = Words::default().u64s(&[0]).u32s(&[0, 0]).0;
        told.extend(self.attributes(node));
        told
    }

    fn attributes(&self, node: u64) -> Vec<u8> {
        let (mode, bytes) = if node == ROOT { (FOLDER_MODE, 0) } else { (FILE_MODE, self.data.len() as u64) };
        let (times, owner) = ([0_u32; 3], [0_u32; 2]);
        let words = Words::default().u64s(&[node, bytes, bytes / 512, 0, 0, 0]).u32s(&times).u32s(&[mode, 1]);
        words.u32s(&owner).u32s(&[0, BLOCK, 0]).0
    }
}

/// That file system, and its file. To be dropped before who has the file open is waited for.
pub struct HangingDisk {
    shared: Arc<Shared>,
    disk: SmallDisk,
}

impl HangingDisk {
    /// A file of so many zeros; `None`, with a line that says so, where nobody may mount one.
    pub fn mount(bytes: usize) -> Option<Self> {
        let kernel = OpenOptions::new().read(true).write(true).open("/dev/fuse").ok();
        let mounted = kernel.and_then(|kernel| Some((SmallDisk::mount_fuse(kernel.try_clone().ok()?)?, kernel)));
        let Some((disk, kernel)) = mounted else {
            skipped("a file system over /dev/fuse needs root, and a kernel that has it");
            return None;
        };
        let state = State { data: vec![0; bytes], ..State::default() };
        let shared = Arc::new(Shared { kernel, state: Mutex::new(state) });
        let server = Arc::clone(&shared);
        thread::spawn(move || server.serve());
        Some(Self { shared, disk })
    }

    /// Where its file is.
    pub fn path(&self) -> PathBuf {
        self.disk.path(NAME)
    }

    /// Its server makes the file as long.
    pub fn set_length(&self, bytes: usize) {
        self.shared.state().data.resize(bytes, 0);
    }

    /// From now on nobody is answered.
    pub fn hang(&self) {
        self.shared.state().hangs = true;
    }

    /// Whoever waits is answered, and so is everybody from now on.
    pub fn go_on(&self) {
        let mut state = self.shared.state();
        state.hangs = false;
        for request in core::mem::take(&mut state.held) {
            self.shared.answer(&mut state, &request);
        }
    }
}

impl Drop for HangingDisk {
    fn drop(&mut self) {
        // Who waits can be killed only then.
        self.go_on();
    }
}
