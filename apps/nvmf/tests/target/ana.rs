//! Namespaces in several ANA groups, of which some cannot be reached: on one core and on two.

use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Access;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::controller::{ChangeError, ChangeEvent, MAX_ANA_GROUPS, NewNamespace, Subsystem};
use frwr_nvmf::storage::MemoryStorage;
use frwr_nvmf::wire::{
    AnaGroup, AnaLogHeader, AnaState, BlockRange, Command, GetLogPage, Identify, IdentifyController, IdentifyNamespace,
    Nqn, SetFeatures, Status, cns, feature, log_page,
};
use frwr_support::nvmf_harness::raw::{Raw, keyed};
use frwr_support::nvmf_harness::{memory, subsystem, target_options};
use zerocopy::FromBytes;

const BLOCK: u32 = 512;
/// ANA change notices.
const EVENTS: u32 = 0x800;
/// RGO.
const GROUPS_ONLY: u8 = 1;

/// A group as the log page has it: identifier, state, change count and namespaces.
type Listed = (u32, u8, u64, Vec<u32>);

/// Namespaces 1 to 3 in the groups 1, 7 and 7, of which the latter is non-optimized at the start, and a host with a queue on each core.
struct Groups {
    raw: Raw<MemoryStorage>,
    admin: ConnectionId,
    queues: Vec<ConnectionId>,
    media: Vec<DeviceMemory>,
}

impl Groups {
    fn new(cores: u16) -> Self {
        let media: Vec<_> = (0..4).map(|_| memory(64 * BLOCK as usize)).collect();
        let options = target_options().cores(cores).io_queues(2).namespaces(4);
        let mut raw = Raw::spread(options, |_| {
            let mut one = Subsystem::new(subsystem(), media[..3].iter().map(Self::way).collect());
            one.namespaces.iter_mut().skip(1).for_each(|namespace| namespace.ana_group = 7);
            one.ana_states = vec![(7, AnaState::NonOptimized)];
            vec![one]
        });
        let (admin, controller) = raw.controller();
        let queues = (1..=2).map(|queue| raw.another_queue(controller, queue)).collect();
        let set = SetFeatures { feature: feature::ASYNCHRONOUS_EVENTS, save: false, namespace: 0, value: EVENTS };
        assert!(raw.command(admin, Command::SetFeatures(set), None).status().is_success());
        Self { raw, admin, queues, media }
    }

    fn way(medium: &DeviceMemory) -> MemoryStorage {
        MemoryStorage::new(medium.clone(), BLOCK, 64).unwrap()
    }

    fn identify(&mut self, structure: u8, namespace: u32) -> [u8; 4096] {
        let identify = Command::Identify(Identify { structure, namespace, data: keyed(4096) });
        let answer = self.raw.command(self.admin, identify, Some((Access::RemoteWrite, 4096)));
        assert!(answer.status().is_success(), "{}", answer.status());
        let mut bytes = [0; 4096];
        self.raw.data.read(0, &mut bytes).unwrap();
        bytes
    }

    /// The log page: its change count, and its groups.
    fn page(&mut self, specific: u8) -> (u64, Vec<Listed>) {
        let (length, data) = (1024, keyed(1024));
        let (page, retain_event, offset, offset_is_index, namespace) = (log_page::ANA, false, 0, false, u32::MAX);
        let get = GetLogPage { page, specific, retain_event, length, offset, offset_is_index, namespace, data };
        let answer = self.raw.command(self.admin, Command::GetLogPage(get), Some((Access::RemoteWrite, 1024)));
        assert!(answer.status().is_success(), "{}", answer.status());
        let mut bytes = [0; 1024];
        self.raw.data.read(0, &mut bytes).unwrap();
        let (header, mut rest) = AnaLogHeader::read_from_prefix(&bytes).unwrap();
        let groups = (0..header.groups.get()).map(|_| {
            let (group, behind) = AnaGroup::read_from_prefix(rest).unwrap();
            let (listed, behind) = behind.split_at(group.namespaces.get() as usize * 4);
            rest = behind;
            let identifiers = listed.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
            (group.group.get(), group.state, group.change_count.get(), identifiers)
        });
        (header.change_count.get(), groups.collect())
    }

    /// How each core answers a read of a namespace.
    fn reads(&mut self, namespace: u32) -> Status {
        let answers = self.queues.clone().into_iter().map(|io| {
            let range = BlockRange { namespace, lba: 0, blocks: 1, data: keyed(BLOCK) };
            self.raw.command(io, Command::Read(range), Some((Access::RemoteWrite, BLOCK))).status()
        });
        let answers: Vec<_> = answers.collect();
        assert!(answers.iter().all(|status| status.code() == answers[0].code()), "{answers:?}");
        assert!(answers.iter().all(|status| status.is_success() || !status.is_final()), "hosts may try again");
        answers[0]
    }

