//! What a process may use of its machine, read from trees of files as both interfaces of control groups have them.

use core::time::Duration;
use frwr_mempool::limits::{Limits, MemoryBound, Resource, Throttling};
use std::fs;

/// A machine made of files, which are deleted at the end.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(path, text)| tree.write(path, text));
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn limits(&self) -> Limits {
        Limits::read(self.0.path())
    }

    /// What memory is left, and the group that says so, without the tree's own folder.
    fn memory(&self) -> Option<(u64, Option<String>)> {
        let room = self.limits().memory()?;
        let group = match room.bound {
            MemoryBound::Machine => None,
            MemoryBound::Group { folder, .. } => {
                Some(folder.strip_prefix(self.0.path()).unwrap().to_str().unwrap().to_owned())
            }
        };
        Some((room.bytes, group))
    }
}

const MEBIBYTE: u64 = 1 << 20;
const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    1048576 kB\n");
/// As on a machine with version two alone, in the group /a/b.
const TWO: [(&str, &str); 3] = [
    MEMINFO,
    ("proc/self/cgroup", "0::/a/b\n"),
    ("proc/self/mountinfo", "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
];
/// As on one with version one, where CPU and memory have hierarchies of their own.
const ONE: [(&str, &str); 3] = [
    MEMINFO,
    ("proc/self/cgroup", "4:memory:/a/b\n2:cpu,cpuacct:/c\n0::/\n"),
    (
        "proc/self/mountinfo",
        "1 0 0:1 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
         2 0 0:2 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
    ),
];

#[test]
fn without_groups_the_machine_is_the_bound() {
    assert_eq!(Tree::new(&[MEMINFO]).memory(), Some((1 << 30, None)));
    assert_eq!(Tree::new(&TWO).memory(), Some((1 << 30, None)), "groups without files");
    let empty = Tree::new(&[]);
    let nothing = empty.limits();
    assert_eq!((nothing.memory(), nothing.cpu_quota()), (None, None));
    assert_eq!((nothing.throttling(), nothing.soft_limit(Resource::Stack)), (Throttling::default(), None));
}

#[test]
fn version_two_least_of_the_own_group_and_those_above() {
    let tree = Tree::new(&TWO);
    let (own, above) = ("sys/fs/cgroup/a/b", "sys/fs/cgroup/a");
    tree.write(&format!("{own}/memory.max"), "max\n");
    tree.write(&format!("{own}/memory.current"), "1000\n");
    assert_eq!(tree.memory(), Some((1 << 30, None)));
    tree.write(&format!("{above}/memory.max"), &format!("{}\n", 300 * MEBIBYTE));
    tree.write(&format!("{above}/memory.current"), &format!("{}\n", 200 * MEBIBYTE));
    assert_eq!(tree.memory(), Some((100 * MEBIBYTE, Some(above.to_owned()))));
    // What it keeps of files is given up before anybody is killed.
    tree.write(&format!("{above}/memory.stat"), "anon 7\nactive_file 10485760\ninactive_file 20971520\n");
    assert_eq!(tree.memory(), Some((130 * MEBIBYTE, Some(above.to_owned()))));
    tree.write(&format!("{own}/memory.max"), &format!("{}\n", 50 * MEBIBYTE));
    assert_eq!(tree.memory(), Some((50 * MEBIBYTE - 1000, Some(own.to_owned()))));
    let text = tree.limits().memory().unwrap().to_string();
    assert!(text.contains("49 MiB left of the 50 MiB of cgroup") && text.ends_with("a/b"), "{text}");
    // A group that is over its limit leaves nothing.
    tree.write(&format!("{own}/memory.current"), &format!("{}\n", 51 * MEBIBYTE));
    assert_eq!(tree.memory(), Some((0, Some(own.to_owned()))));
    tree.write("proc/meminfo", "MemAvailable: 0 kB\n");
    assert_eq!(tree.limits().memory().unwrap().bytes, 0);
}

#[test]
fn version_one_least_of_the_own_group_and_those_above() {
    let tree = Tree::new(&ONE);
    let (own, above) = ("sys/fs/cgroup/memory/a/b", "sys/fs/cgroup/memory/a");
    for folder in [own, above] {
        tree.write(&format!("{folder}/memory.use_hierarchy"), "1\n");
        tree.write(&format!("{folder}/memory.limit_in_bytes"), "9223372036854771712\n");
        tree.write(&format!("{folder}/memory.usage_in_bytes"), "4096\n");
        tree.write(
            &format!("{folder}/memory.stat"),
            "inactive_file 1\nhierarchical_memory_limit 9\ntotal_inactive_file 96\n",
        );
    }
    assert_eq!(tree.memory(), Some((1 << 30, None)));
    tree.write(&format!("{above}/memory.limit_in_bytes"), "8192\n");
    assert_eq!(tree.memory(), Some((8192 - 4000, Some(above.to_owned()))));
    tree.write(&format!("{own}/memory.limit_in_bytes"), "8000\n");
    assert_eq!(tree.memory(), Some((4000, Some(own.to_owned()))));
    // Where groups are no hierarchy, those above limit nothing.
    tree.write(&format!("{own}/memory.limit_in_bytes"), "9223372036854771712\n");
    tree.write(&format!("{own}/memory.use_hierarchy"), "0\n");
    assert_eq!(tree.memory(), Some((1 << 30, None)));
}

#[test]
fn quotas_of_processor_time_of_both_versions() {
    let tree = Tree::new(&TWO);
    let (own, above) = ("sys/fs/cgroup/a/b", "sys/fs/cgroup/a");
    tree.write(&format!("{own}/cpu.max"), "max 100000\n");
    assert_eq!(tree.limits().cpu_quota(), None);
    tree.write(&format!("{above}/cpu.max"), "40000 200000\n");
    let quota = tree.limits().cpu_quota().unwrap();
    assert_eq!((quota.quota, quota.period), (Duration::from_millis(40), Duration::from_millis(200)));
    assert!((quota.cores() - 0.2).abs() < 1e-9 && quota.folder.ends_with(above), "{quota:?}");
    tree.write(&format!("{own}/cpu.max"), "10000\n");
    let quota = tree.limits().cpu_quota().unwrap();
    assert!((quota.cores() - 0.1).abs() < 1e-9 && quota.folder.ends_with(own), "{quota:?}");

    let tree = Tree::new(&ONE);
    let own = "sys/fs/cgroup/cpu,cpuacct/c";
    tree.write(&format!("{own}/cpu.cfs_quota_us"), "-1\n");
    tree.write(&format!("{own}/cpu.cfs_period_us"), "100000\n");
    assert_eq!(tree.limits().cpu_quota(), None);
    tree.write(&format!("{own}/cpu.cfs_quota_us"), "150000\n");
    assert!((tree.limits().cpu_quota().unwrap().cores() - 1.5).abs() < 1e-9);
}

#[test]
fn throttling_is_counted_between_two_looks() {
    let two = Tree::new(&TWO);
    let (own, above) = ("sys/fs/cgroup/a/b", "sys/fs/cgroup/a");
    // Version two counts in every group, and throttles only by a quota.
    two.write(&format!("{own}/cpu.stat"), "usage_usec 5\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n");
    two.write(&format!("{above}/cpu.max"), "20000 100000\n");
    two.write(&format!("{above}/cpu.stat"), "usage_usec 5\nnr_periods 10\nnr_throttled 4\nthrottled_usec 1500000\n");
    let before = two.limits().throttling();
    two.write(&format!("{above}/cpu.stat"), "usage_usec 5\nnr_periods 86\nnr_throttled 74\nthrottled_usec 4500000\n");
    let came = two.limits().throttling().since(&before);
    assert_eq!(came, Throttling { periods: 76, throttled: 70, time: Duration::from_secs(3) });

    let one = Tree::new(&ONE);
    let own = "sys/fs/cgroup/cpu,cpuacct/c";
    one.write(&format!("{own}/cpu.cfs_quota_us"), "20000\n");
    one.write(&format!("{own}/cpu.stat"), "nr_periods 9\nnr_throttled 8\nthrottled_time 7000000\n");
    let all = one.limits().throttling();
    assert_eq!(all, Throttling { periods: 9, throttled: 8, time: Duration::from_millis(7) });
    // A group that was made anew counts from the beginning.
    assert_eq!(Throttling::default().since(&all), Throttling::default());
}

/// In a container paths may be of another namespace than what is mounted: then what is mounted is the group.
#[test]
fn a_container_sees_its_own_group_at_the_mount() {
    for (membership, root) in
        [("0::/\n", "/"), ("0::/docker/1\n", "/docker/1"), ("0::/../other\n", "/"), ("0::/x\n", "/docker/1")]
    {
        let mount = format!("1 0 0:1 {root} /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
        let tree = Tree::new(&[MEMINFO, ("proc/self/cgroup", membership), ("proc/self/mountinfo", &mount)]);
        tree.write("sys/fs/cgroup/memory.max", "4096\n");
        tree.write("sys/fs/cgroup/memory.current", "96\n");
        assert_eq!(tree.memory(), Some((4000, Some("sys/fs/cgroup".to_owned()))), "{membership} at {root}");
    }
}

#[test]
fn soft_limits_of_resources() {
    let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                Max file size             524288               unlimited            bytes     \n\
                Max stack size            8388608              unlimited            bytes     \n\
                Max locked memory         unlimited            unlimited            bytes     \n";
    let tree = Tree::new(&[("proc/self/limits", text)]);
    let limits = tree.limits();
    assert_eq!(limits.soft_limit(Resource::FileSize), Some(524_288));
    assert_eq!(limits.soft_limit(Resource::Stack), Some(8 << 20));
    assert_eq!(limits.soft_limit(Resource::LockedMemory), Some(u64::MAX));
}

/// This process has some memory left, or it would not have come so far.
#[test]
fn this_process_is_told_its_own() {
    let limits = Limits::of_process();
    if let Some(room) = limits.memory() {
        assert!(room.bytes > 0, "{room}");
    }
    assert!(limits.soft_limit(Resource::Stack).is_none_or(|bytes| bytes > 0));
}

#[test]
fn who_may_lock_more_has_the_capability_of_the_machine_itself() {
    let may = |effective: &str, users: &str| {
        let status = format!("Name:\tfrwr\nCapEff:\t{effective}\n");
        let tree = Tree::new(&[("proc/self/status", &status), ("proc/self/uid_map", users)]);
        tree.limits().may_lock_more()
    };
    let (initial, mapped) = ("         0          0 4294967295\n", "         0       1000          1\n");
    assert!(may("0000000000004000", initial) && may("000001ffffffffff", initial));
    assert!(!may("0000000000000000", initial) && !may("000001ffffffffff", mapped) && !may("nonsense", initial));
    let empty = Tree::new(&[]);
    assert!(!empty.limits().may_lock_more());
}
