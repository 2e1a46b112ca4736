//! Until when a core may sleep.

use core::time::Duration;
use frwr_engine::{Engine, Timestamp, provider::Port};

/// Longest sleep at a time, so that no gap is as long as what counts as a standstill.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// Until when a side may sleep where nothing arrives, as of its last poll, which found nothing; by itself it does nothing before
/// `rests_until`.
pub(super) fn sleeps_until<P: Port>(engine: &Engine<P>, rests_until: Timestamp) -> Option<Duration> {
    let now = engine.now().since_epoch();
    let until = now.saturating_add(LONGEST_SLEEP).min(rests_until.since_epoch());
    let until = engine.poll_at().map_or(until, |at| at.min(until));
    (until > now && engine.rests()).then_some(until)
}
