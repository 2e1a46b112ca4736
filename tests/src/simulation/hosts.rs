//! A host program: one core or several, which share a device and a session.

use super::{
    desk::{Kind, Pending},
    effects::Effects,
    ledger::Ledger,
    nic::Network,
    party::{Side, SimulatedPort, memory, port_of},
    scenario::{HostScenario, Scenario},
};
use core::time::Duration;
use frwr_engine::MemoryAccess;
use frwr_engine::gather::MemoryId;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::host::{FollowerOrder, FollowerReport, Host, HostFailure, HostStatistics};
use std::collections::VecDeque;

/// One core of a host program.
pub(super) struct Member {
    pub(super) host: Host<SimulatedPort>,
    /// Its part of the ledger.
    pub(super) desk: usize,
    /// Memory of admin data and bounce buffers.
    own: DeviceMemory,
    /// What was counted when it was looked at last.
    counted: HostStatistics,
    orders: VecDeque<FollowerOrder>,
    reports: VecDeque<FollowerReport>,
    /// Descriptors of a connection; all have as many.
    descriptors: Option<u32>,
}

/// A host program.
pub(super) struct HostSide {
    pub(super) side: Side,
    /// The first has the admin queue.
    pub(super) members: Vec<Member>,
    /// The program began anew, and has had no session since.
    pub(super) is_haunted: bool,
}

impl HostSide {
    /// A program that starts to connect. `desks`: the memory of each core's requests; whoever makes the ledger needs to know it by its
    /// engine's name.
    ///
    /// # Errors
    /// What cannot be made.
    pub(super) fn new(
        network: &Network,
        scenario: &HostScenario,
        first_desk: usize,
        desks: &[DeviceMemory],
    ) -> Result<(Self, Vec<MemoryId>), String> {
        let mut side = Side::new(network, scenario.device)?;
        let (mut members, mut ids) = (Vec::new(), Vec::new());
        for (index, data) in desks.iter().enumerate() {
            let mut engine = side.engine(&scenario.engine)?;
            ids.push(engine.add_memory(data.clone(), MemoryAccess::ReadWrite).map_err(|error| error.to_string())?);
            let own = memory(scenario.options.memory_bytes())?;
            let make = if index == 0 { Host::new } else { Host::follower };
            let host = make(engine, own.clone(), scenario.options.clone()).map_err(|error| error.to_string())?;
            members.push(Member {
                host,
                desk: first_desk + index,
                own,
                counted: HostStatistics::default(),
                orders: VecDeque::new(),
                reports: VecDeque::new(),
                descriptors: None,
            });
        }
        members.iter_mut().for_each(|member| member.host.start());
        Ok((Self { side, members, is_haunted: false }, ids))
    }

    /// All cores take requests that have a queue.
    pub(super) fn is_ready(&self) -> bool {
        let mut members = self.members.iter();
        members.all(|member| member.host.is_ready() || member.host.has_no_queue()) && self.members[0].host.is_ready()
    }

    /// What it has read of what others did to its reservations.
    pub(super) fn notifications(&self) -> u64 {
        self.members[0].host.statistics().reservation_notifications
    }

    /// Connections of all its cores.
    pub(super) fn connections(&self) -> usize {
        self.members.iter().map(|member| member.host.engine().connections().count()).sum()
    }

    /// One core steps.
    ///
    /// # Errors
    /// What was wrong.
    pub(super) fn step(
        &mut self,
        index: usize,
        now: Duration,
        ledger: &mut Ledger,
        explained: Effects,
        lane: usize,
    ) -> Result<u32, String> {
        self.hear(index);
        let member = &mut self.members[index];
        let work = member.host.poll(now) + member.host.flush();
        while let Some(completion) = member.host.next_completion() {
            ledger.completed(member.desk, completion, member.sent_again(), explained)?;
        }
        member.explain(explained)?;
        self.tell(index, lane);
        Ok(work)
    }

    /// Takes what other cores told this one.
    fn hear(&mut self, index: usize) {
        if index > 0 {
            let member = &mut self.members[index];
            while let Some(order) = member.orders.pop_front() {
                member.host.follow(order);
            }
            return;
        }
        for follower in 1..self.members.len() {
            while let Some(report) = self.members[follower].reports.pop_front() {
                self.members[0].host.heard(follower as u16 - 1, report);
            }
        }
    }

    /// Tells other cores, while there is room in the lanes.
    fn tell(&mut self, index: usize, lane: usize) {
        if index > 0 {
            let member = &mut self.members[index];
            while member.reports.len() < lane
                && let Some(report) = member.host.next_report()
            {
                member.reports.push_back(report);
            }
            return;
        }
        while self.members.iter().skip(1).all(|member| member.orders.len() < lane)
            && let Some((follower, order)) = self.members[0].host.next_order()
        {
            self.members[usize::from(follower) + 1].orders.push_back(order);
        }
    }

