//! The functions of libmlx5: queue pairs with work requests for lists, indirect keys, and the list builder.

use crate::{
    builder::Fields,
    queue_pairs::{QueuePairBlock, Wanted},
    raw::null,
    refusals::Refusable,
    verbs::{context_of, errno_of, give, take_back},
    work::{List, Verb, elements_at},
    world::{MkeyRecord, World, with},
};
use core::ffi::c_int;
use frwr_engine::provider::{
    Command,
    verbs::{
        Mlx5Functions,
        abi::mlx5::{
            DISABLE_SCATTER_TO_COMPLETION, MASK_CREATE_FLAGS, MASK_SEND_OPERATIONS, MKEY_INDIRECT,
            MKEY_REMOTE_INVALIDATE, MKEY_UPDATE_TAG, Mkey, MkeyAttributes, QueuePairAttributes, QueuePairEx, WITH_LIST,
        },
    },
};
use ibverbs_sys::{
    IBV_QP_EX_WITH_BIND_MW, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, ibv_access_flags, ibv_context,
    ibv_device, ibv_qp, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr_ex, ibv_send_flags, ibv_sge,
};

/// What programs call.
pub(crate) const FUNCTIONS: Mlx5Functions = Mlx5Functions {
    mlx5dv_is_supported: is_supported,
    mlx5dv_create_qp: create_qp,
    mlx5dv_qp_ex_from_ibv_qp_ex: qp_ex_from_ibv_qp_ex,
    mlx5dv_create_mkey: create_mkey,
    mlx5dv_destroy_mkey: destroy_mkey,
};

/// Entries of keys, and of the lists that fit one more block of a work request, come by fours.
const ENTRY_STEP: u16 = 4;
/// Bytes of an entry, and what of the first one is no inline data.
const ENTRY_BYTES: u32 = 16;
const FIRST_ENTRY_BYTES: u32 = 4;

/// Blocks of the longest send queue, as ConnectX has them, and their bytes.
pub(crate) const SEND_BLOCKS: u32 = 1 << 15;
const BLOCK_BYTES: u32 = 64;
/// Elements of a message, as ConnectX says it.
pub(crate) const SEND_ELEMENTS: u32 = 30;
/// Bytes around the list in a work request, or the elements of its message, and of an element.
const AROUND_LIST: u32 = 192;
const ELEMENT_BYTES: u32 = 16;

/// Whether a send queue fits the device, each of whose entries has room for the longest message and for so many bytes of a
/// list.
pub(crate) fn send_queue_fits(cap: &ibv_qp_cap, list: u32) -> bool {
    let entry = (AROUND_LIST + list.max(cap.max_send_sge * ELEMENT_BYTES)).next_multiple_of(BLOCK_BYTES);
    cap.max_send_wr.saturating_mul(entry) <= SEND_BLOCKS * BLOCK_BYTES
}

unsafe extern "C" fn is_supported(device: *mut ibv_device) -> bool {
    with(|world| world.devices.values().any(|record| record.raw == device.addr() && record.options.lists.is_some()))
}

unsafe extern "C" fn create_qp(
    context: *mut ibv_context,
    attributes: *mut ibv_qp_init_attr_ex,
    more: *mut QueuePairAttributes,
) -> *mut ibv_qp {
    // SAFETY: the caller's structures, here and below.
    let (mut asked, more) = unsafe { (*attributes, *more) };
    let made = with(|world| world.create_for_lists(context, &mut asked, &more));
    // SAFETY: as above.
    unsafe { (*attributes).cap = asked.cap };
    made.unwrap_or_else(null)
}

