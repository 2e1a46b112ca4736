//! Media that hang: what they hold of a core must not stop what is beside them.

use frwr_engine::provider::Access;
use frwr_engine::{ConnectionId, ReceiveQueues};
use frwr_nvmf::controller::TargetOptions;
use frwr_nvmf::wire::{Abort, BlockRange, Command, CompletionQueueEntry, DataPointer, Identify, Status, cns};
use frwr_support::nvmf_harness::gated::{Gate, Gated, Switch};
use frwr_support::nvmf_harness::raw::{Raw, keyed};
use frwr_support::nvmf_harness::target_options;
use std::rc::Rc;
use zerocopy::IntoBytes;

const BLOCK: u32 = 512;

fn range(namespace: u32) -> BlockRange {
    BlockRange { namespace, lba: 0, blocks: 1, data: keyed(BLOCK) }
}

/// A target of some namespaces, with two controllers of two I/O queues each.
struct Hung {
    raw: Raw<Gated>,
    admin: ConnectionId,
    queues: Vec<ConnectionId>,
    switches: Vec<Rc<Switch>>,
    next: u16,
}

impl Hung {
    fn new(namespaces: usize) -> Self {
        Self::with(namespaces, target_options())
    }

    fn with(namespaces: usize, options: TargetOptions) -> Self {
        let (storages, switches) = (0..namespaces).map(|_| Gated::new(8, BLOCK, 128)).unzip();
        let mut raw = Raw::with(options.controllers(3).io_queues(2), storages);
        let (mut queues, mut admins) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (admin, controller) = raw.controller();
            queues.extend([1, 2].map(|queue| raw.another_queue(controller, queue)));
            admins.push(admin);
        }
        Self { raw, admin: admins[0], queues, switches, next: 1000 }
    }

    /// Sends so many Compares of a namespace, which hold two buffers each, on a queue.
    fn flood(&mut self, queue: usize, namespace: u32, commands: u16) {
        for _ in 0..commands {
            let entry = Command::Compare(range(namespace)).encode(self.next).unwrap();
            self.raw.send(self.queues[queue], entry, Some((Access::RemoteRead, BLOCK)));
            self.next += 1;
        }
        self.raw.steps(20);
    }

    /// Commands of a namespace end, and so do those of the admin queue.
    fn goes_on(&mut self, queue: usize, namespace: u32) {
        let io = self.queues[queue];
        for (command, access) in [
            (Command::Read(range(namespace)), Access::RemoteWrite),
            (Command::Write(range(namespace)), Access::RemoteRead),
            (Command::Compare(range(namespace)), Access::RemoteRead),
        ] {
            let response = self.raw.command(io, command, Some((access, BLOCK)));
            assert!(response.status().is_success(), "{}", response.status());
        }
        let identify = Command::Identify(Identify { structure: cns::CONTROLLER, namespace: 0, data: keyed(4096) });
        assert!(self.raw.command(self.admin, identify, Some((Access::RemoteWrite, 4096))).status().is_success());
    }

    /// Everything goes on, and all that hung is answered.
    fn finish(mut self) {
        self.switches.iter().for_each(|switch| switch.gate.set(Gate::Open));
        self.raw.until("answered", |raw| raw.target.statistics().commands_in_flight == 0);
        self.raw.shut_down();
    }
}

#[test]
fn a_namespace_whose_disk_hangs_leaves_buffers_for_the_others() {
    for gate in [Gate::Running, Gate::Unstarted, Gate::Full] {
        let mut hung = Hung::new(2);
        hung.switches[0].gate.set(gate);
        (0..4).for_each(|queue| hung.flood(queue, 1, 29));
        let statistics = hung.raw.target.statistics();
        assert!(statistics.buffer_waits > 0 && statistics.buffers_free > 0, "{gate:?} {statistics:?}");
        (0..4).for_each(|queue| hung.goes_on(queue, 2));
        hung.finish();
    }
}

#[test]
fn however_many_disks_hang_the_last_one_goes_on() {
    for namespaces in [3, 8, 40] {
        let mut hung = Hung::new(namespaces);
        hung.switches.iter().take(namespaces - 1).for_each(|switch| switch.gate.set(Gate::Running));
        // One after the other, so that each could take what the ones before have left.
        for command in 0..112 {
            let namespace = 1 + command * (namespaces - 1) / 112;
            hung.flood(command % 4, namespace as u32, 1);
        }
        hung.goes_on(0, namespaces as u32);
        hung.finish();
    }
}

#[test]
fn one_namespace_with_a_core_for_itself_leaves_what_the_admin_queue_needs() {
    let mut hung = Hung::new(1);
    hung.switches[0].gate.set(Gate::Running);
    (0..4).for_each(|queue| hung.flood(queue, 1, 29));
    let identify = Command::Identify(Identify { structure: cns::CONTROLLER, namespace: 0, data: keyed(4096) });
    assert!(hung.raw.command(hung.admin, identify, Some((Access::RemoteWrite, 4096))).status().is_success());
    hung.raw.controller();
    hung.finish();
}

