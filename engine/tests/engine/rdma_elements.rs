//! Several pieces of memory in one RDMA READ or WRITE: as many as the device takes, and all bytes where they belong.

use frwr_engine::{
    Chunk, FetchRequest, MAX_TRANSFER_ELEMENTS, RemoteSegment, Segment, TransferError, WriteRequest,
    mr::Grant,
    provider::{Access, RemoteRange},
};
use frwr_support::engine_harness::{PROFILES, Setup, scripted::Scripted};

/// Pieces of the host's memory, of lengths that differ.
const LENGTHS: [u32; 5] = [100, 512, 8, 300, 64];
const BYTES: u32 = 984;
/// Where the range of the target's that they go to begins, and where the pieces do.
const RANGE: u64 = 8192;
const PIECES: u64 = 262_144;
/// Between the starts of two pieces.
const APART: u64 = 1024;

/// A pair whose host has a device with so many elements for a READ, and for anything else.
fn pair(profile: &str, reads: u32, elements: u32) -> Scripted {
    let setup = Setup::new(profile).host(|host| host.transfer_depth = 4).device(|device| {
        let attributes = &mut device.capabilities.attributes;
        (attributes.max_sge_rd, attributes.max_send_sge) = (reads, elements);
    });
    let mut test = Scripted::of(setup);
    test.connect();
    test.posted();
    test
}

/// A key of the target's for the range.
fn opened(test: &mut Scripted) -> Grant {
    let segment = test.target.segment(RANGE, BYTES);
    let target = &mut test.pair.target;
    let chunk = Chunk { access: Access::RemoteReadWrite, segments: &[segment] };
    let connection = target.connection.unwrap();
    target.engine.register_now(connection, &chunk, 1, &mut target.protocol).unwrap();
    target.outstanding.insert(1, u64::from(BYTES));
    test.until("registered", |pair| !pair.target.grants.is_empty());
    test.posted();
    test.target.grants[0].1
}

fn pieces(test: &Scripted) -> [Segment; LENGTHS.len()] {
    core::array::from_fn(|at| test.host.segment(PIECES + at as u64 * APART, LENGTHS[at]))
}

/// A range as a whole, or in two parts of which the first ends in the second piece.
fn ranges(grant: Grant, cut: bool) -> Vec<RemoteSegment> {
    let part = |from: u32, to: u32| RemoteSegment {
        remote: RemoteRange { address: grant.address + u64::from(from), key: grant.key },
        length: to - from,
    };
    if cut { vec![part(0, 200), part(200, BYTES)] } else { vec![part(0, BYTES)] }
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..BYTES).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// The host's pieces, one behind the other.
fn gathered(test: &Scripted) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, length) in LENGTHS.into_iter().enumerate() {
        let mut piece = vec![0; length as usize];
        test.host.data.read((PIECES + at as u64 * APART) as usize, &mut piece).unwrap();
        bytes.extend(piece);
    }
    bytes
}

#[test]
fn an_rdma_read_has_as_many_elements_as_the_device_takes() {
    for profile in PROFILES {
        // What a device says of its READs, elements of anything, whether the range is cut, READs.
        for (reads, elements, cut, expected) in
            [(0, 16, false, 5), (1, 16, false, 5), (2, 16, false, 3), (16, 16, false, 1), (16, 4, false, 2)]
                .into_iter()
                .chain([(16, 16, true, 2), (2, 16, true, 3), (1, 16, true, 6)])
        {
            let mut test = pair(profile, reads, elements);
            let grant = opened(&mut test);
            test.target.data.write(RANGE as usize, &pattern(7)).unwrap();
            let (local, remote) = (pieces(&test), ranges(grant, cut));
            let host = &mut test.pair.host;
            let request = FetchRequest { local: &local, remote: &remote, cookie: 1 };
            host.engine.fetch(host.connection.unwrap(), &request).unwrap();
            let done = "Fetched { cookie: 1, status: Done }";
            test.until("fetched", |pair| pair.host.events.iter().any(|event| event == done));
            let how = format!("{profile}: {reads} of {elements}, cut {cut}");
            assert_eq!(test.chains(), [format!("{}*", "G".repeat(expected))], "{how}");
            assert_eq!(gathered(&test), pattern(7), "{how}");
        }
    }
}

#[test]
fn an_rdma_write_has_as_many_elements_as_the_device_takes() {
    for profile in PROFILES {
        for (elements, cut, expected) in [(3, false, 2), (4, false, 2), (16, false, 1), (3, true, 3), (16, true, 2)] {
            let mut test = pair(profile, 1, elements);
            let grant = opened(&mut test);
            for (at, length) in LENGTHS.into_iter().enumerate() {
                let from = LENGTHS[..at].iter().sum::<u32>() as usize;
                let piece = &pattern(9)[from..from + length as usize];
                test.host.data.write((PIECES + at as u64 * APART) as usize, piece).unwrap();
            }
            let (local, remote) = (pieces(&test), ranges(grant, cut));
            let host = &mut test.pair.host;
            let request = WriteRequest { local: &local, remote: &remote, cookie: 1 };
            host.engine.write(host.connection.unwrap(), &request).unwrap();
            let done = "Written { cookie: 1, status: Done }";
            test.until("written", |pair| pair.host.events.iter().any(|event| event == done));
            let how = format!("{profile}: {elements}, cut {cut}");
            assert_eq!(test.chains(), [format!("{}*", "P".repeat(expected))], "{how}");
            let mut found = vec![0; BYTES as usize];
            test.target.data.read(RANGE as usize, &mut found).unwrap();
            assert_eq!(found, pattern(9), "{how}");
        }
    }
}

#[test]
fn more_pieces_than_a_transfer_has_elements_are_refused_by_name() {
    let mut test = pair("reg_mr", 16, 16);
    let grant = opened(&mut test);
    let count = MAX_TRANSFER_ELEMENTS as u32 + 1;
    let local: Vec<_> = (0..count).map(|at| test.host.segment(PIECES + u64::from(at) * APART, 8)).collect();
    let remote = RemoteRange { address: grant.address, key: grant.key };
    let host = &mut test.pair.host;
    let connection = host.connection.unwrap();
    let mut write = |pieces: &[Segment]| {
        let remote = [RemoteSegment { remote, length: 8 * pieces.len() as u32 }];
        host.engine.write(connection, &WriteRequest { local: pieces, remote: &remote, cookie: 1 })
    };
    assert_eq!(write(&local), Err(TransferError::TooManyOperations));
    assert_eq!(write(&local[1..]), Ok(()));
    let message = TransferError::TooManyOperations.to_string();
    assert!(message.contains("16 elements") && message.contains("split"), "{message}");
}
