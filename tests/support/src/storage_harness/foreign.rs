//! NBD servers that others have written: nbdkit and qemu-nbd, where they are installed.
#![allow(unreachable_pub, reason = "a module of test binaries, not of a library")]

use super::disks::skipped;
use frwr_nvmf::storage::{NbdAddress, NbdOptions};
use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Bytes of what they export.
pub const FOREIGN_BYTES: u64 = 16 << 20;

/// A plugin of nbdkit that forgets everything when it ends.
pub const NBDKIT_MEMORY: [&str; 2] = ["memory", "size=16M"];
/// One over a file, which is there when it is started again.
pub const NBDKIT_FILE: [&str; 2] = ["file", "FOLDER/disk"];

/// A server at a socket of its own, which is killed at the end.
pub struct Foreign {
    child: Option<Child>,
    command: Vec<String>,
    folder: tempfile::TempDir,
}

impl Foreign {
    /// `SOCKET` and `FOLDER` stand for its own, and there is a `FOLDER/disk`; `None` where it, or what is run before, is not installed.
    pub fn start(before: &[&str], command: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let of = |word: &&str| word.replace("SOCKET", &format!("{path}/nbd")).replace("FOLDER", path);
        fs::File::create(folder.path().join("disk")).unwrap().set_len(FOREIGN_BYTES).unwrap();
        if let [program, arguments @ ..] = before {
            let made = Command::new(program).args(arguments.iter().map(of)).status();
            if !made.as_ref().is_ok_and(std::process::ExitStatus::success) {
                skipped(&format!("{program} ({made:?}); apt-get install nbdkit qemu-utils"));
                return None;
            }
        }
        let mut server = Self { child: None, command: command.iter().map(of).collect(), folder };
        server.restart().then_some(server)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).stdin(Stdio::null()).stderr(Stdio::inherit());
        command
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("nbd")
    }

    /// Whether it could be started.
    pub fn restart(&mut self) -> bool {
        match self.command().spawn() {
            Ok(child) => self.child = Some(child),
            Err(error) => {
                skipped(&format!("{} ({error}); apt-get install nbdkit qemu-utils", self.command[0]));
                return false;
            }
        }
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "{:?} ended: {ended:?}", self.command);
            std::thread::yield_now();
        }
        true
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let _ = fs::remove_file(self.socket());
    }

    pub fn options(&self) -> NbdOptions {
        NbdOptions::new(NbdAddress::Unix(self.socket()), "").patience(Duration::from_secs(24 * 60 * 60))
    }

    /// nbdkit over one of its plugins, by these filters and with these parameters.
    pub fn nbdkit(plugin: [&str; 2], more: &[&str]) -> Option<Self> {
        let (filters, parameters) = more.iter().copied().partition::<Vec<_>, _>(|word| word.starts_with('-'));
        Self::start(&[], &[&["nbdkit", "-f", "-U", "SOCKET"][..], &filters, &plugin, &parameters].concat())
    }

    /// qemu-nbd over an image of its own.
    pub fn qemu_nbd(shared: &str) -> Option<Self> {
        let bytes = FOREIGN_BYTES.to_string();
        let make = ["qemu-img", "create", "-q", "-f", "qcow2", "FOLDER/image", &bytes];
        Self::start(
            &make,
            &["qemu-nbd", "--persistent", shared, "--socket", "SOCKET", "--format", "qcow2", "FOLDER/image"],
        )
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.kill();
    }
}
