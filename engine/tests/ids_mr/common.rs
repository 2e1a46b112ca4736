//! What the MR tests share.

use frwr_engine::mr::{ConnectionKey, Grant, Mapping, Mr, ReturnPolicy, State};
use frwr_engine::provider::{Access, BaseId, RegistrationId};

pub(crate) const CONNECTION: ConnectionKey = ConnectionKey { index: 3, epoch: 9 };
pub(crate) const OWNER: u32 = 42;
pub(crate) const KEY: u32 = 0x1234_5678;

pub(crate) const MAPPING: Mapping = Mapping {
    bytes: 8192,
    address: 0x7000_0A10,
    base: BaseId(5),
    elements: 3,
    access: Access::RemoteRead,
    iova: 0x0A0B_0C0D_7000_0A10,
    rotating_key_bits: 8,
};

pub(crate) fn idle() -> Mr {
    let mut mr = Mr::absent();
    mr.install(RegistrationId(77), KEY, CONNECTION).expect("absent");
    mr
}

pub(crate) fn owned() -> Mr {
    let mut mr = idle();
    mr.take(OWNER, CONNECTION).expect("idle");
    mr
}

pub(crate) fn mapped() -> Mr {
    let mut mr = owned();
    mr.map(&MAPPING).expect("owned");
    mr
}

pub(crate) fn registering() -> Mr {
    let mut mr = mapped();
    mr.register_posted().expect("mapped");
    mr
}

pub(crate) fn valid() -> Mr {
    let mut mr = registering();
    mr.registered(mr.generation()).expect("registering");
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
    mr.invalidated(mr.generation()).expect("invalidating");
    mr
}

pub(crate) fn stale() -> Mr {
    let mut mr = registering();
    mr.register_failed(mr.generation()).expect("registering");
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
    mr.take_as_pad(CONNECTION).expect("idle");
    mr.map(&Mapping { bytes: 4, elements: 1, access: Access::RemoteWrite, ..MAPPING }).expect("owned");
    mr.register_posted().expect("mapped");
    mr.registered(mr.generation()).expect("registering");
    mr
}

/// Every state, by name.
pub(crate) fn every_state() -> [(&'static str, Mr); 10] {
    [
        ("absent", Mr::absent()),
        ("idle", idle()),
        ("owned", owned()),
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
        State::Idle { .. } => "idle",
        State::IdlePending { .. } => "idle_pending",
        State::Owned { .. } => "owned",
        State::Mapped { .. } => "mapped",
        State::Registering { .. } => "registering",
        State::Valid { .. } => "valid",
        State::Invalidating { .. } => "invalidating",
        State::Stale(_) => "stale",
        State::Recovering => "recovering",
    }
}

/// All that an outsider can see of an MR.
pub(crate) fn view(mr: &Mr) -> (State, u32, u32, ConnectionKey, RegistrationId, Option<Grant>, bool) {
    (mr.state(), mr.key(), mr.generation(), mr.connection(), mr.object(), mr.grant(), mr.is_pad())
}
