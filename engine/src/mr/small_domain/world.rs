//! One MR and its device, with everything that may happen to them next.

use super::super::{ConnectionKey, Mr, Opening, ReturnPolicy, Role, Step, tag_mask};
use crate::provider::{Access, BaseId};

pub(super) const OWNER: u32 = 5;
/// The index of the device object, which no key may leave.
pub(super) const INDEX: u32 = 0xABCD_EF00;

/// What is opened.
pub(super) const OPENING: Opening = Opening {
    owner: OWNER,
    bytes: 4096,
    base: BaseId(1),
    elements: 1,
    access: Access::RemoteRead,
    iova: 0x1000,
    key_mask: tag_mask(ROTATING_BITS),
};

/// Work requests and completions on their way: two whole uses, so that an early return meets the use before it.
const MOST_IN_FLIGHT: usize = 4;
/// Keys given out since the oldest of them was posted; more than there are uses among [`MOST_IN_FLIGHT`], so that some of them were burnt.
const MOST_AHEAD: u32 = 4;
/// Keys are few, so that they come round.
pub(super) const ROTATING_BITS: u8 = 2;

/// What the device does by one work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    Register { old_key: u32, key: u32 },
    Invalidate { key: u32 },
}

/// A work request in the queue, or its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) work: Work,
    pub(super) generation: u32,
}

/// A key by which a peer reaches memory, with the generation of its registration, since keys come round.
pub(super) type Valid = (u32, u32);

/// One step of whoever drives them, or of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Install,
    /// And whether the device takes the registration.
    Open(bool),
    OpenAsPad(bool),
    GiveBack,
    Invalidate(ReturnPolicy, bool),
    /// The device carries out the oldest work request.
    Execute,
    /// The oldest one fails, and with it all behind. Whether it took effect all the same.
    Fail(bool),
    /// The oldest completion is seen.
    Complete,
    /// The reply says that the peer invalidated the key.
    InvalidateRemotely,
    /// All is drained.
    Lose,
    BeginRecovery,
    Destroy,
}

const POLICIES: [ReturnPolicy; 2] = [ReturnPolicy::OnInvalidateCompleted, ReturnPolicy::OnInvalidatePosted];

pub(super) fn every_act() -> impl Iterator<Item = Act> {
    use Act::*;
    let plain = [Install, GiveBack, Execute, Complete, InvalidateRemotely, Lose];
    let rest = [BeginRecovery, Destroy, Fail(false), Fail(true)];
    let posts = [false, true].into_iter().flat_map(|taken| {
        let invalidations = POLICIES.map(|policy| Invalidate(policy, taken));
        [Open(taken), OpenAsPad(taken)].into_iter().chain(invalidations)
    });
    plain.into_iter().chain(rest).chain(posts)
}

/// What tells one [`World`] from another, with generations counted from the MR's own backwards.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Name {
    step: u8,
    cause: Option<u8>,
    is_pad: bool,
    pending: Option<u32>,
    keys: (u32, u8, u32, u32),
    valid: Option<Valid>,
    flags: [bool; 4],
    queue: Vec<Sent>,
    completions: Vec<(Sent, bool)>,
}

