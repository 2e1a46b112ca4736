//! A controller whose I/O queues live in several hosts, each with an engine of its own, as on several cores: one device, one
//! target, stepped by hand. What the hosts tell each other waits in lanes until it is carried.

use super::{
    BLOCK, BLOCKS, DATA_BYTES, Host, HostCompletion, HostOptions, Target, TargetListening, TargetOptions, engine,
    engine_of, memory,
};
use core::time::Duration;
use frwr_engine::MemoryAccess;
use frwr_engine::control::Control;
use frwr_engine::gather::{MemoryId, Segment};
use frwr_engine::provider::Port;
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort};
use frwr_mempool::DeviceMemory;
use frwr_nvmf::host::{FollowerOrder, FollowerReport};
use frwr_nvmf::storage::MemoryStorage;
use std::collections::VecDeque;

/// One host and its memory.
pub struct Member {
    pub host: Host<SoftPort>,
    pub data: DeviceMemory,
    data_id: MemoryId,
    pub completions: Vec<HostCompletion>,
}

impl Member {
    pub fn segment(&self, block: u64, blocks: u32) -> Segment {
        Segment { memory: self.data_id, offset: block * u64::from(BLOCK), length: blocks * BLOCK }
    }

    pub fn fill(&self, block: u64, byte: u8) {
        self.data.fill(block as usize * BLOCK as usize, BLOCK as usize, byte).unwrap();
    }

    pub fn block(&self, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK as usize];
        self.data.read(block as usize * BLOCK as usize, &mut bytes).unwrap();
        bytes
    }
}

pub struct Spread {
    /// The first has the admin queue.
    pub members: Vec<Member>,
    pub target: Target<SoftPort, MemoryStorage>,
    host_control: Control<SoftDevice>,
    target_control: Control<SoftDevice>,
    pub now: Duration,
    pub tick: Duration,
    orders: Vec<VecDeque<FollowerOrder>>,
    reports: Vec<VecDeque<FollowerReport>>,
    pub fabric: SoftFabric,
}

impl Spread {
    pub fn new(profile: &str, followers: u16, options: HostOptions, target: TargetOptions) -> Self {
        let fabric = SoftFabric::new();
        let soft = || SoftOptions::new(profile.parse().unwrap());
        let options = options.followers(followers);
        let mut host_control = Control::new(fabric.device(soft()));
        let mut member = |index: u16| {
            let mut engine = engine_of(&mut host_control, options.engine());
            let data = memory(DATA_BYTES);
            let data_id = engine.add_memory(data.clone(), MemoryAccess::ReadWrite).unwrap();
            let (memory, options) = (memory(options.memory_bytes()), options.clone());
            let host = if index == 0 { Host::new } else { Host::follower };
            Member { host: host(engine, memory, options).unwrap(), data, data_id, completions: Vec::new() }
        };
        let members = (0..=followers).map(&mut member).collect();
        let (target_control, target_engine) = engine(fabric.device(soft()), target.engine());
        let namespace = MemoryStorage::new(memory(BLOCKS as usize * BLOCK as usize), BLOCK, 256).unwrap();
        let buffers = memory(target.buffer_memory_bytes(8));
        let mut target = Target::new(target_engine, vec![namespace], buffers, target).unwrap();
        target.listen().unwrap();
        let lanes = usize::from(followers);
        let mut spread = Self {
            members,
            target,
            host_control,
            target_control,
            now: Duration::ZERO,
            tick: Duration::from_micros(1),
            orders: vec![VecDeque::new(); lanes],
            reports: vec![VecDeque::new(); lanes],
            fabric,
        };
        spread.until("listening", |spread| spread.target.statistics().listening == TargetListening::Listens);
        spread
    }

    /// All hosts are started, and take requests.
    pub fn ready(profile: &str, followers: u16, options: HostOptions, target: TargetOptions) -> Self {
        let mut spread = Self::new(profile, followers, options, target);
        spread.start();
        spread.until("ready", |spread| spread.members.iter().all(|member| member.host.is_ready()));
        spread
    }

    pub fn start(&mut self) {
        self.members.iter_mut().for_each(|member| member.host.start());
    }

    pub fn step_host(&mut self, index: usize) {
        self.host_control.poll();
        let member = &mut self.members[index];
        member.host.poll(self.now);
        member.host.flush();
        member.completions.extend(core::iter::from_fn(|| member.host.next_completion()));
        self.host_control.poll();
        let host = &mut self.members[index].host;
        if index == 0 {
            while let Some((follower, order)) = host.next_order() {
                self.orders[usize::from(follower)].push_back(order);
            }
        } else {
            self.reports[index - 1].extend(core::iter::from_fn(|| host.next_report()));
        }
    }

    pub fn step_target(&mut self) {
        self.target_control.poll();
        self.target.poll(self.now);
        self.target.flush();
    }

    /// One value each way.
    pub fn carry(&mut self, follower: usize) {
        if let Some(order) = self.orders[follower].pop_front() {
            self.members[follower + 1].host.follow(order);
        }
        if let Some(report) = self.reports[follower].pop_front() {
            self.members[0].host.heard(follower as u16, report);
        }
    }

    pub fn step_hosts(&mut self) {
        self.now += self.tick;
        (0..self.members.len()).for_each(|index| self.step_host(index));
        (0..self.orders.len()).for_each(|follower| self.carry(follower));
    }

    pub fn step(&mut self) {
        self.step_hosts();
        self.step_target();
    }

    /// Steps until something holds.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..50_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        let hosts = self.members.iter().map(|member| &member.host);
        let told: Vec<_> = hosts.map(|host| (host.statistics(), host.last_failure(), host.failure())).collect();
        panic!("never {what}; hosts {told:#?}; target {:?}", self.target.statistics());
    }

    /// Steps until a host's requests have ended as often.
    pub fn completed(&mut self, index: usize, count: usize) -> Vec<HostCompletion> {
        self.until("completed", |spread| spread.members[index].completions.len() >= count);
        std::mem::take(&mut self.members[index].completions)
    }

    /// No byte of any host is open to the target.
    pub fn assert_closed(&self) {
        for member in &self.members {
            assert_eq!(member.host.engine().port().remote_bytes_open().unwrap_or(0), 0);
        }
    }

    /// Shuts everything down, and proves that nothing is left.
    pub fn finish(&mut self) {
        self.members.iter_mut().for_each(|member| member.host.shut_down());
        self.until("stopped", |spread| spread.members.iter().all(|member| member.host.is_stopped()));
        self.target.shut_down();
        self.until("drained", |spread| spread.target.is_drained());
        for member in &self.members {
            assert_eq!((member.host.failure(), member.host.statistics().outstanding), (None, 0));
        }
        assert_eq!((self.target.statistics().commands_in_flight, self.target.statistics().slots_used), (0, 0));
    }
}
