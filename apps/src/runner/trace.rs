//! `--trace`: every post and completion of the host's port as a line of text, drained off the core.

use super::error::RunError;
use crate::result_file::{ResultFile, lead_to_one};
use frwr_engine::provider::{
    PortId,
    record::{Record, Tap, Taps},
};
use std::{
    fs::File,
    io::{self, BufWriter, ErrorKind, Write as _},
    path::{Path, PathBuf},
};

/// Records that the port's ring holds: some ten milliseconds of load between two drains.
pub(super) const RING_RECORDS: usize = 1 << 16;

/// Records written in one go, so that Control is served in between.
const RECORDS_PER_DRAIN: usize = 8192;

/// A trace being written.
pub(super) struct Trace {
    tap: Tap,
    /// Until the first record: a run that does not come so far leaves no file.
    waiting: Option<ResultFile>,
    out: Option<BufWriter<File>>,
    path: PathBuf,
}

/// Refuses a trace that would overwrite what a run reads or writes besides: files with what they are.
pub(super) fn check_path(trace: Option<&Path>, others: &[(&'static str, Option<&Path>)]) -> Result<(), RunError> {
    let Some(path) = trace else { return Ok(()) };
    match others.iter().find(|(_, other)| other.is_some_and(|other| lead_to_one(path, other))) {
        Some((other, _)) => Err(RunError::TraceFile { path: path.to_owned(), other }),
        None => Ok(()),
    }
}

impl Trace {
    /// Looks at the file; `taps` has the port's tap.
    pub(super) fn new(path: &Path, taps: &Taps, port: PortId) -> Result<Option<Self>, RunError> {
        let file = ResultFile::open(path).map_err(|source| RunError::Trace { path: path.to_owned(), source })?;
        Ok(taps.take(port).map(|tap| Self { tap, waiting: Some(file), out: None, path: path.to_owned() }))
    }

    /// Writes what has come since. Returns how many records.
    pub(super) fn drain(&mut self) -> Result<usize, RunError> {
        let mut count = 0;
        while count < RECORDS_PER_DRAIN
            && let Some(record) = self.tap.pop()
        {
            self.write(&record)?;
            count += 1;
        }
        Ok(count)
    }

    fn write(&mut self, record: &Record) -> Result<(), RunError> {
        let written = self.begun().and_then(|out| match record {
            Record::Posted { iteration, queue_pair, token, signalled, accepted, length, operation, .. } => writeln!(
                out,
                "{iteration} post qp={} {token:?} {operation:?} length={length} signalled={signalled} accepted={accepted}",
                queue_pair.0
            ),
            other => writeln!(out, "{other:?}"),
        });
        written.map_err(|source| self.failed(source))
    }

    fn begun(&mut self) -> io::Result<&mut BufWriter<File>> {
        if let Some(file) = self.waiting.take() {
            let mut out = BufWriter::new(file.begin()?);
            writeln!(out, "# one line per work request, refusal, receive and completion of the host's port")?;
            self.out = Some(out);
        }
        // Nobody asks again after an error.
        self.out.as_mut().ok_or_else(|| ErrorKind::BrokenPipe.into())
    }

    /// Writes the rest and says how many records found no room.
    pub(super) fn finish(mut self) -> Result<(), RunError> {
        while self.drain()? > 0 {}
        let dropped = self.tap.counters().dropped_records;
        let ended =
            self.begun().and_then(|out| writeln!(out, "# {dropped} records dropped").and_then(|()| out.flush()));
        ended.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> RunError {
        RunError::Trace { path: self.path.clone(), source }
    }
}
