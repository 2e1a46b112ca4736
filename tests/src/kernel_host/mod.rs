//! The Linux kernel's NVMe host on a target that is changed at random: what it shows in /sys has to follow each change, and what is read
//! from its disks has to be what was written there. For the virtual machine alone (tests/vm/jobs/kernel_changes.sh).

mod contents;
mod disk;
mod sysfs;

use contents::Contents;
use disk::Disk;
use frwr_support::changes::{Change, Ctl, Medium, Model, Namespace, Subsystem, Users, until};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use sysfs::Controller;

/// Bytes of a block of all namespaces.
const BLOCK: u64 = 4096;
/// Looks behind which Linux is asked to look for namespaces by itself: it takes one whose identifiers changed away, and adds the new one
/// with the next event only (drivers/nvme/host/core.c, as its log says).
const PATIENCE: u32 = 200;

/// Everything of the host.
#[derive(Debug)]
pub struct LinuxHost {
    address: SocketAddr,
    name: String,
    /// Of each medium, by its NGUID.
    contents: BTreeMap<String, Contents>,
    disks: Vec<Disk>,
    /// How often it was asked to look by itself.
    pub rescans: u64,
    /// Blocks that were read and verified, and that were written, on disks that are gone.
    pub moved: u64,
}

impl LinuxHost {
    /// A host of this name that connects to that address; it is connected to the model's first subsystem when this returns.
    ///
    /// # Errors
    /// It cannot be.
    pub fn connect(address: SocketAddr, name: &str, model: &Model) -> Result<Self, String> {
        let contents = BTreeMap::new();
        let mut host = Self { address, name: name.to_owned(), contents, disks: Vec::new(), rescans: 0, moved: 0 };
        host.follow(model)?;
        Ok(host)
    }

    /// Ends all of it; every block that anybody knows of on disks that are there is read once more before.
    ///
    /// # Errors
    /// An error that nothing explains, or other contents.
    pub fn end(mut self) -> Result<u64, String> {
        for disk in &self.disks {
            disk.read_all();
        }
        for disk in core::mem::take(&mut self.disks) {
            self.moved += disk.end()?;
        }
        Self::leave()?;
        Ok(self.moved)
    }

    /// Leaves all targets: commands that wait for one fail by that, and nothing can end before.
    ///
    /// # Errors
    /// It cannot.
    pub fn leave() -> Result<(), String> {
        sysfs::controllers()?.iter().try_for_each(Controller::delete)
    }

    /// Connects where it may and is not, and leaves what is gone.
    fn connect_and_leave(&self, model: &Model) -> Result<(), String> {
        let controllers = sysfs::controllers()?;
        for controller in &controllers {
            if !model.subsystems.contains_key(&controller.subsystem) {
                controller.delete()?;
            }
        }
        let addresses: Vec<_> = [self.address].into_iter().chain(model.second().map(|second| second.address)).collect();
        for name in model.subsystems.keys().filter(|name| model.admits(&self.name, name)) {
            for &address in &addresses {
                if !controllers.iter().any(|controller| controller.subsystem == *name && controller.is_by(address)) {
                    sysfs::connect(address, name, &self.name)?;
                }
            }
        }
        Ok(())
    }

    /// Looks until it shows what the model says, and begins and ends load on disks that came and went.
    fn follow(&mut self, model: &Model) -> Result<(), String> {
        self.connect_and_leave(model)?;
        let (mut looks, mut seen) = (0_u32, String::new());
        let followed = until(&"Linux shows what was changed", || {
            looks += 1;
            if looks.is_multiple_of(PATIENCE) {
                for controller in sysfs::controllers()?.iter().filter(|controller| controller.is_live()) {
                    self.rescans += 1;
                    controller.rescan()?;
                }
            }
            let (found, wanted) = (shown(model, &self.name)?, wanted(model, &self.name)?);
            seen = format!("it shows {found:?}, and should {wanted:?}");
            Ok(found == wanted)
        });
        followed.map_err(|error| format!("{error}: {seen}"))?;
        self.end_disks(model)?;
        self.begin_disks(model)
    }

    fn end_disks(&mut self, model: &Model) -> Result<(), String> {
        // While Linux has no session it has the disk still, and commands of it wait.
        let waits = |of: &str| model.subsystems.contains_key(of) && !model.admits(&self.name, of);
        let (staying, gone) = self
            .disks
            .drain(..)
            .partition(|disk| waits(disk.subsystem()) || !disk.is_explained() && current(model, disk).is_some());
        self.disks = staying;
        for disk in Vec::into_iter(gone) {
            self.moved += disk.end()?;
        }
        Ok(())
    }

    fn begin_disks(&mut self, model: &Model) -> Result<(), String> {
        let controllers = sysfs::controllers()?;
        for (subsystem, namespace, found) in model.namespaces() {
            let has = self.disks.iter().any(|disk| disk.is_of(subsystem, namespace));
            if has || !model.reaches(&self.name, subsystem, namespace) {
                continue;
            }
            // With multipath it is one disk, by whichever path.
            let is_it = |controller: &&Controller| controller.subsystem == subsystem && controller.is_by(self.address);
            let Some(controller) = controllers.iter().find(is_it) else { continue };
            let path = controller.disk(namespace)?;
            let contents = self.contents.entry(found.medium.nguid()).or_default();
            let disk = Disk::begin(&path, (subsystem, namespace), found, contents.clone())?;
            self.disks.push(disk);
        }
        Ok(())
    }
}

