//! Hosts of a target of two cores, each with an I/O queue on each core.

use frwr_engine::ConnectionId;
use frwr_engine::provider::Access;
use frwr_nvmf::controller::{Reservations, Subsystem, TargetOptions};
use frwr_nvmf::storage::{MemoryStorage, Storage};
use frwr_nvmf::wire::{
    AcquireAction, BlockRange, Command, ConnectData, DYNAMIC_CONTROLLER, PersistChange, RegisterAction,
    RegisteredControllerExtended, ReleaseAction, ReservationAcquire, ReservationKeys, ReservationRegister,
    ReservationRelease, ReservationReport, ReservationStatus, ReservationType, Status,
};
use frwr_support::nvmf_harness::raw::{Raw, connect_data, keyed};
use frwr_support::nvmf_harness::{memory, subsystem, target_options};
use zerocopy::{FromBytes, IntoBytes};

/// Cores of the target.
pub(super) const CORES: usize = 2;

pub(super) fn options() -> TargetOptions {
    target_options().cores(CORES as u16).io_queues(CORES as u16).controllers(8)
}

/// A controller of a host.
pub(super) struct Session {
    pub(super) admin: ConnectionId,
    /// One on each core.
    pub(super) io: Vec<ConnectionId>,
}

pub(super) struct Hosts<S: Storage = MemoryStorage> {
    pub(super) raw: Raw<S>,
    pub(super) sessions: Vec<Session>,
}

pub(super) fn host_id(host: u8) -> [u8; 16] {
    [host; 16]
}

fn of_host(host: u8, controller_id: u16) -> ConnectData {
    ConnectData { host_id: host_id(host), ..connect_data(controller_id) }
}

impl Hosts {
    /// With the sessions of these hosts; each core has its own way to one memory.
    pub(super) fn new(reservations: &Reservations, hosts: &[u8]) -> Self {
        let medium = memory(64 << 10);
        Self::over(reservations, hosts, |_| MemoryStorage::new(medium.clone(), 512, 64).unwrap())
    }
}

impl<S: Storage> Hosts<S> {
    pub(super) fn over(reservations: &Reservations, hosts: &[u8], mut storage: impl FnMut(u16) -> S) -> Self {
        let mut raw = Raw::spread(options(), |core| vec![Subsystem::new(subsystem(), vec![storage(core)])]);
        raw.target.reserve_by(reservations);
        raw.members.iter_mut().for_each(|member| member.reserve_by(reservations));
        let mut all = Self { raw, sessions: Vec::new() };
        hosts.iter().for_each(|host| all.connect(*host));
        all
    }

    /// One more session.
    pub(super) fn connect(&mut self, host: u8) {
        let (admin, controller) = self.raw.controller_of(&of_host(host, DYNAMIC_CONTROLLER));
        let queues = 1..=CORES as u16;
        let io = queues.map(|queue| self.raw.another_queue_of(&of_host(host, controller), queue)).collect();
        self.sessions.push(Session { admin, io });
    }

    pub(super) fn io(&self, session: usize, core: usize) -> ConnectionId {
        self.sessions[session].io[core]
    }

    fn with_keys(&mut self, io: ConnectionId, command: Command, keys: (u64, u64), bytes: u32) -> Status {
        let keys = ReservationKeys { current: keys.0.into(), other: keys.1.into() };
        self.raw.data.write(0, keys.as_bytes()).unwrap();
        self.raw.command(io, command, Some((Access::RemoteRead, bytes))).status().without_flags()
    }

    pub(super) fn register(&mut self, io: ConnectionId, action: RegisterAction, keys: (u64, u64)) -> Status {
        self.register_as(io, action, PersistChange::None, keys)
    }

    pub(super) fn register_as(
        &mut self,
        io: ConnectionId,
        action: RegisterAction,
        persist: PersistChange,
        keys: (u64, u64),
    ) -> Status {
        let command = ReservationRegister { namespace: 1, action, ignore_key: false, persist, data: keyed(16) };
        self.with_keys(io, Command::ReservationRegister(command), keys, 16)
    }