impl World {
    fn create_for_lists(
        &mut self,
        context: *mut ibv_context,
        asked: &mut ibv_qp_init_attr_ex,
        more: &QueuePairAttributes,
    ) -> Result<*mut ibv_qp, i32> {
        let device = self.contexts.get(&context.addr()).and_then(|context| self.devices.get(&context.device));
        let lists = device.and_then(|record| record.options.lists).ok_or(libc::EOPNOTSUPP)?;
        let needed = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        if asked.comp_mask & needed != needed || more.comp_mask & !(MASK_CREATE_FLAGS | MASK_SEND_OPERATIONS) != 0 {
            return Err(libc::EINVAL);
        }
        let builds = more.comp_mask & MASK_SEND_OPERATIONS != 0 && more.send_ops_flags == WITH_LIST;
        if !builds || asked.send_ops_flags & u64::from(IBV_QP_EX_WITH_BIND_MW) != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if more.comp_mask & MASK_CREATE_FLAGS == 0 || more.create_flags & DISABLE_SCATTER_TO_COMPLETION == 0 {
            self.violation(context.addr(), "a queue pair for lists that scatters to completions");
        }
        let wanted = (asked.cap.max_inline_data + FIRST_ENTRY_BYTES).div_ceil(ENTRY_BYTES);
        let entries = u16::try_from(wanted).unwrap_or(u16::MAX).next_multiple_of(ENTRY_STEP).max(ENTRY_STEP);
        asked.cap.max_inline_data = u32::from(entries.min(lists.entries)) * ENTRY_BYTES - FIRST_ENTRY_BYTES;
        if !send_queue_fits(&asked.cap, FIRST_ENTRY_BYTES + asked.cap.max_inline_data) {
            return Err(libc::EINVAL);
        }
        let wanted = Wanted {
            domain: asked.pd,
            send_queue: asked.send_cq.addr(),
            receive_queue: asked.recv_cq.addr(),
            shared: asked.srq,
            cap: asked.cap,
            kind: asked.qp_type,
            operations: asked.send_ops_flags,
            lists: Some(mr_list),
        };
        self.create(context.addr(), &wanted)
    }
}

unsafe extern "C" fn qp_ex_from_ibv_qp_ex(raw: *mut ibv_qp_ex) -> *mut QueuePairEx {
    // SAFETY: all queue pairs are the front of such a block.
    unsafe { &raw mut (*raw.cast::<QueuePairBlock>()).lists }
}

unsafe extern "C" fn create_mkey(attributes: *mut MkeyAttributes) -> *mut Mkey {
    // SAFETY: the caller's structure and the domain that it names.
    let (asked, address) = unsafe { (*attributes, context_of((*attributes).pd)) };
    match with(|world| world.create_mkey(address, &asked)) {
        Ok((raw, entries)) => {
            // SAFETY: as above.
            unsafe { (*attributes).max_entries = entries };
            raw
        }
        Err(code) => null(code),
    }
}

impl World {
    fn create_mkey(&mut self, address: usize, asked: &MkeyAttributes) -> Result<(*mut Mkey, u16), i32> {
        let device = self.contexts.get(&address).and_then(|context| self.devices.get(&context.device));
        let lists = device.and_then(|record| record.options.lists).ok_or(libc::EOPNOTSUPP)?;
        let has = |flag: u32| asked.create_flags & flag != 0;
        let known = MKEY_INDIRECT | MKEY_UPDATE_TAG | MKEY_REMOTE_INVALIDATE;
        let unsupported = asked.create_flags & !known != 0
            || has(MKEY_UPDATE_TAG) && !lists.updates_tags
            || has(MKEY_REMOTE_INVALIDATE) && !lists.remote_invalidation;
        if unsupported {
            return Err(libc::EOPNOTSUPP);
        }
        if !has(MKEY_INDIRECT) || asked.max_entries == 0 {
            return Err(libc::EINVAL);
        }
        let entries = asked.max_entries.next_multiple_of(ENTRY_STEP);
        let (context, domain) = self.domain(address, asked.pd)?;
        let made = context.nic.allocate_registration(domain, entries.into());
        let (object, key) = made.map_err(errno_of)?;
        // The tag of a new key is 0.
        let key = key & !0xff;
        let raw = give(Mkey { lkey: key, rkey: key });
        let record = MkeyRecord {
            object,
            key,
            entries,
            updates_tags: has(MKEY_UPDATE_TAG),
            remote_invalidation: has(MKEY_REMOTE_INVALIDATE),
            live: false,
        };
        context.mkeys.insert(raw.expose_provenance(), record);
        Ok((raw, entries))
    }
}

