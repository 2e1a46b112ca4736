//! Compare and write as our host asks for it, of our target: alone and by several paths, and where the session ends in between.

use frwr_engine::gather::Segment;
use frwr_nvmf::controller::{Subsystem, TargetOptions};
use frwr_nvmf::host::{HostOptions, IoError, RequestError};
use frwr_nvmf::storage::{Comparing, MemoryStorage};
use frwr_nvmf::wire::{AnaState, Status};
use frwr_support::Random;
use frwr_support::nvmf_harness::gated::Gate;
use frwr_support::nvmf_harness::gateways::{Gateways, Wanted};
use frwr_support::nvmf_harness::{BLOCK, BLOCKS, PROFILES, Pair, host_options, memory, subsystem, target_options};
use std::{sync::Arc, time::Duration};

/// Blocks of the host's memory that a test has what it expects in, what it writes, and what it reads.
const EXPECTED: u64 = 0;
const WRITTEN: u64 = 32;
const READ: u64 = 64;

type Compared = Pair<Comparing<MemoryStorage>>;

fn pair_of(profile: &str) -> Compared {
    pair_with(profile, host_options(), target_options())
}

fn pair_with(profile: &str, host: HostOptions, target: TargetOptions) -> Compared {
    let namespace = MemoryStorage::new(memory(BLOCKS as usize * BLOCK as usize), BLOCK, 64).unwrap();
    let namespace = Comparing::new(namespace, &Arc::default()).unwrap();
    let subsystems = vec![Subsystem::new(subsystem(), vec![namespace])];
    let mut pair = Pair::with_subsystems(profile, host, target, subsystems, 8);
    pair.bring_up();
    pair
}

fn fill(pair: &Compared, blocks: u64, expected: u8, written: u8) {
    for block in 0..blocks {
        pair.fill(EXPECTED + block, expected);
        pair.fill(WRITTEN + block, written);
    }
}

fn swap(pair: &mut Compared, lba: u64, blocks: u32, bytes: [u8; 2]) -> Result<(), IoError> {
    fill(pair, blocks.into(), bytes[0], bytes[1]);
    let (expected, written) = (pair.segment(EXPECTED, blocks), pair.segment(WRITTEN, blocks));
    pair.host.compare_and_write(lba, &[expected], &[written], 7).unwrap();
    pair.completed(1)[0].result
}

fn read(pair: &mut Compared, lba: u64) -> u8 {
    let segment = pair.segment(READ, 1);
    pair.host.read(lba, &[segment], 8).unwrap();
    assert_eq!(pair.completed(1)[0].result, Ok(()));
    let bytes = pair.block(READ);
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

const DIFFERS: Result<(), IoError> = Err(IoError::Status(Status::COMPARE_FAILURE.do_not_retry()));

#[test]
fn blocks_are_swapped_where_they_are_as_expected() {
    for profile in PROFILES {
        let mut pair = pair_of(profile);
        let most = pair.host.compares_and_writes().unwrap();
        for blocks in [1, 2, most] {
            let byte = 0x10 + blocks as u8;
            assert_eq!(swap(&mut pair, 3, blocks, [0, byte]), Ok(()), "{profile} {blocks}");
            assert_eq!(swap(&mut pair, 3, blocks, [0, 0x77]), DIFFERS, "{profile} {blocks}");
            assert_eq!([2, 3, 2 + u64::from(blocks)].map(|lba| read(&mut pair, lba)), [0, byte, byte]);
            assert_eq!(swap(&mut pair, 3, blocks, [byte, 0]), Ok(()), "{profile} {blocks}");
        }
        // Of several pieces, which lie in blocks of neither.
        fill(&pair, 2, 0, 0x44);
        let part = |block: u64, from: u64, length: u32| {
            let whole = pair.segment(block, 1);
            Segment { offset: whole.offset + from, length, ..whole }
        };
        let expected = [part(EXPECTED, 8, 300), part(EXPECTED + 1, 0, BLOCK - 300)];
        let written = [part(WRITTEN, 4, 500), part(WRITTEN + 1, 100, BLOCK - 500)];
        pair.host.compare_and_write(9, &expected, &written, 7).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()), "{profile}");
        assert_eq!(read(&mut pair, 9), 0x44);
        pair.finish();
    }
}

