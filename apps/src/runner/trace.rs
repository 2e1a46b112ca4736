//! `--trace`: every post and completion of the host's port as a line of text, drained off the core.

use super::error::RunError;
use frwr_engine::provider::{
    PortId,
    record::{Record, Tap, Taps},
};
use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

/// Records that the port's ring holds: some ten milliseconds of load between two drains.
pub(super) const RING_RECORDS: usize = 1 << 16;

/// Records written in one go, so that Control is served in between.
const RECORDS_PER_DRAIN: usize = 8192;

/// A trace being written.
pub(super) struct Trace {
    tap: Tap,
    out: BufWriter<File>,
    path: PathBuf,
}

impl Trace {
    /// Opens the file; `taps` has the port's tap.
    pub(super) fn new(path: &Path, taps: &Taps, port: PortId) -> Result<Option<Self>, RunError> {
        let failed = |source| RunError::Trace { path: path.to_owned(), source };
        let mut out = BufWriter::new(File::create(path).map_err(failed)?);
        writeln!(out, "# one line per work request, refusal, receive and completion of the host's port")
            .map_err(failed)?;
        Ok(taps.take(port).map(|tap| Self { tap, out, path: path.to_owned() }))
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
        let written = match record {
            Record::Posted { iteration, queue_pair, token, signalled, accepted, length, operation, .. } => writeln!(
                self.out,
                "{iteration} post qp={} {token:?} {operation:?} length={length} signalled={signalled} accepted={accepted}",
                queue_pair.0
            ),
            other => writeln!(self.out, "{other:?}"),
        };
        written.map_err(|source| RunError::Trace { path: self.path.clone(), source })
    }

    /// Writes the rest and says how many records found no room.
    pub(super) fn finish(mut self) -> Result<(), RunError> {
        while self.drain()? > 0 {}
        let dropped = self.tap.counters().dropped_records;
        let ended = writeln!(self.out, "# {dropped} records dropped").and_then(|()| self.out.flush());
        ended.map_err(|source| RunError::Trace { path: self.path.clone(), source })
    }
}
