//! Where programs are, and how peers are compiled.

use super::quantity::{Program, Source};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// Seconds that one run of a program may take: many times what it needs, also under valgrind.
const PROGRAM_LIMIT: &str = "180";
/// Where the peers for this machine and for the guest lie; one name may be compiled for both.
const HERE_FOLDER: &str = "peers/here";
const GUEST_FOLDER: &str = "peers/guest";
/// For peers that run on this machine. valgrind knows no 512-bit instructions, and peers are not to have them in one row and
/// lack them in another.
const HERE: &[&str] = &["-O3", "-march=native", "-mno-avx512f"];
/// For peers that run in the guest, whose processor is not this machine's.
const IN_THE_GUEST: &[&str] = &["-O3"];

/// Folders of one run, and the peers that it compiled.
#[derive(Debug)]
pub(super) struct Places {
    /// The source tree.
    pub(super) root: PathBuf,
    /// Cargo's target directory; this program is in its `release`.
    pub(super) target: PathBuf,
    /// What became of each peer, by its file. Several threads ask for the same one, and none may start a file that another
    /// is writing: a peer is compiled once, behind this lock.
    peers: Mutex<HashMap<PathBuf, Result<(), String>>>,
}

impl Places {
    /// The tree that this program was built from, and where it lies.
    pub(super) fn find() -> Result<Self, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf);
        let program = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
        let target = program.parent().and_then(Path::parent).map(Path::to_path_buf);
        match (root, target) {
            (Some(root), Some(target)) => Ok(Self { root, target, peers: Mutex::default() }),
            _ => Err(format!("{} lies in no target directory", program.display())),
        }
    }

    /// The program's file; compiles a peer.
    pub(super) fn program(&self, source: Source) -> Result<PathBuf, String> {
        match source {
            Source::Ours(name) => {
                let path = self.target.join("release").join(name);
                path.is_file().then_some(path).ok_or_else(|| format!("there is no program {name} in this tree"))
            }
            Source::Peer(name, packages) => self.compiled(name, packages, HERE, HERE_FOLDER),
        }
    }

    /// A peer for the guest.
    pub(super) fn guest_peer(&self, name: &str, packages: &[&str]) -> Result<PathBuf, String> {
        self.compiled(name, packages, IN_THE_GUEST, GUEST_FOLDER)
    }

    /// Compiles a peer at its first use.
    fn compiled(&self, name: &str, packages: &[&str], options: &[&str], folder: &str) -> Result<PathBuf, String> {
        let path = self.target.join(folder).join(name);
        let mut peers = self.peers.lock().map_err(|_| format!("{name}: another peer's compilation panicked"))?;
        let outcome = peers.entry(path.clone()).or_insert_with(|| self.compile(name, packages, options, &path));
        outcome.clone().map(|()| path)
    }

    fn compile(&self, name: &str, packages: &[&str], options: &[&str], path: &Path) -> Result<(), String> {
        let source = self.root.join("benches/peers").join(name).with_extension("c");
        if !source.is_file() {
            return Err(format!("there is no peer {name} in this tree"));
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let flags = package_flags(packages)?;
        let mut compiler = Command::new("cc");
        compiler.args(options).arg(&source).arg("-o").arg(path).args(flags).arg("-lm").arg("-pthread");
        let output = compiler.output().map_err(|error| format!("cc: {error}"))?;
        if output.status.success() { Ok(()) } else { Err(format!("cc {name}.c: {}", first_line(&output.stderr))) }
    }
}

/// What pkg-config says, or which package is missing.
fn package_flags(packages: &[&str]) -> Result<Vec<String>, String> {
    if packages.is_empty() {
        return Ok(Vec::new());
    }
    let output = Command::new("pkg-config").args(["--cflags", "--libs"]).args(packages).output();
    let output = output.map_err(|error| format!("pkg-config: {error}"))?;
    if !output.status.success() {
        return Err(format!("pkg-config finds no {}; benches/README.md lists the packages", packages.join(", ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect())
}

/// A command that is told to end when this program has ended, however that was: `timeout` takes what it starts out of reach of a
/// terminal's Ctrl-C, and what goes on meanwhile would be measured by the next run. What counts is the thread that starts it.
pub(super) fn ending_with_us(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--"]).arg(program);
    command
}

/// Runs a program below `timeout`, behind the words of a wrapper, and returns what it printed.
pub(super) fn run(wrapper: &[&str], path: &Path, program: &Program, iterations: u64) -> Result<Output, String> {
    let mut command = ending_with_us("timeout");
    command.args(["-k", "5", PROGRAM_LIMIT]).args(wrapper).arg(path).args(program.arguments);
    command.arg(iterations.to_string());
    let output = command.output().map_err(|error| format!("setpriv: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(match output.status.code() {
        Some(124) => format!("{}: took longer than {PROGRAM_LIMIT} s", program.text()),
        Some(127) => format!("{} is not installed", wrapper.first().unwrap_or(&"the program")),
        _ => format!("{}: {}: {}", program.text(), output.status, last_line(&output.stderr)),
    })
}

/// The first line that says something.
fn first_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).lines().find(|line| !line.trim().is_empty()).unwrap_or("no message").to_owned()
}

/// The last line that says something; valgrind's own are left out.
pub(super) fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let said = text.lines().rev().find(|line| !line.trim().is_empty() && !line.starts_with("=="));
    said.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::process::Stdio;
    use std::thread;

    #[test]
    fn what_was_started_ends_with_who_started_it() {
        // To the kernel a thread that ends is a parent that does. Behind `timeout` it would go on for as long as it takes.
        let start = || {
            let words = ["60", "sh", "-c", "echo begun; exec sleep 30"];
            let mut child = ending_with_us("timeout").args(words).stdout(Stdio::piped()).spawn().expect("Linux has it");
            let mut said = [0; 6];
            child.stdout.as_mut().expect("it is piped").read_exact(&mut said).expect("it says so");
            child
        };
        let mut child = thread::spawn(start).join().expect("it does not panic");
        let status = child.wait().expect("it is ours");
        assert!(!status.success(), "it went on");
    }
}
