//! A file of results: looked at before a run, so that a wrong path costs none, and as it was until there is something to write.

use frwr_nvmf::storage::FileIdentity;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, ErrorKind, Write as _},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

/// Where results go once there are some.
#[derive(Debug)]
pub struct ResultFile {
    path: PathBuf,
    /// What is there already.
    there: Option<File>,
    identity: Option<FileIdentity>,
}

impl ResultFile {
    /// Finds out whether results can be written. A file that is not there is made and deleted again at once, so that a run without
    /// results leaves none, however it ends; what is there is not touched.
    ///
    /// # Errors
    /// The system's; that nobody reads a named pipe, which would be waited for; and that standard output or standard error goes to the
    /// file, which would write over the results.
    pub fn open(path: &Path) -> io::Result<Self> {
        match open_there(path) {
            Ok(file) => {
                let identity = FileIdentity::of(path);
                not_a_stream(identity.as_ref())?;
                Ok(Self { path: path.to_owned(), there: Some(file), identity })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => match fs::read_link(path) {
                // The kernel has followed all links to where nothing is, so that they come to an end.
                Ok(target) => Self::open(&path.parent().unwrap_or(Path::new("")).join(target)),
                Err(_) => Self::absent(path),
            },
            Err(error) => Err(error),
        }
    }

    fn absent(path: &Path) -> io::Result<Self> {
        OpenOptions::new().write(true).create_new(true).open(path)?;
        fs::remove_file(path)?;
        Ok(Self { path: path.to_owned(), there: None, identity: FileIdentity::of(path) })
    }

    /// Whether what one gets would overwrite what the other has, by whatever paths.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.identity.is_some() && self.identity == other.identity
    }

    /// The results instead of what the file held. Where they do not find room, a file that was not there is none again, and one that was
    /// is empty: nobody takes a part of them for all.
    ///
    /// # Errors
    /// The system's.
    pub fn replace(self, bytes: &[u8]) -> io::Result<()> {
        let path = self.path.clone();
        let (mut file, is_new) = self.found_or_made()?;
        let written = file.write_all(bytes);
        if written.is_err() {
            // The first error is the one that is told.
            let _ = if is_new { fs::remove_file(path) } else { emptied(&file) };
        }
        written
    }

    /// The file, empty, for results that come one by one.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(self) -> io::Result<ResultStream> {
        let path = self.path.clone();
        let (file, is_new) = self.found_or_made()?;
        Ok(ResultStream { out: BufWriter::new(file), path, is_new })
    }

    /// The file, empty, and whether it was made for the results: it was not there, or somebody has put it elsewhere meanwhile, where it
    /// stays as it is.
    fn found_or_made(self) -> io::Result<(File, bool)> {
        let path = self.path;
        let (file, is_new) = match self.there.filter(|there| !has_gone(there, &path)) {
            Some(file) => (file, false),
            None => match OpenOptions::new().write(true).create_new(true).open(&path) {
                // Somebody else made it meanwhile.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => (open_there(&path)?, false),
                made => (made?, true),
            },
        };
        emptied(&file)?;
        Ok((file, is_new))
    }
}

/// Takes out what a file holds. Devices and pipes have no length to set.
fn emptied(file: &File) -> io::Result<()> {
    if file.metadata().is_ok_and(|metadata| metadata.is_file()) { file.set_len(0) } else { Ok(()) }
}

/// Results that come one by one.
#[derive(Debug)]
pub struct ResultStream {
    out: BufWriter<File>,
    path: PathBuf,
    is_new: bool,
}

/// What a file may be that was made for somebody who is not asked by his umask: its owner's.
const OWNERS_MODE: u32 = 0o600;

impl ResultStream {
    /// A file that was not there, for its owner alone. Where anything has the name, a link included, it is an error, so that nothing is
    /// overwritten and nobody waits for what a device or a pipe has to say.
    ///
    /// # Errors
    /// The system's.
    pub fn make(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(OWNERS_MODE).open(path)?;
        Ok(Self { out: BufWriter::new(file), path: path.to_owned(), is_new: true })
    }

    /// Writes some, at once or later.
    ///
    /// # Errors
    /// The system's; then [`ResultStream::give_up`] is due.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// Writes what was not written yet.
    ///
    /// # Errors
    /// As [`ResultStream::write`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// They do not find room: no part of them stays. A file that was made for them is deleted, one that was there is empty; what
    /// a pipe or a device has taken is its own.
    pub fn give_up(self) {
        let Self { out, path, is_new } = self;
        let (file, _) = out.into_parts();
        // The error that led here is the one that is told.
        if is_new && !has_gone(&file, &path) {
            let _ = fs::remove_file(path);
        } else {
            let _ = emptied(&file);
        }
    }
}

/// Whether a file that was opened by a path is no longer found there: deleted, or renamed.
fn has_gone(file: &File, path: &Path) -> bool {
    let of = |found: io::Result<fs::Metadata>| found.ok().as_ref().and_then(FileIdentity::of_metadata);
    let opened = of(file.metadata());
    opened.is_some() && opened != of(fs::metadata(path))
}

/// Whether both paths lead to one file, there or not. Neither is opened: the reader of a named pipe would take that for its end.
#[must_use]
pub fn lead_to_one(one: &Path, other: &Path) -> bool {
    FileIdentity::of(one).is_some_and(|one| Some(one) == FileIdentity::of(other))
}

/// That neither standard output nor standard error goes to a file of results.
fn not_a_stream(results: Option<&FileIdentity>) -> io::Result<()> {
    for (name, goes_to) in [("output", of_stream(&io::stdout())), ("error", of_stream(&io::stderr()))] {
        if goes_to.is_some() && goes_to.as_ref() == results {
            let why =
                format!("standard {name} goes to that file, and one would write over the other: send it elsewhere");
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
    }
    Ok(())
}

/// The file that a stream goes to; none for terminals and pipes, and where nobody knows.
fn of_stream(stream: &impl AsFd) -> Option<FileIdentity> {
    let found = File::from(stream.as_fd().try_clone_to_owned().ok()?).metadata().ok()?;
    FileIdentity::of_metadata(&found)
}

/// Opens what is there, without a wait for who would read it.
fn open_there(path: &Path) -> io::Result<File> {
    let mut writing = OpenOptions::new();
    writing.write(true);
    if !fs::metadata(path)?.file_type().is_fifo() {
        return writing.open(path);
    }
    let at_once = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path);
    let _at_once = at_once.map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => {
            io::Error::new(ErrorKind::NotConnected, "it is a pipe that nobody reads: start its reader first")
        }
        _ => error,
    })?;
    // What was opened above does not wait for room either, and would lose what a slow reader has not taken; it stays open until the reader
    // has another writer, and does not see an end. A reader of our own lets the one below be had at once also where the other goes meanwhile;
    // without the right to read only that is lost.
    let _reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    writing.open(path)
}
