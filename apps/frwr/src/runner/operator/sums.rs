//! What all cores of a target have together, by what each of them said, and did for devices that have left.

use super::super::survey::Findings;
use core::ops::Add;
use frwr_engine::Statistics as EngineStatistics;
use frwr_nvmf::controller::{Inventory, NamespaceState, TargetStatistics, WaitingNow};

pub(super) fn target(findings: &Findings) -> TargetStatistics {
    findings.all().map(|core| core.target).reduce(Add::add).unwrap_or_default()
}

pub(super) fn engine(findings: &Findings) -> EngineStatistics {
    findings.all().map(|core| core.engine).reduce(Add::add).unwrap_or_default()
}

/// The same of one device.
pub(super) fn engine_of(findings: &Findings, device: usize) -> EngineStatistics {
    findings.of_device(device).map(|core| core.engine).reduce(Add::add).unwrap_or_default()
}

pub(super) fn inventories(findings: &Findings) -> impl Iterator<Item = &Inventory> {
    findings.all().map(|core| &core.inventory)
}

pub(super) fn home(findings: &Findings) -> Option<&Inventory> {
    findings.home().map(|home| &home.inventory)
}

pub(super) fn waiting(findings: &Findings) -> WaitingNow {
    let mut sum = WaitingNow::default();
    for WaitingNow { buffers, transfers_or_storage, admission, former_session, .. } in
        inventories(findings).map(|core| core.waiting)
    {
        sum.buffers += buffers;
        sum.transfers_or_storage += transfers_or_storage;
        sum.admission += admission;
        sum.former_session += former_session;
    }
    sum
}

/// Namespaces with what all cores did in them.
pub(super) fn merged(findings: &Findings) -> Vec<NamespaceState> {
    let mut all = inventories(findings);
    let Some(first) = all.next() else { return Vec::new() };
    let mut sums = first.namespaces.clone();
    for core in all {
        let mut others = core.namespaces.iter();
        for sum in &mut sums {
            // Both are in the same order, and while one comes or goes a core may not have it.
            let is_it =
                |other: &&NamespaceState| (other.subsystem, other.identifier) == (sum.subsystem, sum.identifier);
            let Some(other) = others.clone().find(is_it) else { continue };
            others.find(is_it);
            sum.storage = sum.storage + other.storage;
            sum.bytes_read += other.bytes_read;
            sum.bytes_written += other.bytes_written;
        }
    }
    sums
}

/// What became of proofs, by names.
pub(super) fn authenticated(target: &TargetStatistics) -> [(&'static str, u64); 7] {
    [
        ("proven", target.authentications),
        ("wrong_proof", target.authentications_wrong),
        ("no_key", target.authentications_without_key),
        ("no_common_choice", target.authentications_without_choice),
        ("late", target.authentications_late),
        ("refused_by_host", target.authentications_refused),
        ("broken", target.authentications_broken),
    ]
}
