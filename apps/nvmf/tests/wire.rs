//! Wire formats: known bytes, round trips, and total decoders.

use frwr_nvmf::wire::{
    self, AcceptPrivateData, AcquireAction, BlockRange, Command, CompletionQueueEntry, Connect, ConnectData,
    ConnectDataError, DataPointer, GetFeatures, Identify, IdentifyController, IdentifyDescriptors, IdentifyNamespace,
    KeyedDataBlock, LbaFormat, Nqn, NqnError, PersistChange, Property, PropertyGet, PropertySet, PropertySize,
    QueueKind, RegisterAction, RejectPrivateData, RejectStatus, ReleaseAction, RequestPrivateData, ReservationAcquire,
    ReservationRegister, ReservationRelease, ReservationReport, ReservationType, Select, SetFeatures, Status,
    UnsupportedFormat,
};
use proptest::prelude::*;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const ENTRY: usize = wire::COMMAND_CAPSULE_BYTES;

fn keyed(length: u32, invalidate: bool) -> DataPointer {
    DataPointer::Keyed(KeyedDataBlock { address: 0x1122_3344_5566_7788, length, key: 0xaabb_ccdd, invalidate })
}

#[test]
fn read_command_has_the_bytes_of_the_standard() {
    let range = BlockRange { namespace: 1, lba: 0x1_0000_0002, blocks: 8, data: keyed(4096, true) };
    let entry = Command::Read(range).encode(0x0203).unwrap();
    let mut expected = [0; ENTRY];
    expected[0..8].copy_from_slice(&[0x02, 0x40, 0x03, 0x02, 1, 0, 0, 0]);
    expected[24..32].copy_from_slice(&0x1122_3344_5566_7788_u64.to_le_bytes());
    expected[32..40].copy_from_slice(&[0x00, 0x10, 0x00, 0xdd, 0xcc, 0xbb, 0xaa, 0x4f]);
    expected[40..50].copy_from_slice(&[2, 0, 0, 0, 1, 0, 0, 0, 7, 0]);
    assert_eq!(entry.as_bytes(), expected);
}

#[test]
fn connect_command_has_the_bytes_of_the_standard() {
    let connect = Connect {
        record_format: 0,
        queue_id: 1,
        queue_size: 63,
        attributes: 0,
        keep_alive_timeout: 5000,
        data: keyed(1024, false),
    };
    let entry = Command::Connect(connect).encode(7).unwrap();
    let bytes = entry.as_bytes();
    assert_eq!(bytes[..5], [0x7f, 0x40, 7, 0, 1]);
    assert_eq!(bytes[32..35], [0, 4, 0]);
    assert_eq!(bytes[39], 0x40);
    assert_eq!(bytes[40..52], [0, 0, 1, 0, 63, 0, 0, 0, 0x88, 0x13, 0, 0]);
}

#[test]
fn property_set_has_the_bytes_of_the_standard() {
    let set = PropertySet { property: Property::Configuration, size: PropertySize::Four, value: 0x0046_0001 };
    let entry = Command::PropertySet(set).encode(1).unwrap();
    assert_eq!(entry.as_bytes()[..5], [0x7f, 0x40, 1, 0, 0]);
    assert_eq!(entry.as_bytes()[40..52], [0, 0, 0, 0, 0x14, 0, 0, 0, 1, 0, 0x46, 0]);
    assert_eq!(wire::ControllerConfiguration::ENABLED.0, 0x0046_0001);
}

#[test]
fn commands_of_reservations_have_the_bytes_of_the_standard() {
    let data = keyed(16, false);
    let (action, persist) = (RegisterAction::Replace, PersistChange::Set);
    let register = ReservationRegister { namespace: 3, action, ignore_key: true, persist, data };
    let (action, kind) = (AcquireAction::PreemptAndAbort, ReservationType::ExclusiveAccessAll);
    let acquire = ReservationAcquire { namespace: 3, action, kind, data };
    let release = ReservationRelease { namespace: 3, action: ReleaseAction::Clear, kind: 2, data };
    let report = ReservationReport { namespace: 3, length: 4096, extended: true, data };
    for (command, opcode, dwords) in [
        (Command::ReservationRegister(register), 0x0d, [0x0a, 0, 0, 0xc0, 0, 0, 0, 0]),
        (Command::ReservationAcquire(acquire), 0x11, [0x02, 6, 0, 0, 0, 0, 0, 0]),
        (Command::ReservationRelease(release), 0x15, [0x01, 2, 0, 0, 0, 0, 0, 0]),
        (Command::ReservationReport(report), 0x0e, [0xff, 3, 0, 0, 1, 0, 0, 0]),
    ] {
        let entry = command.encode(1).unwrap();
        assert_eq!(entry.as_bytes()[..5], [opcode, 0x40, 1, 0, 3]);
        assert_eq!(entry.as_bytes()[40..48], dwords, "{command:?}");
        assert_eq!(wire::decode(&entry, QueueKind::Io), Ok(command));
        assert_ne!(wire::decode(&entry, QueueKind::Admin), Ok(command));
    }
    assert!(Command::ReservationReport(ReservationReport { length: 6, ..report }).encode(1).is_err());
}