#[test]
fn what_is_no_pair_is_refused_before_anything_is_sent() {
    let mut pair = pair_of("reg_mr");
    let most = pair.host.compares_and_writes().unwrap();
    let submissions = pair.host.statistics().submissions;
    let of = |blocks| pair.segment(EXPECTED, blocks);
    let (one, two, more) = (of(1), of(2), of(most + 1));
    let bytes = u64::from(BLOCK);
    let halves = RequestError::Halves { expected: bytes, written: 2 * bytes };
    assert_eq!(pair.host.compare_and_write(0, &[one], &[two], 0), Err(halves));
    let limit = RequestError::CompareAndWrite { blocks: most + 1, limit: most };
    assert_eq!(pair.host.compare_and_write(0, &[more], &[more], 0), Err(limit));
    assert_eq!(pair.host.compare_and_write(BLOCKS, &[one], &[one], 0), Err(RequestError::OutOfRange));
    assert!(matches!(pair.host.compare_and_write(0, &[], &[], 0), Err(RequestError::Length { bytes: 0, .. })));
    let pieces = [1000, 1000, 1000, 1000, BLOCK - 4000].map(|length| Segment { length, ..one });
    assert_eq!(pair.host.compare_and_write(0, &pieces, &pieces, 0), Err(RequestError::Segments(10)));
    assert_eq!(pair.host.statistics().submissions, submissions);
    pair.finish();
    // A controller that has no such thing.
    let mut pair = Pair::ready("reg_mr");
    assert_eq!(pair.host.compares_and_writes(), None);
    let one = pair.segment(0, 1);
    assert!(matches!(pair.host.compare_and_write(0, &[one], &[one], 0), Err(RequestError::Unsupported(_))));
    pair.finish();
}

/// The first half is not answered before the second has come, which would wait for its keys.
#[test]
fn a_pair_with_more_keys_than_its_connection_has_is_refused() {
    for profile in PROFILES {
        let (host, target) = (host_options().queue_depth(2).data_blocks(4), target_options().data_blocks(4));
        let registrations = host.engine().registrations;
        let mut pair = pair_with(profile, host, target.in_capsule_bytes(64));
        let pieces = |pair: &Compared, first: u64, count: u64| -> Vec<Segment> {
            let of = |at| Segment { length: BLOCK / count as u32, ..pair.segment(first + 2 * at, 1) };
            (0..count).map(of).collect()
        };
        for count in [1, 2, 4] {
            fill(&pair, 8, 0, 0);
            let (expected, written) = (pieces(&pair, EXPECTED, count), pieces(&pair, WRITTEN, count));
            pair.host.compare_and_write(5, &expected, &written, 7).unwrap();
            let result = pair.completed(1)[0].result;
            // Where a list has several keys; by lists of ranges it has one.
            let fits = 2 * count <= registrations.into() || profile.starts_with("umr");
            assert_eq!(result, if fits { Ok(()) } else { Err(IoError::TooManyKeys) }, "{profile} {count}");
        }
        pair.finish();
    }
}

#[test]
fn a_pair_goes_out_by_one_doorbell_beside_others() {
    let mut pair = pair_of("reg_mr");
    fill(&pair, 1, 0, 0x21);
    let (expected, written, other) = (pair.segment(EXPECTED, 1), pair.segment(WRITTEN, 1), pair.segment(READ, 1));
    for round in 0..200_u8 {
        for block in [EXPECTED, WRITTEN] {
            pair.fill(block, round + u8::from(block == WRITTEN));
        }
        // As full as the queue gets: the pair waits for room for both.
        for cookie in 0..u64::from(round % 40) {
            let _ = pair.host.read(20 + cookie % 8, &[other], 100 + cookie);
        }
        let before = pair.completions.len();
        while pair.host.compare_and_write(5, &[expected], &[written], 7).is_err() {
            pair.step();
        }
        pair.until("ended", |pair| {
            pair.completions.len() > before && pair.completions.iter().any(|completion| completion.cookie == 7)
        });
        let ended = pair.completions.iter().find(|completion| completion.cookie == 7).unwrap();
        assert_eq!(ended.result, Ok(()), "{round}");
        pair.completions.clear();
        pair.until("idle", |pair| pair.host.statistics().outstanding == 0);
        pair.completions.clear();
    }
    assert_eq!(read(&mut pair, 5), 200);
    pair.finish();
}

