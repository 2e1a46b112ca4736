//! Devices that are not there: functions with the C interface of libibverbs, librdmacm and libmlx5 over the software NIC, to hand to
//! the engine's provider in place of the libraries. They refuse what the manual pages refuse, and note as a violation what
//! no program may do.
//!
//! For tests. Everything of a process lies under one lock; devices move on whenever a completion queue of theirs is polled.
#![cfg(feature = "verbs")]
#![allow(unsafe_code, reason = "it is called by pointer, as C is; docs/architecture.md")]

mod builder;
mod channels;
mod connection_manager;
mod discarding;
mod manager_functions;
mod manners;
mod mlx5;
mod nic;
mod posting;
mod queue_pair;
mod queue_pairs;
mod raw;
mod refusals;
mod shared_receives;
mod thread_domains;
mod verbs;
mod work;
mod world;

use frwr_engine::provider::{
    soft::{SoftOptions, SoftProfile},
    verbs::{
        FunctionTables, Library, MAX_LIST_ENTRIES, VerbsFunctions,
        system::{Gid, SystemView},
    },
};
pub use manners::{FakeInvalidate, FakeWindows, Manners};
pub use refusals::Refusable;
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::LazyLock,
};
use world::{FakeRecord, with};

/// What a device is.
#[derive(Clone, Copy, Debug)]
pub struct FakeOptions {
    /// What executes the work requests.
    pub profile: SoftProfile,
    /// The driver that the system names.
    pub driver: &'static str,
    /// What libmlx5 has for it; `None` for devices of others, and for those whose keys it cannot make.
    pub lists: Option<FakeLists>,
    /// Its library has thread domains.
    pub thread_domains: bool,
    /// In what it differs from others.
    pub manners: Manners,
}

/// Library, kernel and device as far as they concern lists.
#[derive(Clone, Copy, Debug)]
pub struct FakeLists {
    /// Keys can be made whose low byte whoever posts may change (UPDATE_TAG).
    pub updates_tags: bool,
    /// Keys can be made that the peer may invalidate.
    pub remote_invalidation: bool,
    /// Entries of the longest list of any queue pair.
    pub entries: u16,
}

impl FakeOptions {
    /// Type 2 windows on a device of this driver.
    #[must_use]
    pub const fn windows(driver: &'static str) -> Self {
        Self::with_manners(driver, Manners::STRICT)
    }

    /// The same with manners of its own.
    #[must_use]
    pub const fn with_manners(driver: &'static str, manners: Manners) -> Self {
        Self { profile: SoftProfile::Window, driver, lists: None, thread_domains: true, manners }
    }

    /// A ConnectX that registers lists, and has no windows.
    #[must_use]
    pub const fn lists(lists: FakeLists) -> Self {
        let rotating_key_bits = if lists.updates_tags { 8 } else { 0 };
        Self {
            profile: SoftProfile::Umr { rotating_key_bits },
            driver: "mlx5",
            lists: Some(lists),
            thread_domains: true,
            manners: Manners::STRICT,
        }
    }

    fn soft(&self) -> SoftOptions {
        let mut options = SoftOptions::new(self.profile);
        // No manual page promises otherwise.
        options.capabilities.quirks.flushed_registration_may_be_live = true;
        let attributes = &mut options.capabilities.attributes;
        if self.lists.is_some() {
            // As many as any key is made for; the library refuses what is too long for its queue pair.
            attributes.max_fast_reg_page_list_len = u32::from(MAX_LIST_ENTRIES.next_multiple_of(4));
        }
        if self.is_mlx5() {
            (attributes.max_qp_wr, attributes.max_send_sge) = (mlx5::SEND_BLOCKS, mlx5::SEND_ELEMENTS);
        }
        options
    }

    fn is_mlx5(&self) -> bool {
        self.driver == "mlx5"
    }

    /// It says that it has windows.
    fn has_windows(&self) -> bool {
        match self.manners.windows {
            FakeWindows::Working => matches!(self.profile, SoftProfile::Window | SoftProfile::Rxe),
            FakeWindows::None => false,
            FakeWindows::NotAllocated | FakeWindows::NotBound => true,
        }
    }
}

/// SENDs and RDMA WRITEs that were posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Those whose data were copied into the work request.
    pub inline: u64,
    /// All others.
    pub fetched: u64,
}

/// A device that programs of this process find by its name until the value is dropped.
#[derive(Debug)]
pub struct FakeDevice {
    name: String,
}

