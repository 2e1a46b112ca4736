//! Which work requests a port hands to its device: those whose breach the device would not see, or its host not survive,
//! are refused here. Generic over what stands for the device's objects, so that it can be tried without a device.

use super::{publish::Table, sys::mkey::MkeyKind};
use crate::provider::{
    BaseId, Chain, ElementRange, Operation, RegistrationFields, RegistrationId, RemoteRange, ScatterElement,
    WorkRequest,
};
use core::cell::Cell;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Takes the work requests of a chain one by one, in order, as they are admitted, with what they name.
///
/// Elements are those of the operation's range, in the chain's table.
pub(super) trait Taker<'a, W, B> {
    /// A registration of `elements` on an object, over memory of a base registration.
    fn register(
        &mut self,
        request: &WorkRequest,
        fields: &RegistrationFields,
        object: &'a W,
        base: &'a B,
        elements: &'a [ScatterElement],
    );
    /// LOCAL_INV.
    fn invalidate(&mut self, request: &WorkRequest, key: u32);
    /// SEND, or SEND_WITH_INV.
    fn send(&mut self, request: &WorkRequest, elements: &'a [ScatterElement], invalidate: Option<u32>);
    /// RDMA READ.
    fn read(&mut self, request: &WorkRequest, elements: &'a [ScatterElement], remote: RemoteRange);
    /// RDMA WRITE.
    fn write(&mut self, request: &WorkRequest, elements: &'a [ScatterElement], remote: RemoteRange);
}

/// A window, or a key for lists, as the port knows it.
struct PortWindow<W> {
    window: Arc<W>,
    /// As it was allocated.
    key: u32,
    /// What lists it takes; `None` for a window.
    lists: Option<MkeyKind>,
    /// A registration was posted, and no invalidation since.
    live: Cell<bool>,
}

/// What the port looks at where the device would not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// The device sees to everything.
    Nothing,
    /// Its host does not survive a second invalidation of one key.
    SecondInvalidation,
    /// It gives a live key to another list without a word.
    LiveRegistration,
}

/// What one queue pair takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Elements of a message.
    pub(super) elements: u32,
    /// Entries of a list that is registered.
    pub(super) entries: u32,
}

/// What work requests name beside their queue pair.
pub(super) struct Objects<W, B> {
    windows: Table<PortWindow<W>>,
    bases: Table<Arc<B>>,
    guard: Guard,
    /// Where something is guarded: windows by the index part of their keys.
    by_index: Option<FxHashMap<u32, RegistrationId>>,
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

/// The elements of a range, if all of it lies in the table: one that does not is no empty one.
#[inline]
fn in_table(chain: Chain<'_>, range: ElementRange) -> Option<&[ScatterElement]> {
    let elements = chain.elements_of(range);
    (elements.len() == range.count as usize).then_some(elements)
}

/// The elements of a message: no library needs to count them.
#[inline]
fn message(chain: Chain<'_>, range: ElementRange, limits: Limits) -> Option<&[ScatterElement]> {
    if range.count > limits.elements { None } else { in_table(chain, range) }
}

/// The part of a key that does not rotate.
const fn key_index(key: u32) -> u32 {
    key >> 8
}

/// The part of a key that rotates.
const ROTATING_BITS: u32 = 0xff;

/// Bytes of one list at most. An entry could have one more, but libmlx5 adds entries up in 31 bits, and a
/// sum beyond these would make a key without an end.
pub(super) const MAX_LIST_BYTES: u32 = i32::MAX as u32;

/// A window covers one range of one base registration, at its own address: the device would not see a breach of these, but
/// do something else than was asked for.
fn is_range(fields: &RegistrationFields, elements: &[ScatterElement]) -> bool {
    match elements {
        // The usual one.
        [only] => only.address == fields.iova && only.length == fields.length,
        _ => is_contiguous(fields, elements),
    }
}

#[inline(never)]
fn is_contiguous(fields: &RegistrationFields, elements: &[ScatterElement]) -> bool {
    let mut next = fields.iova;
    let mut contiguous = true;
    for element in elements {
        contiguous &= element.address == next;
        next = next.wrapping_add(element.length.into());
    }
    contiguous && next == fields.iova.wrapping_add(fields.length.into())
}

/// A list begins at address 0, has room in its work request and its key, and no entry without bytes, which devices take for
/// the longest one.
fn is_list(fields: &RegistrationFields, elements: &[ScatterElement], entries: u32) -> bool {
    let fits = (1..=entries as usize).contains(&elements.len());
    let good = |element: &ScatterElement| element.length > 0;
    let sum: u64 = elements.iter().map(|element| u64::from(element.length)).sum();
    let described = fields.iova == 0 && fields.length <= MAX_LIST_BYTES && sum == u64::from(fields.length);
    fits && elements.iter().all(good) && described
}

impl<W, B> Objects<W, B> {
    /// None.
    pub(super) fn new(guard: Guard) -> Self {
        let by_index = (guard != Guard::Nothing).then(FxHashMap::default);
        Self { windows: Table::default(), bases: Table::default(), guard, by_index }
    }

