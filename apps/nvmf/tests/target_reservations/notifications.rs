//! Which hosts are told of what others do, what they read of it, and what they ask not to be told.

use super::hosts::Hosts;
use frwr_engine::provider::Access;
use frwr_nvmf::controller::Reservations;
use frwr_nvmf::storage::Storage;
use frwr_nvmf::wire::{
    AcquireAction, BROADCAST_NAMESPACE, Command, ControllerConfiguration, DataPointer, GetFeatures, GetLogPage,
    Property, PropertySet, PropertySize, RegisterAction, ReleaseAction, ReservationNotification,
    ReservationNotificationKind, ReservationType, Select, SetFeatures, Status, feature, log_page,
};
use frwr_support::nvmf_harness::raw::keyed;
use zerocopy::FromBytes;

use ReservationNotificationKind::{RegistrationPreempted, ReservationPreempted, ReservationReleased};

/// Dword 0 of the event: type 6h, information 00h, log page 80h.
const EVENT: u64 = 0x80_0006;
/// The command identifier of event requests.
const EVENT_REQUEST: u16 = 777;
/// More than a controller keeps.
const MANY: u64 = 20;
/// As many as it keeps.
const KEPT: u64 = 16;
/// As many as a process keeps for a core that does not poll.
const NEWS: u64 = 64;

/// A page that says something: its count, its kind, how many are there beside it.
type Page = (u64, Option<ReservationNotificationKind>, u8);

impl<S: Storage> Hosts<S> {
    fn read_page(&mut self, session: usize, retain_event: bool, offset: u64) -> ReservationNotification {
        let command = GetLogPage {
            page: log_page::RESERVATION_NOTIFICATION,
            specific: 0,
            retain_event,
            length: 64,
            offset,
            offset_is_index: false,
            namespace: 0,
            data: keyed(64),
        };
        let admin = self.sessions[session].admin;
        let response = self.raw.command(admin, Command::GetLogPage(command), Some((Access::RemoteWrite, 64)));
        assert!(response.status().is_success(), "{}", response.status());
        let mut bytes = [0; 64];
        self.raw.data.read(0, &mut bytes).unwrap();
        ReservationNotification::read_from_bytes(&bytes).unwrap()
    }

    /// The oldest one that a session's host has not read; nothing of an empty page is anything but 0.
    pub(super) fn notification(&mut self, session: usize) -> Page {
        let page = self.read_page(session, false, 0);
        let kind = ReservationNotificationKind::from_wire(page.kind);
        assert_eq!((page.namespace.get(), page.count.get() != 0), (kind.map_or(0, |_| 1), kind.is_some()));
        assert_eq!(page.kind != 0, kind.is_some());
        (page.count.get(), kind, page.available)
    }

    /// All that a session's host has not read.
    pub(super) fn notifications(&mut self, session: usize) -> Vec<ReservationNotificationKind> {
        core::iter::from_fn(|| self.notification(session).1).collect()
    }

    /// A session's host asks for an event.
    pub(super) fn ask_for_event(&mut self, session: usize) {
        let admin = self.sessions[session].admin;
        self.raw.responses.clear();
        self.raw.send(admin, Command::AsynchronousEventRequest.encode(EVENT_REQUEST).unwrap(), None);
        self.raw.steps(50);
    }

    /// Whether it was told, since it asked or since another command was sent.
    pub(super) fn told(&mut self) -> bool {
        self.raw.steps(50);
        let told = self.raw.responses.iter().find(|response| response.command_id.get() == EVENT_REQUEST);
        told.inspect(|event| assert_eq!((event.status(), event.result.get()), (Status::SUCCESS, EVENT))).is_some()
    }

    pub(super) fn set(&mut self, session: usize, feature: u8, namespace: u32, value: u32) -> Status {
        let admin = self.sessions[session].admin;
        let set = Command::SetFeatures(SetFeatures { feature, save: false, namespace, value });
        self.raw.command(admin, set, None).status().without_flags()
    }

    pub(super) fn get(&mut self, session: usize, feature: u8, namespace: u32, select: Select) -> Result<u64, Status> {
        let admin = self.sessions[session].admin;
        let get = GetFeatures { feature, select, namespace, value: 0, data: DataPointer::NONE };
        let response = self.raw.command(admin, Command::GetFeatures(get), None);
        match response.status().without_flags() {
            Status::SUCCESS => Ok(response.result.get()),
            status => Err(status),
        }
    }

