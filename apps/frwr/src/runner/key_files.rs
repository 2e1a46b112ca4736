//! Files with keys by which hosts prove who they are, which nobody else can read.

use crate::{Error, options::Limit};
use frwr_nvmf::dhchap::{DhChapKey, HostKeys};
use rustix::fs::OFlags;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::Read as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

/// A key has 92 characters at most, and somebody may have put a few lines behind it.
const SIZE: Limit = Limit::new("the size of a key's file", 1, 4096);
/// Rights of the group and of others.
const OF_OTHERS: u32 = 0o077;

/// Where the keys of a host are, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFiles {
    /// The host proves itself with it.
    pub dhchap_key: PathBuf,
    /// The controller proves itself to this host with it.
    pub dhchap_ctrl_key: Option<PathBuf>,
}

impl KeyFiles {
    /// By the names that they have in files and methods; of a path that is no UTF-8 what can be said.
    pub(super) fn json(&self) -> Value {
        let text = |path: &PathBuf| path.display().to_string();
        let Self { dhchap_key, dhchap_ctrl_key } = self;
        json!({ "dhchap_key": text(dhchap_key), "dhchap_ctrl_key": dhchap_ctrl_key.as_ref().map(text) })
    }

    /// Reads the keys, as whoever named them in a file or by a method did. Blocks as long as file systems do: nothing
    /// for the main thread of a target that serves.
    ///
    /// # Errors
    /// As [`KeyFiles::read_named`].
    pub(super) fn read(&self) -> Result<HostKeys, Error> {
        self.read_named(Named::Keys)
    }

    /// Reads the keys. No error has any of them in it.
    ///
    /// # Errors
    /// A file cannot be read, can be read by others, is somebody else's, or has no key.
    pub(super) fn read_named(&self, named: Named) -> Result<HostKeys, Error> {
        let Self { dhchap_key, dhchap_ctrl_key } = self;
        let [of_host, of_controller] = match named {
            Named::Options => ["--dhchap-key", "--dhchap-ctrl-key"],
            Named::Keys => ["dhchap_key", "dhchap_ctrl_key"],
        };
        let controller = dhchap_ctrl_key.as_deref().map(|path| key(of_controller, path)).transpose()?;
        Ok(HostKeys { host: key(of_host, dhchap_key)?, controller })
    }
}

/// How whoever named the files did so, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// By options of `load`.
    Options,
    /// By keys of a file, or parameters of `set_host_key`.
    Keys,
}

/// Whoever owns a file of mode 0600 may use it, and replace what is in it: that has to be us, or root, who may anyway.
pub(super) fn is_trusted(owner: u32, us: u32) -> bool {
    owner == us || owner == 0
}

/// The key in a file.
fn key(named: &str, path: &Path) -> Result<DhChapKey, Error> {
    let failed = |reason: String| Error::failed("key_file", format!("{named}: {path:?} {reason}"));
    let unreadable = |error| failed(format!("cannot be read ({error}); name a file that nvme gen-dhchap-key wrote"));
    // A pipe that nobody writes to is not waited for.
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path).map_err(unreadable)?;
    // Of what was opened, whatever the path leads to by now.
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err(failed("is no regular file; name one".to_owned()));
    }
    let mode = found.mode() & 0o7777;
    if mode & OF_OTHERS != 0 {
        let text = format!("has mode {mode:04o}, so that others than its owner may use it: must be 0600; chmod 600 it");
        return Err(failed(text));
    }
    let us = rustix::process::geteuid().as_raw();
    if !is_trusted(found.uid(), us) {
        let text = format!(
            "belongs to user {}: must belong to user {us}, who this runs as, or to root; chown it",
            found.uid()
        );
        return Err(failed(text));
    }
    if SIZE.check(found.size()).is_err() {
        let most = SIZE.most();
        return Err(failed(format!("has {} bytes: must be from 1 to {most}; name a key's file", found.size())));
    }
    let mut text = Zeroizing::new(String::with_capacity(SIZE.most() as usize + 1));
    file.take(SIZE.most()).read_to_string(&mut text).map_err(unreadable)?;
    DhChapKey::parse(&text).map_err(|error| failed(format!("has no key: {error}")))
}

/// What is in the files of each host now, or why there is no key.
pub(super) type ReadKeys = BTreeMap<String, Result<HostKeys, String>>;

/// Reads the keys of all hosts. Blocks as long as file systems do.
pub(super) fn read_all(files: &BTreeMap<String, KeyFiles>) -> ReadKeys {
    let of = |(host, files): (&String, &KeyFiles)| (host.clone(), files.read().map_err(|error| error.to_string()));
    files.iter().map(of).collect()
}
