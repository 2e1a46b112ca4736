//! What the feature `serde` makes of statistics: their fields by their names.

use frwr_engine::provider::{CommandError, Errno};
use frwr_nvmf::{
    controller::{TargetListening, TargetStatistics},
    host::HostStatistics,
    storage::{MediumFault, StorageStatistics},
};
use serde_json::{json, to_value};

#[test]
fn a_hosts_a_targets_and_a_storages_statistics_have_their_fields_by_name() {
    let mut host = HostStatistics::default();
    host.submissions = 3;
    assert_eq!(to_value(host).unwrap()["submissions"], json!(3));

    let mut target = TargetStatistics::default();
    target.listening = TargetListening::Failed(CommandError::ADDRESS);
    let told = to_value(target).unwrap();
    assert_eq!(told["listening"], json!({"Failed": {"Address": Errno::EADDRNOTAVAIL.0}}));
    assert_eq!(told["reads"], json!(0));

    let fault = Some(MediumFault::Shrunk { found: 1, wanted: 2 });
    let told = to_value(StorageStatistics { broken: 5, fault, ..StorageStatistics::default() }).unwrap();
    assert_eq!(told["fault"], json!({"Shrunk": {"found": 1, "wanted": 2}}));
    assert_eq!((&told["broken"], &told["submitted"]), (&json!(5), &json!(0)));
}
