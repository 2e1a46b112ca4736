//! One side: its device with a script, its Control, its engine, its memory.

use super::protocol::Tiny;
use core::time::Duration;
use frwr_engine::{
    ConnectionId, ConnectionOptions, Engine, EngineOptions, MemoryAccess, MemoryId, Segment,
    control::Control,
    provider::{
        CompletionQueue, Device, Port, PortId, QueuePairId,
        fault::{FaultHandle, Faulty, FaultyPort},
        soft::{OpenKey, SoftDevice, SoftFabric, SoftMonitor, SoftOptions, SoftPort, SoftProfile},
    },
};
use frwr_mempool::{DeviceMemory, PagePolicy, Region, RegionOptions};
use frwr_support::{Random, nic::Victim};

type World = Faulty<SoftDevice>;
/// The engine of one side.
pub(super) type PartyEngine = Engine<FaultyPort<SoftPort>>;

/// Completion queues, as faults name them.
pub(super) const QUEUES: [CompletionQueue; 2] = [CompletionQueue::Send, CompletionQueue::Receive];

/// One side.
pub(super) struct Party {
    pub(super) control: Control<World>,
    pub(super) engine: PartyEngine,
    pub(super) protocol: Tiny,
    pub(super) data: DeviceMemory,
    pub(super) memory: MemoryId,
    /// The same bytes under another name, which is used as soon as all connections have it.
    pub(super) next: Option<MemoryId>,
    /// The name that is being removed.
    pub(super) leaving: Option<MemoryId>,
    pub(super) monitor: SoftMonitor,
    pub(super) script: FaultHandle,
    pub(super) port: PortId,
    pub(super) profile: SoftProfile,
    pub(super) options: EngineOptions,
    pub(super) connection: ConnectionOptions,
    /// Its clock beside the world's.
    pub(super) ahead: Duration,
    /// Steps that it still sleeps, its Control, and who takes its events.
    pub(super) sleeps: u64,
    pub(super) control_sleeps: u64,
    pub(super) taker_sleeps: u64,
    /// Its device is gone, or its port failed, for good.
    pub(super) lost: bool,
    /// Completions were held up, so that their queue may run full.
    pub(super) may_overrun: bool,
    /// All its connections receive from one queue.
    pub(super) shares_receives: bool,
}

impl Party {
    /// # Errors
    /// Why these options cannot be.
    pub(super) fn new(
        fabric: &SoftFabric,
        device: SoftOptions,
        options: EngineOptions,
        connection: ConnectionOptions,
        data_bytes: usize,
    ) -> Result<Self, String> {
        let text = |error: &dyn core::fmt::Display| error.to_string();
        let soft = fabric.device(device);
        let monitor = soft.monitor();
        let (device_with_script, script) = Faulty::new(soft);
        let capabilities = *device_with_script.capabilities();
        let mut control = Control::new(device_with_script);
        let bytes = PartyEngine::region_bytes(&options, &capabilities).map_err(|error| text(&error))?;
        let plain = PagePolicy::Ladder { allow_plain: true };
        let region = RegionOptions::new(bytes + data_bytes + 4096).pages(plain);
        let mut region = Region::map(&region).map_err(|error| text(&error))?;
        let (send, receive) = PartyEngine::completion_entries(&options, &capabilities).map_err(|error| text(&error))?;
        let (port, link) = control.open_core(send, receive).map_err(|error| text(&error))?;
        let port_id = port.id();
        let shares_receives = options.receive_queues != frwr_engine::ReceiveQueues::PerConnection;
        let engine = Engine::new(port, link, &mut region, options.clone(), &capabilities);
        let mut engine = engine.map_err(|error| text(&error))?;
        let data = region.carve(data_bytes, 4096).map_err(|error| text(&error))?.into_device_memory();
        let memory = engine.add_memory(data.clone(), MemoryAccess::ReadWrite).map_err(|error| text(&error))?;
        Ok(Self {
            control,
            engine,
            protocol: Tiny::new(),
            data,
            memory,
            next: None,
            leaving: None,
            monitor,
            script,
            port: port_id,
            profile: device.profile,
            options,
            connection,
            ahead: Duration::ZERO,
            sleeps: 0,
            control_sleeps: 0,
            taker_sleeps: 0,
            lost: false,
            may_overrun: false,
            shares_receives,
        })
    }

    pub(super) fn segment(&self, offset: usize, length: usize) -> Segment {
        Segment { memory: self.memory, offset: offset as u64, length: length as u32 }
    }

    /// Goes on with giving its memory another name: declares it once more, or uses that from here on, and removes the former one.
    pub(super) fn rename_memory(&mut self) {
        let Some(next) = self.next else {
            if self.leaving.is_none() {
                self.next = self.engine.add_memory(self.data.clone(), MemoryAccess::ReadWrite).ok();
            }
            return;
        };
        let part = [Segment { memory: next, offset: 0, length: 8 }];
        let connections: Vec<_> = self.engine.connections().collect();
        let is_known = connections.iter().all(|&connection| self.engine.coverage(connection, &part, 1).is_ok());
        if is_known && self.engine.remove_memory(self.memory).is_ok() {
            self.leaving = Some(core::mem::replace(&mut self.memory, next));
            self.next = None;
        }
    }

    /// A name is gone, once, and what is behind it is nobody's.
    pub(super) fn memory_removed(&mut self, memory: MemoryId) {
        assert_eq!(self.leaving.take(), Some(memory), "a memory was removed that was not to be");
    }

    /// No name is being removed, unless the device keeps what is behind it.
    pub(super) fn has_removed(&self) -> bool {
        self.leaving.is_none() || self.lost || self.control.statistics().memories_kept > 0
    }

    /// Nothing is left to do for it. Where its device is gone it goes on asking for room for shared receives, behind pauses.
    pub(super) fn is_idle(&self) -> bool {
        self.engine.is_idle() || (self.lost && self.shares_receives)
    }

    pub(super) fn is_rxe(&self) -> bool {
        self.profile == SoftProfile::Rxe
    }

    pub(super) fn queue_pairs(&self) -> Vec<QueuePairId> {
        self.engine.connections().filter_map(|connection| self.engine.queue_pair(connection)).collect()
    }

    pub(super) fn some_connection(&self, random: &mut Random) -> Option<ConnectionId> {
        let all: Vec<_> = self.engine.connections().collect();
        if all.is_empty() { None } else { Some(random.of(&all)) }
    }

    pub(super) fn open_keys(&self) -> impl Iterator<Item = OpenKey> + '_ {
        self.engine.port().inner().open_keys()
    }

    /// For a fault inside the device.
    pub(super) fn victim<'a>(&'a self, queue_pairs: &'a [QueuePairId], peer_is_rxe: bool) -> Victim<'a> {
        Victim { monitor: &self.monitor, port: self.port, queue_pairs, hangs_without_receive: peer_is_rxe }
    }

    /// Ends all that goes wrong.
    pub(super) fn calm(&mut self) {
        self.script.clear();
        self.script.release();
        self.monitor.calm();
        (self.sleeps, self.control_sleeps, self.taker_sleeps) = (0, 0, 0);
    }
}
