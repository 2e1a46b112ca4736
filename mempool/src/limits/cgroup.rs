//! Which control groups this process is in, and the folders that say what those may use (cgroups(7)).

use std::fs;
use std::path::{Path, PathBuf};

/// The two interfaces that Linux has; one controller is under one of them at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// A hierarchy for each controller, or for some together.
    One,
    /// One hierarchy for all.
    Two,
}

/// The folders of one controller's groups, the process's own first and then those above it, as far as they can be seen: what any
/// of them limits, limits the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) version: Version,
    pub(super) folders: Vec<PathBuf>,
}

impl Groups {
    /// Of a controller, by the name that version one has for it. `None` where the kernel has none, or does not say.
    pub(super) fn of_process(root: &Path, controller: &str) -> Option<Self> {
        let membership = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
        let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
        let (version, path) = own_path(&membership, controller)?;
        let mount = mount_of(&mounts, version, controller, &path)?;
        let below = path.strip_prefix(&mount.root).unwrap_or(Path::new(""));
        // `/..` stands for what a namespace does not show; the folder that is mounted is then the nearest.
        let below = if below.components().all(|part| matches!(part, std::path::Component::Normal(_))) {
            below
        } else {
            Path::new("")
        };
        let top = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
        let folders = below.ancestors().map(|below| top.join(below)).collect();
        Some(Self { version, folders })
    }
}

/// The group of a line `hierarchy:controllers:path`, of version two where no hierarchy of version one has the controller.
fn own_path(membership: &str, controller: &str) -> Option<(Version, PathBuf)> {
    let lines = || {
        membership.lines().filter_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            Some((number, controllers, PathBuf::from(path)))
        })
    };
    let one = lines().find(|(_, controllers, _)| controllers.split(',').any(|name| name == controller));
    let two = || lines().find(|(number, controllers, _)| *number == "0" && controllers.is_empty());
    one.map(|(.., path)| (Version::One, path)).or_else(|| two().map(|(.., path)| (Version::Two, path)))
}

/// A hierarchy, or a part of it, in the tree of files.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The group that is seen there.
    root: PathBuf,
    /// Where.
    point: PathBuf,
}

/// Where a controller's hierarchy is mounted; of several parts the one that shows most above the group.
fn mount_of(mounts: &str, version: Version, controller: &str, path: &Path) -> Option<Mount> {
    let found = mounts.lines().filter_map(|line| {
        // 36 35 98:0 /root /point options optional... - type source options (proc_pid_mountinfo(5))
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (name, options) = (kind.next()?, kind.nth(1)?);
        let is_its = match version {
            Version::One => name == "cgroup" && options.split(',').any(|option| option == controller),
            Version::Two => name == "cgroup2",
        };
        let mut place = place.split(' ').skip(3);
        is_its.then_some(Mount { root: unescaped(place.next()?), point: unescaped(place.next()?) })
    });
    let mut found: Vec<Mount> = found.collect();
    // Those that do not show the group at all are the last resort: a container's own, whose paths are of another namespace.
    found.sort_by_key(|mount| (!path.starts_with(&mount.root), mount.root.components().count()));
    found.into_iter().next()
}

/// A path of mountinfo, where blanks and the like are octal numbers.
fn unescaped(text: &str) -> PathBuf {
    let known = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    PathBuf::from(known.iter().fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain)))
}

#[cfg(test)]
mod tests {
    use super::{Mount, Version, mount_of, own_path, unescaped};
    use std::path::{Path, PathBuf};

    #[test]
    fn a_controller_is_under_one_of_the_two_interfaces() {
        let (both, new) = ("4:memory:/a/b\n2:cpu,cpuacct:/c\n1:name=systemd:/\n0::/unified\n", "0::/user.slice/x\n");
        let path = |text| PathBuf::from(text);
        assert_eq!(own_path(both, "memory"), Some((Version::One, path("/a/b"))));
        assert_eq!(own_path(both, "cpu"), Some((Version::One, path("/c"))));
        assert_eq!(own_path(both, "cpuset"), Some((Version::Two, path("/unified"))));
        assert_eq!(own_path(new, "memory"), Some((Version::Two, path("/user.slice/x"))));
        assert_eq!((own_path("", "cpu"), own_path("nonsense\n1:name=systemd:/\n", "cpu")), (None, None));
    }

    #[test]
    fn the_mount_that_shows_the_group_is_taken() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                      36 31 0:32 /a /mnt/a\\040b rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 /../.. /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n\
                      nonsense\n";
        let found = |version, path: &str| mount_of(mounts, version, "memory", Path::new(path));
        let mount = |root: &str, point: &str| Some(Mount { root: root.into(), point: point.into() });
        assert_eq!(found(Version::One, "/a/b"), mount("/", "/sys/fs/cgroup/memory"));
        assert_eq!(found(Version::Two, "/x"), mount("/../..", "/sys/fs/cgroup/unified"));
        assert_eq!(mount_of(mounts, Version::One, "cpu", Path::new("/")), None);
        assert_eq!(unescaped("/mnt/a\\040b"), PathBuf::from("/mnt/a b"));
    }
}
