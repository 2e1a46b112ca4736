//! A disk under load: blocks at random are written and read, past the page cache, and what is read is what was written.

use super::BLOCK;
use super::contents::Contents;
use core::fmt;
use frwr_support::Random;
use frwr_support::changes::{Namespace, until};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// O_DIRECT of x86-64.
const DIRECT: i32 = 0o40000;
/// Threads of a disk, each with blocks of its own: every so manieth.
const THREADS: u64 = 2;
/// Between two commands: the emulated processors are the target's too.
const PAUSE: Duration = Duration::from_millis(5);
/// Words of a block.
const WORDS: usize = BLOCK as usize / 8;

/// Aligned as direct transfers have to be.
#[repr(C, align(4096))]
struct Block([u8; BLOCK as usize]);

/// What the threads of a disk share.
#[derive(Debug)]
struct Shared {
    what: String,
    contents: Contents,
    read_only: bool,
    /// Blocks that are used, and below which an error has no explanation.
    blocks: AtomicU64,
    safe: AtomicU64,
    /// The namespace goes, is taken from the host, or replaced.
    explained: AtomicBool,
    stop: AtomicBool,
    reads_all: AtomicBool,
    moved: AtomicU64,
    wrong: Mutex<Option<String>>,
}

/// A namespace's disk.
#[derive(Debug)]
pub(super) struct Disk {
    subsystem: String,
    namespace: u32,
    nguid: String,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Disk {
    /// Begins its load.
    pub(super) fn begin(path: &Path, of: (&str, u32), found: &Namespace, contents: Contents) -> Result<Self, String> {
        let what = format!("{} ({} {})", path.display(), of.0, of.1);
        let open = || OpenOptions::new().read(true).write(!found.read_only).custom_flags(DIRECT).open(path);
        // Its path is told of before there is a disk.
        until(&format!("{what} can be opened"), || Ok(open().is_ok()))?;
        let shared = Arc::new(Shared {
            what: what.clone(),
            contents,
            read_only: found.read_only,
            blocks: AtomicU64::new(found.bytes / BLOCK),
            safe: AtomicU64::new(found.bytes / BLOCK),
            explained: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            reads_all: AtomicBool::new(false),
            moved: AtomicU64::new(0),
            wrong: Mutex::new(None),
        });
        let mut threads = Vec::new();
        for number in 0..THREADS {
            let file = open().map_err(|error| format!("{what}: {error}"))?;
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || shared.load(&file, number)));
        }
        Ok(Self { subsystem: of.0.to_owned(), namespace: of.1, nguid: found.medium.nguid(), shared, threads })
    }

    pub(super) fn subsystem(&self) -> &str {
        &self.subsystem
    }

    pub(super) fn namespace(&self) -> u32 {
        self.namespace
    }

    pub(super) fn nguid(&self) -> &str {
        &self.nguid
    }

    pub(super) fn is_of(&self, subsystem: &str, namespace: u32) -> bool {
        self.subsystem == subsystem && self.namespace == namespace
    }

    /// Errors have an explanation from now on.
    pub(super) fn explain(&self) {
        self.shared.explained.store(true, Relaxed);
    }

    /// They have had one: its load has ended, or will.
    pub(super) fn is_explained(&self) -> bool {
        self.shared.explained.load(Relaxed)
    }

    /// Behind so many blocks errors have an explanation, if there were more until now.
    pub(super) fn may_reach(&self, blocks: u64) {
        self.shared.blocks.fetch_min(blocks, Relaxed);
        self.shared.safe.fetch_min(blocks, Relaxed);
    }

    /// It has so many blocks, which the host knows.
    pub(super) fn use_blocks(&self, blocks: u64) {
        self.shared.safe.store(blocks, Relaxed);
        self.shared.blocks.store(blocks, Relaxed);
    }

    /// Commands that have succeeded.
    pub(super) fn moved(&self) -> u64 {
        self.shared.moved.load(Relaxed)
    }

    /// Its threads end when they have read all that was written.
    pub(super) fn read_all(&self) {
        self.shared.reads_all.store(true, Relaxed);
    }

    /// Nothing is wrong with it.
    pub(super) fn is_well(&self) -> Result<(), String> {
        let wrong = self.shared.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.as_ref().map_or(Ok(()), |wrong| Err(wrong.clone()))
    }

    /// Ends its load: commands that succeeded.
    pub(super) fn end(self) -> Result<u64, String> {
        if !self.shared.reads_all.load(Relaxed) {
            self.shared.stop.store(true, Relaxed);
        }
        for thread in self.threads {
            thread.join().map_err(|_| format!("{}: a thread panicked", self.shared.what))?;
        }
        let wrong = self.shared.wrong.lock().unwrap_or_else(PoisonError::into_inner).take();
        wrong.map_or(Ok(self.shared.moved.load(Relaxed)), Err)
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.what)
    }
}

impl Shared {
    fn load(&self, file: &File, number: u64) {
        let (mut random, mut memory) = (Random::new(number), Box::new(Block([0; BLOCK as usize])));
        while !self.stop.load(Relaxed) && !self.reads_all.load(Relaxed) {
            let block = random.below(self.blocks.load(Relaxed) / THREADS) * THREADS + number;
            let done = if self.read_only || random.one_in(2) {
                self.read(file, block, &mut memory)
            } else {
                self.write(file, block, &mut memory)
            };
            if !self.goes_on(block, done) {
                return;
            }
            thread::sleep(PAUSE);
        }
        if !self.reads_all.load(Relaxed) {
            return;
        }
        let mine = |block: &u64| block % THREADS == number;
        for block in self.contents.known(self.blocks.load(Relaxed)).into_iter().filter(mine) {
            if !self.goes_on(block, self.read(file, block, &mut memory)) {
                return;
            }
        }
    }

    /// Whether there is more to do behind a command.
    fn goes_on(&self, block: u64, done: io::Result<bool>) -> bool {
        let wrong = match done {
            Ok(true) => {
                self.moved.fetch_add(1, Relaxed);
                return true;
            }
            Ok(false) => format!("{}: block {block} holds what was never written there", self.what),
            Err(_) if self.explained.load(Relaxed) => return false,
            Err(_) if block >= self.safe.load(Relaxed) => return true,
            Err(error) => format!("{}: block {block}: {error}, which no change explains", self.what),
        };
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(wrong);
        false
    }

    fn write(&self, file: &File, block: u64, memory: &mut Block) -> io::Result<bool> {
        let (cuts, stamp) = (self.contents.cuts(), self.contents.begin_write(block));
        fill(memory, block, stamp);
        file.write_all_at(&memory.0, block * BLOCK)?;
        self.contents.written(block, stamp, cuts);
        Ok(true)
    }

    fn read(&self, file: &File, block: u64, memory: &mut Block) -> io::Result<bool> {
        let cuts = self.contents.cuts();
        file.read_exact_at(&mut memory.0, block * BLOCK)?;
        let stamp = stamp(memory);
        let mut right = Block([0; BLOCK as usize]);
        fill(&mut right, block, stamp);
        Ok(memory.0 == right.0 && self.contents.read(block, stamp, cuts))
    }
}

/// All words of a block say which write it is, and which block: zeros before the first one.
fn fill(memory: &mut Block, block: u64, stamp: u64) {
    let odd = if stamp == 0 { 0 } else { block };
    for at in 0..WORDS {
        let word = if at % 2 == 0 { stamp } else { odd };
        memory.0[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
    }
}

fn stamp(memory: &Block) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&memory.0[..8]);
    u64::from_le_bytes(word)
}