    fn set(&mut self, group: Option<u32>, state: AnaState) {
        self.raw.target.set_ana_state(&subsystem(), group, state).unwrap();
        self.raw.steps(5);
    }
}

#[test]
fn each_group_is_listed_with_its_namespaces_and_its_state() {
    let mut groups = Groups::new(1);
    let controller = IdentifyController::read_from_bytes(&groups.identify(cns::CONTROLLER, 0)).unwrap();
    assert_eq!((controller.ana_max_group.get(), controller.ana_groups.get()), (MAX_ANA_GROUPS, MAX_ANA_GROUPS));
    let of = |groups: &mut Groups, namespace| {
        let identified = IdentifyNamespace::read_from_bytes(&groups.identify(cns::NAMESPACE, namespace)).unwrap();
        (identified.ana_group.get(), identified.size.get())
    };
    assert_eq!([1, 2, 3].map(|namespace| of(&mut groups, namespace)), [(1, 64), (7, 64), (7, 64)]);
    let (_, listed) = groups.page(0);
    let (optimized, other) = (AnaState::Optimized as u8, AnaState::NonOptimized as u8);
    let without_counts = |listed: Vec<Listed>| -> Vec<_> {
        listed.into_iter().map(|(group, state, _, namespaces)| (group, state, namespaces)).collect()
    };
    assert_eq!(without_counts(listed), [(1, optimized, vec![1]), (7, other, vec![2, 3])]);
    let (_, listed) = groups.page(GROUPS_ONLY);
    assert_eq!(without_counts(listed), [(1, optimized, vec![]), (7, other, vec![])]);
    // What cannot be reached is identified all the same.
    groups.set(Some(7), AnaState::Inaccessible);
    assert_eq!(of(&mut groups, 3), (7, 64));
}

/// Hosts ask for all that it may be, in parts (nvme-cli in such of 4096 bytes).
#[test]
fn the_page_is_as_long_as_identify_says_that_it_may_be() {
    let mut groups = Groups::new(1);
    let controller = IdentifyController::read_from_bytes(&groups.identify(cns::CONTROLLER, 0)).unwrap();
    let longest = 16 + 32 * controller.ana_groups.get() + 4 * controller.max_namespaces.get();
    let mut part = |offset: u32| {
        let (page, retain_event, specific, offset_is_index, namespace) = (log_page::ANA, false, 0, false, u32::MAX);
        let (offset, length, data) = (offset.into(), 4, keyed(4));
        let get = GetLogPage { page, specific, retain_event, length, offset, offset_is_index, namespace, data };
        let status =
            groups.raw.command(groups.admin, Command::GetLogPage(get), Some((Access::RemoteWrite, 4))).status();
        let mut bytes = [0xff; 4];
        groups.raw.data.read(0, &mut bytes).unwrap();
        status.is_success().then_some(bytes)
    };
    assert_eq!([4096, longest - 4].map(&mut part), [Some([0; 4]); 2]);
    assert_eq!(part(longest + 4), None);
}

#[test]
fn a_state_of_one_group_is_no_matter_of_another() {
    for cores in [1, 2] {
        let mut groups = Groups::new(cores);
        let success = Status::SUCCESS.code();
        for (state, status) in [
            (AnaState::Inaccessible, Status::ANA_INACCESSIBLE),
            (AnaState::Change, Status::ANA_TRANSITION),
            (AnaState::PersistentLoss, Status::ANA_PERSISTENT_LOSS),
            (AnaState::Optimized, Status::SUCCESS),
        ] {
            let (before, listed) = groups.page(GROUPS_ONLY);
            let entry = Command::AsynchronousEventRequest.encode(900).unwrap();
            groups.raw.send(groups.admin, entry, None);
            groups.raw.steps(50);
            groups.raw.responses.clear();
            groups.set(Some(7), state);
            groups.raw.until("told", |raw| raw.responses.len() == 1);
            assert_eq!(groups.raw.responses[0].result.get(), 0x000c_0302);
            assert_eq!(
                [1, 2, 3].map(|namespace| groups.reads(namespace).code()),
                [success, status.code(), status.code()]
            );
            let (after, changed) = groups.page(GROUPS_ONLY);
            assert_eq!((after, &changed[0]), (before + 1, &listed[0]));
            assert_eq!((changed[1].1, changed[1].2), (state as u8, listed[1].2 + 1));
        }
        // All at once, of which members may hear later than of what one group has since.
        groups.raw.carried = false;
        groups.set(Some(1), AnaState::Change);
        groups.set(None, AnaState::Inaccessible);
        groups.set(Some(1), AnaState::NonOptimized);
        groups.raw.carried = true;
        groups.raw.steps(5);
        assert_eq!([1, 2].map(|namespace| groups.reads(namespace).code()), [success, Status::ANA_INACCESSIBLE.code()]);
    }
}

