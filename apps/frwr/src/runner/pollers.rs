//! What a reactor polls of a core.

use super::{cores::Core, host_side::HostSide, target_side::TargetSide};
use frwr_engine::provider::Port;
use frwr_nvmf::{
    controller::{Target, TargetContext, TargetPoller},
    storage::AnyStorage,
};
use frwr_reactor::{Now, Poller, Sleep};

/// Polls its core's target on the device of a place behind the first; a name by itself in statistics, and nothing where there is one
/// device.
pub(super) struct OtherDevice(pub(super) usize);

impl OtherDevice {
    fn side<'a, T: Port, H: Port>(&self, core: &'a Core<T, H>) -> Option<&'a TargetSide<T>> {
        core.others.get(self.0)?.as_ref()
    }

    fn side_mut<'a, T: Port, H: Port>(&self, core: &'a mut Core<T, H>) -> Option<&'a mut TargetSide<T>> {
        core.others.get_mut(self.0)?.as_mut()
    }
}

impl<T: Port, H: Port> Poller<Core<T, H>> for OtherDevice {
    fn poll(&mut self, core: &mut Core<T, H>, now: &Now) -> u32 {
        let Core { others, outbox, .. } = core;
        let Some(Some(side)) = others.get_mut(self.0) else { return 0 };
        let work = TargetPoller.poll(side, now);
        side.carry(outbox);
        work
    }

    fn flush(&mut self, core: &mut Core<T, H>, now: &Now) {
        if let Some(side) = self.side_mut(core) {
            TargetPoller.flush(side, now);
        }
    }

    fn sleep_until(&self, core: &Core<T, H>) -> Sleep {
        self.side(core).map_or(Sleep::Forever, |side| TargetPoller.sleep_until(side))
    }

    fn arm(&mut self, core: &mut Core<T, H>) -> bool {
        self.side_mut(core).is_none_or(|side| TargetPoller.arm(side))
    }

    fn begin_shutdown(&mut self, core: &mut Core<T, H>, now: &Now) {
        if let Some(side) = self.side_mut(core) {
            TargetPoller.begin_shutdown(side, now);
        }
    }

    fn drained(&self, core: &Core<T, H>) -> bool {
        self.side(core).is_none_or(|side| TargetPoller.drained(side))
    }
}

impl<T: Port, H: Port> TargetContext for Core<T, H> {
    type Port = T;
    type Storage = AnyStorage;

    fn target(&self) -> Option<&Target<T, AnyStorage>> {
        self.target.as_ref().and_then(TargetContext::target)
    }

    fn target_mut(&mut self) -> Option<&mut Target<T, AnyStorage>> {
        self.target.as_mut().and_then(TargetContext::target_mut)
    }

    fn polled(&mut self, work: u32, now: &Now) {
        if let Some(side) = &mut self.target {
            TargetContext::polled(side, work, now);
            side.carry(&mut self.outbox);
        }
    }

    fn may_sleep(&self) -> bool {
        self.target.as_ref().is_none_or(TargetContext::may_sleep)
    }

    fn arm(&mut self) {
        self.target.iter_mut().for_each(TargetContext::arm);
    }
}

/// Runs the host's half of a core.
pub(super) struct HostPoller;

impl<T: Port, H: Port> Poller<Core<T, H>> for HostPoller {
    fn poll(&mut self, core: &mut Core<T, H>, now: &Now) -> u32 {
        let mut work = 0;
        for side in &mut core.hosts {
            work += side.poll(now.time());
            side.carry(&mut core.outbox);
        }
        // What is wrong in one namespace ends the run: nobody waits for the others.
        if core.hosts.len() > 1 && core.hosts.iter().any(HostSide::is_wrong) {
            core.hosts.iter_mut().for_each(HostSide::stop_job);
        }
        work
    }

    fn flush(&mut self, core: &mut Core<T, H>, _: &Now) {
        core.hosts.iter_mut().for_each(HostSide::flush);
    }

    fn sleep_until(&self, core: &Core<T, H>) -> Sleep {
        // Each of them may: the first that wants to be polled is.
        let until = core.hosts.iter().map(HostSide::sleeps_until).min();
        until.map_or(Sleep::Forever, |until| until.map_or(Sleep::Busy, Sleep::Until))
    }

    fn arm(&mut self, core: &mut Core<T, H>) -> bool {
        core.hosts.iter_mut().all(HostSide::arm)
    }

    fn begin_shutdown(&mut self, core: &mut Core<T, H>, _: &Now) {
        core.hosts.iter_mut().for_each(HostSide::begin_shutdown);
    }

    fn drained(&self, core: &Core<T, H>) -> bool {
        core.hosts.iter().all(HostSide::is_finished)
    }
}