/// The device is strict: what a lenient one would let pass is a panic.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) mr: Mr,
    pub(super) queue: Vec<Sent>,
    /// With whether they succeeded.
    pub(super) completions: Vec<(Sent, bool)>,
    /// The key by which a peer reaches memory.
    pub(super) valid: Option<Valid>,
    /// The last key of a registration that the device was given.
    pub(super) device_key: u32,
    /// The current key's invalidation was posted, or its peer did it.
    pub(super) invalidated: bool,
    /// Something failed or was refused, so that nobody knows what the device thinks.
    pub(super) unknown: bool,
    /// The queue pair is in error: it takes nothing.
    pub(super) broken: bool,
    /// The queue pair is drained and gone.
    pub(super) lost: bool,
    pub(super) connection: ConnectionKey,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            mr: Mr::numbered(9, 90),
            queue: Vec::new(),
            completions: Vec::new(),
            valid: None,
            device_key: INDEX,
            invalidated: false,
            unknown: false,
            broken: false,
            lost: false,
            connection: ConnectionKey { index: 3, epoch: 1 },
        }
    }

    pub(super) fn name(&self) -> Name {
        let now = self.mr.generation();
        let back = |sent: &Sent| Sent { generation: now.wrapping_sub(sent.generation), ..*sent };
        let held = matches!(self.mr.step, Step::Mapped | Step::Registering);
        Name {
            step: self.mr.step as u8,
            cause: (self.mr.step == Step::Stale).then_some(self.mr.cause as u8),
            is_pad: self.mr.role == Role::Pad,
            pending: self.mr.pending.map(|pending| now.wrapping_sub(pending.get())),
            keys: (self.mr.key(), self.mr.device_tag, if held { self.mr.old_key } else { 0 }, self.device_key),
            valid: self.valid.map(|(key, generation)| (key, now.wrapping_sub(generation))),
            flags: [self.unknown, self.broken, self.lost, self.invalidated],
            queue: self.queue.iter().map(back).collect(),
            completions: self.completions.iter().map(|(sent, well)| (back(sent), *well)).collect(),
        }
    }

    /// Whether a peer can reach memory by it, or will when what is queued is carried out, or may for all that is known.
    fn is_open(&self) -> bool {
        self.valid.is_some() || !self.queue.is_empty() || self.unknown
    }

    /// What holds between any two steps.
    pub(super) fn check(&self) {
        assert!(!self.is_open() || self.mr.is_live(), "memory is let go before its fence: {self:?}");
        let idle = matches!(self.mr.step, Step::Idle | Step::Spent);
        assert!(!idle || (self.valid, self.queue.len()) == (None, 0), "free while the device may use it: {self:?}");
        assert_eq!(self.mr.step == Step::IdlePending, self.mr.pending.is_some() && !self.is_taken(), "{self:?}");
        let knows_its_key = self.mr.key() as u8 == self.mr.device_tag;
        assert!(self.mr.step != Step::Spent || knows_its_key, "only what was registered is spent: {self:?}");
        assert!(self.mr.owner().is_none_or(|owner| owner == OWNER));
    }

    /// States that keep an earlier invalidation in mind.
    fn is_taken(&self) -> bool {
        matches!(self.mr.step, Step::Mapped | Step::Registering)
    }

    pub(super) fn has_room(&self) -> bool {
        let oldest = self.queue.iter().chain(self.completions.iter().map(|(sent, _)| sent));
        let ahead = oldest.map(|sent| self.mr.generation().wrapping_sub(sent.generation) / 2).max();
        self.queue.len() + self.completions.len() < MOST_IN_FLIGHT && ahead.is_none_or(|ahead| ahead < MOST_AHEAD)
    }

    pub(super) fn post(&mut self, work: Work) {
        assert!(!self.unknown && !self.lost, "posted on an MR whose state is unknown: {self:?}");
        match work {
            Work::Register { old_key, key } => {
                assert_eq!(old_key, self.device_key, "the key before is not the one that the device has: {self:?}");
                assert_ne!(old_key, key, "a key follows on itself: {self:?}");
                assert_eq!(key & !tag_mask(ROTATING_BITS), INDEX, "the index has changed: {self:?}");
                (self.device_key, self.invalidated) = (key, false);
            }
            Work::Invalidate { .. } => {
                assert!(!self.invalidated, "a second invalidation of one key: {self:?}");
                self.invalidated = true;
            }
        }
        self.queue.push(Sent { work, generation: self.mr.generation() });
    }

    /// What tells one MR from another, whatever the device does.
    pub(super) fn mr_name(&self) -> impl Eq + core::hash::Hash + use<> {
        let Name { step, cause, is_pad, pending, keys, .. } = self.name();
        (step, cause, is_pad, pending, keys)
    }

    /// The MR's generation, all those of what may be on its way, some beyond, and those that are none.
    pub(super) fn generations(&self) -> impl Iterator<Item = u32> + use<> {
        let now = self.mr.generation();
        (0..=2 * MOST_AHEAD + 4).map(move |back| now.wrapping_add(2).wrapping_sub(back)).chain([0, u32::MAX])
    }

    pub(super) fn connection(&self) -> ConnectionKey {
        self.connection
    }
}

/// All that there is of two MRs.
pub(super) fn assert_same(one: &Mr, other: &Mr) {
    let fields = |mr: &Mr| (mr.iova, mr.object, mr.element, mr.old_key, mr.key, mr.length, mr.access);
    let all = |mr: &Mr| {
        (fields(mr), mr.token, mr.owner, mr.pending, mr.connection, mr.step, mr.cause, mr.role, mr.device_tag)
    };
    assert_eq!(all(one), all(other));
}