#[test]
fn a_namespace_that_comes_has_the_state_of_its_group() {
    for cores in [1, 2] {
        let mut groups = Groups::new(cores);
        // Before the group has namespaces.
        groups.set(Some(9), AnaState::Inaccessible);
        assert_eq!(groups.page(GROUPS_ONLY).1.len(), 2);
        let way = || Groups::way(&groups.media[3]);
        for member in &mut groups.raw.members {
            member.supply_namespace(&subsystem(), 4, way()).unwrap();
        }
        let new = |ana_group| NewNamespace { identifier: 4, nguid: None, ana_group, active: true, storage: way() };
        let refused = groups.raw.target.add_namespace(&subsystem(), new(MAX_ANA_GROUPS + 1)).unwrap_err();
        assert_eq!(refused.error, ChangeError::AnaGroup { group: MAX_ANA_GROUPS + 1 });
        let id = groups.raw.target.add_namespace(&subsystem(), new(9)).unwrap();
        groups.raw.until("there", |raw| {
            core::iter::from_fn(|| raw.target.next_change()).any(|event| match event {
                ChangeEvent::Done { id: done } => done == id,
                _ => false,
            })
        });
        assert_eq!(groups.reads(4).code(), Status::ANA_INACCESSIBLE.code());
        assert_eq!(groups.page(0).1[2].3, [4]);
        groups.set(Some(9), AnaState::Optimized);
        assert!(groups.reads(4).is_success());
        let id = groups.raw.target.remove_namespace(&subsystem(), 4, Duration::ZERO).unwrap();
        assert!(id.0 > 0);
        groups.raw.steps(50);
        assert_eq!(groups.page(0).1.len(), 2, "a group without namespaces is listed no longer");
    }
}

/// As hosts understand it that know nothing of draining: the host is told, reads that no group can be reached by this controller, and the
/// groups themselves are as they were to others.
#[test]
fn by_a_controller_that_drains_no_group_can_be_reached() {
    for cores in [1, 2] {
        let mut groups = Groups::new(cores);
        groups.set(Some(7), AnaState::PersistentLoss);
        let (count, before) = groups.page(0);
        let request = Command::AsynchronousEventRequest.encode(900).unwrap();
        groups.raw.responses.clear();
        groups.raw.send(groups.admin, request, None);
        groups.raw.steps(50);
        groups.raw.target.drain(None, Duration::ZERO).unwrap();
        groups.raw.until("told", |raw| raw.responses.iter().any(|answer| answer.command_id.get() == 900));
        // A notice of the ANA page.
        assert_eq!(groups.raw.responses.pop().unwrap().result.get(), 0x000c_0302);
        let (drained, after) = groups.page(0);
        assert!(drained > count);
        let states: Vec<_> = after.iter().map(|group| (group.0, group.1)).collect();
        assert_eq!(states, [(1, AnaState::Inaccessible as u8), (7, AnaState::PersistentLoss as u8)]);
        assert!(after.iter().zip(&before).all(|(after, before)| after.2 > before.2 && after.3 == before.3));
        assert_eq!(groups.reads(1), Status::ANA_INACCESSIBLE);
        let served = groups.raw.target.inventory();
        assert_eq!(served.subsystems[0].ana_of(1), Some(AnaState::Optimized), "of the target and not of this host");
        groups.raw.pass(Duration::from_secs(1));
        groups.raw.until("left", |raw| raw.disconnected.len() == 3);
    }
}

#[test]
fn a_group_that_cannot_be_is_refused() {
    let mut groups = Groups::new(1);
    for group in [0, MAX_ANA_GROUPS + 1] {
        let refused = groups.raw.target.set_ana_state(&subsystem(), Some(group), AnaState::Change);
        assert_eq!(refused, Err(ChangeError::AnaGroup { group }));
    }
    let missing = Nqn::new("nqn.none").unwrap();
    assert_eq!(groups.raw.target.set_ana_state(&missing, Some(1), AnaState::Change), Err(ChangeError::Subsystem));
    assert!(groups.reads(1).is_success());
}
