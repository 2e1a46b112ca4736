//! What a target is made with: namespaces of any identifier, subsystems without any, and what cannot be.

use frwr_engine::control::Control;
use frwr_engine::provider::soft::{SoftFabric, SoftOptions, SoftPort};
use frwr_nvmf::controller::{ChangeError, NewNamespace, Subsystem, Target, TargetError};
use frwr_nvmf::storage::MemoryStorage;
use frwr_nvmf::wire::Nqn;
use frwr_support::nvmf_harness::{Pair, engine_of, host_options, memory, subsystem, target_options};

fn namespace(identifier: u32, nguid: Option<[u8; 16]>) -> NewNamespace<MemoryStorage> {
    NewNamespace {
        identifier,
        nguid,
        ana_group: 1,
        active: true,
        storage: MemoryStorage::new(memory(64 << 10), 512, 64).unwrap(),
    }
}

fn with(namespaces: Vec<NewNamespace<MemoryStorage>>) -> Subsystem<MemoryStorage> {
    Subsystem { namespaces, ..Subsystem::new(subsystem(), Vec::new()) }
}

#[test]
fn namespaces_have_the_identifiers_and_names_that_they_were_given_and_a_subsystem_may_have_none() {
    let empty = Subsystem::new(Nqn::new("nqn.empty").unwrap(), Vec::new());
    let subsystems = vec![with(vec![namespace(7, Some([7; 16])), namespace(3, None)]), empty];
    let options = host_options().namespace(7);
    let mut pair = Pair::with_subsystems("reg_mr", options, target_options().namespaces(2), subsystems, 8);
    pair.bring_up();
    let told = pair.target.inventory();
    let all: Vec<_> = told.namespaces.iter().map(|one| (one.subsystem, one.identifier, one.nguid)).collect();
    assert_eq!(all, [(0, 3, subsystem().identifier(3)), (0, 7, [7; 16])]);
    assert_eq!((told.subsystems[1].namespaces, told.subsystems[1].listed), (0, true));
    pair.finish();
}

fn refused(namespaces: Vec<NewNamespace<MemoryStorage>>) -> ChangeError {
    let mut control = Control::new(SoftFabric::new().device(SoftOptions::new("reg_mr".parse().unwrap())));
    let options = target_options();
    let engine = engine_of(&mut control, options.engine());
    let buffers = memory(options.buffer_memory_bytes(4));
    let made = Target::<SoftPort, _>::with_subsystems(engine, vec![with(namespaces)], buffers, options);
    match made.err() {
        Some(TargetError::Subsystem { subsystem: 0, source }) => source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn namespaces_that_hosts_could_not_tell_apart_are_refused() {
    assert!(matches!(refused(vec![namespace(0, None)]), ChangeError::Identifier { identifier: 0, .. }));
    assert!(matches!(refused(vec![namespace(1025, None)]), ChangeError::Identifier { identifier: 1025, limit: 1024 }));
    assert_eq!(refused(vec![namespace(2, None), namespace(2, None)]), ChangeError::Taken { identifier: 2 });
    let alike = vec![namespace(2, Some([1; 16])), namespace(3, Some([1; 16]))];
    assert_eq!(refused(alike), ChangeError::Identity { identifier: 3, other: 2 });
}
