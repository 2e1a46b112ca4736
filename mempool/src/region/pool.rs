//! What the kernel says about its hugepage pools. Cold: files are read, strings are made.

use std::fs;
use std::path::Path;

use super::error::RungError;

/// The hugepage pool of one page size, of one node or of the whole machine.
pub(super) struct Pool {
    directory: String,
    /// The machine-wide pool of the same size, where reservations are counted.
    machine: String,
}

impl Pool {
    /// The pool for pages of `page_size` bytes, of `node` or of the whole machine.
    pub(super) fn new(page_size: usize, node: Option<u32>) -> Self {
        let name = format!("hugepages-{}kB", page_size / 1024);
        let machine = format!("/sys/kernel/mm/hugepages/{name}");
        let directory = match node {
            Some(node) => format!("/sys/devices/system/node/node{node}/hugepages/{name}"),
            None => machine.clone(),
        };
        Self { directory, machine }
    }

    /// Refuses `wanted` pages unless the pool has so many that are neither in use nor promised, or may be given more by the kernel
    /// (`nr_overcommit_hugepages`).
    ///
    /// `mmap` alone does not tell: it reserves from the whole machine's pool, so that a page missing on the bound node
    /// shows as a failed population, or as SIGBUS for whoever touches it first.
    pub(super) fn check(&self, wanted: u64) -> Result<(), RungError> {
        let total = read_number(&self.directory, "nr_hugepages").ok_or(RungError::NoPool)?;
        let free_here = read_number(&self.directory, "free_hugepages").ok_or(RungError::NoPool)?;
        let free_machine = read_number(&self.machine, "free_hugepages").ok_or(RungError::NoPool)?;
        let promised = read_number(&self.machine, "resv_hugepages").unwrap_or(0);
        let free = free_here.min(free_machine.saturating_sub(promised));
        let may_come = read_number(&self.machine, "nr_overcommit_hugepages")
            .zip(read_number(&self.machine, "surplus_hugepages"))
            .map_or(0, |(allowed, there)| allowed.saturating_sub(there));
        if wanted <= free.saturating_add(may_come) {
            return Ok(());
        }
        let reserve = total.saturating_add(wanted - free);
        Err(RungError::TooFewPages { wanted, free, reserve, path: format!("{}/nr_hugepages", self.directory) })
    }
}

/// The system's default hugepage size in bytes, or why there is none: a kernel without hugepages says nothing of one.
///
/// hugepage-rs panics on such a kernel, so this is asked first.
pub(super) fn default_page_size() -> Result<usize, RungError> {
    let meminfo = fs::read_to_string("/proc/meminfo").map_err(|_| RungError::NoDefaultSize)?;
    parse_default_page_size(&meminfo).ok_or(RungError::NoPool)
}

fn parse_default_page_size(meminfo: &str) -> Option<usize> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    let kibibytes: usize = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let bytes = kibibytes.checked_mul(1024)?;
    bytes.is_power_of_two().then_some(bytes)
}

/// Bytes of one transparent hugepage, or why there is none.
pub(super) fn transparent_page_size() -> Result<usize, RungError> {
    const DIRECTORY: &str = "/sys/kernel/mm/transparent_hugepage";
    let enabled = fs::read_to_string(Path::new(DIRECTORY).join("enabled")).map_err(|_| RungError::TransparentOff)?;
    let size = read_number(DIRECTORY, "hpage_pmd_size").and_then(|size| usize::try_from(size).ok());
    match size {
        Some(size) if size.is_power_of_two() && !enabled.contains("[never]") => Ok(size),
        _ => Err(RungError::TransparentOff),
    }
}

/// Where the kernel lists its NUMA nodes; absent on one without NUMA.
const NODES: &str = "/sys/devices/system/node";

/// Whether the machine has this NUMA node. A kernel without NUMA shows no nodes: node 0 is then all there is.
pub(super) fn node_exists(node: u32) -> bool {
    if has_nodes() { Path::new(&format!("{NODES}/node{node}")).exists() } else { node == 0 }
}

/// Whether the kernel tells NUMA nodes apart.
pub(super) fn has_nodes() -> bool {
    Path::new(NODES).exists()
}

/// Whether all memory of the machine is on this node.
pub(super) fn is_only_node(node: u32) -> bool {
    fs::read_to_string(Path::new(NODES).join("has_memory")).is_ok_and(|list| lists_only(&list, node))
}

fn lists_only(list: &str, node: u32) -> bool {
    list.trim().parse() == Ok(node)
}

/// One number of a sysfs file.
fn read_number(directory: &str, file: &str) -> Option<u64> {
    fs::read_to_string(Path::new(directory).join(file)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{lists_only, parse_default_page_size};

    #[test]
    fn default_page_size_is_read_from_meminfo() {
        assert_eq!(parse_default_page_size("HugePages_Free: 1\nHugepagesize:       2048 kB\n"), Some(2 << 20));
        assert_eq!(parse_default_page_size("MemTotal: 1 kB\n"), None);
        assert_eq!(parse_default_page_size("Hugepagesize: 2000 kB\n"), None);
        assert_eq!(parse_default_page_size("Hugepagesize: 18446744073709551615 kB\n"), None);
    }
    #[test]
    fn a_list_of_one_node_is_told_from_others() {
        assert!(lists_only("0\n", 0) && lists_only("3\n", 3));
        for list in ["1\n", "0-1\n", "0,2\n", "", "\n"] {
            assert!(!lists_only(list, 0), "{list}");
        }
    }
}