#[test]
fn commands_survive_a_round_trip() {
    let data = keyed(4096, false);
    let admin = [
        Command::PropertyGet(PropertyGet { property: Property::Capabilities, size: PropertySize::Eight }),
        Command::PropertySet(PropertySet { property: Property::Configuration, size: PropertySize::Four, value: 1 }),
        Command::Identify(Identify { structure: 1, namespace: 0, data }),
        Command::SetFeatures(SetFeatures { feature: 7, save: true, namespace: 0, value: 0x0003_0003 }),
        Command::SetFeatures(SetFeatures { feature: 0x82, save: false, namespace: 9, value: 0xe }),
        Command::GetFeatures(GetFeatures { feature: 0x82, select: Select::Default, namespace: 9, value: 0, data }),
        Command::KeepAlive,
        Command::AsynchronousEventRequest,
    ];
    for command in admin {
        assert_eq!(wire::decode(&command.encode(9).unwrap(), QueueKind::Admin), Ok(command));
    }
    let flush = Command::Flush { namespace: 3 };
    assert_eq!(wire::decode(&flush.encode(9).unwrap(), QueueKind::Io), Ok(flush));
}

#[test]
fn commands_of_the_other_kind_of_queue_are_invalid_opcodes() {
    let identify = Command::Identify(Identify { structure: 1, namespace: 0, data: DataPointer::NONE });
    let refused = wire::decode(&identify.encode(1).unwrap(), QueueKind::Io).unwrap_err();
    assert_eq!(refused.code(), Status::INVALID_COMMAND_OPCODE.code());
    let get = Command::PropertyGet(PropertyGet { property: Property::Status, size: PropertySize::Four });
    let refused = wire::decode(&get.encode(1).unwrap(), QueueKind::Io).unwrap_err();
    assert_eq!(refused.code(), Status::INVALID_COMMAND_OPCODE.code());
}

#[test]
fn bad_fields_are_invalid_fields() {
    let code = |entry: &wire::SubmissionQueueEntry| wire::decode(entry, QueueKind::Admin).unwrap_err().code();
    let mut prp = Command::KeepAlive.encode(1).unwrap();
    prp.flags = 0;
    assert_eq!(code(&prp), Status::INVALID_FIELD.code());
    let mut fused = Command::KeepAlive.encode(1).unwrap();
    fused.flags = 0x41;
    assert_eq!(code(&fused), Status::INVALID_FIELD.code());
    let get = PropertyGet { property: Property::Capabilities, size: PropertySize::Four };
    assert_eq!(code(&Command::PropertyGet(get).encode(1).unwrap()), Status::INVALID_FIELD.code());
    let mut inexistent = Command::PropertyGet(get).encode(1).unwrap();
    inexistent.dwords_10_15[1] = 0x24.into();
    assert_eq!(code(&inexistent), Status::INVALID_FIELD.code());
}

#[test]
fn unknown_descriptor_types_are_refused() {
    for identifier in (0..=u8::MAX).filter(|identifier| ![0x01, 0x40, 0x4f].contains(identifier)) {
        let mut bytes = [0; 16];
        bytes[15] = identifier;
        let refused = DataPointer::decode(bytes).unwrap_err();
        assert_eq!(refused.code(), Status::SGL_DESCRIPTOR_TYPE_INVALID.code());
        assert!(refused.is_final());
    }
}

#[test]
fn keyed_length_that_needs_more_than_24_bits_is_refused() {
    assert!(keyed(wire::KEYED_DATA_BLOCK_LIMIT, true).encode().is_ok());
    let refused = keyed(wire::KEYED_DATA_BLOCK_LIMIT + 1, true).encode().unwrap_err();
    assert_eq!(refused.code(), Status::DATA_SGL_LENGTH_INVALID.code());
}

