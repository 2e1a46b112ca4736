//! From work requests as libibverbs brings them to a chain for the software NIC: what the library refuses is refused here.

use crate::{
    FakeInvalidate, FakeWindows,
    queue_pair::{Sent, State},
    work::{Bind, List, Verb, Work, remote_right},
    world::World,
};
use frwr_engine::provider::{
    Access, BaseId, Chain, ElementRange, Operation, RegistrationFields, RegistrationId, ScatterElement, Token,
    WorkRequest,
};
use ibverbs_sys::{ibv_access_flags, ibv_send_flags};

/// Flags that a work request may have.
const FLAGS: u32 = ibv_send_flags::IBV_SEND_FENCE.0 | ibv_send_flags::IBV_SEND_SIGNALED.0;

/// Bytes of one bind at most.
const MAX_BIND_BYTES: u64 = 1 << 31;

/// A key that nobody has: what stands for a right that was not given.
const NO_KEY: u32 = 0;

/// A bind of no bytes, and one or a LOCAL_INV with flags that mean nothing to it.
fn is_strictly_refused(work: &Work) -> bool {
    let flagged = work.has(ibv_send_flags::IBV_SEND_INLINE) || work.has(ibv_send_flags::IBV_SEND_SOLICITED);
    match &work.verb {
        Verb::Bind(bind) => flagged || bind.length == 0,
        Verb::Invalidate { .. } => flagged,
        _ => false,
    }
}

impl World {
    /// Whether a queue pair takes one more work request behind `planned` others.
    pub(crate) fn check(&mut self, number: u32, work: &Work, planned: usize) -> Result<(), i32> {
        let queue_pair = self.queue_pairs.get(&number).ok_or(libc::EINVAL)?;
        let context = queue_pair.context;
        if !matches!(queue_pair.state, State::ReadyToSend | State::Failed) {
            return Err(libc::EINVAL);
        }
        if queue_pair.used as usize + planned >= queue_pair.cap.max_send_wr as usize {
            return Err(libc::ENOMEM);
        }
        if work.is_message() && work.elements.len() > queue_pair.cap.max_send_sge as usize {
            return Err(libc::EINVAL);
        }
        // libmlx5 has looked at lists, which are always inline.
        let may_be_inline = matches!(work.verb, Verb::List(_) | Verb::Send { .. } | Verb::Write(_));
        let allowed = if may_be_inline { FLAGS | ibv_send_flags::IBV_SEND_INLINE.0 } else { FLAGS };
        if work.is_message() && work.has(ibv_send_flags::IBV_SEND_INLINE) {
            let bytes: u64 = work.elements.iter().map(|element| u64::from(element.length)).sum();
            if bytes > queue_pair.cap.max_inline_data.into() {
                return Err(libc::ENOMEM);
            }
        }
        let manners = self.manners(context);
        if manners.strict_binds && is_strictly_refused(work) {
            return Err(libc::EINVAL);
        }
        if matches!(work.verb, Verb::Send { invalidate: Some(_) })
            && manners.send_with_invalidate == FakeInvalidate::NotPosted
        {
            return Err(libc::EINVAL);
        }
        if work.flags & !allowed != 0 {
            self.violation(context, format!("flags {:#x} on {:?}", work.flags, work.verb));
            return Err(libc::EINVAL);
        }
        match &work.verb {
            Verb::Bind(bind) => self.check_bind(context, bind),
            _ => Ok(()),
        }
    }

    fn check_bind(&mut self, context: usize, bind: &Bind) -> Result<(), i32> {
        let found = self.contexts.get(&context).ok_or(libc::EINVAL)?;
        if !found.windows.contains_key(&bind.window) || !found.regions.contains_key(&bind.region) {
            self.violation(context, format!("a bind of objects that are gone: {bind:?}"));
            return Err(libc::EINVAL);
        }
        let manners = self.manners(context);
        let is_zero_based = self.contexts[&context].regions[&bind.region].zero_based;
        if manners.windows != FakeWindows::Working || (manners.refuses_zero_based && is_zero_based) {
            return Err(libc::EINVAL);
        }
        if remote_right(bind.access).is_none() {
            self.violation(context, format!("a bind without a right: {bind:?}"));
            return Err(libc::EINVAL);
        }
        if bind.length > MAX_BIND_BYTES { Err(libc::EOPNOTSUPP) } else { Ok(()) }
    }

