//! What is done about a command that the controller ended with a status: one table, and its bounds.

use super::context::Context;
use super::error::IoError;
use super::limits::Limits;
use super::parts::Part;
use super::requests::Requests;
use crate::wire::{AnaState, Status};
use core::time::Duration;
use frwr_engine::provider::Port;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recourse {
    /// Nothing: it succeeded.
    Done,
    /// Its request fails: the same command would end in the same way, or the controller says so (Do Not Retry).
    Fail,
    /// It is sent again after a pause, `command_retries` times.
    Again,
    /// It is sent again after pauses for `inaccessible_timeout`: the way to the namespace, or the namespace itself, is away.
    Away,
    /// Asymmetric access (Base 8.1): it is sent again when the log page says that the path is back.
    Path(AnaState),
}

impl Recourse {
    /// The table (Base 2.0, figures 95 to 103, and NVM figure 36). What it does not name is an error that the controller says may be tried again.
    fn of(status: Status) -> Self {
        let path = match status.without_flags() {
            Status::SUCCESS => return Self::Done,
            // Not an error but what the command was to find out.
            Status::COMPARE_FAILURE => return Self::Fail,
            Status::ANA_PERSISTENT_LOSS => Some(AnaState::PersistentLoss),
            Status::ANA_INACCESSIBLE => Some(AnaState::Inaccessible),
            Status::ANA_TRANSITION => Some(AnaState::Change),
            _ => None,
        };
        if let Some(state) = path {
            return Self::Path(state);
        }
        // Of the queue, whatever is said of the command: until its host has proven itself once more, or the session ends.
        if status.without_flags() == Status::AUTHENTICATION_REQUIRED {
            return Self::Away;
        }
        if status.is_final() {
            return Self::Fail;
        }
        match status.without_flags() {
            // Of the command or the namespace as they are: nothing passes.
            Status::INVALID_COMMAND_OPCODE
            | Status::INVALID_FIELD
            | Status::INVALID_NAMESPACE
            | Status::INVALID_SGL_SEGMENT_DESCRIPTOR
            | Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS
            | Status::DATA_SGL_LENGTH_INVALID
            | Status::METADATA_SGL_LENGTH_INVALID
            | Status::SGL_DESCRIPTOR_TYPE_INVALID
            | Status::ATOMIC_WRITE_UNIT_EXCEEDED
            | Status::OPERATION_DENIED
            | Status::SGL_OFFSET_INVALID
            | Status::SGL_DATA_BLOCK_GRANULARITY_INVALID
            | Status::SANITIZE_FAILED
            | Status::NAMESPACE_IS_WRITE_PROTECTED
            | Status::COMMAND_PROHIBITED_BY_LOCKDOWN
            | Status::INVALID_COMMAND_SET
            | Status::LBA_OUT_OF_RANGE
            | Status::CAPACITY_EXCEEDED
            | Status::RESERVATION_CONFLICT
            // For commands of I/O these three are Conflicting Attributes, Invalid Protection Information, and a write to a read-only range.
            | Status::CONNECT_INCOMPATIBLE_FORMAT
            | Status::CONNECT_CONTROLLER_BUSY
            | Status::CONNECT_INVALID_PARAMETERS
            | Status::COMMAND_SIZE_LIMIT_EXCEEDED
            | Status::GUARD_CHECK_ERROR
            | Status::APPLICATION_TAG_CHECK_ERROR
            | Status::REFERENCE_TAG_CHECK_ERROR
            | Status::ACCESS_DENIED => Self::Fail,
            Status::SANITIZE_IN_PROGRESS
            | Status::NAMESPACE_NOT_READY
            | Status::FORMAT_IN_PROGRESS
            | Status::ADMIN_MEDIA_NOT_READY
            | Status::INTERNAL_PATH_ERROR
            | Status::CONTROLLER_PATHING_ERROR
            | Status::HOST_PATHING_ERROR
            | Status::COMMAND_ABORTED_BY_HOST => Self::Away,
            _ => Self::Again,
        }
    }
}

/// The way to the namespace failed a command, which by another path may be executed: what is path related (Base 2.0, figure 99), and where
/// the controller does not say that none would execute it (Do Not Retry). Not states that it has a log page of. Authentication Required says
/// something of its queue alone, also with Do Not Retry.
pub(super) fn is_of_path(status: Status, reports_ana: bool) -> bool {
    if status.without_flags() == Status::AUTHENTICATION_REQUIRED {
        return true;
    }
    let failed = match status.without_flags() {
        Status::INTERNAL_PATH_ERROR
        | Status::CONTROLLER_PATHING_ERROR
        | Status::HOST_PATHING_ERROR
        | Status::COMMAND_ABORTED_BY_HOST => true,
        Status::ANA_INACCESSIBLE | Status::ANA_TRANSITION => !reports_ana,
        _ => false,
    };
    failed && !status.is_final()
}

/// What becomes of one command.
pub(super) enum Verdict {
    /// It is sent again after a pause.
    Pause(Duration),
    /// It is sent again when the way to the namespace is open.
    AwaitPath,
    Fail(IoError),
}

