//! What a result has to be read with: machine, versions, commit.

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Packages whose versions matter.
const PACKAGES: &[&str] = &[
    "valgrind",
    "libdpdk-dev",
    "libucx-dev",
    "libibverbs1",
    "qemu-system-x86",
    "linux-image-amd64",
    "perftest",
    "fio",
    "busybox-static",
];

/// Where and of what a run was made.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// "2026-11-21T16:00:00Z".
    pub(super) date: String,
    /// The processor's name.
    pub(super) processor: String,
    /// How many processors the run could use.
    pub(super) processors: usize,
    /// `uname -r`.
    pub(super) kernel: String,
    /// `rustc -V`.
    pub(super) rustc: String,
    /// First line of `cc --version`.
    pub(super) compiler: String,
    /// Name and version of each package that is installed.
    pub(super) packages: Vec<(String, String)>,
    /// The commit.
    pub(super) commit: String,
    /// Whether the tree differs from it.
    pub(super) dirty: bool,
}

impl Machine {
    /// Asks this machine, and git about the source tree.
    pub(super) fn ask(root: &Path) -> Self {
        let git = |arguments: &[&str]| said(Command::new("git").arg("-C").arg(root).args(arguments));
        let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            date: said(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])),
            processor: processor(&information).unwrap_or("unknown").to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: said(Command::new("uname").arg("-r")),
            rustc: said(Command::new("rustc").arg("-V")),
            compiler: said(Command::new("cc").arg("--version")),
            packages: packages(),
            commit: git(&["rev-parse", "--short=12", "HEAD"]),
            dirty: git(&["status", "--porcelain"]) != UNKNOWN,
        }
    }

    /// For the file of results.
    pub(super) fn json(&self) -> Value {
        let packages: serde_json::Map<_, _> =
            self.packages.iter().map(|(name, version)| (name.clone(), json!(version))).collect();
        json!({
            "date": self.date, "processor": self.processor, "processors": self.processors, "kernel": self.kernel,
            "rustc": self.rustc, "cc": self.compiler, "packages": packages, "commit": self.commit, "dirty": self.dirty,
        })
    }

    /// In one line.
    pub(super) fn line(&self) -> String {
        let dirty = if self.dirty { " and changes" } else { "" };
        format!(
            "{}, {} x {}, Linux {}, {}, {}, commit {}{dirty}",
            self.date, self.processors, self.processor, self.kernel, self.rustc, self.compiler, self.commit
        )
    }
}

const UNKNOWN: &str = "unknown";

/// The first line that a command prints.
fn said(command: &mut Command) -> String {
    let output = command.output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or(UNKNOWN).to_owned()
}

fn processor(information: &str) -> Option<&str> {
    let line = information.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

fn packages() -> Vec<(String, String)> {
    let version = |name: &str| said(Command::new("dpkg-query").args(["-W", "-f", "${Version}\n", name]));
    let all = PACKAGES.iter().map(|name| ((*name).to_owned(), version(name)));
    all.filter(|(_, version)| version != UNKNOWN && !version.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_has_a_name() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: AMD EPYC\n"), Some("AMD EPYC"));
        assert_eq!(processor("Hardware : none"), None);
    }
}
