//! Measures all that the rows of a run need, each quantity once.

use super::figure::Measured;
use super::programs::Places;
use super::quantity::{Group, Quantity};
use super::rows::Row;
use super::{counting, guest, timing};

/// What a run found out.
#[derive(Debug, Default)]
pub(super) struct Results(Vec<(Quantity, Measured)>);

impl Results {
    /// What was measured of one quantity, sums included.
    pub(super) fn of(&self, quantity: &Quantity) -> Measured {
        quantity.value(&|leaf| {
            let found = self.0.iter().find(|(measured, _)| measured == leaf);
            found.map_or_else(|| Err(not_asked_for(leaf)), |(_, measured)| measured.clone())
        })
    }
}

fn not_asked_for(quantity: &Quantity) -> String {
    format!("not asked for: it is measured by benches/run {}", quantity.group().name())
}

/// What the cases of these rows need in one group.
pub(super) fn needed(rows: &[&Row], group: Group) -> Vec<Quantity> {
    let mut leaves = Vec::new();
    for case in rows.iter().flat_map(|row| row.cases) {
        for quantity in core::iter::once(&case.ours).chain(&case.peer) {
            quantity.leaves(&mut leaves);
        }
    }
    leaves.retain(|leaf| leaf.group() == group);
    leaves
}

/// The same in another boot of the virtual machine, beside what this machine has shown.
pub(super) fn measure_again(places: &Places, rows: &[&Row], before: &Results) -> Results {
    let mut results =
        Results(before.0.iter().filter(|(quantity, _)| quantity.group() != Group::Guest).cloned().collect());
    results.0.extend(guest::measure(places, &needed(rows, Group::Guest)));
    results
}

/// Measures these rows in the given groups.
pub(super) fn measure(places: &Places, rows: &[&Row], groups: &[Group]) -> Results {
    let mut results = Results::default();
    if groups.contains(&Group::Count) {
        results.0.extend(counting::measure(places, &needed(rows, Group::Count)));
    }
    if groups.contains(&Group::Cores) {
        for row in rows {
            let mut wanted = needed(&[*row], Group::Cores);
            wanted.retain(|quantity| !results.0.iter().any(|(measured, _)| measured == quantity));
            results.0.extend(timing::measure(places, &wanted));
        }
    }
    if groups.contains(&Group::Guest) {
        results.0.extend(guest::measure(places, &needed(rows, Group::Guest)));
    }
    results
}
