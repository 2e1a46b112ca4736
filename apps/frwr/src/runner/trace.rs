//! Files of what happens on the cores, event by event, drained off them by the main thread: `--trace`, every post and completion
//! of the host's port as a line of text, and `--trace-keys`, every key's life as lines of JSON.

use super::key_line;
use crate::{
    Error,
    result_file::{ResultFile, ResultStream, lead_to_one},
};
use core::{mem, time::Duration};
use frwr_engine::{
    TraceRecord,
    provider::{
        PortId,
        record::{Record, Tap, Taps},
    },
};
use frwr_mempool::lane;
use frwr_reactor::{Clock, CpuId};
use std::{
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
};

/// Records that the ring of a port or of a core holds: some ten milliseconds of load between two drains.
pub(super) const RING_RECORDS: usize = 1 << 16;

/// Records written in one go, so that Control is served in between.
const RECORDS_PER_DRAIN: usize = 8192;

/// The option of a trace of a port.
pub(super) const OF_PORT: &str = "--trace";
/// The option of a trace of keys.
pub(crate) const OF_KEYS: &str = "--trace-keys";
/// The method that begins one while a target serves.
pub(super) const BY_METHOD: &str = "set_key_trace";
/// What the cores of a target are called in each line.
pub(super) const TARGET: &str = "target";

/// A trace being written.
#[derive(Debug)]
pub(crate) struct Trace {
    file: Lines,
    source: Source,
    /// Records that found no room, by the count of engines that have ended.
    lost: u64,
    /// What engines had counted before, of former traces.
    lost_before: u64,
    clock: Clock,
    /// When the first reactors were started.
    began: Option<Duration>,
}

/// Where records come from.
#[derive(Debug)]
enum Source {
    Port(Tap),
    Keys(Vec<Core>),
}

/// A core whose keys are followed.
#[derive(Debug)]
pub(super) struct Core {
    records: lane::Receiver<TraceRecord>,
    pub(super) origin: Origin,
}

/// What a core is called in each line.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) side: &'static str,
    pub(super) reactor: usize,
    /// Where that is pinned.
    pub(super) cpu: Option<usize>,
    /// What its times begin at, in nanoseconds: when its reactor was started, since the first reactors of the trace were.
    pub(super) base_ns: u64,
}

/// A core that is followed, by the number of its reactor, from when the first ones were started; what comes with it is for its engine
/// (`Engine::trace_to`).
pub(super) fn follow(side: &'static str, reactor: usize, cpu: Option<CpuId>) -> (lane::Sender<TraceRecord>, Core) {
    let (sender, records) = lane::bounded(RING_RECORDS);
    (sender, Core { records, origin: Origin { side, reactor, cpu: cpu.map(CpuId::get), base_ns: 0 } })
}

