//! By what a device may open keys: the ways in the order in which they are tried, and what follows for the engine.

use super::{
    findings::Findings,
    hardware,
    lists::{self, NoLists},
    options::{Registration, Role, VerbsOptions},
    quirks::{Evidence, KnownDevice, MOST_ELEMENTS, longest_send_queue},
    sys::{context::Context, mkey::MkeyKind, registered::KeyObjects},
};
use crate::provider::{BaseAddress, Capabilities, Contiguity, DeviceAttributes, KeyScope, PostModel, SendQueueCost};
use ibverbs_sys::{IBV_DEVICE_MEM_WINDOW_TYPE_2A, IBV_DEVICE_MEM_WINDOW_TYPE_2B, ibv_device_attr};
use std::sync::Arc;

/// Name of the finding that a device is a virtual function.
const VIRTUAL: &str = "virtual function, never run on hardware";

/// Name of the finding what is known of a driver that nobody has run.
const KNOWN: &str = "the driver as source has it, never run on hardware";

/// Name of the finding that a device opens no keys.
const OPENS_KEYS: &str = "keys are opened by work requests";

/// What is known of a device before it is tried.
pub(super) struct Facts {
    pub(super) attributes: ibv_device_attr,
    pub(super) driver: String,
    pub(super) known: &'static KnownDevice,
    /// It says that it has type 2 windows.
    pub(super) has_windows: bool,
    pub(super) is_virtual: bool,
}

impl Facts {
    pub(super) fn of(context: &Context, name: &str, attributes: ibv_device_attr) -> Self {
        let driver = (context.system().driver)(name);
        let types = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
        let has_windows = context.has_windows() && attributes.device_cap_flags & types != 0;
        let known = super::quirks::known_device(&driver);
        let is_virtual = (context.system().is_virtual_function)(name);
        Self { attributes, driver, known, has_windows, is_virtual }
    }

    pub(super) fn is_mlx5(&self) -> bool {
        self.known.driver == "mlx5"
    }

    /// What there is to know of a device before it is tried, and of the ways to open keys that it failed.
    pub(super) fn report(&self, passed_over: &[(KeyObjects, String)], findings: &mut Findings) {
        if self.is_virtual {
            let windows = if self.is_mlx5() {
                "; NVIDIA has windows on physical functions and native machines only, so lists are tried first"
            } else {
                ""
            };
            findings.expect(VIRTUAL, true, format!("what the self-test does not show is not known of one{windows}"));
        }
        for (keys, reason) in passed_over {
            findings.expect(keys.name(), false, format!("passed over: {reason}"));
        }
    }

    /// What keys are made of, and what is known of its driver.
    pub(super) fn report_keys(&self, keys: KeyObjects, no_lists: Option<&NoLists>, findings: &mut Findings) {
        match (keys, no_lists) {
            (KeyObjects::Windows, Some(reason)) if self.is_mlx5() => lists::report_none(reason, findings),
            (KeyObjects::Windows, _) => {}
            (KeyObjects::Lists(kind), _) => lists::report(kind, self.known, findings),
            (KeyObjects::None, _) => {
                let known = hardware::windows_of(&self.driver).map_or_else(String::new, |known| format!(" ({known})"));
                let text =
                    format!("no: neither type 2 memory windows nor lists{known}; it serves, and does not request");
                findings.expect(OPENS_KEYS, false, text);
            }
        }
        if self.known.evidence == Evidence::NotRunOnHardware {
            findings.expect(KNOWN, true, self.known.reason);
        }
    }
}

/// The ways to try, the first that the self-test lets pass is taken; and why there are no lists, where they would have been preferred.
pub(super) struct Ways {
    pub(super) keys: Vec<KeyObjects>,
    pub(super) no_lists: Option<NoLists>,
}

/// Who only responds needs no keys, and tries with them only because that shows best what the device can: what was asked for, or else what
/// there is.
pub(super) fn ways(context: &Arc<Context>, options: &VerbsOptions, facts: &Facts) -> Ways {
    let mut ways = ways_of(options.registration, context, options, facts);
    if options.role == Role::Responder {
        if ways.keys.is_empty() && options.registration != Registration::Automatic {
            ways = ways_of(Registration::Automatic, context, options, facts);
        }
        ways.keys.push(KeyObjects::None);
    }
    ways
}

