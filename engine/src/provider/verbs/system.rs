//! What the kernel says of RDMA devices in sysfs: drivers and GID tables.

use frwr_mempool::limits::{Limits, Resource};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

/// Where the kernel lists RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";

/// GID tables are read up to here: indices are one byte in a path's attributes.
const MAX_GIDS: u16 = 256;

/// One entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its index.
    pub index: u8,
    /// As it stands in packets.
    pub bytes: [u8; 16],
    /// RoCE version 2, which is routed by IP.
    pub is_roce_v2: bool,
}

impl Gid {
    /// The IP address that it stands for; link-local ones are none that a connection could be bound to.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        let address = Ipv6Addr::from(self.bytes);
        match address.to_ipv4_mapped() {
            Some(v4) if v4 != Ipv4Addr::UNSPECIFIED => Some(IpAddr::V4(v4)),
            Some(_) => None,
            None if address.is_unicast_link_local() || address.is_unspecified() => None,
            None => Some(IpAddr::V6(address)),
        }
    }
}

/// Who is asked of devices: the kernel, or whoever stands for it.
#[derive(Clone, Copy, Debug)]
pub struct SystemView {
    /// The driver of a device, see [`driver`].
    pub driver: fn(&str) -> String,
    /// Whether a device is a virtual function, see [`is_virtual_function`].
    pub is_virtual_function: fn(&str) -> bool,
    /// The GID table of a port, see [`gids`].
    pub gids: fn(&str, u8) -> Vec<Gid>,
    /// The address of a port on an InfiniBand fabric; 0 on Ethernet.
    pub local_identifier: fn(&str, u8) -> u16,
}

impl SystemView {
    /// sysfs.
    pub const LINUX: Self = Self { driver, is_virtual_function, gids, local_identifier };
}