#[test]
fn in_capsule_data_stays_inside_the_capsule() {
    assert_eq!(wire::in_capsule_data(0, 512, 512), Ok(0..512));
    assert_eq!(wire::in_capsule_data(512, 0, 512), Ok(512..512));
    assert_eq!(wire::in_capsule_data(513, 0, 512).unwrap_err().code(), Status::SGL_OFFSET_INVALID.code());
    assert_eq!(wire::in_capsule_data(u64::MAX, 1, 512).unwrap_err().code(), Status::SGL_OFFSET_INVALID.code());
    assert_eq!(wire::in_capsule_data(1, 512, 512).unwrap_err().code(), Status::DATA_SGL_LENGTH_INVALID.code());
}

#[test]
fn response_has_the_bytes_of_the_standard() {
    let response = CompletionQueueEntry::new(0x0102, 5, Status::INVALID_FIELD.do_not_retry(), 1);
    assert_eq!(response.as_bytes(), [1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2, 1, 0x04, 0x80]);
    assert_eq!(response.status().code(), Status::INVALID_FIELD.code());
    assert!(response.status().is_final() && !response.status().is_success());
    assert_eq!(response.status().to_string(), "Invalid Field in Command (0x002)");
}

#[test]
fn private_data_of_the_kernel_is_understood() {
    let mut padded = [0; 56];
    padded[..8].copy_from_slice(&[0, 0, 1, 0, 64, 0, 63, 0]);
    let asked = RequestPrivateData::parse(&padded, 4, 128).unwrap();
    assert_eq!((asked.queue_id, asked.entries), (1, 64));
    assert_eq!(RequestPrivateData::new(1, 64).as_bytes(), &padded[..32]);
    assert_eq!(AcceptPrivateData::parse(AcceptPrivateData::new(128).as_bytes()), Ok(128));
    assert_eq!(RejectPrivateData::parse(&[0, 0, 6, 0]), Ok(RejectStatus::NoResources as u16));
    assert!(AcceptPrivateData::parse(&[0; 31]).is_err());
    assert!(RejectPrivateData::parse(&[1, 0, 6, 0]).is_err());
}

#[test]
fn connect_requests_out_of_limits_are_rejected_by_name() {
    let reject = |fields: [u16; 4]| {
        let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).chain([0; 24]).collect();
        RequestPrivateData::parse(&bytes, 4, 128).unwrap_err()
    };
    let told = |fields| {
        let error = reject(fields);
        (error.status(), error.to_string())
    };
    assert_eq!(told([0, 5, 64, 63]), (RejectStatus::InvalidQueueId, "QID 5, must be from 0 to 4".to_owned()));
    let send = |value: u16| (RejectStatus::InvalidHostSendQueue, format!("HSQSIZE {value}, must be from 1 to 127"));
    assert_eq!(told([0, 1, 64, 0]), send(0));
    assert_eq!(told([0, 1, 129, 128]), send(128));
    assert_eq!(told([0, 1, u16::MAX, u16::MAX]), send(u16::MAX));
    let receive = "HRQSIZE 62, must be at least HSQSIZE, which is 63".to_owned();
    assert_eq!(told([0, 1, 62, 63]), (RejectStatus::InvalidHostReceiveQueue, receive));
}

/// Of programs that know nothing of NVMe: what rping and perftest say is nothing, which the connection manager pads with zeros, and
/// sockets over RDMA say their version and their credits.
#[test]
fn what_is_no_private_data_of_a_host_is_told_in_one_way_whatever_is_wrong_with_it() {
    let sockets: Vec<u8> = [1, 0, 0x01, 0x80, 0, 0, 0, 0, 1].into_iter().chain([7; 47]).collect();
    let others: Vec<u8> = [0, 0, 9, 9, 64, 0, 63, 0, 0, 0].into_iter().chain([0xaa; 46]).collect();
    let rounds = [
        (&[][..], RejectStatus::InvalidPrivateDataLength),
        (&[0; 31], RejectStatus::InvalidPrivateDataLength),
        (&[0; 56], RejectStatus::InvalidHostSendQueue),
        (&[0xff; 56], RejectStatus::InvalidRecordFormat),
        (&sockets, RejectStatus::InvalidRecordFormat),
        (&others, RejectStatus::InvalidQueueId),
    ];
    for (bytes, status) in rounds {
        let error = RequestPrivateData::parse(bytes, 4, 128).unwrap_err();
        assert_eq!(error.status(), status);
        let said = "no NVMe over Fabrics private data: another program than an NVMe host connects here";
        assert_eq!(error.to_string(), said, "{bytes:?}");
    }
}