/// Where nothing is asked for, lists of rotating keys come first and those of fixed ones last: such a key opens the next layout to whoever
/// kept it.
fn ways_of(wanted: Registration, context: &Arc<Context>, options: &VerbsOptions, facts: &Facts) -> Ways {
    let mut ways = Ways { keys: Vec::new(), no_lists: None };
    let lists = match wanted {
        Registration::Windows => None,
        Registration::Automatic | Registration::Lists => {
            lists::probe(context, options.list_entries, facts.is_mlx5()).map_err(|no| ways.no_lists = Some(no)).ok()
        }
    };
    let has_windows = facts.has_windows && wanted != Registration::Lists;
    // Nothing would show that a virtual function has the windows that it speaks of.
    let windows_last = facts.is_virtual && !options.self_test;
    ways.keys.extend(lists.filter(|kind| kind.rotates || windows_last).map(KeyObjects::Lists));
    ways.keys.extend(has_windows.then_some(KeyObjects::Windows));
    if let Some(fixed) = lists.filter(|kind| !kind.rotates && !windows_last) {
        ways.keys.push(KeyObjects::Lists(fixed));
        ways.no_lists = has_windows.then_some(NoLists::FixedKeys);
    }
    ways
}

fn number(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// What the engine knows of a device whose keys are made of these.
pub(super) fn capabilities(name: &str, facts: &Facts, keys: KeyObjects) -> Capabilities {
    let Facts { attributes, known, .. } = facts;
    let lists: Option<MkeyKind> = keys.lists();
    let (mut max_send_sge, mut max_qp_wr) = (number(attributes.max_sge), number(attributes.max_qp_wr));
    if known.counts_blocks || lists.is_some() {
        max_send_sge = max_send_sge.min(MOST_ELEMENTS);
        max_qp_wr = longest_send_queue(max_qp_wr, max_send_sge, lists.map_or(0, |kind| kind.entries));
    }
    let mut capabilities = Capabilities {
        // Capabilities are plain values that outlive the device; a process opens a device once.
        name: Box::leak(name.to_owned().into_boxed_str()),
        attributes: DeviceAttributes {
            memory_management_extensions: true,
            // One range per window.
            max_fast_reg_page_list_len: 1,
            sg_gaps: false,
            max_send_sge,
            max_sge_rd: number(attributes.max_sge_rd),
            max_qp_wr,
            max_cqe: number(attributes.max_cqe),
            max_registrations: number(attributes.max_mw),
            max_rdma_reads: number(attributes.max_qp_rd_atom),
            max_srq: number(attributes.max_srq),
            max_srq_wr: number(attributes.max_srq_wr),
        },
        contiguity: Contiguity::SingleRange,
        max_registration_bytes: known.max_bind_bytes.min(attributes.max_mr_size),
        base_address: BaseAddress::Virtual,
        rotating_key_bits: 8,
        key_scope: KeyScope::QueuePair,
        allocate_after_queue_pair: known.allocate_after_queue_pair,
        remote_invalidation: true,
        send_with_invalidate: true,
        refuses_live_registration: true,
        enforces_bounds: known.enforces_bounds,
        send_queue_cost: SendQueueCost { register: 1, invalidate: 1, message: 1 },
        post_model: PostModel::Prefix,
        fence_after_registration: known.fence_after_registration,
        quirks: known.quirks,
    };
    match keys {
        KeyObjects::Windows => {}
        KeyObjects::Lists(kind) => lists::apply(kind, number(attributes.max_mr), &mut capabilities),
        KeyObjects::None => without_keys(&mut capabilities),
    }
    capabilities
}

/// A device that opens no keys. Whether it can invalidate those of peers is only believed where it was seen: some advertise it and fail
/// (bnxt_re: spdk issue 3926).
fn without_keys(capabilities: &mut Capabilities) {
    let attributes = &mut capabilities.attributes;
    attributes.memory_management_extensions = false;
    (attributes.max_fast_reg_page_list_len, attributes.max_registrations) = (0, 0);
    capabilities.remote_invalidation = false;
    capabilities.send_with_invalidate = false;
}