impl FakeDevice {
    /// A device with a name and an address that no other has.
    #[must_use]
    pub fn new(options: FakeOptions) -> Self {
        with(|world| {
            let number = world.number();
            let name = format!("fake{number}");
            let raw = verbs::make_device(&name);
            let record = FakeRecord {
                options,
                raw: raw.expose_provenance(),
                manager_context: verbs::make_manager_context(raw).expose_provenance(),
                // 10.0.0.0/8 has more addresses than a process makes devices.
                address: Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) | number),
                opened: Vec::new(),
                violations: Vec::new(),
                readable: None,
                carried: Carried::default(),
            };
            world.devices.insert(name.clone(), record);
            Self { name }
        })
    }

    /// Its name in the list of devices.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where connections to it go.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        with(|world| world.devices[&self.name].address.into())
    }

    /// What was done that no program may do, so far.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        with(|world| world.devices[&self.name].violations.clone())
    }

    /// Thread domains that there are.
    #[must_use]
    pub fn thread_domains(&self) -> usize {
        with(|world| {
            let contexts = world.devices[&self.name].opened.iter().filter_map(|at| world.contexts.get(at));
            contexts.map(|context| context.threads.len()).sum()
        })
    }

    /// SENDs and RDMA WRITEs so far, by where their data were.
    #[must_use]
    pub fn carried(&self) -> Carried {
        with(|world| world.devices[&self.name].carried)
    }

    /// One completion cannot be read, whichever comes after `count` more: the poll that meets it fails, and what it took is
    /// lost, as libmlx5's does.
    pub fn garble_completion_after(&self, count: u32) {
        with(|world| {
            if let Some(record) = world.devices.get_mut(&self.name) {
                record.readable = Some(count);
            }
        });
    }

    /// The device goes and comes again by the same name, as after a reset of its firmware: what is open stays open on the one
    /// that went.
    pub fn reset(&self) {
        with(|world| {
            if let Some(record) = world.devices.get_mut(&self.name) {
                record.raw = verbs::make_device(&self.name).expose_provenance();
            }
        });
    }

    /// Bytes that peers reach now, over all contexts that are open.
    #[must_use]
    pub fn remote_bytes(&self) -> u64 {
        with(|world| {
            let contexts = world.devices[&self.name].opened.iter().filter_map(|at| world.contexts.get(at));
            contexts.map(|context| context.nic.remote_bytes()).sum()
        })
    }

    /// A view on what the context that was opened last keeps open.
    #[must_use]
    pub fn newest_context(&self) -> Option<FakeContext> {
        with(|world| world.devices[&self.name].opened.last().copied()).map(FakeContext)
    }
}

/// One opening of a device.
#[derive(Clone, Copy, Debug)]
pub struct FakeContext(usize);

impl FakeContext {
    /// Bytes that peers reach now.
    #[must_use]
    pub fn remote_bytes(self) -> u64 {
        with(|world| world.contexts.get(&self.0).map_or(0, |context| context.nic.remote_bytes()))
    }

    /// Queue pairs that are not destroyed.
    #[must_use]
    pub fn queue_pairs(self) -> usize {
        with(|world| world.contexts.get(&self.0).map_or(0, |context| context.by_soft.len()))
    }

    /// Completion channels that are not destroyed.
    #[must_use]
    pub fn channels(self) -> usize {
        with(|world| world.contexts.get(&self.0).map_or(0, |context| context.channels.len()))
    }

    /// Events of completion channels that wait to be taken.
    #[must_use]
    pub fn events(self) -> usize {
        with(|world| world.contexts.get(&self.0).map_or(0, world::Context::channel_events))
    }

    /// The next so many calls of a function are refused with this error number; 0 complies again.
    pub fn refuse(self, what: Refusable, code: i32, times: u32) {
        with(|world| {
            if let Some(context) = world.contexts.get_mut(&self.0) {
                context.refusals.set(what, code, times);
            }
        });
    }

    /// Calls of a function that were refused so far.
    #[must_use]
    pub fn refused(self, what: Refusable) -> u32 {
        with(|world| world.contexts.get(&self.0).map_or(0, |context| context.refusals.refused(what)))
    }
}

impl Drop for FakeDevice {
    fn drop(&mut self) {
        // Its structures stay: whoever still has a context of it may look at them. There are few, and a test is short.
        with(|world| world.devices.remove(&self.name));
    }
}

/// The functions, as the provider takes them.
#[must_use]
pub fn library() -> &'static Library {
    static LIBRARY: LazyLock<Library> = LazyLock::new(|| given(verbs::FUNCTIONS));
    &LIBRARY
}

/// The same, but work requests and receives that are posted are forgotten at once, and completion queues are always full of replies,
/// each of which invalidated a key: for whoever counts what the provider does for them. No connection comes about.
#[must_use]
pub fn discarding_library() -> &'static Library {
    static LIBRARY: LazyLock<Library> = LazyLock::new(|| given(discarding::FUNCTIONS));
    &LIBRARY
}

/// The same, but each list of work requests that is posted is completed at once, by one completion of the last of them, and no
/// message arrives.
#[must_use]
pub fn completing_library() -> &'static Library {
    static LIBRARY: LazyLock<Library> = LazyLock::new(|| given(discarding::COMPLETING_FUNCTIONS));
    &LIBRARY
}

fn given(verbs: VerbsFunctions) -> Library {
    let tables = FunctionTables {
        verbs,
        connection_manager: manager_functions::FUNCTIONS,
        mlx5: Some(mlx5::FUNCTIONS),
        system: SystemView { driver, is_virtual_function, gids, local_identifier: |_, _| 0 },
    };
    // SAFETY: they take and give the structures of the manual pages, each alive until it is destroyed, under a lock.
    unsafe { Library::given(&tables) }
}

fn driver(name: &str) -> String {
    with(|world| world.devices.get(name).map_or_else(String::new, |record| record.options.driver.to_owned()))
}

fn is_virtual_function(name: &str) -> bool {
    with(|world| world.devices.get(name).is_some_and(|record| record.options.manners.is_virtual))
}

/// The GID that connections use.
pub(crate) const GID: u8 = 1;

fn gid_bytes(address: Ipv4Addr) -> [u8; 16] {
    address.to_ipv6_mapped().octets()
}

/// Both versions of RoCE of one address.
fn gids(name: &str, port: u8) -> Vec<Gid> {
    let address = with(|world| world.devices.get(name).map(|record| record.address));
    let Some(bytes) = address.filter(|_| port == 1).map(gid_bytes) else { return Vec::new() };
    vec![Gid { index: 0, bytes, is_roce_v2: false }, Gid { index: GID, bytes, is_roce_v2: true }]
}