fn text(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn device(name: &str) -> PathBuf {
    Path::new(DEVICES).join(name)
}

/// The driver of a device, by the names of the table of devices; the kernel's own name where it is not in there.
#[must_use]
pub fn driver(name: &str) -> String {
    let device = device(name);
    // Only rxe has this file: the network device that it runs on.
    if device.join("parent").exists() {
        return "rxe".to_owned();
    }
    let link = std::fs::read_link(device.join("device/driver")).unwrap_or_default();
    driver_of(&link.file_name().unwrap_or_default().to_string_lossy()).to_owned()
}

/// PCI vendor of ConnectX devices.
const MELLANOX: &str = "0x15b3";

/// PCI devices of that vendor which are virtual functions (the table of providers/mlx5/mlx5.c in rdma-core): a virtual machine that was given
/// one sees no link to its physical function.
const VIRTUAL_CONNECTX: [&str; 8] = ["0x1012", "0x1014", "0x1016", "0x1018", "0x101a", "0x101c", "0x101e", "0xa2d3"];

/// Whether a device is a virtual function: its PCI device links to a physical one, or is sold as one.
#[must_use]
pub fn is_virtual_function(name: &str) -> bool {
    is_virtual(&device(name).join("device"))
}

/// The same of a PCI device in sysfs.
fn is_virtual(pci: &Path) -> bool {
    let is = |file: &str, known: &[&str]| text(&pci.join(file)).is_some_and(|id| known.contains(&id.as_str()));
    pci.join("physfn").exists() || (is("vendor", &[MELLANOX]) && is("device", &VIRTUAL_CONNECTX))
}

/// A driver of the table by its kernel's name.
pub(super) fn driver_of(kernel: &str) -> &str {
    // A scalable function of a ConnectX is a device of the auxiliary bus, whose drivers are named `module.name`: mlx5_core.sf.
    match kernel.split('.').next().unwrap_or(kernel) {
        "mlx5_core" => "mlx5",
        "mlx4_core" => "mlx4",
        // The network drivers whose RDMA half irdma is; idpf of the IPU E2000.
        "ice" | "i40e" | "idpf" => "irdma",
        "ionic" | "ionic_rdma" => "ionic",
        "bnxt_en" => "bnxt_re",
        "hns3" | "hns_roce_hw_v2" => "hns",
        "qede" => "qedr",
        _ => kernel,
    }
}

/// The GID table of a port, without its empty entries.
#[must_use]
pub fn gids(name: &str, port: u8) -> Vec<Gid> {
    let port = device(name).join("ports").join(port.to_string());
    let read = |index: u16| {
        let bytes = parse_gid(&text(&port.join(format!("gids/{index}")))?).filter(|bytes| *bytes != [0; 16])?;
        let kind = text(&port.join(format!("gid_attrs/types/{index}"))).unwrap_or_default();
        Some(Gid { index: u8::try_from(index).ok()?, bytes, is_roce_v2: kind == "RoCE v2" })
    };
    (0..MAX_GIDS).filter_map(read).collect()
}

/// Bytes that this process may lock; `None` where nothing limits it: no limit, or the capability CAP_IPC_LOCK.
#[must_use]
pub(super) fn locked_memory_limit() -> Option<u64> {
    let limits = Limits::of_process();
    limits.soft_limit(Resource::LockedMemory).filter(|limit| *limit < u64::MAX && !limits.may_lock_more())
}

/// The address of a port on an InfiniBand fabric; 0 on Ethernet.
fn local_identifier(name: &str, port: u8) -> u16 {
    let path = device(name).join("ports").join(port.to_string()).join("lid");
    text(&path).and_then(|lid| u16::from_str_radix(lid.strip_prefix("0x")?, 16).ok()).unwrap_or(0)
}

/// `fe80:0000:0000:0000:5054:00ff:fe12:3456`: eight groups, never shortened.
fn parse_gid(text: &str) -> Option<[u8; 16]> {
    text.parse::<Ipv6Addr>().ok().map(|address| address.octets())
}

/// The entry that connections and the self-test use: the wanted one, else the first of RoCE v2 with an address that can be
/// routed, else of RoCE v2, else any.
#[must_use]
pub fn choose_gid(gids: &[Gid], wanted: Option<u8>) -> Option<Gid> {
    if let Some(index) = wanted {
        return gids.iter().copied().find(|gid| gid.index == index);
    }
    let rank = |gid: &&Gid| match (gid.is_roce_v2, gid.address()) {
        (true, Some(IpAddr::V4(_))) => 0,
        (true, Some(IpAddr::V6(_))) => 1,
        (true, None) => 2,
        (false, _) => 3,
    };
    gids.iter().min_by_key(rank).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(index: u8, text: &str, is_roce_v2: bool) -> Gid {
        Gid { index, bytes: parse_gid(text).unwrap(), is_roce_v2 }
    }

    #[test]
    fn a_driver_of_the_kernel_is_one_of_the_table() {
        for (kernel, expected) in [
            ("mlx5_core", "mlx5"),
            ("mlx5_core.sf", "mlx5"),
            ("mlx4_core", "mlx4"),
            ("ice", "irdma"),
            ("idpf", "irdma"),
            ("ionic", "ionic"),
            ("ionic_rdma", "ionic"),
            ("bnxt_en", "bnxt_re"),
            ("hns3", "hns"),
            ("mana", "mana"),
            ("idpf2", "idpf2"),
            ("mlx5_corex", "mlx5_corex"),
            ("", ""),
        ] {
            assert_eq!(driver_of(kernel), expected);
        }
    }

    #[test]
    fn a_virtual_function_is_one_by_its_link_or_by_its_name() {
        let make = |files: &[(&str, &str)]| {
            let folder = std::env::temp_dir().join(format!("frwr-pci-{}-{}", std::process::id(), files.len()));
            std::fs::create_dir_all(&folder).unwrap();
            for (name, content) in files {
                std::fs::write(folder.join(name), format!("{content}\n")).unwrap();
            }
            let found = is_virtual(&folder);
            std::fs::remove_dir_all(&folder).unwrap();
            found
        };
        assert!(!make(&[]));
        assert!(make(&[("physfn", "")]), "whatever it is");
        assert!(make(&[("vendor", "0x15b3"), ("device", "0x101e")]), "given to a virtual machine");
        assert!(!make(&[("vendor", "0x15b3"), ("device", "0x101d")]));
        assert!(!make(&[("vendor", "0x8086"), ("device", "0x101e")]));
    }

    #[test]
    fn a_routable_address_of_version_two_is_preferred() {
        let link = "fe80:0000:0000:0000:5054:00ff:fe12:3456";
        let mapped = "0000:0000:0000:0000:0000:ffff:0a09:0001";
        let table = [gid(0, link, false), gid(1, link, true), gid(2, mapped, false), gid(3, mapped, true)];
        assert_eq!(choose_gid(&table, None), Some(table[3]));
        assert_eq!(choose_gid(&table[..2], None), Some(table[1]));
        assert_eq!(choose_gid(&table[..1], None), Some(table[0]));
        assert_eq!(choose_gid(&table, Some(2)), Some(table[2]));
        assert_eq!(choose_gid(&table, Some(9)), None);
        assert_eq!(choose_gid(&[], None), None);
        assert_eq!(table[3].address(), Some(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1))));
        assert_eq!(table[0].address(), None);
    }
}
