//! Registration of lists: whether a device can, by what kind of key, and what follows for the engine.

use super::{
    admit::MAX_LIST_BYTES,
    options::{MAX_LIST_ENTRIES, Registration, VerbsOptions},
    quirks::KnownDevice,
    self_test::Findings,
    sys::{
        context::Context,
        library::NoMlx5,
        mkey::{Mkey, MkeyKind},
        objects::{CompletionQueue, ProtectionDomain},
        queue_pair::{Posting, QueuePair},
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

/// How the device registers: lists of this kind, or windows. Where it is chosen by itself, lists are only where their keys
/// rotate or there is nothing else: a key that does not opens the next layout to whoever kept it.
pub(super) fn choose(
    context: &Arc<Context>,
    options: &VerbsOptions,
    has_windows: bool,
) -> Result<Option<MkeyKind>, NoLists> {
    match options.registration {
        Registration::Windows => Ok(None),
        Registration::Lists => probe(context, options.list_entries).map(Some),
        Registration::Automatic => {
            Ok(probe(context, options.list_entries).ok().filter(|kind| kind.rotates || !has_windows))
        }
    }
}

/// Makes a queue pair and a key for lists and throws them away: only that tells whether library, kernel and device can.
fn probe(context: &Arc<Context>, entries: u16) -> Result<MkeyKind, NoLists> {
    context.has_mlx5()?;
    if !context.is_mlx5() {
        return Err(NoLists::OtherDevice);
    }
    let failed = |step| move |source| NoLists::System { step, source };
    let domain = Arc::new(ProtectionDomain::new(context).map_err(failed("allocating a protection domain"))?);
    let queue = Arc::new(CompletionQueue::new(context, 2).map_err(failed("creating a completion queue"))?);
    let sizes = QueueSizes { send: 1, receive: 1, max_send_sge: 1 };
    let made = QueuePair::new(&domain, &queue, &queue, sizes, None, Posting::Lists { entries });
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

/// What a person should know of the keys that there are.
pub(super) fn report(kind: MkeyKind, known: &KnownDevice, findings: &mut Findings) {
    let text = format!("{} entries in each list; {}", kind.entries, known.reason);
    findings.expect("lists are registered by UMR work requests, never run on hardware", true, text);
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
