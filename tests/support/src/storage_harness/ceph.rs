//! A Ceph cluster of its own, which `tests/run ceph` starts, and images in it.
#![allow(unreachable_pub, reason = "a module of test binaries, not of a library")]

use super::BLOCK;
use frwr_nvmf::conformance::Medium;
use frwr_nvmf::storage::{RbdMedium, RbdOptions, Storage};
use std::{
    cell::Cell,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Where `tests/run ceph` says that its cluster is.
const FOLDER: &str = "FRWR_CEPH_FOLDER";
/// The pool of all images (tests/ceph/cluster).
pub const POOL: &str = "pool";
/// Blocks of each image.
pub const IMAGE_BLOCKS: u64 = 128;
/// Seconds that a tool of Ceph may take: they wait for ever for a cluster that does not answer.
const TOOL_LIMIT: &str = "100";
/// Shares of an OSD's disk from which on it counts as full, in the order in which they may be made smaller, and as they are usually.
const FULL: [(&str, &str, &str); 3] = [
    ("set-nearfull-ratio", "0.00001", "0.85"),
    ("set-backfillfull-ratio", "0.00002", "0.90"),
    ("set-full-ratio", "0.00003", "0.95"),
];
/// Operations of one way.
const DEPTH: usize = 64;

/// The cluster.
pub struct Cluster {
    folder: PathBuf,
}

impl Cluster {
    /// `None` where nobody has started one, which is said.
    pub fn find() -> Option<Self> {
        let Some(folder) = env::var_os(FOLDER) else {
            println!("ELSEWHERE: this needs a Ceph cluster, which `tests/run ceph` starts");
            return None;
        };
        Some(Self { folder: folder.into() })
    }

    pub fn conf(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    /// The same configuration for somebody who waits for its monitor a few seconds only.
    pub fn impatient_conf(&self) -> PathBuf {
        let path = self.folder.join("impatient.conf");
        let usual = fs::read_to_string(self.conf()).unwrap();
        fs::write(&path, usual.replace("[mon]", "client_mount_timeout = 3\n[mon]")).unwrap();
        path
    }

    /// A command of tests/ceph/cluster: `kill-osd`, `start-osd`.
    pub fn daemon(&self, command: &str) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ceph/cluster");
        let status = Command::new(script).arg(command).arg(&self.folder).stdin(Stdio::null()).status().unwrap();
        assert!(status.success(), "{command}: {status}");
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args([TOOL_LIMIT, program, "--conf"]).arg(self.conf()).args(arguments).stdin(Stdio::null());
        command
    }

    /// One of Ceph's own tools.
    pub fn tool(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program, arguments).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// From now on it has no room for anything more, or has room again.
    pub fn set_full(&self, full: bool) {
        let mut ratios: Vec<_> =
            FULL.iter().map(|(name, little, usual)| (name, if full { little } else { usual })).collect();
        if !full {
            ratios.reverse();
        }
        for (name, ratio) in ratios {
            self.tool("ceph", &["osd", name, ratio]);
        }
        let is_full = || self.tool("ceph", &["osd", "dump"]).lines().any(|line| line.contains("flags hashpspool,full"));
        while is_full() != full {
            std::thread::yield_now();
        }
    }

    /// A new image, thin, of so many blocks.
    pub fn image_of(&self, blocks: u64) -> Image<'_> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("image-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let image = Image { cluster: self, name, blocks: Cell::new(blocks) };
        let bytes = format!("{}B", blocks * BLOCK as u64);
        self.tool("rbd", &["create", &image.path(), "--size", &bytes, "--no-progress"]);
        image
    }

    /// One of the usual size.
    pub fn image(&self) -> Image<'_> {
        self.image_of(IMAGE_BLOCKS)
    }
}

/// An image, which is removed at the end where nobody has it open.
pub struct Image<'a> {
    cluster: &'a Cluster,
    name: String,
    blocks: Cell<u64>,
}

impl Image<'_> {
    /// As Ceph's tools call it.
    pub fn path(&self) -> String {
        format!("{POOL}/{}", self.name)
    }

    /// As frwr calls it.
    pub fn uri(&self) -> String {
        self.options().name()
    }

    pub fn options(&self) -> RbdOptions {
        RbdOptions::new(POOL, &self.name).conf(Some(self.cluster.conf()))
    }

    /// Of `rbd`, with the image behind it.
    pub fn rbd(&self, command: &[&str]) -> String {
        self.cluster.tool("rbd", &[command, &[&self.path()], &["--no-progress"]].concat())
    }

    pub fn resize(&self, blocks: u64) {
        if self.blocks.replace(blocks) == blocks {
            return;
        }
        self.rbd(&["resize", "--allow-shrink", "--size", &format!("{}B", blocks * BLOCK as u64)]);
    }
}

impl Drop for Image<'_> {
    fn drop(&mut self) {
        let _ = self.cluster.command("rbd", &["rm", &self.path(), "--no-progress"]).stderr(Stdio::null()).status();
    }
}

/// An image as the conformance suite takes it, of one size at first. Its power is that of the OSD.
pub struct OnRbd<'a> {
    medium: Option<RbdMedium>,
    image: &'a Image<'a>,
    block_bytes: u32,
    is_full: bool,
}

impl Drop for OnRbd<'_> {
    fn drop(&mut self) {
        if self.is_full {
            self.image.cluster.set_full(false);
        }
    }
}

impl<'a> OnRbd<'a> {
    pub fn new(image: &'a Image<'a>) -> Self {
        image.resize(IMAGE_BLOCKS);
        Self { medium: None, image, block_bytes: BLOCK as u32, is_full: false }
    }

    /// In blocks of 512 bytes, which it compares and writes. For promises that say nothing of its size.
    pub fn in_sectors(image: &'a Image<'a>) -> Self {
        image.resize(IMAGE_BLOCKS);
        Self { medium: None, image, block_bytes: 512, is_full: false }
    }

    fn opened(&mut self, options: RbdOptions) -> Option<Box<dyn Storage>> {
        self.medium = None;
        self.medium = Some(RbdMedium::open(options.block_bytes(self.block_bytes)).unwrap());
        self.open_beside()
    }
}

impl Medium for OnRbd<'_> {
    fn open(&mut self) -> Option<Box<dyn Storage>> {
        self.opened(self.image.options())
    }

    fn open_beside(&mut self) -> Option<Box<dyn Storage>> {
        Some(Box::new(self.medium.as_ref()?.storage(DEPTH).unwrap()))
    }

    fn open_read_only(&mut self) -> Option<Box<dyn Storage>> {
        self.opened(self.image.options().read_only(true))
    }

    fn lose_power(&mut self) -> bool {
        self.medium = None;
        self.image.cluster.daemon("kill-osd");
        self.image.cluster.daemon("start-osd");
        true
    }

    fn fill_up(&mut self) -> bool {
        self.image.cluster.set_full(true);
        self.is_full = true;
        true
    }

    fn cut(&mut self, blocks: u64) -> bool {
        self.image.resize(blocks);
        true
    }

    fn extend(&mut self, blocks: u64) -> bool {
        self.image.resize(blocks);
        self.medium.as_mut().is_some_and(|medium| medium.measure().is_ok())
    }
}
