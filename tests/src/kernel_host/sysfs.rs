//! What Linux shows of its NVMe host, and how it is asked for more.

use frwr_support::changes::Ana;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{self, PathBuf};

const CLASS: &str = "/sys/class/nvme";
const DISKS: &str = "/sys/block";
const FABRICS: &str = "/dev/nvme-fabrics";
/// Bytes of what sizes are counted in.
const SECTOR: u64 = 512;

/// A controller that Linux has, or connects to.
#[derive(Debug)]
pub(super) struct Controller {
    folder: PathBuf,
    pub(super) subsystem: String,
    /// As the kernel has it, with what else it was told of the way there.
    address: String,
}

/// A way to a namespace.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) nguid: String,
    pub(super) ana: String,
    /// `None` while the disk has another size: Linux gives it to the path first, and to the disk a moment later.
    pub(super) bytes: Option<u64>,
}

/// As a state is called in `ana_state`.
pub(super) fn ana_name(state: Ana) -> &'static str {
    match state {
        Ana::Optimized => "optimized",
        Ana::NonOptimized => "non-optimized",
        Ana::Inaccessible => "inaccessible",
        Ana::PersistentLoss => "persistent-loss",
        Ana::Change => "change",
    }
}

fn entries(folder: &path::Path) -> Result<Vec<PathBuf>, String> {
    let all = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // What goes while it is read is gone.
    Ok(all.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect())
}

/// An attribute; `None` where it is gone, or cannot be told.
fn attribute(folder: &path::Path, name: &str) -> Option<String> {
    fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned())
}

/// Of a path, or of a disk.
fn bytes(folder: &path::Path) -> Option<u64> {
    Some(attribute(folder, "size")?.parse::<u64>().ok()? * SECTOR)
}

/// The disk that a path belongs to: of the path nvme0c1n2 it is nvme0n2.
fn disk_of(path: &str) -> Option<String> {
    let ((subsystem, _), (_, head)) = path.split_once('c').zip(path.rsplit_once('n'))?;
    Some(format!("{subsystem}n{head}"))
}

fn write(path: &path::Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {text:?}: {error}", path.display()))
}

/// All that there are.
pub(super) fn controllers() -> Result<Vec<Controller>, String> {
    let of = |folder: PathBuf| {
        let (subsystem, address) = (attribute(&folder, "subsysnqn")?, attribute(&folder, "address")?);
        Some(Controller { folder, subsystem, address })
    };
    Ok(entries(path::Path::new(CLASS))?.into_iter().filter_map(of).collect())
}

/// Connects to a subsystem. A session that ends is set up again each second, for an hour.
pub(super) fn connect(address: SocketAddr, subsystem: &str, host: &str) -> Result<(), String> {
    let (ip, port) = (address.ip(), address.port());
    let queues = "nr_io_queues=2,queue_size=32,reconnect_delay=1,ctrl_loss_tmo=3600";
    let text = format!("transport=rdma,traddr={ip},trsvcid={port},nqn={subsystem},hostnqn={host},{queues}");
    write(path::Path::new(FABRICS), &text)
}

impl Controller {
    /// It is one by that address.
    pub(super) fn is_by(&self, address: SocketAddr) -> bool {
        let (ip, port) = (format!("traddr={}", address.ip()), format!("trsvcid={}", address.port()));
        [ip, port].iter().all(|wanted| self.address.split(',').any(|part| part == wanted))
    }

    /// It has a session.
    pub(super) fn is_live(&self) -> bool {
        attribute(&self.folder, "state").is_some_and(|state| state == "live")
    }

    /// Its namespaces by their identifiers.
    pub(super) fn namespaces(&self) -> Result<BTreeMap<u32, Path>, String> {
        Ok(self.paths()?.into_iter().map(|(identifier, _, path)| (identifier, path)).collect())
    }

    fn paths(&self) -> Result<Vec<(u32, String, Path)>, String> {
        let of = |folder: PathBuf| {
            let name = folder.file_name()?.to_str()?.to_owned();
            let identifier = attribute(&folder, "nsid")?.parse().ok()?;
            let of_disk = bytes(&path::Path::new(DISKS).join(disk_of(&name)?));
            let nguid = attribute(&folder, "nguid")?.replace('-', "");
            let bytes = bytes(&folder).filter(|found| of_disk == Some(*found));
            let path = Path { nguid, ana: attribute(&folder, "ana_state")?, bytes };
            Some((identifier, name, path))
        };
        Ok(entries(&self.folder)?.into_iter().filter_map(of).collect())
    }

    /// The disk that is a namespace.
    pub(super) fn disk(&self, namespace: u32) -> Result<PathBuf, String> {
        let all = self.paths()?;
        let found = all.iter().find(|(identifier, ..)| *identifier == namespace);
        let (_, name, _) = found.ok_or_else(|| format!("{} has no namespace {namespace}", self.folder.display()))?;
        let disk = disk_of(name).ok_or_else(|| format!("{name} is no path to a disk"))?;
        Ok(path::Path::new("/dev").join(disk))
    }

    /// Looks for namespaces.
    pub(super) fn rescan(&self) -> Result<(), String> {
        write(&self.folder.join("rescan_controller"), "1")
    }

    /// Leaves it.
    pub(super) fn delete(&self) -> Result<(), String> {
        write(&self.folder.join("delete_controller"), "1")
    }
}