#[test]
fn reject_statuses_round_trip() {
    for code in 0..=u16::MAX {
        match RejectStatus::from_wire(code) {
            Some(status) => assert_eq!(status as u16, code),
            None => assert!(!(1..=9).contains(&code)),
        }
    }
}

#[test]
fn connect_data_round_trips_and_names_the_bad_parameter() {
    let subsystem = Nqn::new("nqn.2014-08.org.nvmexpress:frwr").unwrap();
    let host = Nqn::new("nqn.host").ok();
    let data = ConnectData { host_id: [7; 16], controller_id: wire::DYNAMIC_CONTROLLER, subsystem, host };
    let bytes = data.to_bytes();
    assert_eq!(bytes[16..18], [0xff, 0xff]);
    assert_eq!(bytes[256..260], *b"nqn.");
    assert_eq!(bytes[512..521], *b"nqn.host\0");
    assert_eq!(wire::parse_connect_data(&bytes), Ok(data));
    let nameless = ConnectData { host: None, ..data };
    assert_eq!(wire::parse_connect_data(&nameless.to_bytes()), Ok(nameless));

    let mut unnamed = bytes;
    unnamed[256] = 0;
    assert_eq!(wire::parse_connect_data(&unnamed), Err(ConnectDataError::Subsystem(NqnError::Prefix)));
    let mut endless = bytes;
    endless[512..768].fill(b'n');
    assert_eq!(wire::parse_connect_data(&endless), Err(ConnectDataError::Host(NqnError::Encoding)));
    assert_eq!(wire::parse_connect_data(&bytes[1..]), Err(ConnectDataError::Length(1023)));
}

#[test]
fn names_have_at_most_223_bytes() {
    let name = |bytes: usize| format!("nqn.{}", "x".repeat(bytes - 4));
    assert!(Nqn::new(&name(223)).is_ok());
    let error = Nqn::new(&name(224)).unwrap_err().to_string();
    assert!(error.contains("223") && error.contains("224"), "{error}");
    assert!(Nqn::new("iqn.wrong").is_err());
}

#[test]
fn capabilities_say_what_they_were_made_of() {
    let capabilities = wire::ControllerCapabilities::new(128, 15);
    assert_eq!(capabilities.0, 0x20_0f01_007f);
    assert_eq!(capabilities.max_queue_entries(), 128);
    assert_eq!(capabilities.ready_timeout(), core::time::Duration::from_millis(7500));
    assert_eq!(capabilities.minimum_page_size(), 4096);
    assert!(capabilities.has_nvm_command_set());
    // What the Linux target says.
    let linux = wire::ControllerCapabilities(0x820_0f00_007f);
    assert!(linux.has_nvm_command_set() && linux.max_queue_entries() == 128);
}

#[test]
fn configuration_and_status_bits() {
    use wire::{ControllerConfiguration, ControllerStatus, ShutdownNotification, ShutdownStatus};
    assert!(ControllerConfiguration(0x0046_0001).is_enabled());
    assert!(ControllerConfiguration(0x0046_0001).is_supported());
    assert!(!ControllerConfiguration(0x0046_0061).is_supported());
    assert!(!ControllerConfiguration(1).is_supported());
    assert_eq!(ControllerConfiguration(0x0046_4061).shutdown(), ShutdownNotification::Normal);
    let complete = ControllerStatus::new(true, ShutdownStatus::Complete);
    assert_eq!(complete.0, 9);
    assert!(complete.is_ready() && !complete.is_fatal());
    assert_eq!(complete.shutdown(), ShutdownStatus::Complete);
}

#[test]
fn namespaces_with_unusable_formats_are_refused() {
    let mut namespace = IdentifyNamespace::new_zeroed();
    assert_eq!(namespace.geometry(), Err(UnsupportedFormat::Inactive));
    namespace.size = 100.into();
    namespace.lba_formats[0].block_shift = 12;
    assert_eq!(namespace.geometry(), Ok((100, 4096)));
    assert_eq!(namespace.as_bytes()[130], 12);
    namespace.format = 0x0f;
    assert!(namespace.geometry().is_err());
    namespace.format = 0;
    namespace.lba_formats[0] = LbaFormat { metadata_size: 8.into(), block_shift: 9, relative_performance: 0 };
    assert!(namespace.geometry().is_err());
}

