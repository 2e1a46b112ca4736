//! Inputs that lead somewhere: what the encoders make, and what people write.

use crate::captures::{HOST, PCAP_HEAD};
use frwr::latency;
use frwr_nvmf::wire::{
    self, Abort, AcceptPrivateData, AcquireAction, AuthenticationMessage, BlockRange, Command, CompletionQueueEntry,
    Connect, ConnectData, ControllerCapabilities, ControllerConfiguration, DataPointer, DatasetManagement,
    DiscoveryEntry, DiscoveryHeader, GetFeatures, GetLogPage, Identify, IdentifyController, IdentifyNamespace,
    KeyedDataBlock, Nqn, PersistChange, Property, PropertyGet, PropertySet, PropertySize, RegisterAction,
    RejectPrivateData, RejectStatus, ReleaseAction, RequestPrivateData, ReservationAcquire, ReservationRegister,
    ReservationRelease, ReservationReport, ReservationType, Select, SetFeatures, Status, WriteZeroes, listed_blocks,
};
use frwr_support::nvmf_harness::{host_options, subsystem};
use zerocopy::{FromZeros as _, IntoBytes as _};

const KEYED: DataPointer =
    DataPointer::Keyed(KeyedDataBlock { address: 0x1000, length: 4096, key: 0x11_2201, invalidate: true });
const IN_CAPSULE: DataPointer = DataPointer::InCapsule { offset: 0, length: 64 };

fn commands() -> Vec<Command> {
    let range = BlockRange { namespace: 1, lba: 7, blocks: 8, data: KEYED };
    let (property, size) = (Property::Configuration, PropertySize::Four);
    let value = ControllerConfiguration::ENABLED.0.into();
    let log = GetLogPage {
        page: wire::log_page::ANA,
        specific: 1,
        retain_event: true,
        length: 4096,
        offset: 1 << 33,
        offset_is_index: false,
        namespace: wire::BROADCAST_NAMESPACE,
        data: KEYED,
    };
    let connect = Connect {
        record_format: 0,
        queue_id: 0,
        queue_size: 31,
        attributes: 4,
        keep_alive_timeout: 9,
        data: IN_CAPSULE,
    };
    vec![
        Command::Connect(connect),
        Command::AuthenticationSend(AuthenticationMessage { length: 64, data: IN_CAPSULE }),
        Command::AuthenticationReceive(AuthenticationMessage { length: 4096, data: KEYED }),
        Command::PropertyGet(PropertyGet { property: Property::Capabilities, size: PropertySize::Eight }),
        Command::PropertySet(PropertySet { property, size, value }),
        Command::Identify(Identify { structure: wire::cns::CONTROLLER, namespace: 0, data: KEYED }),
        Command::SetFeatures(SetFeatures {
            feature: wire::feature::NUMBER_OF_QUEUES,
            save: false,
            namespace: 0,
            value: 1,
        }),
        Command::GetFeatures(GetFeatures {
            feature: 1,
            select: Select::Saved,
            namespace: 0,
            value: 0,
            data: DataPointer::NONE,
        }),
        Command::GetLogPage(log),
        Command::Abort(Abort { queue_id: 1, command_id: 9 }),
        Command::KeepAlive,
        Command::AsynchronousEventRequest,
        Command::Read(range),
        Command::Write(BlockRange { data: IN_CAPSULE, ..range }),
        Command::Compare(range),
        Command::WriteZeroes(WriteZeroes { namespace: 1, lba: 1, blocks: 1 << 16, deallocate: true }),
        Command::DatasetManagement(DatasetManagement { namespace: 1, ranges: 4, deallocate: true, data: IN_CAPSULE }),
        Command::Flush { namespace: 1 },
        Command::ReservationRegister(ReservationRegister {
            namespace: 1,
            action: RegisterAction::Replace,
            ignore_key: true,
            persist: PersistChange::Set,
            data: IN_CAPSULE,
        }),
        Command::ReservationAcquire(ReservationAcquire {
            namespace: 1,
            action: AcquireAction::PreemptAndAbort,
            kind: ReservationType::WriteExclusive,
            data: KEYED,
        }),
        Command::ReservationRelease(ReservationRelease {
            namespace: 1,
            action: ReleaseAction::Clear,
            kind: 0,
            data: IN_CAPSULE,
        }),
        Command::ReservationReport(ReservationReport { namespace: 1, length: 4096, extended: true, data: KEYED }),
    ]
}