    /// Hosts 1, 2 and so on are registered with these keys.
    pub(super) fn register_all(&mut self, keys: &[u64]) {
        for (session, key) in keys.iter().enumerate() {
            let io = self.io(session, session % 2);
            assert_eq!(self.register(io, RegisterAction::Register, (0, *key)), Status::SUCCESS);
        }
    }
}

/// Four hosts, of which the last one is not registered, and the second one has two controllers; what each of them was
/// told.
fn told_of(
    holder: Option<(usize, ReservationType)>,
    act: impl FnOnce(&mut Hosts),
) -> [Vec<ReservationNotificationKind>; 5] {
    let mut all = Hosts::new(&Reservations::new(), &[1, 2, 3, 4, 2]);
    all.register_all(&[10, 20, 30]);
    if let Some((holder, kind)) = holder {
        let io = all.io(holder, 1);
        let key = [10, 20, 30][holder];
        assert_eq!(all.acquire(io, AcquireAction::Acquire, kind, (key, 0)), Status::SUCCESS);
    }
    assert_eq!([0, 1, 2, 3, 4].map(|session| all.notifications(session)).concat(), [], "nobody else lost anything");
    act(&mut all);
    let told = [0, 1, 2, 3, 4].map(|session| all.notifications(session));
    all.raw.shut_down();
    told
}

fn none() -> Vec<ReservationNotificationKind> {
    Vec::new()
}

#[test]
fn registrants_are_told_of_a_reservation_that_is_given_up_where_they_went_by_it() {
    for kind in ReservationType::ALL {
        for unregisters in [false, true] {
            let told = told_of(Some((0, kind)), |all| {
                let io = all.io(0, 0);
                let done = match unregisters {
                    true => all.register(io, RegisterAction::Unregister, (10, 0)),
                    false => all.release(io, ReleaseAction::Release, kind, 10),
                };
                assert_eq!(done, Status::SUCCESS);
            });
            // All registrants hold it on where all held it.
            let is_told = kind.is_of_registrants() && !(unregisters && kind.is_held_by_all());
            let others = if is_told { vec![ReservationReleased] } else { none() };
            assert_eq!(told, [none(), others.clone(), others.clone(), none(), others], "{kind:?} {unregisters}");
        }
    }
}

#[test]
fn a_preemption_is_told_to_those_that_it_unregisters_and_another_type_to_those_that_stay() {
    use ReservationType::{ExclusiveAccess, ExclusiveAccessAll, WriteExclusive};
    let preempts = |key: u64, kind, action| {
        move |all: &mut Hosts| {
            let io = all.io(0, 1);
            assert_eq!(all.acquire(io, action, kind, (10, key)), Status::SUCCESS);
        }
    };
    let gone = vec![RegistrationPreempted];
    for action in [AcquireAction::Preempt, AcquireAction::PreemptAndAbort] {
        // Nobody holds anything.
        let told = told_of(None, preempts(20, WriteExclusive, action));
        assert_eq!(told, [none(), gone.clone(), none(), none(), gone.clone()]);
        // The holder, by the same type, and by another one.
        let told = told_of(Some((1, WriteExclusive)), preempts(20, WriteExclusive, action));
        assert_eq!(told, [none(), gone.clone(), none(), none(), gone.clone()]);
        let told = told_of(Some((1, WriteExclusive)), preempts(20, ExclusiveAccess, action));
        assert_eq!(told, [none(), gone.clone(), vec![ReservationReleased], none(), gone.clone()]);
        // Its own reservation.
        let told = told_of(Some((0, WriteExclusive)), preempts(10, ExclusiveAccess, action));
        let others = vec![ReservationReleased];
        assert_eq!(told, [none(), others.clone(), others.clone(), none(), others]);
        // All others, which hold it with it.
        let told = told_of(Some((1, ExclusiveAccessAll)), preempts(0, ExclusiveAccess, action));
        assert_eq!(told, [none(), gone.clone(), gone.clone(), none(), gone.clone()]);
    }
}

#[test]
fn who_loses_a_registration_since_all_is_cleared_is_told_so() {
    for holder in [None, Some((1, ReservationType::ExclusiveAccess))] {
        let told = told_of(holder, |all| {
            let io = all.io(0, 0);
            assert_eq!(all.release(io, ReleaseAction::Clear, ReservationType::ExclusiveAccess, 10), Status::SUCCESS);
        });
        let gone = vec![ReservationPreempted];
        assert_eq!(told, [none(), gone.clone(), gone.clone(), none(), gone]);
    }
}