    /// Posts what was checked.
    pub(crate) fn post(&mut self, number: u32, works: Vec<Work>) {
        let Some(queue_pair) = self.queue_pairs.get_mut(&number) else { return };
        queue_pair.used += works.len() as u32;
        for work in &works {
            self.note_keys(number, work);
            self.note_inline(number, work);
        }
        let Some(queue_pair) = self.queue_pairs.get_mut(&number) else { return };
        if queue_pair.joined || queue_pair.state == State::Failed {
            self.execute(number, &works);
        } else {
            queue_pair.waiting.extend(works);
        }
    }

    /// Posts what had to wait for the peer.
    pub(crate) fn post_waiting(&mut self, number: u32) {
        let Some(queue_pair) = self.queue_pairs.get_mut(&number) else { return };
        let works = core::mem::take(&mut queue_pair.waiting);
        if !works.is_empty() {
            self.execute(number, &works);
        }
    }

    fn execute(&mut self, number: u32, works: &[Work]) {
        let (mut requests, mut elements) = (Vec::new(), Vec::new());
        for work in works {
            let operation = self.operation(number, work, &mut elements);
            let Some(queue_pair) = self.queue_pairs.get_mut(&number) else { return };
            let token: Token = queue_pair.token();
            queue_pair.sent.push_back(Sent { token, wr_id: work.wr_id, opcode: work.opcode() });
            let signalled = work.has(ibv_send_flags::IBV_SEND_SIGNALED);
            let fence = work.has(ibv_send_flags::IBV_SEND_FENCE);
            requests.push(WorkRequest { token, signalled, fence, operation });
        }
        let Some(queue_pair) = self.queue_pairs.get(&number) else { return };
        let (context, soft) = (queue_pair.context, queue_pair.soft);
        let Some(found) = self.contexts.get_mut(&context) else { return };
        let posted = found.nic.post(soft, Chain { requests: &requests, elements: &elements });
        if let Err(error) = posted {
            self.violation(context, format!("the device could not take what its library did: {error}"));
        }
        self.take_news(context);
    }

    fn operation(&self, number: u32, work: &Work, elements: &mut Vec<ScatterElement>) -> Operation {
        let mut list = |some: &[ScatterElement]| {
            let first = elements.len() as u32;
            elements.extend_from_slice(some);
            ElementRange { first, count: some.len() as u32 }
        };
        match &work.verb {
            Verb::Send { invalidate } => {
                let manners = self.queue_pairs.get(&number).map(|end| self.manners(end.context)).unwrap_or_default();
                match manners.send_with_invalidate {
                    FakeInvalidate::Fails if invalidate.is_some() => {
                        // What the NIC fails with the status of a local operation.
                        Operation::Invalidate { object: RegistrationId(0), key: NO_KEY }
                    }
                    FakeInvalidate::Plain => Operation::Send { local: list(&work.elements), invalidate: None },
                    _ => {
                        let invalidate = invalidate.map(|key| self.invalidatable(number, key));
                        Operation::Send { local: list(&work.elements), invalidate }
                    }
                }
            }
            Verb::Read(remote) => {
                let key = self.permitted(number, ibv_access_flags::IBV_ACCESS_REMOTE_READ, remote.key);
                let remote = frwr_engine::provider::RemoteRange { key, ..*remote };
                Operation::Read { local: list(&work.elements), remote }
            }
            Verb::Write(remote) => {
                let key = self.permitted(number, ibv_access_flags::IBV_ACCESS_REMOTE_WRITE, remote.key);
                let remote = frwr_engine::provider::RemoteRange { key, ..*remote };
                Operation::Write { local: list(&work.elements), remote }
            }
            Verb::Invalidate { key } => Operation::Invalidate { object: RegistrationId(0), key: *key },
            Verb::Bind(bind) => self.bind(number, bind, &mut list),
            Verb::List(umr) => self.list(number, umr, &work.elements, &mut list),
        }
    }

