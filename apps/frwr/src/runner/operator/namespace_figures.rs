//! What became of the commands of namespaces on all cores together: how long they took, and as what they failed.

use super::{super::survey::Findings, sums::inventories};
use frwr_nvmf::{
    controller::{CommandKind, Latencies, NamespaceState},
    wire::Status,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Latencies by the subsystem's index, the namespace's identifier and the kind of command; without those that there were none of.
pub(super) fn latencies(findings: &Findings) -> Vec<((usize, u32, CommandKind), Latencies)> {
    let mut sums = BTreeMap::<_, Latencies>::new();
    for one in inventories(findings).flat_map(|core| &core.latencies) {
        *sums.entry((one.subsystem, one.identifier, one.kind)).or_default() += one.latencies;
    }
    sums.into_iter().collect()
}

/// How many commands failed, by the subsystem's index, the namespace's identifier and the status.
pub(super) fn errors(findings: &Findings) -> Vec<((usize, u32, Status), u64)> {
    let mut sums = BTreeMap::new();
    for one in inventories(findings).flat_map(|core| &core.errors) {
        let (_, count) = sums.entry((one.subsystem, one.identifier, one.status.code())).or_insert((one.status, 0));
        *count += one.count;
    }
    let of_one = |((subsystem, identifier, _), (status, count))| ((subsystem, identifier, status), count);
    sums.into_iter().map(of_one).collect()
}

/// The name of a status in the standard as one word.
pub(super) fn status_name(status: Status) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '_' };
    status.name().chars().map(letter).collect()
}

/// What kind of status it is (Base figure 95).
pub(super) fn status_type(status: Status) -> &'static str {
    match status.code() >> 8 {
        0 => "generic",
        1 => "command_specific",
        2 => "media",
        3 => "path",
        _ => "other",
    }
}

/// What is told of each namespace beside its state.
pub(super) struct NamespaceFigures {
    latencies: Vec<((usize, u32, CommandKind), Latencies)>,
    errors: Vec<((usize, u32, Status), u64)>,
}

impl NamespaceFigures {
    pub(super) fn of(findings: &Findings) -> Self {
        Self { latencies: latencies(findings), errors: errors(findings) }
    }

    /// Of this one.
    pub(super) fn json(&self, namespace: &NamespaceState) -> Value {
        let is_its = |subsystem, identifier| (subsystem, identifier) == (namespace.subsystem, namespace.identifier);
        let latencies = self.latencies.iter().filter(|((subsystem, identifier, _), _)| is_its(*subsystem, *identifier));
        let latencies: Map<_, _> =
            latencies.map(|((_, _, kind), latencies)| (kind.name().to_owned(), latencies_json(latencies))).collect();
        let errors = self.errors.iter().filter(|((subsystem, identifier, _), _)| is_its(*subsystem, *identifier));
        let errors: Map<_, _> = errors.map(|((_, _, status), count)| (status_name(*status), (*count).into())).collect();
        json!({ "latency": latencies, "errors": errors })
    }
}

/// Lengths that nothing had are left out: of hundreds of namespaces an answer would be too large with them.
fn latencies_json(latencies: &Latencies) -> Value {
    let lengths = latencies.counts().filter(|(_, count)| *count > 0);
    let lengths: Vec<_> = lengths.map(|(end, count)| json!([end.map(|end| end.as_secs_f64()), count])).collect();
    json!({ "count": latencies.count(), "sum_seconds": latencies.sum().as_secs_f64(), "up_to_seconds": lengths })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_words_of_which_each_is_of_its_type() {
        for (status, name, of) in [
            (Status::LBA_OUT_OF_RANGE.do_not_retry(), "lba_out_of_range", "generic"),
            (Status::COMMAND_SIZE_LIMIT_EXCEEDED, "command_size_limit_exceeded", "command_specific"),
            (Status::UNRECOVERED_READ_ERROR, "unrecovered_read_error", "media"),
            (Status::ANA_INACCESSIBLE, "asymmetric_access_inaccessible", "path"),
        ] {
            assert_eq!((status_name(status), status_type(status)), (name.to_owned(), of));
        }
    }
}