/// The first host takes and gives up what the second one goes by.
fn give_up(all: &mut Hosts, times: u64) {
    let (io, kind) = (all.io(0, 0), ReservationType::WriteExclusiveRegistrants);
    for _ in 0..times {
        assert_eq!(all.acquire(io, AcquireAction::Acquire, kind, (10, 0)), Status::SUCCESS);
        assert_eq!(all.release(io, ReleaseAction::Release, kind, 10), Status::SUCCESS);
    }
}

#[test]
fn an_event_is_sent_to_who_asked_for_one_and_the_next_one_when_the_page_was_read() {
    let mut all = Hosts::new(&Reservations::new(), &[1, 2]);
    all.register_all(&[10, 20]);
    all.ask_for_event(1);
    assert!(!all.told());
    give_up(&mut all, 1);
    assert!(all.told());
    // Another one waits until the page was read, and its event not retained.
    all.ask_for_event(1);
    give_up(&mut all, 1);
    assert!(!all.told());
    let page = all.read_page(1, true, 0);
    assert_eq!((page.count.get(), page.kind, page.available), (1, ReservationReleased as u8, 1));
    give_up(&mut all, 1);
    assert!(!all.told(), "retained, and the page is gone nevertheless");
    assert_eq!(all.notification(1), (2, Some(ReservationReleased), 1));
    assert!(!all.told(), "one is there, as the page says; there is no new one");
    give_up(&mut all, 1);
    assert!(all.told());
    // What happened while nobody had asked is told to who asks.
    assert_eq!(all.notifications(1).len(), 2);
    give_up(&mut all, 1);
    all.ask_for_event(1);
    assert!(all.told());
    // A part that does not begin the page leaves it there.
    assert_eq!(all.read_page(1, false, 64).count.get(), 0);
    assert_eq!(all.notification(1), (5, Some(ReservationReleased), 0));
    assert_eq!(all.notification(1), (0, None, 0));
    all.raw.shut_down();
}

#[test]
fn what_a_host_does_not_read_in_time_is_lost_and_counted() {
    let mut all = Hosts::new(&Reservations::new(), &[1, 2]);
    all.register_all(&[10, 20]);
    give_up(&mut all, MANY);
    for count in 1..KEPT {
        assert_eq!(all.notification(1), (count, Some(ReservationReleased), (KEPT - count) as u8));
    }
    assert_eq!(all.notification(1), (MANY, Some(ReservationReleased), 0), "the last one speaks for those behind it");
    assert_eq!(all.notification(1), (0, None, 0));
    give_up(&mut all, 1);
    assert_eq!(all.notification(1), (MANY + 1, Some(ReservationReleased), 0));
    all.raw.shut_down();
}

#[test]
fn a_reset_forgets_notifications_their_count_and_what_was_masked() {
    let mut all = Hosts::new(&Reservations::new(), &[1, 2]);
    all.register_all(&[10, 20]);
    give_up(&mut all, 3);
    assert_eq!(all.set(1, feature::RESERVATION_NOTIFICATION_MASK, 1, 0xe), Status::SUCCESS);
    let admin = all.sessions[1].admin;
    let disable = PropertySet {
        property: Property::Configuration,
        size: PropertySize::Four,
        value: ControllerConfiguration::default().0.into(),
    };
    assert!(all.raw.command(admin, Command::PropertySet(disable), None).status().is_success());
    give_up(&mut all, 1);
    all.raw.steps(50);
    all.raw.enable(admin);
    assert_eq!(all.notification(1), (0, None, 0));
    give_up(&mut all, 1);
    assert_eq!(all.notification(1), (1, Some(ReservationReleased), 0));
}