    /// Nothing is said that was not heard.
    pub(super) fn is_quiet(&self) -> bool {
        self.members.iter().all(|member| member.orders.is_empty() && member.reports.is_empty())
    }
}

impl Member {
    /// A request of the ledger's; false where the host does not take it.
    pub(super) fn try_submit(&mut self, ledger: &mut Ledger, cookie: u64, pending: Pending) -> bool {
        let segments = ledger.desks[self.desk].segments(cookie, &pending);
        let (lba, blocks) = (pending.lba, pending.blocks as u32);
        let taken = match pending.kind {
            Kind::Read if pending.forced => self.host.read_force_unit_access(lba, &segments, cookie),
            Kind::Write if pending.forced => self.host.write_force_unit_access(lba, &segments, cookie),
            Kind::Read => self.host.read(lba, &segments, cookie),
            Kind::Write => self.host.write(lba, &segments, cookie),
            Kind::Compare => self.host.compare(lba, &segments, cookie),
            Kind::Flush => self.host.flush_namespace(cookie),
            Kind::WriteZeroes => self.host.write_zeroes(lba, blocks, pending.since & 1 > 0, cookie),
            Kind::Deallocate => self.host.deallocate(&[(lba, blocks)], cookie),
            Kind::Pair => {
                let [expected, written] = ledger.desks[self.desk].halves(cookie, &pending);
                self.host.compare_and_write(lba, &[expected], &[written], cookie)
            }
            // Who asks for these knows more of them.
            Kind::Reserve | Kind::Report => return false,
        };
        if taken.is_ok() {
            ledger.submitted(self.desk, cookie, Pending { sent_again: self.sent_again(), ..pending });
        }
        taken.is_ok()
    }

    /// Commands that it has sent more than once.
    pub(super) fn sent_again(&self) -> u64 {
        let statistics = self.host.statistics();
        statistics.resubmitted + statistics.repeated
    }

    /// Nothing has happened that no fault explains.
    fn explain(&mut self, explained: Effects) -> Result<(), String> {
        let now = self.host.statistics();
        let then = core::mem::replace(&mut self.counted, now);
        if now.failures != then.failures {
            let failure = self.host.last_failure();
            let timed_out = matches!(
                failure,
                Some(HostFailure::Timeout { .. } | HostFailure::CommandTimeout { .. } | HostFailure::KeepAlive { .. })
            );
            let needed = if timed_out { Effects::TIME_OUTS } else { Effects::ENDS };
            if !explained.contains(needed) {
                return Err(format!("a session ended, and no fault explains it: {failure:?}"));
            }
        }
        let aborts = Effects::TIME_OUTS.when(!explained.contains(Effects::ABORTS));
        for (what, before, after, needed) in [
            ("an Abort was sent", then.aborts, now.aborts, aborts),
            ("a command was lost", then.lost, now.lost, Effects::ENDS),
            ("a command was sent once more", then.resubmitted, now.resubmitted, Effects::ENDS),
            ("a command was repeated", then.repeated, now.repeated, Effects::REPEATS),
        ] {
            // Every session that a time-out ends does all of that as well.
            let ends = needed == Effects::ENDS && explained.contains(Effects::TIME_OUTS);
            if before != after && !explained.contains(needed) && !ends {
                return Err(format!("{what}, and no fault explains it: {now:?}"));
            }
        }
        Ok(())
    }

    /// What of this host's memory may be open, besides its requests': bytes of its own.
    pub(super) fn own_bytes(&self, bounced: u64) -> u64 {
        // The bring-up reads Identify data, and later the host does where it was told of news.
        let ready = self.host.is_ready();
        let admin = if ready { self.host.admin_bytes_open() } else { frwr_nvmf::host::ADMIN_DATA_BYTES as u64 };
        admin + bounced
    }

    /// Bytes of its own memory lie in that range.
    pub(super) fn owns(&self, address: u64, length: u64) -> bool {
        let start = self.own.address();
        address >= start && address + length <= start + self.own.len() as u64
    }

    /// The descriptors of a connection move between free, used, stale and absent; none is lost.
    ///
    /// # Errors
    /// Some are lost, or there are more.
    pub(super) fn conservation(&mut self) -> Result<(), String> {
        for connection in self.host.connections().into_iter().flatten() {
            let count = self.host.engine().descriptors(connection);
            let sum = count.free + count.used + count.quarantined + count.absent;
            let all = *self.descriptors.get_or_insert(sum);
            if sum != all {
                return Err(format!("{connection:?} has {sum} descriptors, it had {all}: {count:?}"));
            }
        }
        Ok(())
    }

    /// The trace of what it did with its device.
    pub(super) fn trace(&self) -> u64 {
        port_of(self.host.engine()).log.trace()
    }
}

/// Bytes of data memory of each core: as many requests as it may have in flight, and some that rest.
pub(super) fn desk_bytes(scenario: &Scenario, host: &HostScenario) -> usize {
    let slots = usize::from(host.options.queue_depth * host.options.queues) * 2;
    slots * scenario.request_bytes as usize
}