/// Aborts a command of the first controller's I/O queue 1; whether the target says that it did.
fn abort(hung: &mut Hung, command_id: u16) -> bool {
    let entry = Command::Abort(Abort { queue_id: 1, command_id }).encode(901).unwrap();
    hung.raw.send(hung.admin, entry, None);
    hung.raw.until("abort answered", |raw| raw.responses.iter().any(|response| response.command_id.get() == 901));
    let at = hung.raw.responses.iter().position(|response| response.command_id.get() == 901).unwrap();
    hung.raw.responses.remove(at).result.get() == 0
}

/// The answer to a command, while the disk hangs.
fn answered_as_aborted(hung: &mut Hung, command_id: u16) -> bool {
    hung.raw.steps(50);
    let named = |response: &CompletionQueueEntry| response.command_id.get() == command_id;
    let at = hung.raw.responses.iter().position(named);
    at.is_some_and(|at| hung.raw.responses.remove(at).status().code() == Status::COMMAND_ABORT_REQUESTED.code())
}

#[test]
fn an_aborted_command_does_not_wait_for_those_in_front_of_it() {
    let mut hung = Hung::new(2);
    hung.switches[0].gate.set(Gate::Running);
    (1..4).for_each(|queue| hung.flood(queue, 1, 25));
    hung.flood(0, 1, 30);
    assert!(hung.raw.target.statistics().buffer_waits > 3);
    hung.raw.responses.clear();
    // The last one that waits, one in the middle, and the first.
    let waits = hung.raw.target.statistics().buffer_waits as u16;
    for command in [hung.next - 1, hung.next - 2, hung.next - waits] {
        assert!(abort(&mut hung, command));
        assert!(answered_as_aborted(&mut hung, command), "{command}");
    }
    assert!(!abort(&mut hung, 1000 + 76), "it runs");
    hung.goes_on(0, 2);
    hung.finish();
}

#[test]
fn commands_that_wait_for_a_buffer_end_with_their_connection() {
    let mut hung = Hung::new(2);
    hung.switches[0].gate.set(Gate::Running);
    (1..4).for_each(|queue| hung.flood(queue, 1, 30));
    let before = hung.raw.target.statistics();
    assert!(before.buffer_waits > 0);
    hung.flood(0, 1, 20);
    let used = hung.raw.target.statistics();
    assert_eq!((used.slots_used, used.buffer_waits), (before.slots_used + 20, before.buffer_waits + 20));
    let io = hung.queues[0];
    hung.raw.engine.disconnect(io);
    hung.raw.until("ended", |raw| raw.disconnected.contains(&io));
    hung.raw.steps(50);
    assert_eq!(hung.raw.target.statistics().slots_used, before.slots_used);
    // Those that come now have their places in the line, and wait to be answered.
    hung.raw.responses.clear();
    hung.flood(1, 1, 2);
    assert_eq!(hung.raw.target.statistics().buffer_waits, used.buffer_waits + 2);
    hung.goes_on(1, 2);
    hung.finish();
}

/// Writes whose data comes in their capsules keep their receive until they have a buffer.
#[test]
fn receives_of_aborted_commands_come_back_once() {
    let receive_queues = ReceiveQueues::Shared { entries: 300 };
    let mut hung = Hung::with(2, target_options().receive_queues(receive_queues).in_capsule_bytes(1024));
    let data = DataPointer::InCapsule { offset: 0, length: BLOCK };
    let mut bytes = vec![0; 64 + BLOCK as usize];
    let write = |hung: &mut Hung, id: u16, bytes: &mut [u8]| {
        let entry = Command::Write(BlockRange { data, ..range(1) }).encode(id).unwrap();
        bytes[..64].copy_from_slice(entry.as_bytes());
        hung.raw.send_bytes(hung.queues[0], bytes, id, None);
        hung.raw.steps(20);
    };
    // With buffers: it is refused by the storage, or in its batch, and has left its receive.
    for (round, gate) in [Gate::Full, Gate::Unstarted].into_iter().cycle().take(40).enumerate() {
        hung.switches[0].gate.set(gate);
        let id = 100 + round as u16;
        write(&mut hung, id, &mut bytes);
        assert_eq!(hung.raw.target.engine().receive_buffers().held, 0);
        hung.raw.responses.clear();
        assert!(abort(&mut hung, id) && answered_as_aborted(&mut hung, id));
    }
    // Without.
    hung.switches[0].gate.set(Gate::Running);
    (1..4).for_each(|queue| hung.flood(queue, 1, 32));
    assert!(hung.raw.target.statistics().buffer_waits > 0);
    for round in 0..400 {
        let id = 200 + round;
        write(&mut hung, id, &mut bytes);
        assert_eq!(hung.raw.target.engine().receive_buffers().held, 1);
        hung.raw.responses.clear();
        assert!(abort(&mut hung, id) && answered_as_aborted(&mut hung, id));
        assert_eq!(hung.raw.target.engine().receive_buffers().held, 0);
    }
    // One of a connection that ends with it.
    write(&mut hung, 900, &mut bytes);
    let io = hung.queues[0];
    hung.raw.engine.disconnect(io);
    hung.raw.until("ended", |raw| raw.disconnected.contains(&io));
    hung.raw.steps(50);
    let buffers = hung.raw.target.engine().receive_buffers();
    assert_eq!((buffers.posted + buffers.idle, buffers.held), (300, 0));
    hung.finish();
}