/// Refuses a trace that would overwrite what a run reads or writes besides: files with what they are.
pub(crate) fn check_path(
    flag: &'static str,
    trace: Option<&Path>,
    others: &[(&'static str, Option<&Path>)],
) -> Result<(), Error> {
    let Some(path) = trace else { return Ok(()) };
    match others.iter().find(|(_, other)| other.is_some_and(|other| lead_to_one(path, other))) {
        Some((other, _)) => {
            let text = format!("{flag} is {path:?}, and so is {other}, which it would overwrite; name another file");
            Err(Error::usage("trace_file", text))
        }
        None => Ok(()),
    }
}

impl Trace {
    /// Of a port: looks at the file; `taps` has the port's tap.
    pub(super) fn of_port(path: &Path, taps: &Taps, port: PortId) -> Result<Option<Self>, Error> {
        let file = Lines::new(OF_PORT, path)?;
        Ok(taps.take(port).map(|tap| Self {
            file,
            source: Source::Port(tap),
            lost: 0,
            lost_before: 0,
            clock: Clock::system(),
            began: None,
        }))
    }

    /// Of the keys of cores, which [`Trace::follow`] adds: looks at the file.
    pub(crate) fn of_keys(path: &Path) -> Result<Self, Error> {
        Ok(Self::of_lines(Lines::new(OF_KEYS, path)?, 0))
    }

    /// The same while a target serves, whose engines have counted so many lost records of former traces: makes the file, which must not
    /// be there.
    pub(super) fn made(path: &Path, lost_before: u64) -> io::Result<Self> {
        Ok(Self::of_lines(Lines::made(BY_METHOD, path)?, lost_before))
    }

    fn of_lines(file: Lines, lost_before: u64) -> Self {
        let source = Source::Keys(Vec::new());
        Self { file, source, lost: 0, lost_before, clock: Clock::system(), began: None }
    }

    /// One more core, by the number of its reactor; what it returns is for its engine (`Engine::trace_to`).
    pub(crate) fn follow(&mut self, side: &'static str, reactor: usize) -> lane::Sender<TraceRecord> {
        let (sender, core) = follow(side, reactor, None);
        self.take_from([core]);
        sender
    }

    /// Takes records from these cores as well; from those that are ended and empty no more.
    pub(super) fn take_from(&mut self, more: impl IntoIterator<Item = Core>) {
        if let Source::Keys(cores) = &mut self.source {
            cores.retain(|core| !(core.records.is_closed() && core.records.is_empty()));
            cores.extend(more);
        }
    }

    /// Where it is written.
    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }

    /// What was written by now.
    pub(super) fn bytes(&self) -> u64 {
        self.file.bytes
    }

    /// Records of it that found no room, where engines have counted so many in all.
    pub(super) fn lost_of(&self, counted: u64) -> u64 {
        counted.saturating_sub(self.lost_before)
    }

    /// A person asked for it on the command line, and a run without it is none.
    pub(super) fn is_of_option(&self) -> bool {
        self.file.flag != BY_METHOD
    }

    /// The reactors were started, on these cores, in their order.
    pub(crate) fn started(&mut self, cpus: &[Option<CpuId>]) {
        let now = self.clock.now();
        let since = now.saturating_sub(*self.began.get_or_insert(now));
        if let Source::Keys(cores) = &mut self.source {
            for Core { origin, .. } in cores {
                origin.cpu = cpus.get(origin.reactor).copied().flatten().map(CpuId::get);
                // 580 years in 64 bits.
                origin.base_ns = since.as_nanos() as u64;
            }
        }
    }

    /// Writes what has come since. Returns how many records.
    pub(crate) fn drain(&mut self) -> Result<u32, Error> {
        let Self { file, source, .. } = self;
        let mut count = 0;
        match source {
            Source::Port(tap) => {
                while count < RECORDS_PER_DRAIN
                    && let Some(record) = tap.pop()
                {
                    file.write(|out| port_line(out, &record))?;
                    count += 1;
                }
            }
            Source::Keys(cores) => {
                for Core { records, origin } in cores {
                    let mut written = Ok(());
                    count += records.pop_batch(RECORDS_PER_DRAIN, |record| {
                        if written.is_ok() {
                            written = file.write(|out| key_line::write(out, origin, &record));
                        }
                    });
                    written?;
                }
            }
        }
        // Bounded far below 2^32: a few times as many as there are cores.
        Ok(count as u32)
    }

    /// The cores have ended: writes the rest of them. Their engines have counted `lost` records that found no room
    /// (`Statistics::trace_records_dropped`); a port counts its own.
    pub(crate) fn ended(&mut self, lost: u64) -> Result<(), Error> {
        while self.drain()? > 0 {}
        match &mut self.source {
            Source::Port(tap) => self.lost = tap.counters().dropped_records,
            Source::Keys(cores) => {
                self.lost += lost.saturating_sub(mem::take(&mut self.lost_before));
                cores.clear();
            }
        }
        Ok(())
    }

    /// Nothing came of it: no part of its file stays.
    pub(super) fn give_up(mut self) {
        self.file.abandon();
    }

    /// Says in the file how many records found no room. Returns its length.
    pub(super) fn finish(mut self) -> Result<u64, Error> {
        let (lost, is_keys) = (self.lost, matches!(self.source, Source::Keys(_)));
        self.file.write(|out| {
            if is_keys {
                writeln!(out, r#"{{"event":"end","records_lost":{lost}}}"#)
            } else {
                writeln!(out, "# {lost} records dropped")
            }
        })?;
        let bytes = self.file.bytes;
        self.file.finish().map(|()| bytes)
    }
}

/// Ends the files of traces whose cores have all ended ([`Trace::ended`]); `say` is told of keys' records that were lost.
pub(crate) fn finish(traces: impl IntoIterator<Item = Trace>, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    for trace in traces {
        let (is_keys, lost, flag) = (matches!(trace.source, Source::Keys(_)), trace.lost, trace.file.flag);
        trace.finish()?;
        if is_keys && lost > 0 {
            say(&format!(
                "{flag}: {lost} record(s) are missing, since the main thread did not get to take them in time, and with them steps of \
                 lives; ask for less load, or leave it a core of its own"
            ));
        }
    }
    Ok(())
}

fn port_line(out: &mut Vec<u8>, record: &Record) -> io::Result<()> {
    match record {
        Record::Posted { iteration, queue_pair, token, signalled, accepted, length, operation, .. } => writeln!(
            out,
            "{iteration} post qp={} {token:?} {operation:?} length={length} signalled={signalled} accepted={accepted}",
            queue_pair.0
        ),
        other => writeln!(out, "{other:?}"),
    }
}

/// The file of a trace, which is made with its first line, so that a run that does not come so far leaves none; or was made already.
#[derive(Debug)]
struct Lines {
    /// Who asked for it.
    flag: &'static str,
    path: PathBuf,
    bytes: u64,
    waiting: Option<ResultFile>,
    out: Option<ResultStream>,
    /// The line that is being written.
    line: Vec<u8>,
}

impl Lines {
    fn new(flag: &'static str, path: &Path) -> Result<Self, Error> {
        let file = ResultFile::open(path).map_err(|source| unwritable(flag, path, &source))?;
        Ok(Self { flag, path: path.to_owned(), bytes: 0, waiting: Some(file), out: None, line: Vec::new() })
    }

    fn made(flag: &'static str, path: &Path) -> io::Result<Self> {
        let out = Some(ResultStream::make(path)?);
        Ok(Self { flag, path: path.to_owned(), bytes: 0, waiting: None, out, line: Vec::new() })
    }

    fn write(&mut self, line: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Result<(), Error> {
        self.line.clear();
        let written = self.begun().and_then(|()| {
            line(&mut self.line)?;
            // Nobody asks again after an error.
            self.out.as_mut().ok_or(ErrorKind::BrokenPipe)?.write(&self.line)?;
            self.bytes += self.line.len() as u64;
            Ok(())
        });
        written.map_err(|source| self.give_up(source))
    }

    fn begun(&mut self) -> io::Result<()> {
        if let Some(file) = self.waiting.take() {
            let out = self.out.insert(file.begin()?);
            if self.flag == OF_PORT {
                out.write(b"# one line per work request, refusal, receive and completion of the host's port\n")?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), Error> {
        let flushed = self.out.as_mut().map_or(Ok(()), ResultStream::flush);
        flushed.map_err(|source| self.give_up(source))
    }

    /// What was written stays nowhere.
    fn abandon(&mut self) {
        if let Some(out) = self.out.take() {
            out.give_up();
        }
    }

    fn give_up(&mut self, source: io::Error) -> Error {
        self.abandon();
        unwritable(self.flag, &self.path, &source)
    }
}

fn unwritable(flag: &str, path: &Path, source: &io::Error) -> Error {
    let remedy = "name a file in a writable folder with room for it";
    Error::failed("trace_file", format!("{flag}: {path:?} cannot be written ({source}); {remedy}"))
}