    pub(super) fn add_base(&mut self, base: BaseId, region: Arc<B>) {
        self.bases.set(base.0, region);
    }

    pub(super) fn remove_base(&mut self, base: BaseId) -> Option<Arc<B>> {
        self.bases.remove(base.0)
    }

    /// Adds a window, or a key for lists, with the key that it was allocated with.
    pub(super) fn add_window(&mut self, object: RegistrationId, window: Arc<W>, key: u32, lists: Option<MkeyKind>) {
        if let Some(by_index) = &mut self.by_index {
            by_index.insert(key_index(key), object);
        }
        self.windows.set(object.0, PortWindow { window, key, lists, live: Cell::new(false) });
    }

    pub(super) fn remove_window(&mut self, object: RegistrationId) {
        if let (Some(removed), Some(by_index)) = (self.windows.remove(object.0), &mut self.by_index) {
            by_index.remove(&key_index(removed.key));
        }
    }

    /// Hands over the front of the chain that the device may have, and says how long it is; the next one, if any, is not
    /// acceptable. Takes the windows of that front for bound or invalidated. `limits` are those of the queue pair.
    #[inline]
    pub(super) fn hand_over<'a>(&'a self, chain: Chain<'a>, limits: Limits, to: &mut impl Taker<'a, W, B>) -> usize {
        let refused =
            chain.requests.iter().position(|request| self.hand_over_one(request, chain, limits, to).is_none());
        refused.unwrap_or(chain.requests.len())
    }

