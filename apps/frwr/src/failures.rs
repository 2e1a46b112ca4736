//! What did not work in a run beside what ended connections: each kind with how often, and what the device said last.

use frwr_engine::{
    PadFailure, Statistics,
    control::ControlStatistics,
    provider::{CommandError, PostError},
};
use serde_json::{Value, json};

/// A line for each kind that occurred.
pub(crate) fn lines(engine: &Statistics) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(error) = engine.mr_allocation_error {
        let failed = engine.mr_allocations_failed;
        let asked = engine.mrs_allocated + failed;
        lines.push(format!("MR objects: {failed} of {asked} could not be made ({error})"));
    }
    if let Some(error) = engine.deregistration_error {
        let (refused, kept) = (engine.deregistrations_failed, engine.mrs_orphaned);
        lines.push(format!(
            "MR objects: the device refused {refused} time(s) to destroy one ({error}), and keeps {kept}"
        ));
    }
    if let Some(failure) = engine.pad_failure {
        let failed = engine.pads_failed;
        lines.push(format!("write pads: {failed} of {} could not be made ({failure})", engine.connections));
    }
    if let Some(error) = engine.post_error {
        lines.push(format!("posts: {} were refused, the last: {error}", engine.posts_refused));
    }
    lines
}

/// The same, and of commands to the device, as an object of JSON; errors are `null` where there were none.
pub(crate) fn json(engine: &Statistics, control: &ControlStatistics) -> Value {
    json!({
        "mrs_not_made": engine.mr_allocations_failed,
        "mr_error": engine.mr_allocation_error.map(of_command),
        "mr_destructions_refused": engine.deregistrations_failed,
        "mr_destruction_error": engine.deregistration_error.map(of_command),
        "mrs_orphaned": engine.mrs_orphaned,
        "pads_not_made": engine.pads_failed,
        "pad_error": engine.pad_failure.map(of_pad),
        "posts_refused": engine.posts_refused,
        "post_error": engine.post_error.map(of_post),
        "commands_failed": control.commands_failed,
        "command_error": control.command_error.map(of_command),
    })
}

fn of_command(error: CommandError) -> Value {
    json!({ "errno": error.errno().0, "text": error.to_string() })
}

fn of_post(error: PostError) -> Value {
    json!({ "errno": error.errno.0, "text": error.to_string() })
}

fn of_pad(failure: PadFailure) -> Value {
    match failure {
        PadFailure::PostRefused(error) => of_post(error),
        PadFailure::NoMr | PadFailure::NoMemory => json!({ "errno": null, "text": failure.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::{json, lines};
    use frwr_engine::{
        PadFailure, Statistics,
        control::ControlStatistics,
        provider::{CommandError, Errno, PostError, PostRefusal},
    };

    #[test]
    fn nothing_is_said_of_a_clean_run_and_each_kind_has_its_numbers() {
        assert!(lines(&Statistics::default()).is_empty());
        let post = PostError { accepted: 2, reason: PostRefusal::QueueFull, errno: Errno(28) };
        let mut engine = Statistics::default();
        (engine.mrs_allocated, engine.mr_allocations_failed, engine.connections) = (5, 3, 2);
        engine.mr_allocation_error = Some(CommandError::Exhausted(Errno(12)));
        (engine.deregistrations_failed, engine.mrs_orphaned) = (6, 2);
        engine.deregistration_error = Some(CommandError::Busy(Errno(22)));
        (engine.pads_failed, engine.pad_failure) = (1, Some(PadFailure::PostRefused(post)));
        (engine.posts_refused, engine.post_error) = (4, Some(post));
        let text = "the queue is full (errno 28 ENOSPC), behind 2 accepted work requests";
        assert_eq!(
            lines(&engine),
            [
                "MR objects: 3 of 8 could not be made (the device has none left (errno 12 ENOMEM))".to_owned(),
                "MR objects: the device refused 6 time(s) to destroy one (the object is in use (errno 22 EINVAL)), and keeps 2"
                    .to_owned(),
                format!("write pads: 1 of 2 could not be made (the device refused its registration: {text})"),
                format!("posts: 4 were refused, the last: {text}"),
            ]
        );
        let told = json(&engine, &ControlStatistics::default());
        assert_eq!((&told["mr_error"]["errno"], &told["post_error"]["errno"]), (&12.into(), &28.into()));
        assert!(told["command_error"].is_null() && told["commands_failed"] == 0);
    }
}