    /// The same, and awaits nothing.
    pub(super) fn begin_to_register(
        &mut self,
        io: ConnectionId,
        persist: PersistChange,
        keys: (u64, u64),
        command_id: u16,
    ) {
        let keys = ReservationKeys { current: keys.0.into(), other: keys.1.into() };
        self.raw.data.write(0, keys.as_bytes()).unwrap();
        let (action, data) = (RegisterAction::Register, keyed(16));
        let command = ReservationRegister { namespace: 1, action, ignore_key: false, persist, data };
        let command = Command::ReservationRegister(command);
        self.raw.send(io, command.encode(command_id).unwrap(), Some((Access::RemoteRead, 16)));
    }

    pub(super) fn acquire(
        &mut self,
        io: ConnectionId,
        action: AcquireAction,
        kind: ReservationType,
        keys: (u64, u64),
    ) -> Status {
        let command = ReservationAcquire { namespace: 1, action, kind, data: keyed(16) };
        self.with_keys(io, Command::ReservationAcquire(command), keys, 16)
    }

    /// The same, and awaits nothing.
    pub(super) fn begin_to_acquire(
        &mut self,
        io: ConnectionId,
        action: AcquireAction,
        kind: ReservationType,
        keys: (u64, u64),
        command_id: u16,
    ) {
        let keys = ReservationKeys { current: keys.0.into(), other: keys.1.into() };
        self.raw.data.write(0, keys.as_bytes()).unwrap();
        let command = Command::ReservationAcquire(ReservationAcquire { namespace: 1, action, kind, data: keyed(16) });
        self.raw.send(io, command.encode(command_id).unwrap(), Some((Access::RemoteRead, 16)));
    }

    pub(super) fn release(
        &mut self,
        io: ConnectionId,
        action: ReleaseAction,
        kind: ReservationType,
        key: u64,
    ) -> Status {
        self.release_with(io, action, kind, key, 8)
    }

    /// The same with so many bytes of data.
    pub(super) fn release_with(
        &mut self,
        io: ConnectionId,
        action: ReleaseAction,
        kind: ReservationType,
        key: u64,
        bytes: u32,
    ) -> Status {
        let command = ReservationRelease { namespace: 1, action, kind: kind as u8, data: keyed(bytes) };
        self.with_keys(io, Command::ReservationRelease(command), (key, 0), bytes)
    }

    /// What is reported: the head, and of each registrant its host, its key and whether it holds the reservation.
    pub(super) fn report(&mut self, io: ConnectionId) -> (ReservationStatus, Vec<([u8; 16], u64, bool)>) {
        let command = ReservationReport { namespace: 1, length: 4096, extended: true, data: keyed(4096) };
        let response = self.raw.command(io, Command::ReservationReport(command), Some((Access::RemoteWrite, 4096)));
        assert!(response.status().is_success(), "{}", response.status());
        let mut bytes = [0; 4096];
        self.raw.data.read(0, &mut bytes).unwrap();
        let head = ReservationStatus::read_from_prefix(&bytes).unwrap().0;
        let entries = bytes.chunks(64).skip(1).take(head.registered.get().into()).map(|entry| {
            let entry = RegisteredControllerExtended::read_from_bytes(entry).unwrap();
            assert_eq!(entry.controller_id.get(), RegisteredControllerExtended::DYNAMIC);
            (entry.host_id, entry.key.get(), entry.status == RegisteredControllerExtended::HOLDER)
        });
        (head, entries.collect())
    }

    pub(super) fn read(&mut self, io: ConnectionId) -> Status {
        let range = BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(512) };
        self.raw.command(io, Command::Read(range), Some((Access::RemoteWrite, 512))).status().without_flags()
    }

    pub(super) fn write(&mut self, io: ConnectionId, byte: u8) -> Status {
        self.raw.data.fill(0, 512, byte).unwrap();
        let range = BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(512) };
        self.raw.command(io, Command::Write(range), Some((Access::RemoteRead, 512))).status().without_flags()
    }
}
