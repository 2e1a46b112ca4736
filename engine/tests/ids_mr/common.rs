//! What the MR tests share.

use frwr_engine::mr::{ConnectionKey, Grant, KEY_TAG_BITS, Mr, MrError, Opening, ReturnPolicy, State, tag_mask};
use frwr_engine::provider::{Access, BaseId, Operation, RegistrationFields, RegistrationId, Token, WorkRequest};

pub(crate) const CONNECTION: ConnectionKey = ConnectionKey { index: 3, epoch: 9 };
pub(crate) const OTHER_QUEUE: ConnectionKey = ConnectionKey { index: 4, epoch: 9 };
pub(crate) const NEXT_EPOCH: ConnectionKey = ConnectionKey { index: 3, epoch: 10 };
pub(crate) const OWNER: u32 = 42;
pub(crate) const KEY: u32 = 0x1234_5678;
pub(crate) const FIRST_ELEMENT: u32 = 30;

pub(crate) const OPENING: Opening = Opening {
    owner: OWNER,
    bytes: 8192,
    base: BaseId(5),
    elements: 3,
    access: Access::RemoteRead,
    iova: 0x0A0B_0C0D_7000_0A10,
    key_mask: tag_mask(KEY_TAG_BITS),
};

/// Opens it for a request on [`CONNECTION`]. Returns its registration.
pub(crate) fn open(mr: &mut Mr, opening: &Opening) -> Result<RegistrationFields, MrError> {
    open_on(mr, CONNECTION, opening)
}

/// The same on any connection.
pub(crate) fn open_on(mr: &mut Mr, on: ConnectionKey, opening: &Opening) -> Result<RegistrationFields, MrError> {
    let mut begins_round = false;
    let fields = in_place(mr, |mr, place| mr.open(on, opening, place, &mut begins_round));
    let begins = fields.is_ok_and(|fields| fields.key & opening.key_mask == 0);
    assert_eq!(begins_round, begins, "a round begins with the first of its keys");
    fields
}

/// The same as its connection's pad.
pub(crate) fn open_as_pad(mr: &mut Mr, on: ConnectionKey) -> Result<RegistrationFields, MrError> {
    let opening = Opening { bytes: 4, elements: 1, access: Access::RemoteWrite, ..OPENING };
    in_place(mr, |mr, place| mr.open_as_pad(on, &opening, place))
}

/// A key is made together with its work request, which is no other's, or neither is made.
fn in_place(
    mr: &mut Mr,
    open: impl FnOnce(&mut Mr, &mut WorkRequest) -> Result<u32, MrError>,
) -> Result<RegistrationFields, MrError> {
    let before = WorkRequest { token: Token(7), signalled: true, fence: true, ..WorkRequest::VACANT };
    let mut place = before;
    let opened = open(mr, &mut place);
    if opened.is_err() {
        assert_eq!(place, before, "what is refused leaves its place alone");
    }
    let key = opened?;
    let Operation::Register(fields) = place.operation else { panic!("{place:?}") };
    assert_eq!((fields.key, mr.key()), (key, key));
    assert_eq!((place.token, place.signalled, place.fence), (mr.token_register(), false, false));
    Ok(fields)
}

/// Tells one opening of an MR from the other.
pub(crate) fn generation(mr: &Mr) -> u32 {
    mr.token_register().generation()
}

pub(crate) fn absent() -> Mr {
    Mr::numbered(11, FIRST_ELEMENT)
}

pub(crate) fn idle() -> Mr {
    let mut mr = absent();
    mr.install(RegistrationId(77), KEY, CONNECTION).expect("absent");
    mr
}

pub(crate) fn registering() -> Mr {
    let mut mr = idle();
    open(&mut mr, &OPENING).expect("idle");
    mr
}

pub(crate) fn mapped() -> Mr {
    let mut mr = registering();
    mr.register_refused().expect("registering");
    mr
}

pub(crate) fn valid() -> Mr {
    let mut mr = registering();
    mr.registered(generation(&mr)).expect("registering");
    mr
}

pub(crate) fn invalidating() -> Mr {
    let mut mr = valid();
    mr.invalidate_posted(mr.key(), ReturnPolicy::OnInvalidateCompleted).expect("valid");
    mr
}

pub(crate) fn idle_pending() -> Mr {
    let mut mr = valid();
    mr.invalidate_posted(mr.key(), ReturnPolicy::OnInvalidatePosted).expect("valid");
    mr
}

/// Idle after one whole use.
pub(crate) fn spent() -> Mr {
    let mut mr = invalidating();
    mr.invalidated(generation(&mr)).expect("invalidating");
    mr
}

pub(crate) fn stale() -> Mr {
    let mut mr = registering();
    mr.register_failed(generation(&mr)).expect("registering");
    mr
}

pub(crate) fn recovering() -> Mr {
    let mut mr = stale();
    mr.begin_recovery().expect("stale");
    mr
}

/// The connection's pad, valid.
pub(crate) fn pad() -> Mr {
    let mut mr = idle();
    open_as_pad(&mut mr, CONNECTION).expect("idle");
    mr.registered(generation(&mr)).expect("registering");
    mr
}

/// Every state, by name.
pub(crate) fn every_state() -> [(&'static str, Mr); 10] {
    [
        ("absent", absent()),
        ("idle", idle()),
        ("spent", spent()),
        ("mapped", mapped()),
        ("registering", registering()),
        ("valid", valid()),
        ("invalidating", invalidating()),
        ("idle_pending", idle_pending()),
        ("stale", stale()),
        ("recovering", recovering()),
    ]
}

/// Name of a state, without its data.
pub(crate) fn name_of(state: State) -> &'static str {
    match state {
        State::Absent => "absent",
        State::Idle { spent: false } => "idle",
        State::Idle { spent: true } => "spent",
        State::IdlePending { .. } => "idle_pending",
        State::Mapped { .. } => "mapped",
        State::Registering { .. } => "registering",
        State::Valid { .. } => "valid",
        State::Invalidating { .. } => "invalidating",
        State::Stale(_) => "stale",
        State::Recovering => "recovering",
    }
}

/// Whether it serves no request but all of its connection: it is never given back.
pub(crate) fn is_pad(mr: &Mr) -> bool {
    mr.clone().give_back() == Err(MrError::Denied)
}

/// Whether it is of this connection, where it is of any.
pub(crate) fn is_of(mr: &Mr, connection: ConnectionKey) -> Result<(), MrError> {
    mr.clone().connection_lost(connection)
}

/// All that an outsider can see of an MR.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct View {
    pub(crate) state: State,
    pub(crate) key: u32,
    pub(crate) token: Token,
    pub(crate) object: RegistrationId,
    pub(crate) grant: Option<Grant>,
    pub(crate) access: Option<Access>,
    pub(crate) owner: Option<u32>,
    pub(crate) is_live: bool,
    pub(crate) is_pad: bool,
    pub(crate) is_of: [Result<(), MrError>; 2],
}

pub(crate) fn view(mr: &Mr) -> View {
    View {
        state: mr.state(),
        key: mr.key(),
        token: mr.token_register(),
        object: mr.object(),
        grant: mr.grant(),
        access: mr.access(),
        owner: mr.owner(),
        is_live: mr.is_live(),
        is_pad: is_pad(mr),
        is_of: [CONNECTION, NEXT_EPOCH].map(|connection| is_of(mr, connection)),
    }
}