pub(crate) fn command_capsules() -> Vec<Vec<u8>> {
    let entries = commands().into_iter().filter_map(|command| command.encode(0x1234).ok());
    let mut capsules: Vec<_> = entries.map(|entry| [entry.as_bytes(), &[0; 64]].concat()).collect();
    let flush = Command::Flush { namespace: 1 };
    if let Ok(mut listed) = flush.encode(1) {
        listed.data = listed_blocks(2);
        let block = KEYED.encode().unwrap_or_default();
        capsules.push([listed.as_bytes(), &block, &block].concat());
    }
    capsules
}

pub(crate) fn response_capsules() -> Vec<Vec<u8>> {
    let statuses = [Status::SUCCESS, Status::INVALID_FIELD.do_not_retry(), Status::from_wire(0xffff)];
    statuses.map(|status| CompletionQueueEntry::new(9, 3, status, 1 << 40).as_bytes().to_vec()).into()
}

pub(crate) fn data_pointers() -> Vec<Vec<u8>> {
    let pointers = [KEYED, IN_CAPSULE, DataPointer::NONE].map(|pointer| pointer.encode().unwrap_or_default());
    let listed = [&listed_blocks(3)[..], &pointers.concat()].concat();
    pointers.iter().map(|pointer| [&pointer[..], &[0; 64]].concat()).chain([listed]).collect()
}

pub(crate) fn connect_data() -> Vec<Vec<u8>> {
    let data = |host| ConnectData { host_id: [1; 16], controller_id: 0xffff, subsystem: subsystem(), host };
    let name = b"nqn.2014-08.org.nvmexpress:frwr".to_vec();
    vec![data(None).to_bytes().into(), data(Nqn::new("nqn.host").ok()).to_bytes().into(), name]
}

pub(crate) fn private_data() -> Vec<Vec<u8>> {
    vec![
        RequestPrivateData::new(0, 32).as_bytes().to_vec(),
        RequestPrivateData::new(1, 128).as_bytes().to_vec(),
        AcceptPrivateData::new(128).as_bytes().to_vec(),
        RejectPrivateData::new(RejectStatus::NoResources).as_bytes().to_vec(),
    ]
}

pub(crate) fn latency_private_data() -> Vec<Vec<u8>> {
    let parameters = latency::Parameters {
        operation: latency::Operation::Request,
        key: latency::KeyKind::Request,
        invalidation: latency::Invalidation::Remote,
        peer_does: latency::PeerDoes::Write,
        size: 4096,
        segments: 1,
        ranges: 1,
        depth: 32,
        batch: 1,
        connections: 1,
    };
    let refusals = [latency::Refusal::Busy, latency::Refusal::Crowded(7), latency::Refusal::Version(1)];
    let mut seeds = vec![latency::ConnectData { parameters, client: 1 }.encode()];
    seeds.extend(refusals.iter().map(latency::Refusal::encode));
    seeds
}

/// Kind, count, slot and sequence, then ranges of address, key and length; in front, the bytes that they should have.
pub(crate) fn latency_messages() -> Vec<Vec<u8>> {
    let range = |length: u8| [[0, 0x10, 0, 0, 0, 0, 0, 0], [1, 2, 3, 4, length, 0, 0, 0]].concat();
    let head = [100, 0, 0, 0, 3, 2, 1, 0, 7, 0, 0, 0];
    let bare = (1..=10).map(|kind| [[0; 4], [kind, 0, 1, 0], [9, 0, 0, 0], [0; 4], [0; 4]].concat());
    bare.chain([[&head[..], &range(60), &range(40)].concat()]).collect()
}

pub(crate) fn identify() -> Vec<Vec<u8>> {
    let mut controller = IdentifyController::new_zeroed();
    controller.sgl_support = (IdentifyController::SGL_SUPPORTED | IdentifyController::SGL_KEYED).into();
    (controller.max_data_transfer, controller.io_command_capsule) = (5, 8.into());
    controller.subsystem = subsystem().to_field();
    let mut namespace = IdentifyNamespace::new_zeroed();
    (namespace.size, namespace.lba_formats[0].block_shift) = (256.into(), 12);
    vec![controller.as_bytes().to_vec(), namespace.as_bytes()[..256].to_vec()]
}