/// Whatever a session's end leaves open is told as that, and is over by then.
#[test]
fn a_pair_that_is_lost_is_sent_once_and_never_told_as_one_that_differed() {
    let mut undecided = 0;
    for steps in 0..14 {
        let mut pair = pair_of("reg_mr");
        fill(&pair, 1, 0, 0x31);
        let (expected, written) = (pair.segment(EXPECTED, 1), pair.segment(WRITTEN, 1));
        pair.host.compare_and_write(3, &[expected], &[written], 7).unwrap();
        for _ in 0..steps {
            pair.step();
        }
        pair.host.drop_connections();
        pair.tick = Duration::from_micros(200);
        let result = pair.completed(1)[0].result;
        pair.tick = Duration::from_micros(1);
        let found = read(&mut pair, 3);
        match result {
            Ok(()) => assert_eq!(found, 0x31, "{steps}"),
            Err(IoError::Undecided) => undecided += 1,
            other => panic!("{steps}: {other:?}"),
        }
        // It stays so: nothing of it is executed any more.
        for _ in 0..200 {
            pair.step();
        }
        assert_eq!(read(&mut pair, 3), found, "{steps}");
        let other = found.wrapping_add(1);
        assert_eq!(swap(&mut pair, 3, 1, [found, other]), Ok(()));
        pair.finish();
    }
    assert!(undecided > 0);
}

fn swap_by_paths(all: &mut Gateways, lba: u64, bytes: [u8; 2]) {
    all.fill(EXPECTED, bytes[0]);
    all.fill(WRITTEN, bytes[1]);
    let (expected, written) = (all.segment(EXPECTED), all.segment(WRITTEN));
    all.paths.compare_and_write(lba, &[expected], &[written], lba).unwrap();
}

#[test]
fn a_pair_goes_by_another_path_where_it_was_refused_and_waits_for_a_lost_one() {
    let wanted = Wanted::default();
    let mut all = Gateways::ready("reg_mr", &Wanted { host: wanted.host.keep_alive(Duration::from_secs(5)), ..wanted });
    swap_by_paths(&mut all, 1, [0, 0x11]);
    // Refused on its way.
    all.set_ana(0, AnaState::Inaccessible);
    all.set_ana(1, AnaState::Optimized);
    assert_eq!(all.completed(1)[0].result, Ok(()));
    assert_eq!(all.on_medium(1), 0x11);
    swap_by_paths(&mut all, 1, [0, 0x12]);
    assert_eq!(all.completed(1)[0].result, DIFFERS);
    // Lost, while the gateway has it: it neither ends nor goes elsewhere before that one is over.
    all.gateways[1].switch.gate.set(Gate::Unstarted);
    swap_by_paths(&mut all, 1, [0x11, 0x13]);
    all.held(1, 1);
    all.set_ana(0, AnaState::Optimized);
    all.cut(1);
    all.tick = Duration::from_millis(1);
    all.steps(2000);
    assert_eq!(all.completions, []);
    assert_eq!(all.on_medium(1), 0x11);
    all.gateways[1].switch.gate.set(Gate::Open);
    assert_eq!(all.completed(1)[0].result, Err(IoError::Undecided));
    let found = all.on_medium(1);
    all.steps(2000);
    assert_eq!(all.on_medium(1), found, "nothing of it is executed any more");
    all.finish();
}

#[test]
fn counters_by_paths_that_come_and_go_count_what_was_told() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let wanted = Wanted::default();
        let mut all =
            Gateways::ready("reg_mr", &Wanted { host: wanted.host.keep_alive(Duration::from_secs(2)), ..wanted });
        let mut value = 0_u8;
        for _ in 0..40 {
            swap_by_paths(&mut all, 2, [value, value + 1]);
            all.tick = Duration::from_micros(10);
            all.steps(random.below(12) as u32);
            match random.below(4) {
                0 => all.cut(random.below(2) as u16),
                1 => {
                    let at = random.below(2) as usize;
                    all.kill(at);
                    all.steps(random.below(40) as u32);
                    all.start(at);
                }
                _ => {}
            }
            all.tick = Duration::from_millis(1);
            let found = match all.completed(1)[0].result {
                Ok(()) => value + 1,
                Err(IoError::Undecided) => {
                    let found = all.on_medium(2);
                    assert!([value, value + 1].contains(&found), "seed {seed}");
                    found
                }
                other => panic!("seed {seed}: {other:?}, at {value}"),
            };
            assert_eq!(all.on_medium(2), found, "seed {seed}");
            value = found;
        }
        assert!(value > 10, "seed {seed}");
        all.finish();
    }
}