/// Judges a command that ended with a status that is no success. Beside it: how the namespace can be reached, where the
/// status says that it cannot.
pub(super) fn judge<P: Port>(
    status: Status,
    part: &Part,
    requests: &mut Requests,
    limits: &Limits,
    context: &Context<P>,
) -> (Verdict, Option<AnaState>) {
    let pause = || Verdict::Pause(limits.retry_delays.pause(part.refusals, status));
    let verdict = |judged: Result<Verdict, IoError>| judged.unwrap_or_else(Verdict::Fail);
    let error = IoError::Status(status);
    let mut may_wait = |error| may_wait(part.request, error, requests, context);
    match Recourse::of(status) {
        Recourse::Path(state) if limits.reports_ana => {
            let waits = may_wait(IoError::Inaccessible(state)).map(|()| Verdict::AwaitPath);
            (verdict(waits), Some(state))
        }
        // Nothing says when it is back but the command itself.
        Recourse::Path(AnaState::Inaccessible | AnaState::Change) if !status.is_final() => {
            (verdict(may_wait(error).map(|()| pause())), None)
        }
        Recourse::Away => (verdict(may_wait(error).map(|()| pause())), None),
        Recourse::Again => {
            let failed = requests.get(part.request).and_then(|request| request.result.err());
            let too_often = context.options.command_retries.is_some_and(|retries| part.refusals >= retries);
            (failed.or(too_often.then_some(error)).map_or_else(pause, Verdict::Fail), None)
        }
        Recourse::Path(_) | Recourse::Done | Recourse::Fail => (Verdict::Fail(error), None),
    }
}

/// Whether a request has been refused for less than `inaccessible_timeout`, since the controller last took a command of it,
/// whatever the log page says of the path; it has not failed, nor was it given up.
fn may_wait<P: Port>(
    request: u16,
    error: IoError,
    requests: &mut Requests,
    context: &Context<P>,
) -> Result<(), IoError> {
    let since = requests.refused_since(request, context.time.watched())?;
    if context.time.is_over(since, context.options.inaccessible_timeout) { Err(error) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::Recourse;
    use crate::wire::{AnaState, Status};

    /// Each status of the standard that commands of I/O can end with, and what is done where the controller does not say Do Not Retry.
    const TABLE: [(u16, Recourse); 64] = [
        (0x000, Recourse::Done),
        (0x001, Recourse::Fail),
        (0x002, Recourse::Fail),
        (0x003, Recourse::Again),
        (0x004, Recourse::Again),
        (0x005, Recourse::Again),
        (0x006, Recourse::Again),
        (0x007, Recourse::Again),
        (0x008, Recourse::Again),
        (0x009, Recourse::Again),
        (0x00a, Recourse::Again),
        (0x00b, Recourse::Fail),
        (0x00c, Recourse::Again),
        (0x00d, Recourse::Fail),
        (0x00e, Recourse::Fail),
        (0x00f, Recourse::Fail),
        (0x010, Recourse::Fail),
        (0x011, Recourse::Fail),
        (0x014, Recourse::Fail),
        (0x015, Recourse::Fail),
        (0x016, Recourse::Fail),
        (0x01c, Recourse::Fail),
        (0x01d, Recourse::Away),
        (0x01e, Recourse::Fail),
        (0x020, Recourse::Fail),
        (0x021, Recourse::Again),
        (0x022, Recourse::Again),
        (0x023, Recourse::Fail),
        (0x024, Recourse::Away),
        (0x02c, Recourse::Fail),
        (0x080, Recourse::Fail),
        (0x081, Recourse::Fail),
        (0x082, Recourse::Away),
        (0x083, Recourse::Fail),
        (0x084, Recourse::Away),
        (0x180, Recourse::Fail),
        (0x181, Recourse::Fail),
        (0x182, Recourse::Fail),
        (0x183, Recourse::Fail),
        (0x280, Recourse::Again),
        (0x281, Recourse::Again),
        (0x282, Recourse::Fail),
        (0x283, Recourse::Fail),
        (0x284, Recourse::Fail),
        (0x285, Recourse::Fail),
        (0x286, Recourse::Fail),
        (0x287, Recourse::Again),
        (0x288, Recourse::Again),
        (0x300, Recourse::Away),
        (0x301, Recourse::Path(AnaState::PersistentLoss)),
        (0x302, Recourse::Path(AnaState::Inaccessible)),
        (0x303, Recourse::Path(AnaState::Change)),
        (0x360, Recourse::Away),
        (0x370, Recourse::Away),
        (0x371, Recourse::Away),
        // Not defined, and of vendors.
        (0x07f, Recourse::Again),
        (0x0c0, Recourse::Again),
        (0x0ff, Recourse::Again),
        (0x1c0, Recourse::Again),
        (0x2c0, Recourse::Again),
        (0x3c0, Recourse::Again),
        (0x400, Recourse::Again),
        (0x700, Recourse::Again),
        (0x7ff, Recourse::Again),
    ];

    #[test]
    fn every_status_has_its_recourse_and_do_not_retry_is_the_last_word() {
        for (code, expected) in TABLE {
            for retry_delay in 0..4 {
                let status = Status::from_wire((code | retry_delay << 11) << 1);
                assert_eq!(Recourse::of(status), expected, "{status}");
                let last = match expected {
                    Recourse::Again | Recourse::Away => Recourse::Fail,
                    other => other,
                };
                assert_eq!(Recourse::of(status.do_not_retry()), last, "{status}");
            }
        }
    }

    #[test]
    fn a_queue_that_asks_for_a_proof_says_nothing_of_the_command() {
        for status in [Status::AUTHENTICATION_REQUIRED, Status::AUTHENTICATION_REQUIRED.do_not_retry()] {
            assert_eq!(Recourse::of(status), Recourse::Away);
            assert!(super::is_of_path(status, true) && super::is_of_path(status, false));
        }
    }

    #[test]
    fn what_is_defined_has_a_name() {
        for (code, _) in TABLE.into_iter().take_while(|(code, _)| *code != 0x07f) {
            assert_ne!(Status::from_wire(code << 1).name(), "unknown status", "{code:#x}");
        }
    }
}