pub(crate) fn log_pages() -> Vec<Vec<u8>> {
    let options = host_options();
    let entry = DiscoveryEntry::new(&options.subsystem, 1, options.address, 32);
    vec![entry.as_bytes().to_vec(), DiscoveryHeader::new(1, 2).as_bytes().to_vec(), vec![1; 64], vec![0; 4096]]
}

pub(crate) fn properties() -> Vec<Vec<u8>> {
    let of = |offset: u32, value: u64| [&offset.to_le_bytes()[..], &value.to_le_bytes()].concat();
    let shutdown = ControllerConfiguration::NORMAL_SHUTDOWN.0.into();
    vec![of(0, ControllerCapabilities::new(128, 1).0), of(0x14, shutdown), of(0x1c, 9), of(8, 0)]
}

/// Profile, session, then operations.
pub(crate) fn of_target() -> Vec<Vec<u8>> {
    let read = [5, 1, 2, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0];
    let garbage = [&[4, 0, 64][..], &[0xa5; 64]].concat();
    let registered = [8, 0, 0, 0xff, 0x0f, 10, 20];
    vec![
        vec![0, 2],
        [&[0, 2][..], &read, &[10, 20]].concat(),
        [&[1, 2][..], &registered, &read, &[11, 2, 0]].concat(),
        [&[2, 1][..], &garbage, &[11, 0, 30]].concat(),
        [&[0, 0, 0, 32][..], &[7; 32], &[1, 0, 32, 2, 3, 1, 9, 0, 1, 2, 3, 4]].concat(),
    ]
}

/// How many bytes are operations, the kind of host, operations; then answers.
pub(crate) fn of_host() -> Vec<Vec<u8>> {
    let requests = [0, 3, 2, 1, 0, 9, 255, 1, 9, 1, 1, 2, 9, 255];
    let session = |kind: u8, rest: &[u8], answers: &[u8]| {
        let operations = [&[9, 255, 9, 255][..], rest].concat();
        [&[2 + operations.len() as u8, kind], &operations[..], answers].concat()
    };
    vec![
        session(0, &requests, &[]),
        session(0xec, &requests, &[]),
        session(2, &[], &[]),
        session(0, &requests, &[[0; 20], [5; 20]].concat()),
        session(0, &[5, 9, 200], &[7, 0, 0, 4, 1, 2, 3, 4]),
        session(6, &[7, 4, 0, 0, 1, 0, 5, 9, 99, 8, 1, 4, 0, 0, 6, 0, 5], &[0, 0, 10, 1, 1, 0, 0, 3, 0xff]),
    ]
}

pub(crate) fn serve_configs() -> Vec<Vec<u8>> {
    let smallest = "device = \"rxe0\"\nlisten = \"10.0.0.1:4420\"\n[[subsystem]]\nnqn = \"nqn.a:disk\"\n\
        [[subsystem.namespace]]\nmemory = \"1M\"\n";
    let whole = "device = \"mlx5_0\"\nib_port = 2\ngid_index = 3\nmtu = 1024\ntraffic_class = 104\nack_timeout = 14\n\
        inline_size = 64\nthread_domains = false\nretry_count = 7\nrnr_retry_count = 7\nlisten = \"[fd00::1]:4420\"\n\
        cores = \"2-3\"\npages = \"plain\"\nqueue_depth = 64\nhosts = 4\nio_queues = 2\nin_capsule = 4096\n\
        data_blocks = 4\nshared_receives = 256\nmax_transfer = \"256K\"\nmax_silence = 60\nremote_invalidate = false\n\
        runtime = 10\n[[subsystem]]\nnqn = \"nqn.a:disk\"\nallowed_hosts = [\"nqn.host\"]\nserial = \"S1\"\n\
        [[subsystem.namespace]]\nload = \"/tmp/a\"\nread_only = true\n[[subsystem.namespace]]\nfile = \"/tmp/b\"\n\
        block_size = 512\nbacking = \"thread\"\ndirect = false\n[[subsystem]]\nnqn = \"nqn.b:disk\"\n\
        [[subsystem.namespace]]\ndevice = \"/dev/sdz\"\nbacking = \"ring\"\n";
    let wrong = "device = \"rxe0\"\nlisten = \"0.0.0.0\"\nhosts = 70000\n";
    [smallest, whole, wrong].map(|text| text.as_bytes().to_vec()).into()
}

