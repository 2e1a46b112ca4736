//! What source and manual pages leave open about mlx5: each question asked of the device, with what is
//! expected of it beside what it did. Nothing follows from the answers; they are for whoever wrote the table of devices.

use super::{Delivery, Findings, LoopBack, Outcome, SelfTestError, VerbsDevice, ended, system::Gid};
use crate::provider::{Access, Failure, FailureStatus};

/// How a step ended, and whether that was expected.
struct Answer {
    found: Result<(), Failure>,
    expected: Result<(), FailureStatus>,
}

impl Findings {
    fn answer(&mut self, name: &'static str, answer: &Answer, reason: &str) {
        let Answer { found, expected } = *answer;
        // Nobody knows the codes of its maker beforehand.
        let outcome =
            if found.map_err(|failure| failure.status) == expected { Outcome::AsSpecified } else { Outcome::Deviates };
        self.add(name, outcome, format!("{}; expected from source: {}: {reason}", ended(found), stated(expected)));
    }
}

/// What is expected has no code of a device's maker.
fn stated(expected: Result<(), FailureStatus>) -> String {
    expected.map_or_else(|status| format!("failed: {status}"), |()| "succeeded".to_owned())
}

/// Asks everything; each question costs a pair of queue pairs, since most answers end one.
pub(super) fn ask(device: &VerbsDevice, gid: Gid, findings: &mut Findings) -> Result<(), SelfTestError> {
    let ask = |question: fn(&mut LoopBack) -> Result<Answer, SelfTestError>| question(&mut LoopBack::new(device, gid)?);
    let refused = ask(refused_registration)?;
    findings.answer(
        "status of a registration outside of its memory",
        &refused,
        "ranges are looked at when they are used",
    );
    let twice = ask(second_local_invalidation)?;
    findings.answer("LOCAL_INV of a free key", &twice, "the work request asks for the queue pair of the key only");
    let twice = ask(second_remote_invalidation)?;
    findings.answer("SEND_WITH_INV of a free key", &twice, "only the owner's side fails, as on soft RoCE");
    if device.registers_lists() {
        let foreign = ask(foreign_local_key)?;
        findings.answer("list with a local key of nobody", &foreign, "local keys are looked at when they are used");
    } else {
        let stale = ask(stale_old_key)?;
        findings.answer("bind with another low byte in the old key", &stale, "the kernel posts the new key there");
    }
    Ok(())
}

fn refused_registration(pair: &mut LoopBack) -> Result<Answer, SelfTestError> {
    let found = pair.register_outside("registering outside of memory")?;
    // For windows and lists alike: both are UMR work requests, and libmlx5 compares ranges only where it was built to
    // (MW_DEBUG in providers/mlx5/qp.c).
    Ok(Answer { found, expected: Ok(()) })
}

/// Registered, and invalidated by its owner.
fn freed(pair: &mut LoopBack) -> Result<Result<(), Failure>, SelfTestError> {
    let step = "registering and LOCAL_INV";
    match pair.bind_and_send(step, Access::RemoteReadWrite)? {
        Ok(()) => pair.invalidate(step),
        refused => Ok(refused),
    }
}

fn second_local_invalidation(pair: &mut LoopBack) -> Result<Answer, SelfTestError> {
    // libmlx5 has a BIND check that the key is free, and a LOCAL_INV its queue pair, which is any for a free one
    // (set_umr_control_seg in providers/mlx5/qp.c).
    let expected = Ok(());
    match freed(pair)? {
        Ok(()) => Ok(Answer { found: pair.invalidate("LOCAL_INV of a free key")?, expected }),
        found => Ok(Answer { found, expected }),
    }
}

fn second_remote_invalidation(pair: &mut LoopBack) -> Result<Answer, SelfTestError> {
    let expected = Err(FailureStatus::RemoteInvalidRequest);
    match freed(pair)? {
        Ok(()) => {
            let found = match pair.send_with_invalidate("SEND_WITH_INV of a free key")? {
                Delivery::Received(_) => Ok(()),
                Delivery::NotInvalidated(failure) | Delivery::Refused(failure) | Delivery::NotSent(failure) => {
                    Err(failure)
                }
                Delivery::NotPosted(_) | Delivery::Lost => Err(FailureStatus::General.into()),
            };
            Ok(Answer { found, expected })
        }
        found => Ok(Answer { found, expected }),
    }
}

fn foreign_local_key(pair: &mut LoopBack) -> Result<Answer, SelfTestError> {
    Ok(Answer { found: pair.register_foreign_key("a list with a local key of nobody")?, expected: Ok(()) })
}

fn stale_old_key(pair: &mut LoopBack) -> Result<Answer, SelfTestError> {
    Ok(Answer { found: pair.bind_with_stale_key("a bind with a stale key")?, expected: Ok(()) })
}