    #[inline(always)]
    fn hand_over_one<'a>(
        &'a self,
        request: &WorkRequest,
        chain: Chain<'a>,
        limits: Limits,
        to: &mut impl Taker<'a, W, B>,
    ) -> Option<()> {
        match &request.operation {
            Operation::Register(fields) => {
                let elements = in_table(chain, fields.elements)?;
                let (object, base) = self.admit_registration(fields, elements, limits)?;
                to.register(request, fields, object, base, elements);
            }
            Operation::Invalidate { object, key } => {
                self.admit_invalidation(*object, *key)?;
                to.invalidate(request, *key);
            }
            Operation::Send { local, invalidate } => to.send(request, message(chain, *local, limits)?, *invalidate),
            Operation::Read { local, remote } => to.read(request, message(chain, *local, limits)?, *remote),
            Operation::Write { local, remote } => to.write(request, message(chain, *local, limits)?, *remote),
        }
        Some(())
    }

    /// A key changes in the low byte only, and belongs to one list at a time; else the layout of the object counts.
    #[inline(always)]
    fn admit_registration(
        &self,
        fields: &RegistrationFields,
        elements: &[ScatterElement],
        limits: Limits,
    ) -> Option<(&W, &B)> {
        let base = self.bases.get(fields.base.0)?;
        let window = self.windows.get(fields.object.0)?;
        let is_described = match window.lists {
            None => is_range(fields, elements) && key_index(fields.key) == key_index(fields.old_key),
            Some(kind) => {
                let may_change = if kind.rotates { ROTATING_BITS } else { 0 };
                let entries = limits.entries.min(kind.entries.into());
                is_list(fields, elements, entries) && fields.key & !may_change == window.key & !may_change
            }
        };
        let is_free = self.guard != Guard::LiveRegistration || !window.live.get();
        if !(is_described && is_free) {
            return None;
        }
        window.live.set(true);
        Some((&window.window, base))
    }

    /// Never twice: rxe's kernel does not survive it. The key must be the window's own: another one's
    /// would pass the guard of this one.
    #[inline]
    fn admit_invalidation(&self, object: RegistrationId, key: u32) -> Option<()> {
        let window = self.windows.get(object.0)?;
        let guarded = self.guard == Guard::SecondInvalidation;
        if guarded && key_index(key) != key_index(window.key) {
            return None;
        }
        let was_live = window.live.replace(false);
        (was_live || !guarded).then_some(())
    }

    /// Takes back what [`Objects::hand_over`] assumed of work requests that the device did not take.
    pub(super) fn forget(&self, refused: &[WorkRequest]) {
        for request in refused.iter().rev() {
            match &request.operation {
                Operation::Register(fields) => self.set_live(fields.object, false),
                Operation::Invalidate { object, .. } => self.set_live(*object, true),
                Operation::Send { .. } | Operation::Read { .. } | Operation::Write { .. } => {}
            }
        }
    }

    fn set_live(&self, object: RegistrationId, live: bool) {
        if let Some(window) = self.windows.get(object.0) {
            window.live.set(live);
        }
    }

    /// The peer invalidated a key.
    pub(super) fn invalidated(&self, key: u32) {
        let Some(by_index) = &self.by_index else { return };
        if let Some(object) = by_index.get(&key_index(key)).copied() {
            self.set_live(object, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Guard, Limits, MAX_LIST_BYTES, MkeyKind, Objects, Taker, has_uneven_lists};
    use crate::provider::{
        Access, BaseId, Chain, ElementRange, Operation, RegistrationFields, RegistrationId, RemoteRange,
        ScatterElement, Token, TokenKind, WorkRequest,
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
    const LIMITS: Limits = Limits { elements: 2, entries: 3 };

    fn objects(guards: bool) -> Objects<(), ()> {
        with(if guards { Guard::SecondInvalidation } else { Guard::Nothing }, None)
    }

    fn with(guard: Guard, lists: Option<MkeyKind>) -> Objects<(), ()> {
        let mut objects = Objects::new(guard);
        objects.add_base(BASE, Arc::new(()));
        objects.add_window(WINDOW, Arc::new(()), KEY, lists);
        objects.add_window(RegistrationId(4), Arc::new(()), OTHER_KEY, lists);
        objects
    }

    const LISTS: MkeyKind = MkeyKind { entries: 4, rotates: true, remote_invalidation: true };

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

    /// How many work requests were handed over.
    #[derive(Default)]
    struct Count(usize);

    impl Taker<'_, (), ()> for Count {
        fn register(&mut self, _: &WorkRequest, _: &RegistrationFields, (): &(), (): &(), _: &[ScatterElement]) {
            self.0 += 1;
        }

        fn invalidate(&mut self, _: &WorkRequest, _: u32) {
            self.0 += 1;
        }

        fn send(&mut self, _: &WorkRequest, _: &[ScatterElement], _: Option<u32>) {
            self.0 += 1;
        }

        fn read(&mut self, _: &WorkRequest, _: &[ScatterElement], _: RemoteRange) {
            self.0 += 1;
        }

        fn write(&mut self, _: &WorkRequest, _: &[ScatterElement], _: RemoteRange) {
            self.0 += 1;
        }
    }

    fn handed_over(objects: &Objects<(), ()>, chain: Chain<'_>, limits: Limits) -> usize {
        let mut count = Count::default();
        let said = objects.hand_over(chain, limits, &mut count);
        assert_eq!(said, count.0, "what is not admitted is not handed over");
        said
    }

    fn admitted(objects: &Objects<(), ()>, requests: &[WorkRequest]) -> usize {
        handed_over(objects, Chain { requests, elements: &ELEMENTS }, LIMITS)
    }

    #[test]
    fn a_registration_says_what_a_bind_can_say() {
        let good = fields();
        assert_eq!(admitted(&objects(true), &[bind()]), 1);
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
            assert_eq!(admitted(&objects(true), &[work(Operation::Register(bad))]), 0, "{what}");
        }
    }

    /// All three elements, with a gap.
    fn list() -> RegistrationFields {
        RegistrationFields { iova: 0, length: 200, elements: ElementRange { first: 0, count: 3 }, ..fields() }
    }

    fn list_is_admitted(kind: MkeyKind, entries: u32, fields: RegistrationFields, elements: &[ScatterElement]) -> bool {
        let requests = [work(Operation::Register(fields))];
        let objects = with(Guard::LiveRegistration, Some(kind));
        handed_over(&objects, Chain { requests: &requests, elements }, Limits { entries, ..LIMITS }) == 1
    }

    #[test]
    fn a_list_fits_its_work_request_and_its_key() {
        for (entries, of_key, good) in [(3, 4, true), (3, 3, true), (2, 4, false), (4, 2, false), (0, 4, false)] {
            let kind = MkeyKind { entries: of_key, ..LISTS };
            assert_eq!(list_is_admitted(kind, entries, list(), &ELEMENTS), good, "{entries} {of_key}");
        }
    }

    #[test]
    fn a_list_says_what_a_umr_can_say() {
        let good = list();
        for (what, bad) in [
            ("object", RegistrationFields { object: RegistrationId(9), ..good }),
            ("base", RegistrationFields { base: BaseId(0), ..good }),
            ("address", RegistrationFields { iova: 1000, ..good }),
            ("length", RegistrationFields { length: 199, ..good }),
            ("nothing", RegistrationFields { length: 0, elements: ElementRange::default(), ..good }),
            ("range", RegistrationFields { elements: ElementRange { first: 2, count: 9 }, ..good }),
            ("index of the key", RegistrationFields { key: KEY + 0x100, ..good }),
        ] {
            assert!(!list_is_admitted(LISTS, 3, bad, &ELEMENTS), "{what}");
        }
        for length in [0, MAX_LIST_BYTES - 149] {
            let mut elements = ELEMENTS;
            elements[1].length = length;
            let fields = RegistrationFields { length: length + 150, ..good };
            assert!(!list_is_admitted(LISTS, 3, fields, &elements), "an entry of {length} bytes");
        }
    }

    #[test]
    fn a_key_that_does_not_rotate_stays() {
        let fixed = MkeyKind { rotates: false, ..LISTS };
        let with_key = |key| RegistrationFields { key, ..list() };
        for (kind, key, good) in
            [(LISTS, KEY, true), (LISTS, KEY + 1, true), (fixed, KEY, true), (fixed, KEY + 1, false)]
        {
            assert_eq!(list_is_admitted(kind, 3, with_key(key), &ELEMENTS), good, "{kind:?} {key:#x}");
        }
    }

    #[test]
    fn a_live_key_is_given_to_no_other_list() {
        let register = || work(Operation::Register(list()));
        let guarded = with(Guard::LiveRegistration, Some(LISTS));
        assert_eq!(admitted(&guarded, &[register(), register()]), 1, "live");
        assert_eq!(admitted(&guarded, &[invalidate(KEY + 1), register(), invalidate(KEY + 1)]), 3);
        assert_eq!(admitted(&guarded, &[register()]), 1);
        guarded.invalidated(KEY + 1);
        assert_eq!(admitted(&guarded, &[register()]), 1, "the peer ended it");
        guarded.forget(&[register()]);
        assert_eq!(admitted(&guarded, &[register()]), 1, "the device did not take it");
        assert_eq!(admitted(&guarded, &[invalidate(KEY + 1), invalidate(KEY + 1)]), 2, "the device sees to it");
        let free = with(Guard::Nothing, None);
        assert_eq!(admitted(&free, &[bind(), bind()]), 2, "the device refuses");
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
            assert_eq!(admitted(&objects(true), &requests), 1 + usize::from(good), "{first} {count}");
        }
        let past_everything = send(u32::MAX, u32::MAX);
        assert_eq!(admitted(&objects(true), &[past_everything]), 0);
    }

    #[test]
    fn a_guarded_key_is_invalidated_once_per_bind() {
        let guarded = objects(true);
        assert_eq!(admitted(&guarded, &[invalidate(KEY)]), 0, "never bound");
        assert_eq!(admitted(&guarded, &[bind(), invalidate(KEY + 1), bind(), invalidate(KEY + 1)]), 4);
        assert_eq!(admitted(&guarded, &[invalidate(KEY + 1)]), 0, "twice");
        assert_eq!(admitted(&guarded, &[bind()]), 1);
        assert_eq!(admitted(&guarded, &[invalidate(OTHER_KEY)]), 0, "another window's key");
        assert_eq!(admitted(&guarded, &[invalidate(KEY + 1), invalidate(KEY + 1)]), 1);
        let free = objects(false);
        assert_eq!(admitted(&free, &[invalidate(KEY), invalidate(KEY)]), 2, "the device sees to it");
    }

    #[test]
    fn what_the_peer_invalidated_is_not_invalidated_again() {
        let guarded = objects(true);
        assert_eq!(admitted(&guarded, &[bind()]), 1);
        guarded.invalidated(OTHER_KEY);
        guarded.invalidated(0xdead_beef);
        assert_eq!(admitted(&guarded, &[invalidate(KEY + 1), bind()]), 2);
        guarded.invalidated(KEY + 1);
        assert_eq!(admitted(&guarded, &[invalidate(KEY + 1)]), 0);
    }

    #[test]
    fn what_was_refused_leaves_windows_as_they_were() {
        let guarded = objects(true);
        let chain = [bind(), invalidate(KEY + 1), bind()];
        assert_eq!(admitted(&guarded, &chain), 3);
        guarded.forget(&chain);
        assert_eq!(admitted(&guarded, &[invalidate(KEY)]), 0, "free again");
        assert_eq!(admitted(&guarded, &chain), 3);
        // The device took the bind in front.
        guarded.forget(&chain[1..]);
        assert_eq!(admitted(&guarded, &[invalidate(KEY + 1)]), 1);
    }

    #[test]
    fn what_is_removed_is_not_named_any_more() {
        let mut guarded = objects(true);
        guarded.remove_base(BASE);
        assert_eq!(admitted(&guarded, &[bind()]), 0);
        guarded.add_base(BASE, Arc::new(()));
        assert_eq!(admitted(&guarded, &[bind()]), 1);
        guarded.remove_window(WINDOW);
        guarded.remove_window(WINDOW);
        assert_eq!(admitted(&guarded, &[bind()]), 0);
        // A late completion of the peer's invalidation meets nobody.
        guarded.invalidated(KEY + 1);
        // The number with another key.
        guarded.add_window(WINDOW, Arc::new(()), KEY + 0x500, None);
        assert_eq!(admitted(&guarded, &[invalidate(KEY + 0x500)]), 0);
    }
}
