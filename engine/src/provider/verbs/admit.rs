//! Which work requests a port hands to its device: those whose breach the device would not see, or its host not survive,
//! are refused here. Generic over what stands for the device's objects, so that it can be tried without a device.

use super::publish::Table;
use crate::provider::{BaseId, Chain, Operation, RegistrationFields, RegistrationId, WorkRequest};
use std::{collections::HashMap, sync::Arc};

/// A window as the port knows it.
struct PortWindow<W> {
    window: Arc<W>,
    /// As it was allocated.
    key: u32,
    /// A bind was posted, and no invalidation since.
    live: bool,
}

/// What work requests name beside their queue pair.
pub(super) struct Objects<W, B> {
    windows: Table<PortWindow<W>>,
    bases: Table<Arc<B>>,
    /// On devices whose host does not survive a second invalidation of one key: windows by the index part of their keys.
    guard: Option<HashMap<u32, RegistrationId>>,
}

/// Whether a chain has a message whose elements differ in length. rxe's `wr_set_sge_list` takes the first one's length for
/// all of them (rdma-core 44 to 55): the message would have another length, or carry bytes that were not asked for.
pub(super) fn has_uneven_lists(chain: Chain<'_>) -> bool {
    chain.requests.iter().any(|request| match request.operation {
        Operation::Send { local, .. } | Operation::Read { local, .. } | Operation::Write { local, .. } => {
            let elements = chain.elements_of(local);
            elements.iter().any(|element| element.length != elements[0].length)
        }
        Operation::Register(_) | Operation::Invalidate { .. } => false,
    })
}

/// The part of a key that does not rotate.
const fn key_index(key: u32) -> u32 {
    key >> 8
}

impl<W, B> Objects<W, B> {
    /// None; `guards` where the host does not survive a second invalidation.
    pub(super) fn new(guards: bool) -> Self {
        Self { windows: Table::default(), bases: Table::default(), guard: guards.then(HashMap::new) }
    }

    pub(super) fn add_base(&mut self, base: BaseId, region: Arc<B>) {
        self.bases.set(base.0, region);
    }

    pub(super) fn remove_base(&mut self, base: BaseId) {
        self.bases.remove(base.0);
    }

    /// Adds a window with the key that it was allocated with.
    pub(super) fn add_window(&mut self, object: RegistrationId, window: Arc<W>, key: u32) {
        if let Some(guard) = &mut self.guard {
            guard.insert(key_index(key), object);
        }
        self.windows.set(object.0, PortWindow { window, key, live: false });
    }

    pub(super) fn remove_window(&mut self, object: RegistrationId) {
        if let (Some(removed), Some(guard)) = (self.windows.remove(object.0), &mut self.guard) {
            guard.remove(&key_index(removed.key));
        }
    }

    /// Window and base registration that a registration names.
    pub(super) fn named_by(&self, fields: &RegistrationFields) -> Option<(&W, &B)> {
        Some((&self.windows.get(fields.object.0)?.window, self.bases.get(fields.base.0)?))
    }

    /// Length of the front of the chain that can be handed to the device; the next one, if any, is not acceptable. Takes
    /// the windows of that front for bound or invalidated. `max_elements` is what the queue pair takes of a message.
    pub(super) fn admit(&mut self, chain: Chain<'_>, max_elements: u32) -> usize {
        let refused = chain.requests.iter().position(|request| match &request.operation {
            Operation::Register(fields) => !self.admit_registration(fields, chain),
            Operation::Invalidate { object, key } => !self.admit_invalidation(*object, *key),
            // A range that does not lie in the table is no empty message, and no library needs to count elements.
            Operation::Send { local, .. } | Operation::Read { local, .. } | Operation::Write { local, .. } => {
                local.count > max_elements || chain.elements_of(*local).len() != local.count as usize
            }
        });
        refused.unwrap_or(chain.requests.len())
    }

    /// A window covers one range of one base registration, at its own address, and its key changes in the low byte only:
    /// the device would not see a breach of these, but do something else than was asked for.
    fn admit_registration(&mut self, fields: &RegistrationFields, chain: Chain<'_>) -> bool {
        let mut next = fields.iova;
        let mut contiguous = true;
        for element in chain.elements_of(fields.elements) {
            contiguous &= element.address == next;
            next = next.wrapping_add(element.length.into());
        }
        let described = contiguous && next == fields.iova.wrapping_add(fields.length.into());
        if !described || key_index(fields.key) != key_index(fields.old_key) || self.bases.get(fields.base.0).is_none() {
            return false;
        }
        let Some(window) = self.windows.get_mut(fields.object.0) else { return false };
        window.live = true;
        true
    }

