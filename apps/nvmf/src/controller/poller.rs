//! A target as a poller of `frwr_reactor`.

use super::Target;
use crate::storage::Storage;
use frwr_engine::provider::Port;
use frwr_reactor::{Now, Poller, Sleep};

/// The context of a core that may carry a target.
pub trait TargetContext {
    /// The target's.
    type Port: Port;
    /// The target's.
    type Storage: Storage;

    /// The target, if this core has one.
    fn target(&self) -> Option<&Target<Self::Port, Self::Storage>>;

    /// The same, to be polled.
    fn target_mut(&mut self) -> Option<&mut Target<Self::Port, Self::Storage>>;

    /// Called behind each poll of the target, which did so much work, and in front of its flush: to carry messages to other cores
    /// ([`Target::next_message`]), and to take incidents and figures.
    fn polled(&mut self, work: u32, now: &Now) {
        let _ = (work, now);
    }

    /// Whether nothing that [`TargetContext::polled`] does has to be done again, as a message that another core had no room for.
    fn may_sleep(&self) -> bool {
        true
    }

    /// The core sleeps next: what [`TargetContext::polled`] finds from now on has to wake it ([`Poller::arm`]), which
    /// is called once more before.
    fn arm(&mut self) {}
}

/// Polls and flushes the target of its core. At the reactor's shutdown it ends the target ([`Target::end`]), and is drained when that is.
#[derive(Clone, Copy, Debug, Default)]
pub struct TargetPoller;

impl<C: TargetContext> Poller<C> for TargetPoller {
    fn poll(&mut self, core: &mut C, now: &Now) -> u32 {
        let Some(target) = core.target_mut() else { return 0 };
        let work = target.poll(now.time());
        core.polled(work, now);
        // Who waits for it on this core polls next, so it goes out first. `flush` finds nothing left to do.
        self.flush(core, now);
        work
    }

    fn flush(&mut self, core: &mut C, _: &Now) {
        if let Some(target) = core.target_mut() {
            target.flush();
        }
    }

    fn sleep_until(&self, core: &C) -> Sleep {
        match core.target() {
            None => Sleep::Forever,
            Some(_) if !core.may_sleep() => Sleep::Busy,
            Some(target) => target.sleeps_until().map_or(Sleep::Busy, Sleep::Until),
        }
    }

    fn arm(&mut self, core: &mut C) -> bool {
        core.arm();
        core.target_mut().is_none_or(Target::arm)
    }

    fn begin_shutdown(&mut self, core: &mut C, now: &Now) {
        if let Some(target) = core.target_mut() {
            target.end(now.time());
        }
    }

    fn drained(&self, core: &C) -> bool {
        core.target().is_none_or(Target::is_drained)
    }
}