#[test]
fn controller_limits_are_read_without_overflow() {
    let mut controller = IdentifyController::new_zeroed();
    assert_eq!(controller.max_transfer_bytes(4096), None);
    controller.max_data_transfer = 8;
    assert_eq!(controller.max_transfer_bytes(4096), Some(1 << 20));
    controller.max_data_transfer = 255;
    assert_eq!(controller.max_transfer_bytes(4096), Some(u64::MAX));
    controller.io_command_capsule = 260.into();
    assert_eq!(controller.in_capsule_bytes(), 4096);
    controller.io_command_capsule = 0.into();
    assert_eq!(controller.in_capsule_bytes(), 0);
    assert!(!controller.supports_keyed_blocks());
    controller.sgl_support = 0x0010_0005.into();
    assert!(controller.supports_keyed_blocks());
}

#[test]
fn descriptor_list_has_one_nguid() {
    let list = IdentifyDescriptors::new([9; 16]);
    assert_eq!(list.as_bytes()[..4], [2, 16, 0, 0]);
    assert_eq!(list.as_bytes()[4..24], [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0]);
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
        if let Ok((entry, rest)) = wire::parse_command(&bytes) {
            prop_assert_eq!(rest.len() + ENTRY, bytes.len());
            let _ = wire::decode(&entry, QueueKind::Admin);
            let _ = wire::decode(&entry, QueueKind::Io);
        }
        let _ = wire::parse_response(&bytes);
        let _ = wire::parse_connect_data(&bytes);
        let _ = RequestPrivateData::parse(&bytes, 4, 128);
        let _ = AcceptPrivateData::parse(&bytes);
        let _ = RejectPrivateData::parse(&bytes);
    }

    #[test]
    fn no_entry_makes_a_decoder_panic(
        opcode in prop::sample::select(vec![0_u8, 1, 2, 6, 9, 0x0c, 0x18, 0x7f]),
        mut bytes in any::<[u8; ENTRY]>(),
        fabrics in 0_u8..8,
        identifier in prop::sample::select(vec![0x01_u8, 0x40, 0x4f]),
    ) {
        (bytes[0], bytes[1], bytes[4], bytes[39]) = (opcode, 0x40, fabrics, identifier);
        let (entry, _) = wire::parse_command(&bytes).unwrap();
        for queue in [QueueKind::Admin, QueueKind::Io] {
            if let Ok(command) = wire::decode(&entry, queue) {
                // Whatever was understood can be said again, and is understood the same way.
                let again = command.encode(entry.command_id.get()).unwrap();
                prop_assert_eq!(wire::decode(&again, queue), Ok(command));
            }
        }
    }

    #[test]
    fn no_identify_structure_makes_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 4096)) {
        let controller = IdentifyController::read_from_bytes(&bytes).unwrap();
        let _ = (controller.max_transfer_bytes(1 << 27), controller.in_capsule_bytes());
        let _ = IdentifyNamespace::read_from_bytes(&bytes).unwrap().geometry();
    }

    #[test]
    fn block_ranges_round_trip(lba: u64, blocks in 1_u32..=65536, namespace: u32, length in 0..1_u32 << 24,
                               address: u64, key: u32, invalidate: bool, command_id: u16) {
        let data = DataPointer::Keyed(KeyedDataBlock { address, length, key, invalidate });
        let command = Command::Write(BlockRange { namespace, lba, blocks, data });
        let entry = command.encode(command_id).unwrap();
        prop_assert_eq!(entry.command_id.get(), command_id);
        prop_assert_eq!(wire::decode(&entry, QueueKind::Io), Ok(command));
    }

    #[test]
    fn in_capsule_pointers_round_trip(offset: u64, length: u32) {
        let data = DataPointer::InCapsule { offset, length };
        prop_assert_eq!(DataPointer::decode(data.encode().unwrap()), Ok(data));
    }

    #[test]
    fn in_capsule_ranges_lie_inside(offset: u64, length: u32, available in 0_usize..10_000) {
        if let Ok(range) = wire::in_capsule_data(offset, length, available) {
            prop_assert!(range.start <= range.end && range.end <= available);
        }
    }

    #[test]
    fn responses_round_trip(command_id: u16, head: u16, result: u64, word: u16) {
        let status = Status::from_wire(word);
        let response = CompletionQueueEntry::new(command_id, head, status, result);
        prop_assert_eq!(wire::parse_response(response.as_bytes()), Ok(response));
        prop_assert_eq!(response.status(), status);
    }
}