    /// Never twice: rxe's kernel does not survive it (verbs.md 5.6, trap 1). The key must be the window's own: another one's
    /// would pass the guard of this one.
    fn admit_invalidation(&mut self, object: RegistrationId, key: u32) -> bool {
        let Some(window) = self.windows.get_mut(object.0) else { return false };
        if self.guard.is_some() && key_index(key) != key_index(window.key) {
            return false;
        }
        let was_live = core::mem::replace(&mut window.live, false);
        was_live || self.guard.is_none()
    }

    /// Takes back what `admit` assumed of work requests that the device did not take.
    pub(super) fn forget(&mut self, refused: &[WorkRequest]) {
        for request in refused.iter().rev() {
            match &request.operation {
                Operation::Register(fields) => self.set_live(fields.object, false),
                Operation::Invalidate { object, .. } => self.set_live(*object, true),
                Operation::Send { .. } | Operation::Read { .. } | Operation::Write { .. } => {}
            }
        }
    }

    fn set_live(&mut self, object: RegistrationId, live: bool) {
        if let Some(window) = self.windows.get_mut(object.0) {
            window.live = live;
        }
    }

    /// The peer invalidated a key.
    pub(super) fn invalidated(&mut self, key: u32) {
        let Some(guard) = &self.guard else { return };
        if let Some(object) = guard.get(&key_index(key)).copied() {
            self.set_live(object, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Objects, has_uneven_lists};
    use crate::provider::{
        Access, BaseId, Chain, ElementRange, Operation, RegistrationFields, RegistrationId, ScatterElement, Token,
        TokenKind, WorkRequest,
    };
    use std::sync::Arc;

    const WINDOW: RegistrationId = RegistrationId(3);
    const BASE: BaseId = BaseId(1);
    const KEY: u32 = 0x8000_0100;
    const OTHER_KEY: u32 = 0x8000_0200;
    const ELEMENTS: [ScatterElement; 3] = [
        ScatterElement { address: 1000, length: 100, lkey: 9 },
        ScatterElement { address: 1100, length: 50, lkey: 9 },
        ScatterElement { address: 5000, length: 50, lkey: 9 },
    ];
    const MAX_ELEMENTS: u32 = 2;

    fn objects(guards: bool) -> Objects<(), ()> {
        let mut objects = Objects::new(guards);
        objects.add_base(BASE, Arc::new(()));
        objects.add_window(WINDOW, Arc::new(()), KEY);
        objects.add_window(RegistrationId(4), Arc::new(()), OTHER_KEY);
        objects
    }

    fn work(operation: Operation) -> WorkRequest {
        WorkRequest { token: Token::new(TokenKind::Foreign, 0, 0), signalled: false, fence: false, operation }
    }

    fn fields() -> RegistrationFields {
        RegistrationFields {
            object: WINDOW,
            base: BASE,
            old_key: KEY,
            key: KEY + 1,
            access: Access::RemoteRead,
            iova: 1000,
            length: 150,
            elements: ElementRange { first: 0, count: 2 },
        }
    }

    fn bind() -> WorkRequest {
        work(Operation::Register(fields()))
    }

    fn invalidate(key: u32) -> WorkRequest {
        work(Operation::Invalidate { object: WINDOW, key })
    }

    fn send(first: u32, count: u32) -> WorkRequest {
        work(Operation::Send { local: ElementRange { first, count }, invalidate: None })
    }

    fn admitted(objects: &mut Objects<(), ()>, requests: &[WorkRequest]) -> usize {
        objects.admit(Chain { requests, elements: &ELEMENTS }, MAX_ELEMENTS)
    }

    #[test]
    fn a_registration_says_what_a_bind_can_say() {
        let good = fields();
        assert_eq!(admitted(&mut objects(true), &[bind()]), 1);
        for (what, bad) in [
            ("window", RegistrationFields { object: RegistrationId(9), ..good }),
            ("base", RegistrationFields { base: BaseId(0), ..good }),
            ("address", RegistrationFields { iova: 0, ..good }),
            ("length", RegistrationFields { length: 149, ..good }),
            (
                "gap",
                RegistrationFields { elements: ElementRange { first: 1, count: 2 }, iova: 1100, length: 100, ..good },
            ),
            ("range", RegistrationFields { elements: ElementRange { first: 2, count: 9 }, ..good }),
            ("index of the key", RegistrationFields { key: KEY + 0x100, ..good }),
        ] {
            assert_eq!(admitted(&mut objects(true), &[work(Operation::Register(bad))]), 0, "{what}");
        }
    }

    #[test]
    fn lists_of_elements_that_differ_in_length_are_seen() {
        let uneven = |requests: &[WorkRequest]| has_uneven_lists(Chain { requests, elements: &ELEMENTS });
        for (first, count, expected) in [(0, 0, false), (0, 1, false), (1, 2, false), (0, 2, true), (0, 3, true)] {
            assert_eq!(uneven(&[bind(), send(0, 1), send(first, count)]), expected, "{first} {count}");
        }
        assert!(!uneven(&[bind()]), "a bind has no list on the wire");
    }

    #[test]
    fn elements_are_in_the_table_and_as_many_as_a_message_takes() {
        for (first, count, good) in
            [(0, 0, true), (0, 2, true), (2, 1, true), (0, 3, false), (2, 2, false), (9, 1, false)]
        {
            let requests = [send(0, 1), send(first, count)];
            assert_eq!(admitted(&mut objects(true), &requests), 1 + usize::from(good), "{first} {count}");
        }
        let past_everything = send(u32::MAX, u32::MAX);
        assert_eq!(admitted(&mut objects(true), &[past_everything]), 0);
    }

    #[test]
    fn a_guarded_key_is_invalidated_once_per_bind() {
        let mut guarded = objects(true);
        assert_eq!(admitted(&mut guarded, &[invalidate(KEY)]), 0, "never bound");
        assert_eq!(admitted(&mut guarded, &[bind(), invalidate(KEY + 1), bind(), invalidate(KEY + 1)]), 4);
        assert_eq!(admitted(&mut guarded, &[invalidate(KEY + 1)]), 0, "twice");
        assert_eq!(admitted(&mut guarded, &[bind()]), 1);
        assert_eq!(admitted(&mut guarded, &[invalidate(OTHER_KEY)]), 0, "another window's key");
        assert_eq!(admitted(&mut guarded, &[invalidate(KEY + 1), invalidate(KEY + 1)]), 1);
        let mut free = objects(false);
        assert_eq!(admitted(&mut free, &[invalidate(KEY), invalidate(KEY)]), 2, "the device sees to it");
    }

    #[test]
    fn what_the_peer_invalidated_is_not_invalidated_again() {
        let mut guarded = objects(true);
        assert_eq!(admitted(&mut guarded, &[bind()]), 1);
        guarded.invalidated(OTHER_KEY);
        guarded.invalidated(0xdead_beef);
        assert_eq!(admitted(&mut guarded, &[invalidate(KEY + 1), bind()]), 2);
        guarded.invalidated(KEY + 1);
        assert_eq!(admitted(&mut guarded, &[invalidate(KEY + 1)]), 0);
    }

    #[test]
    fn what_was_refused_leaves_windows_as_they_were() {
        let mut guarded = objects(true);
        let chain = [bind(), invalidate(KEY + 1), bind()];
        assert_eq!(admitted(&mut guarded, &chain), 3);
        guarded.forget(&chain);
        assert_eq!(admitted(&mut guarded, &[invalidate(KEY)]), 0, "free again");
        assert_eq!(admitted(&mut guarded, &chain), 3);
        // The device took the bind in front.
        guarded.forget(&chain[1..]);
        assert_eq!(admitted(&mut guarded, &[invalidate(KEY + 1)]), 1);
    }

    #[test]
    fn what_is_removed_is_not_named_any_more() {
        let mut guarded = objects(true);
        assert!(guarded.named_by(&fields()).is_some());
        guarded.remove_base(BASE);
        assert!(guarded.named_by(&fields()).is_none());
        guarded.add_base(BASE, Arc::new(()));
        assert_eq!(admitted(&mut guarded, &[bind()]), 1);
        guarded.remove_window(WINDOW);
        guarded.remove_window(WINDOW);
        assert_eq!(admitted(&mut guarded, &[bind()]), 0);
        // A late completion of the peer's invalidation meets nobody.
        guarded.invalidated(KEY + 1);
        // The number with another key.
        guarded.add_window(WINDOW, Arc::new(()), KEY + 0x500);
        assert_eq!(admitted(&mut guarded, &[invalidate(KEY + 0x500)]), 0);
    }
}