unsafe extern "C" fn destroy_mkey(raw: *mut Mkey) -> c_int {
    let freed = with(|world| {
        let found = world.contexts.values_mut().find(|context| context.mkeys.contains_key(&raw.addr()));
        let context = found.ok_or(libc::EINVAL)?;
        context.refusals.check(Refusable::DestroyRegistration)?;
        let record = context.mkeys.remove(&raw.addr()).ok_or(libc::EINVAL)?;
        context.nic.command(Command::FreeRegistration { object: record.object }).map(drop).map_err(errno_of)
    });
    match freed {
        Ok(()) => {
            // SAFETY: made by `create_mkey`, and forgotten above.
            unsafe { take_back(raw) };
            0
        }
        Err(code) => code,
    }
}

/// Access that the setter of rights takes.
const ACCESS: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;

/// `mlx5dv_wr_mr_list`.
unsafe extern "C" fn mr_list(raw: *mut QueuePairEx, mkey: *mut Mkey, access: u32, count: u16, list: *mut ibv_sge) {
    // SAFETY: a member of a block of this crate; key and list are the caller's.
    let (fields, keys, elements) = unsafe {
        let block = raw.byte_sub(core::mem::offset_of!(QueuePairBlock, lists)).cast::<QueuePairBlock>();
        (Fields::of(block.cast()), *mkey, elements_at(list, count.into()))
    };
    with(|world| {
        let list = List { mkey: mkey.addr(), key: keys.rkey, access };
        let checked = world.check_list(&fields, &list, &keys, elements.len());
        world.build(&fields, 0, Verb::List(list));
        if let Some(building) = world.building(fields.number, "a builder") {
            building.set_elements(elements);
            if let Err(code) = checked {
                building.fail(code);
            }
        }
    });
}

impl World {
    /// What libmlx5 refuses, at the end of the post.
    fn check_list(&mut self, fields: &Fields, list: &List, keys: &Mkey, count: usize) -> Result<(), i32> {
        let queue_pair = self.queue_pairs.get(&fields.number).ok_or(libc::EINVAL)?;
        let (address, inline) = (queue_pair.context, queue_pair.cap.max_inline_data);
        let context = self.contexts.get(&address).ok_or(libc::EINVAL)?;
        let device = self.devices.get(&context.device).and_then(|record| record.options.lists);
        let updates_tags = device.is_some_and(|lists| lists.updates_tags);
        let Some(record) = context.mkeys.get(&list.mkey).copied() else {
            self.violation(address, "a list for a key that is gone");
            return Err(libc::EINVAL);
        };
        if keys.lkey != keys.rkey || keys.rkey & !0xff != record.key & !0xff {
            self.violation(address, format!("an index of a key that is not its own: {keys:?}"));
            return Err(libc::EINVAL);
        }
        if fields.flags & ibv_send_flags::IBV_SEND_INLINE.0 == 0 || list.access & !ACCESS != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if keys.lkey & 0xff != 0 && !(updates_tags && record.updates_tags) {
            return Err(libc::EOPNOTSUPP);
        }
        if count > ((inline + FIRST_ENTRY_BYTES) / ENTRY_BYTES) as usize || count > record.entries.into() {
            return Err(libc::ENOMEM);
        }
        let writes = list.access & ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 != 0;
        if count == 0 || writes && list.access & ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 == 0 {
            self.violation(address, format!("{count} entries with access {:#x}", list.access));
            return Err(libc::EINVAL);
        }
        Ok(())
    }
}
