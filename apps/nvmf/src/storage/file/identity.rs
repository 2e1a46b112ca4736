//! Which file a path leads to, whatever path that is.

use std::{
    fs::{self, Metadata},
    io::ErrorKind,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The file that a path leads to, there or not. Devices and pipes have none: nothing in them could be overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileIdentity(Identity);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    There {
        device: u64,
        inode: u64,
    },
    /// Where a file would be, links resolved.
    Absent(PathBuf),
}

impl FileIdentity {
    /// Of what a path leads to, links followed; `None` where that is no file and none could be made. Nothing is opened: the reader of a
    /// named pipe would take that for its end.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        match (fs::metadata(path), fs::read_link(path)) {
            (Ok(found), _) => Self::of_metadata(&found),
            (Err(error), Ok(target)) if error.kind() == ErrorKind::NotFound => {
                Self::of(&path.parent().unwrap_or(Path::new("")).join(target))
            }
            (Err(_), _) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                Some(Self(Identity::Absent(fs::canonicalize(folder).ok()?.join(path.file_name()?))))
            }
        }
    }

    /// Of something that is there; `None` where it is no file.
    #[must_use]
    pub fn of_metadata(found: &Metadata) -> Option<Self> {
        found.is_file().then(|| Self(Identity::There { device: found.dev(), inode: found.ino() }))
    }
}