/// The namespace that a disk is, if it is that one still.
fn current<'a>(model: &'a Model, disk: &Disk) -> Option<&'a Namespace> {
    let found = model.namespace(disk.subsystem(), disk.namespace())?;
    (found.active && found.medium.nguid() == disk.nguid()).then_some(found)
}

/// What Linux shows of a subsystem by the device that stays, or by the second one (true): whether its controller is live, and of each
/// namespace NGUID, ANA state and, where it can be known, size.
type Shown = BTreeMap<(String, bool), (bool, BTreeMap<u32, (String, String, Option<u64>)>)>;

/// The devices that there are, or may come: whether each is the second one, and whether it serves.
fn devices(model: &Model) -> impl Iterator<Item = (bool, bool)> {
    [(false, true)].into_iter().chain(model.second.as_ref().map(|second| (true, second.serves)))
}

/// The target gave it an NGUID of its own choice.
fn is_of_the_start(model: &Model, subsystem: &str, namespace: u32) -> bool {
    subsystem == model.first && namespace == 1
}

fn shown(model: &Model, host: &str) -> Result<Shown, String> {
    let of = |controller: Controller| {
        let name = controller.subsystem.clone();
        let by_second = model.second.as_ref().is_some_and(|second| controller.is_by(second.address));
        let namespaces = if controller.is_live() { controller.namespaces()? } else { BTreeMap::new() };
        let has_size = |identifier| model.subsystems.get(&name).is_some_and(|found| found.ana_of(identifier).is_path());
        let one = |(identifier, path): (u32, sysfs::Path)| {
            let nguid = if is_of_the_start(model, &name, identifier) { String::new() } else { path.nguid };
            (identifier, (nguid, path.ana, path.bytes.filter(|_| has_size(identifier))))
        };
        let live = controller.is_live();
        let namespaces = namespaces.into_iter().map(one).collect();
        Ok(((name, by_second), (live, namespaces)))
    };
    // One that was never admitted has no controller: it is as good as one that waits.
    let mut all: Shown = sysfs::controllers()?.into_iter().map(of).collect::<Result<_, String>>()?;
    for name in model.subsystems.keys() {
        for (second, _) in devices(model).filter(|(_, serves)| !serves || !model.admits(host, name)) {
            all.entry((name.clone(), second)).or_insert((false, BTreeMap::new()));
        }
    }
    Ok(all)
}

fn wanted(model: &Model, host: &str) -> Result<Shown, String> {
    let of = |(name, found): (&String, &Subsystem), (second, serves): (bool, bool)| {
        let admits = serves && model.admits(host, name);
        let active = found.namespaces.iter().filter(|(_, one)| admits && one.active);
        let one = |(&identifier, one): (&u32, &Namespace)| {
            let ana = found.ana_of(identifier);
            let size = ana.is_path().then_some(one.bytes);
            let nguid = if is_of_the_start(model, name, identifier) { String::new() } else { one.medium.nguid() };
            (identifier, (nguid, sysfs::ana_name(ana).to_owned(), size))
        };
        ((name.clone(), second), (admits, active.map(one).collect()))
    };
    Ok(model.subsystems.iter().flat_map(|subsystem| devices(model).map(move |device| of(subsystem, device))).collect())
}

impl Users for LinuxHost {
    fn before(&mut self, change: &Change, model: &Model) -> Result<(), String> {
        let after = model.after(change);
        for disk in &self.disks {
            match current(&after, disk) {
                Some(found) => disk.may_reach(found.bytes / BLOCK),
                None => disk.explain(),
            }
        }
        // A file that comes with fewer bytes is cut.
        if let Change::AddNamespace { medium: medium @ Medium::File(_), bytes, .. } = change
            && model.expects(change) == Some(true)
        {
            self.contents.entry(medium.nguid()).or_default().cut(bytes / BLOCK, false);
        }
        Ok(())
    }

    fn after(&mut self, change: &Change, model: &Model, _: &mut Ctl) -> Result<(), String> {
        if let Change::ResizeNamespace { subsystem, namespace, .. } = change
            && let Some(found) = model.namespace(subsystem, *namespace)
            && let Medium::File(_) = found.medium
        {
            // It was cut where the change was complete, and not otherwise.
            self.contents.entry(found.medium.nguid()).or_default().cut(found.bytes / BLOCK, true);
        }
        self.follow(model)?;
        for disk in &self.disks {
            disk.is_well()?;
            if let Some(found) = current(model, disk)
                && model.reaches(&self.name, disk.subsystem(), disk.namespace())
            {
                // Linux has shown the size. Of one that it does not reach it may know a former one.
                disk.use_blocks(found.bytes / BLOCK);
                let before = disk.moved();
                until(&format!("{disk} goes on"), || {
                    disk.is_well()?;
                    Ok(disk.moved() > before)
                })?;
            }
        }
        Ok(())
    }
}
