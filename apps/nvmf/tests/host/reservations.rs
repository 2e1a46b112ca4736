//! Reservations as a host asks for them.

use frwr_engine::gather::Segment;
use frwr_nvmf::controller::Reservations;
use frwr_nvmf::host::{IoError, RequestError, Reserve, report_bytes};
use frwr_nvmf::wire::{
    AcquireAction, PersistChange, RegisterAction, RegisteredControllerExtended, ReservationStatus, ReservationType,
    Status,
};
use frwr_support::nvmf_harness::{PROFILES, Pair, host_options};
use zerocopy::FromBytes;

const KEY: u64 = 0x1122_3344_5566_7788;

fn asked(pair: &mut Pair, what: Reserve, keys: (u64, u64)) -> Result<(), Status> {
    pair.host.reserve(what, keys, 7).unwrap();
    ended(pair)
}

fn ended(pair: &mut Pair) -> Result<(), Status> {
    match pair.completed(1)[0].result {
        Ok(()) => Ok(()),
        Err(IoError::Status(status)) => Err(status.without_flags()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_host_registers_acquires_reads_who_it_is_and_releases() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        pair.target.reserve_by(&Reservations::new());
        pair.bring_up();
        let kind = ReservationType::WriteExclusive;
        let acquire = Reserve::Acquire { action: AcquireAction::Acquire, kind };
        assert_eq!(asked(&mut pair, acquire, (KEY, 0)), Err(Status::RESERVATION_CONFLICT), "it is not registered");
        let register = |action, ignore_key| Reserve::Register { action, ignore_key, persist: PersistChange::None };
        assert_eq!(asked(&mut pair, register(RegisterAction::Register, false), (0, 1)), Ok(()));
        assert_eq!(asked(&mut pair, register(RegisterAction::Replace, true), (0, KEY)), Ok(()));
        assert_eq!(asked(&mut pair, acquire, (KEY, 0)), Ok(()));
        let segment = Segment { length: report_bytes(2), ..pair.segment(0, 1) };
        pair.fill(0, 0xff);
        pair.host.report_reservations(segment, 7).unwrap();
        assert_eq!(ended(&mut pair), Ok(()));
        let bytes = pair.block(0);
        let head = ReservationStatus::read_from_prefix(&bytes).unwrap().0;
        assert_eq!((head.generation.get(), head.kind, head.registered.get()), (2, kind as u8, 1));
        let entry = RegisteredControllerExtended::read_from_prefix(&bytes[64..]).unwrap().0;
        assert_eq!((entry.key.get(), entry.status), (KEY, RegisteredControllerExtended::HOLDER));
        assert_eq!(entry.host_id, host_options().host_id);
        assert!(bytes[128..192].iter().all(|byte| *byte == 0) && bytes[192..].iter().all(|byte| *byte == 0xff));
        let segment = pair.segment(1, 1);
        pair.host.write(0, &[segment], 7).unwrap();
        assert_eq!(ended(&mut pair), Ok(()));
        let other = Reserve::Release { kind: ReservationType::ExclusiveAccess };
        assert_eq!(asked(&mut pair, other, (KEY, 0)), Err(Status::INVALID_FIELD));
        assert_eq!(asked(&mut pair, Reserve::Release { kind }, (KEY, 0)), Ok(()));
        assert_eq!(asked(&mut pair, Reserve::Clear, (KEY, 0)), Ok(()));
        assert_eq!(asked(&mut pair, Reserve::Clear, (KEY, 0)), Err(Status::RESERVATION_CONFLICT));
        pair.finish();
    }
}

#[test]
fn what_a_controller_has_not_is_not_asked_of_it() {
    let mut pair = Pair::ready("reg_mr");
    assert_eq!(pair.host.reserve(Reserve::Clear, (1, 0), 7), Err(RequestError::Unsupported("Reservations")));
    let segment = pair.segment(0, 1);
    assert_eq!(pair.host.report_reservations(segment, 7), Err(RequestError::Unsupported("Reservations")));
    let mut pair = Pair::new("reg_mr");
    pair.target.reserve_by(&Reservations::new());
    pair.bring_up();
    for length in [0, 2, 64 << 10] {
        let segment = Segment { length, ..pair.segment(0, 1) };
        let refused = pair.host.report_reservations(segment, 7).unwrap_err();
        assert!(matches!(refused, RequestError::Length { .. }), "{refused}");
    }
    pair.finish();
}