/// A program by its number, then a line for each argument.
pub(crate) fn command_lines() -> Vec<Vec<u8>> {
    let lines: [(u8, &str); 10] = [
        (0, "--device soft:umr --cores 0,1 --queue-depth 32 --runtime 1 --json --inject kill-peer"),
        (0, "serve --device rxe0 --listen 10.0.0.1:4420 --hosts 4 --shared-receives 128 /tmp/a"),
        (0, "load --device rxe0 --connect 10.0.0.1:4420 --nsid 1 --bytes 4096 --cores 0-1"),
        (0, "discover --device rxe0 --connect [fd00::1]:8009 --host-nqn nqn.host"),
        (0, "serve --help"),
        (1, "--op request --size 4096,64K --depth 8 --runtime 0.5 --warm-up 0.1 --cores unpinned:2"),
        (1, "10.0.0.1:49200 -d rxe0 -x 1 -s 8 -n 100 --key memory --op write --rate 1000 --cqmod 4"),
        (1, "--all --op register --registration lists --batch 32 --segments 4 -c RC"),
        (2, "--json sizing --max-qp-wr 128 --max-sge 16"),
        (2, "--device rxe0"),
    ];
    let seed = |(program, line): (u8, &str)| [&[program], line.replace(' ', "\n").as_bytes()].concat();
    lines.into_iter().map(seed).collect()
}

/// Operations of a pool: all of them, with the same choices.
pub(crate) fn operations() -> Vec<Vec<u8>> {
    let some = |step: usize| (0..=255_u8).cycle().step_by(step).take(120).collect();
    [1, 3, 7, 11].map(some).into()
}

/// An RDMA READ request from the target, behind a command that announced its key.
pub(crate) fn captures() -> Vec<Vec<u8>> {
    let command = commands().into_iter().filter_map(|command| command.encode(3).ok());
    let sends = command.map(|entry| packet(0x04, true, entry.as_bytes()));
    let range = [&0x1000_u64.to_be_bytes()[..], &0x11_2201_u32.to_be_bytes(), &64_u32.to_be_bytes()].concat();
    let uses = [packet(0x0c, false, &range), packet(0x06, false, &[&range[..], &[5; 8]].concat())];
    let invalidates = packet(0x17, false, &[&0x11_2201_u32.to_be_bytes()[..], &[0; 16]].concat());
    let framed = |packet: &Vec<u8>| [&[packet.len() as u8], &packet[..]].concat();
    let packets: Vec<_> = sends.chain(uses).chain([invalidates]).collect();
    let whole: Vec<u8> = packets.iter().skip(10).flat_map(framed).collect();
    let mut seeds: Vec<_> = packets.iter().map(framed).collect();
    let length = (packets[0].len() as u32).to_le_bytes();
    seeds.push([&PCAP_HEAD[..], &[0; 8], &length, &length, &packets[0]].concat());
    seeds.push(whole);
    seeds
}

/// Ethernet, IPv4, UDP, and a base transport header.
fn packet(opcode: u8, from_host: bool, rest: &[u8]) -> Vec<u8> {
    let target = [10, 9, 1, 2];
    let (from, to) = if from_host { (HOST, target) } else { (target, HOST) };
    let transport = [&[opcode, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 7], rest, &[0; 4]].concat();
    let udp_length = (8 + transport.len() as u16).to_be_bytes();
    let udp = [&[0xc0, 0, 0x12, 0xb7], &udp_length[..], &[0, 0], &transport].concat();
    let length = (20 + udp.len() as u16).to_be_bytes();
    let network = [&[0x45, 0], &length[..], &[0, 0, 0x40, 0, 64, 17, 0, 0], &from, &to].concat();
    [&[0; 12][..], &[8, 0], &network, &udp].concat()
}
