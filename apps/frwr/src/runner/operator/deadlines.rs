//! How long calls may take, each of which follows from those before it.

use super::super::survey::ANSWER_TIME;
use core::time::Duration;

/// How long a core has for its part of a change: it takes no time where the core goes on.
pub(super) const STEP_TIME: Duration = Duration::from_secs(5);
/// Until a change that is not complete is told by what holds it up, where nobody says otherwise.
pub(super) const DEFAULT_WITHIN: u32 = 5;
/// The longest such time.
pub(super) const MAX_WITHIN: Duration = Duration::from_secs(20);
/// Behind that time each core has told what holds the change up.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// How long what is done beside the main thread may take: as long as any change is waited for. Servers of NBD and Ceph are given up sooner, by who knows why.
pub(super) const ASIDE_TIME: Duration = MAX_WITHIN;

/// How long cores have that are asked something; who only asks stands in no line.
pub(crate) const LONGEST_QUESTION: Duration = ANSWER_TIME;
/// How long a change takes at most from its turn to its answer: cores say what there is, something is opened for it, a
/// core does its part, and what holds it up is told.
const LONGEST_CHANGE: Duration = LONGEST_QUESTION
    .saturating_add(ASIDE_TIME)
    .saturating_add(STEP_TIME)
    .saturating_add(MAX_WITHIN)
    .saturating_add(GRACE);

/// How long a call may take at most that has so many changes of others in front of it. Who waits for its answer waits
/// as long.
pub(crate) const fn longest_answer(in_front: u32) -> Duration {
    LONGEST_CHANGE.saturating_mul(in_front.saturating_add(1))
}
