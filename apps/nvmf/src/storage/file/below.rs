//! Which media are one, by whatever paths, and which lie in others: a partition in its disk, a mapped device on those below it, a loop
//! device in its file. What sysfs does not say is not known.

use super::identity::FileIdentity;
use rustix::fs::{major, makedev, minor};
use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

/// What the kernel knows of block devices, by their numbers.
const BLOCK_DEVICES: &str = "/sys/dev/block";
/// Media that are looked at to find what one lies in, itself included: far more than anybody stacks, and an end where sysfs has none.
const MOST: usize = 256;

/// A medium, as one finds it again.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Medium {
    /// The device with these numbers.
    Device(u64),
    /// A file, there or not.
    File(FileIdentity),
}

/// Which medium a path leads to, and what that lies in, as far as the system says. Nothing is opened.
#[derive(Clone, Debug)]
pub struct Below {
    /// The medium first; empty where nobody knows.
    all: Vec<Medium>,
}

impl Below {
    /// Looks. Of a path that leads nowhere it is known where a file would be.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self { all: Medium::at(path).map_or_else(Vec::new, |medium| all_below(medium, Path::new(BLOCK_DEVICES))) }
    }

    /// Both are one medium, or one of them is what the other lies in: a write by one changes what the other reads.
    #[must_use]
    pub fn shares_with(&self, other: &Self) -> bool {
        let lies_in = |one: &Self, other: &Self| other.all.first().is_some_and(|medium| one.all.contains(medium));
        lies_in(self, other) || lies_in(other, self)
    }
}

impl Medium {
    fn at(path: &Path) -> Option<Self> {
        match fs::metadata(path) {
            Ok(found) if found.file_type().is_block_device() => Some(Self::Device(found.rdev())),
            _ => FileIdentity::of(path).map(Self::File),
        }
    }
}

/// A medium, and all that it lies in.
fn all_below(medium: Medium, devices: &Path) -> Vec<Medium> {
    let (mut found, mut next) = (vec![medium], 0);
    while let Some(medium) = found.get(next) {
        next += 1;
        if let Medium::Device(number) = *medium {
            let folder = devices.join(format!("{}:{}", major(number), minor(number)));
            for below in directly_below(&folder) {
                if found.len() < MOST && !found.contains(&below) {
                    found.push(below);
                }
            }
        }
    }
    found
}

fn directly_below(folder: &Path) -> Vec<Medium> {
    let mut below = Vec::new();
    if folder.join("partition").exists() {
        let disk = fs::canonicalize(folder).ok().and_then(|folder| number(folder.parent()?));
        below.extend(disk.map(Medium::Device));
    }
    let mapped_on = fs::read_dir(folder.join("slaves")).into_iter().flatten();
    below.extend(mapped_on.filter_map(|device| number(&device.ok()?.path())).map(Medium::Device));
    if let Ok(path) = fs::read_to_string(folder.join("loop/backing_file")) {
        below.extend(FileIdentity::of(Path::new(path.trim_end_matches('\n'))).map(Medium::File));
    }
    below
}

/// Of the device that a folder of sysfs is about.
fn number(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A disk 8:0 with partitions 8:1 and 8:2, and 253:0 mapped on the first of them.
    fn devices() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, number) in [("sda", "8:0"), ("sda/sda1", "8:1"), ("sda/sda2", "8:2"), ("dm-0", "253:0")] {
            fs::create_dir_all(at(name)).unwrap();
            fs::write(at(name).join("dev"), format!("{number}\n")).unwrap();
            symlink(at(name), at(number)).unwrap();
            if name.contains("/sda") {
                fs::write(at(name).join("partition"), "1\n").unwrap();
            }
        }
        fs::create_dir(at("dm-0/slaves")).unwrap();
        symlink(at("sda/sda1"), at("dm-0/slaves/sda1")).unwrap();
        // Nothing that sysfs has, and no reason to go on for ever.
        fs::create_dir(at("sda/slaves")).unwrap();
        symlink(at("dm-0"), at("sda/slaves/dm-0")).unwrap();
        folder
    }

    #[test]
    fn what_a_device_lies_in_is_found_through_partitions_and_mappings() {
        let folder = devices();
        let device = |major, minor| Medium::Device(makedev(major, minor));
        let below = |major, minor| all_below(device(major, minor), folder.path());
        assert_eq!(below(8, 2), [device(8, 2), device(8, 0), device(253, 0), device(8, 1)]);
        assert_eq!(below(253, 0), [device(253, 0), device(8, 1), device(8, 0)]);
        assert_eq!(below(9, 9), [device(9, 9)]);
    }

    #[test]
    fn one_file_by_several_paths_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let [file, other, hard, soft, absent] =
            ["file", "other", "hard", "soft", "absent"].map(|name| folder.path().join(name));
        fs::write(&file, "a").unwrap();
        fs::write(&other, "a").unwrap();
        fs::hard_link(&file, &hard).unwrap();
        symlink(&file, &soft).unwrap();
        let shared = |one: &Path, other: &Path| Below::of(one).shares_with(&Below::of(other));
        let round_about = folder.path().join("../").join(folder.path().file_name().unwrap()).join("absent");
        for same in [&file, &hard, &soft] {
            assert!(shared(&file, same) && !shared(&other, same));
        }
        assert!(shared(&absent, &round_about) && !shared(&absent, &file));
        assert!(!shared(Path::new("/dev/null"), Path::new("/dev/null")), "no medium");
    }
}