    /// The key of an access, if the peer's queue pair allows its kind.
    fn permitted(&self, number: u32, right: ibv_access_flags, key: u32) -> u32 {
        let peer = self.queue_pairs.get(&number).and_then(|end| self.queue_pairs.get(&end.destination));
        // Of a peer that is gone nothing is known; nor does it answer.
        if peer.is_none_or(|peer| peer.access & right.0 != 0) { key } else { NO_KEY }
    }

    /// A key of the peer, if it was made to be invalidated from afar.
    fn invalidatable(&self, number: u32, key: u32) -> u32 {
        let peer = self.queue_pairs.get(&number).and_then(|end| self.queue_pairs.get(&end.destination));
        let context = peer.and_then(|peer| self.contexts.get(&peer.context));
        let mkey = context.and_then(|context| context.mkeys.values().find(|mkey| mkey.key >> 8 == key >> 8));
        if mkey.is_none_or(|mkey| mkey.remote_invalidation) { key } else { NO_KEY }
    }

    /// What a post does to keys before any of it is executed: one that is live is given to no other list.
    fn note_keys(&mut self, number: u32, work: &Work) {
        let Some(address) = self.queue_pairs.get(&number).map(|end| end.context) else { return };
        let Some(context) = self.contexts.get_mut(&address) else { return };
        match &work.verb {
            Verb::Invalidate { key } => context.invalidated(*key),
            Verb::List(list) => {
                let Some(mkey) = context.mkeys.get_mut(&list.mkey) else { return };
                mkey.key = list.key;
                if core::mem::replace(&mut mkey.live, true) {
                    self.violation(address, format!("a live key was given to another list: {:#x}", list.key));
                }
            }
            _ => {}
        }
    }

    fn note_inline(&mut self, number: u32, work: &Work) {
        let context = self.queue_pairs.get(&number).and_then(|end| self.contexts.get(&end.context));
        let Some(record) = context.and_then(|context| self.devices.get_mut(&context.device)) else { return };
        if matches!(work.verb, Verb::Send { .. } | Verb::Write(_)) {
            let inline = work.has(ibv_send_flags::IBV_SEND_INLINE);
            *if inline { &mut record.carried.inline } else { &mut record.carried.fetched } += 1;
        }
    }

    fn list(
        &self,
        number: u32,
        umr: &List,
        elements: &[ScatterElement],
        list: &mut impl FnMut(&[ScatterElement]) -> ElementRange,
    ) -> Operation {
        let context = self.queue_pairs.get(&number).and_then(|end| self.contexts.get(&end.context));
        let Some(mkey) = context.and_then(|context| context.mkeys.get(&umr.mkey)) else {
            return Operation::Invalidate { object: RegistrationId(0), key: NO_KEY };
        };
        let length: u64 = elements.iter().map(|element| u64::from(element.length)).sum();
        Operation::Register(RegistrationFields {
            object: mkey.object,
            // Lists name their memory by local keys.
            base: BaseId(0),
            old_key: umr.key,
            key: umr.key,
            access: remote_right(umr.access).unwrap_or(Access::RemoteRead),
            iova: 0,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            elements: list(elements),
        })
    }

    fn bind(&self, number: u32, bind: &Bind, list: &mut impl FnMut(&[ScatterElement]) -> ElementRange) -> Operation {
        let context = self.queue_pairs.get(&number).and_then(|end| self.contexts.get(&end.context));
        let window = context.and_then(|context| context.windows.get(&bind.window));
        let region = context.and_then(|context| context.regions.get(&bind.region));
        let (Some(window), Some(region)) = (window, region) else {
            return Operation::Invalidate { object: RegistrationId(0), key: NO_KEY };
        };
        // A region that was not registered for windows cannot be bound.
        let lkey = if region.can_bind { region.lkey } else { NO_KEY };
        let length = u32::try_from(bind.length).unwrap_or(u32::MAX);
        Operation::Register(RegistrationFields {
            object: window.object,
            base: region.base,
            old_key: bind.old_key,
            // Libraries take the low byte of the new key and keep the index.
            key: (window.key & !0xff) | (bind.key & 0xff),
            access: remote_right(bind.access).unwrap_or(Access::RemoteRead),
            iova: bind.address,
            length,
            elements: list(&[ScatterElement { address: bind.address, length, lkey }]),
        })
    }
}