#[test]
fn a_host_is_not_told_what_it_masks_for_a_namespace_or_for_all() {
    let mask = feature::RESERVATION_NOTIFICATION_MASK;
    for (namespace, bits) in [(1, ReservationReleased.mask()), (BROADCAST_NAMESPACE, 0xe), (1, 0xffff_ffff)] {
        let mut all = Hosts::new(&Reservations::new(), &[1, 2, 3]);
        all.register_all(&[10, 20, 30]);
        assert_eq!(all.get(1, mask, 1, Select::Current), Ok(0));
        assert_eq!(all.set(1, mask, namespace, bits), Status::SUCCESS);
        assert_eq!(all.get(1, mask, 1, Select::Current), Ok(u64::from(bits) & 0xe));
        assert_eq!(all.get(2, mask, 1, Select::Current), Ok(0), "another controller's is its own");
        all.ask_for_event(1);
        give_up(&mut all, 2);
        assert!(!all.told());
        assert_eq!((all.notifications(1).len(), all.notifications(2).len()), (0, 2));
        // Only what was masked, and no more when it is not.
        let (io, kind) = (all.io(0, 0), ReservationType::WriteExclusive);
        assert_eq!(all.acquire(io, AcquireAction::Preempt, kind, (10, 20)), Status::SUCCESS);
        let expected = if bits & RegistrationPreempted.mask() == 0 { vec![RegistrationPreempted] } else { none() };
        assert_eq!(all.notifications(1), expected);
        let second = all.io(1, 0);
        assert_eq!(all.register(second, RegisterAction::Register, (0, 20)), Status::SUCCESS);
        assert_eq!(all.set(1, mask, namespace, 0), Status::SUCCESS);
        give_up(&mut all, 1);
        assert_eq!(all.notifications(1), [ReservationReleased]);
        all.raw.shut_down();
    }
}

#[test]
fn features_are_those_of_a_namespace_that_has_reservations() {
    let mut all = Hosts::new(&Reservations::new(), &[1]);
    for feature in [feature::RESERVATION_NOTIFICATION_MASK, feature::RESERVATION_PERSISTENCE] {
        assert_eq!(all.get(0, feature, 1, Select::Capabilities), Ok(0b110), "of namespaces, and changeable");
        assert_eq!(all.get(0, feature, 1, Select::Default), Ok(0));
        assert_eq!(all.get(0, feature, BROADCAST_NAMESPACE, Select::Current), Err(Status::INVALID_FIELD));
        for namespace in [0, 77] {
            assert_eq!(all.get(0, feature, namespace, Select::Current), Err(Status::INVALID_NAMESPACE));
            assert_eq!(all.set(0, feature, namespace, 0), Status::INVALID_NAMESPACE);
        }
    }
    assert_eq!(all.set(0, feature::RESERVATION_PERSISTENCE, 1, 1), Status::INVALID_FIELD, "nothing would survive");
    assert_eq!(all.set(0, feature::RESERVATION_PERSISTENCE, 1, 0), Status::SUCCESS);
    all.raw.shut_down();
}

#[test]
fn hosts_of_another_device_are_told_too_and_of_what_its_core_was_too_late_for_the_count_tells() {
    let reservations = Reservations::new();
    let (mut first, mut second) = (Hosts::new(&reservations, &[1]), Hosts::new(&reservations, &[2]));
    for (all, key) in [(&mut first, 10), (&mut second, 20)] {
        let io = all.io(0, 0);
        assert_eq!(all.register(io, RegisterAction::Register, (0, key)), Status::SUCCESS);
    }
    second.ask_for_event(0);
    give_up(&mut first, 1);
    assert!(second.told());
    assert_eq!(second.notification(0), (1, Some(ReservationReleased), 0));
    // Nobody polls the second one.
    give_up(&mut first, NEWS + MANY);
    second.raw.steps(50);
    assert_eq!(second.notification(0), (1 + MANY + 1, Some(ReservationReleased), KEPT as u8 - 1));
    let last = core::iter::from_fn(|| Some(second.notification(0)).filter(|page| page.1.is_some())).last();
    assert_eq!(last, Some((1 + MANY + NEWS, Some(ReservationReleased), 0)));
}

#[test]
fn the_page_is_listed_where_there_are_reservations() {
    let mut all = Hosts::new(&Reservations::new(), &[1]);
    let admin = all.sessions[0].admin;
    let command = GetLogPage {
        page: log_page::SUPPORTED,
        specific: 0,
        retain_event: false,
        length: 1024,
        offset: 0,
        offset_is_index: false,
        namespace: 0,
        data: keyed(1024),
    };
    let response = all.raw.command(admin, Command::GetLogPage(command), Some((Access::RemoteWrite, 1024)));
    assert!(response.status().is_success(), "{}", response.status());
    let mut bytes = [0; 1024];
    all.raw.data.read(0, &mut bytes).unwrap();
    let listed: Vec<_> = (0..256).filter(|page| bytes[4 * page] & 1 != 0).collect();
    assert_eq!(listed, [0, 1, 2, 3, 4, 5, 12, 128]);
    all.raw.shut_down();
}
