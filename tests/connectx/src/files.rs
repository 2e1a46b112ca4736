//! Which descriptors are ours, and the tree that stands for sysfs.

use std::{
    ffi::{CStr, CString},
    io,
    os::{fd::RawFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU8, Ordering},
    },
};

/// Bytes of the node GUID, in network order.
pub(crate) const NODE_GUID: [u8; 8] = [0x02, 0x00, 0x5e, 0xff, 0xfe, 0x00, 0x53, 0x01];

/// The card's address, of those that are reserved for documentation (RFC 5737), unless `FRWR_CONNECTX_ADDRESS` has another one.
const ADDRESS: &str = "192.0.2.1";

/// Index of the address in the table of GIDs: a card has its link-local ones in front of it.
pub(crate) const GID_INDEX: u8 = 3;

/// Descriptors from here on are never ours.
const DESCRIPTORS: usize = 1 << 16;

/// What a descriptor of ours is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// `/dev/infiniband/uverbs0`.
    Verbs = 1,
    /// Asynchronous events of one such.
    Events = 2,
    /// `/dev/infiniband/rdma_cm`.
    ConnectionManager = 3,
}

static KINDS: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(0) }; DESCRIPTORS];

/// What a descriptor is, if it is ours.
pub(crate) fn kind_of(descriptor: RawFd) -> Option<Kind> {
    match KINDS.get(usize::try_from(descriptor).ok()?)?.load(Ordering::Acquire) {
        1 => Some(Kind::Verbs),
        2 => Some(Kind::Events),
        3 => Some(Kind::ConnectionManager),
        _ => None,
    }
}

/// From now on a descriptor is ours, or not.
pub(crate) fn set_kind(descriptor: RawFd, kind: Option<Kind>) {
    if let Some(place) = usize::try_from(descriptor).ok().and_then(|at| KINDS.get(at)) {
        place.store(kind.map_or(0, |kind| kind as u8), Ordering::Release);
    }
}

/// What a path of ours is opened as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// A card's verbs.
    Verbs,
    /// The connection manager.
    ConnectionManager,
}

/// Whether a path is one of the devices.
pub(crate) fn node(path: &CStr) -> Option<Node> {
    match path.to_bytes() {
        b"/dev/infiniband/uverbs0" => Some(Node::Verbs),
        b"/dev/infiniband/rdma_cm" => Some(Node::ConnectionManager),
        _ => None,
    }
}

/// Where a path of the kernel's is found instead.
pub(crate) fn redirected(path: &CStr) -> Option<CString> {
    const OURS: [&[u8]; 3] = [b"/sys/class/infiniband", b"/sys/class/misc/rdma_cm", b"/dev/infiniband"];
    let bytes = path.to_bytes();
    if !OURS.iter().any(|prefix| bytes.starts_with(prefix)) {
        return None;
    }
    let path = Path::new(std::ffi::OsStr::from_bytes(bytes));
    let inside = tree()?.join(path.strip_prefix("/").ok()?);
    CString::new(inside.as_os_str().as_bytes()).ok()
}

/// The card's address.
pub(crate) fn address() -> std::net::Ipv4Addr {
    let wanted = std::env::var("FRWR_CONNECTX_ADDRESS").unwrap_or_else(|_| ADDRESS.to_owned());
    wanted.parse().unwrap_or_else(|_| std::net::Ipv4Addr::new(192, 0, 2, 1))
}

/// The address as a GID.
pub(crate) fn gid() -> [u8; 16] {
    address().to_ipv6_mapped().octets()
}

/// The folder with all of it, made by the first who asks; `None` where it cannot be made.
fn tree() -> Option<&'static Path> {
    static TREE: OnceLock<Option<PathBuf>> = OnceLock::new();
    TREE.get_or_init(|| {
        let root = std::env::temp_dir().join(format!("frwr-connectx-{}", std::process::id()));
        fill(&root).is_ok().then_some(root)
    })
    .as_deref()
}

/// Removes it.
pub(crate) fn clean_up() {
    let root = std::env::temp_dir().join(format!("frwr-connectx-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(root);
}

fn fill(root: &Path) -> io::Result<()> {
    let groups = |bytes: &[u8]| {
        bytes.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect::<Vec<_>>().join(":")
    };
    let device = "sys/class/infiniband/mlx5_0";
    let verbs = "sys/class/infiniband_verbs";
    let link_local = "fe80:0000:0000:0000:0000:5eff:fe00:5301";
    let files = [
        ("dev/infiniband/uverbs0".to_owned(), String::new()),
        ("dev/infiniband/rdma_cm".to_owned(), String::new()),
        // IB_USER_VERBS_ABI_VERSION, and the driver's own.
        (format!("{verbs}/abi_version"), "6\n".to_owned()),
        (format!("{verbs}/uverbs0/abi_version"), "1\n".to_owned()),
        (format!("{verbs}/uverbs0/ibdev"), "mlx5_0\n".to_owned()),
        // A character device that everybody may open: what is opened is /dev/null, which stands for it.
        (format!("{verbs}/uverbs0/dev"), "1:3\n".to_owned()),
        (format!("{device}/node_type"), "1: CA\n".to_owned()),
        (format!("{device}/node_guid"), format!("{}\n", groups(&NODE_GUID))),
        (format!("{device}/sys_image_guid"), format!("{}\n", groups(&NODE_GUID))),
        // What people read; libmlx5 asks the kernel.
        (format!("{device}/fw_ver"), "0.0.0 (emulated)\n".to_owned()),
        // A ConnectX-5 by its PCI numbers.
        (format!("{device}/device/vendor"), "0x15b3\n".to_owned()),
        (format!("{device}/device/device"), "0x1017\n".to_owned()),
        (format!("{device}/device/modalias"), "pci:v000015B3d00001017sv000015B3sd00000016bc02sc00i00\n".to_owned()),
        (format!("{device}/device/numa_node"), "-1\n".to_owned()),
        (format!("{device}/ports/1/state"), "4: ACTIVE\n".to_owned()),
        (format!("{device}/ports/1/lid"), "0x0\n".to_owned()),
        (format!("{device}/ports/1/link_layer"), "Ethernet\n".to_owned()),
        (format!("{device}/ports/1/pkeys/0"), "0xffff\n".to_owned()),
        (format!("{device}/ports/1/gids/0"), format!("{link_local}\n")),
        (format!("{device}/ports/1/gid_attrs/types/0"), "IB/RoCE v1\n".to_owned()),
        (format!("{device}/ports/1/gids/1"), format!("{link_local}\n")),
        (format!("{device}/ports/1/gid_attrs/types/1"), "RoCE v2\n".to_owned()),
        (format!("{device}/ports/1/gids/2"), format!("{}\n", groups(&gid()))),
        (format!("{device}/ports/1/gid_attrs/types/2"), "IB/RoCE v1\n".to_owned()),
        (format!("{device}/ports/1/gids/{GID_INDEX}"), format!("{}\n", groups(&gid()))),
        (format!("{device}/ports/1/gid_attrs/types/{GID_INDEX}"), "RoCE v2\n".to_owned()),
        // RDMA_USER_CM_ABI_VERSION.
        ("sys/class/misc/rdma_cm/abi_version".to_owned(), "4\n".to_owned()),
        ("sys/class/misc/rdma_cm/dev".to_owned(), "1:3\n".to_owned()),
    ];
    for (path, text) in files {
        let path = root.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, text)?;
    }
    std::os::unix::fs::symlink("../../../bus/pci/drivers/mlx5_core", root.join(device).join("device/driver"))
}
