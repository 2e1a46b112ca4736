//! Registration of lists: whether a device can, by what kind of key, and what follows for the engine.

use super::{
    admit::MAX_LIST_BYTES,
    findings::Findings,
    options::MAX_LIST_ENTRIES,
    quirks::KnownDevice,
    sys::{
        completion_queue::CompletionQueue,
        context::Context,
        library::NoMlx5,
        mkey::{Mkey, MkeyKind},
        protection_domain::ProtectionDomain,
        queue_pair::{Posting, QueuePair, SendInterface},
        thread_domain::QueuePairDomain,
    },
};
use crate::provider::{BaseAddress, Capabilities, Contiguity, KeyScope, QueueSizes};
use std::{io, sync::Arc};

/// Why a device cannot register lists.
#[derive(Debug, thiserror::Error)]
pub enum NoLists {
    /// There is no libmlx5.
    #[error(transparent)]
    Library(#[from] NoMlx5),
    /// It is no mlx5 device.
    #[error("libmlx5 does not know the device; only mlx5 devices (ConnectX-4 and later) register lists")]
    OtherDevice,
    /// It is one, and libmlx5 denies it.
    #[error(
        "libmlx5.so.1 does not know the device, which the kernel drives by mlx5: libibverbs has loaded another copy of it; let the \
         dynamic linker find libibverbs and libmlx5 of one installation (LD_LIBRARY_PATH, ldconfig -p)"
    )]
    OtherCopy,
    /// Their keys would stay the same from use to use.
    #[error("keys of lists would not change from use to use, which takes a newer kernel (mid-2022) and rdma-core 43")]
    FixedKeys,
    /// A step failed that every use of lists needs.
    #[error("{step} failed: {source}; the kernel must allow DEVX (mlx5_ib) and rdma-core be 29 or later")]
    System {
        /// Which.
        step: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

/// The kinds of keys, the best first. Kernels before mid-2022 and rdma-core before 43 know neither flag.
const KINDS: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];

/// Makes a queue pair and a key for lists and throws them away: only that tells whether library, kernel and device can. `is_mlx5` is what
/// the kernel says of the driver.
pub(super) fn probe(context: &Arc<Context>, entries: u16, is_mlx5: bool) -> Result<MkeyKind, NoLists> {
    context.has_mlx5()?;
    if !context.is_mlx5() {
        return Err(if is_mlx5 { NoLists::OtherCopy } else { NoLists::OtherDevice });
    }
    let failed = |step| move |source| NoLists::System { step, source };
    let domain = Arc::new(ProtectionDomain::new(context).map_err(failed("allocating a protection domain"))?);
    let queue = Arc::new(CompletionQueue::new(context, 2).map_err(failed("creating a completion queue"))?);
    let sizes = QueueSizes { send: 1, receive: 1, max_send_sge: 1 };
    let interface = SendInterface { posting: Posting::Lists { entries }, inline_bytes: 0 };
    let made = QueuePairDomain::new(&domain, None)
        .and_then(|domain| QueuePair::new(domain, &queue, &queue, sizes, None, interface));
    let queue_pair = made.map_err(failed("creating a queue pair with work requests for lists"))?;
    if !queue_pair.has_builder() {
        return Err(failed("creating a queue pair with work requests for lists")(io::ErrorKind::Unsupported.into()));
    }
    let entries = queue_pair.max_entries().min(MAX_LIST_ENTRIES.into()) as u16;
    let mut refused = io::Error::from(io::ErrorKind::Unsupported);
    for (rotates, remote_invalidation) in KINDS {
        match Mkey::new(&domain, MkeyKind { entries, rotates, remote_invalidation }) {
            // The key may have room for more than its queue pairs.
            Ok(_) => return Ok(MkeyKind { entries, rotates, remote_invalidation }),
            Err(error) => refused = error,
        }
    }
    Err(failed("creating an indirect key")(refused))
}

/// What lists change of a device with windows.
pub(super) fn apply(kind: MkeyKind, max_keys: u32, capabilities: &mut Capabilities) {
    capabilities.attributes.max_fast_reg_page_list_len = kind.entries.into();
    capabilities.attributes.max_registrations = max_keys;
    capabilities.max_registration_bytes = capabilities.max_registration_bytes.min(MAX_LIST_BYTES.into());
    // Entries have no pages.
    capabilities.contiguity = Contiguity::Gaps { page_size: 0 };
    capabilities.base_address = BaseAddress::Zero;
    capabilities.rotating_key_bits = if kind.rotates { 8 } else { 0 };
    capabilities.key_scope = KeyScope::ProtectionDomain;
    capabilities.allocate_after_queue_pair = false;
    capabilities.remote_invalidation = kind.remote_invalidation;
    // The device would replace it without a word; the port refuses the post.
    capabilities.refuses_live_registration = true;
    capabilities.enforces_bounds = true;
}

/// Name of the finding whether lists are registered.
const REGISTERED: &str = "lists are registered by UMR work requests, never run on hardware";

/// Why an mlx5 device registers windows, for whoever expected lists.
pub(super) fn report_none(reason: &NoLists, findings: &mut Findings) {
    // A program that was built without them is not expected to.
    if !matches!(reason, NoLists::Library(NoMlx5::NotBuilt)) {
        findings.expect(REGISTERED, false, format!("no, but windows: {reason}"));
    }
}

/// What a person should know of the keys that there are.
pub(super) fn report(kind: MkeyKind, known: &KnownDevice, findings: &mut Findings) {
    let text = format!("{} entries in each list; {}", kind.entries, known.reason);
    findings.expect(REGISTERED, true, text);
    let text = if kind.rotates {
        "8 bits"
    } else {
        "no bits: whoever kept a key reaches what it opens next; use windows for peers that are not trusted, or a newer \
         kernel and rdma-core 43"
    };
    findings.expect("keys of lists change from use to use", kind.rotates, text);
    let text = if kind.remote_invalidation { "keys are made for it" } else { "no; replies cost a LOCAL_INV each" };
    findings.expect("peers may invalidate keys of lists", kind.remote_invalidation, text);
}
