//! What the feature `serde` makes of statistics: their fields by their names, as whoever reads a report wants them.

use frwr_engine::{
    Statistics, Waiting,
    control::ControlStatistics,
    provider::{CommandError, Errno, PostError, PostRefusal, record::Counters},
};
use serde_json::{Value, json, to_value};

fn fields(of: Value) -> serde_json::Map<String, Value> {
    let Value::Object(fields) = of else { panic!("{of}") };
    fields
}

#[test]
fn an_engines_statistics_have_their_fields_by_name() {
    let mut statistics = Statistics::default();
    statistics.requests = 7;
    statistics.request_waits.order = 3;
    statistics.mr_allocation_error = Some(CommandError::LockedMemory { wanted: 4096, limit: 0 });
    statistics.post_error = Some(PostError::new(2, PostRefusal::QueueFull));
    let told = fields(to_value(statistics).unwrap());
    assert_eq!(
        (&told["requests"], &told["polls"], &told["shortest_key_reuse_ns"]),
        (&json!(7), &json!(0), &Value::Null)
    );
    let waits = json!({"registrations": 0, "peer_receives": 0, "reply_receives": 0, "send_entries": 0, "order": 3});
    assert_eq!(told["request_waits"], waits);
    assert_eq!(told["mr_allocation_error"], json!({"LockedMemory": {"wanted": 4096, "limit": 0}}));
    assert_eq!(told["post_error"], json!({"accepted": 2, "reason": "QueueFull", "errno": Errno::ENOMEM.0}));
}

#[test]
fn controls_a_ports_and_what_waits_have_theirs() {
    let mut control = ControlStatistics::default();
    control.command_error = Some(CommandError::BUSY);
    let told = fields(to_value(control).unwrap());
    assert_eq!((&told["command_error"], &told["commands"]), (&json!({"Busy": Errno::EBUSY.0}), &json!(0)));
    assert_eq!(fields(to_value(Counters { doorbells: 5, ..Counters::default() }).unwrap())["doorbells"], json!(5));
    assert_eq!(fields(to_value(Waiting::default()).unwrap())["transfers"]["send_entries"], json!(0));
}
