//! Commands of the host against a controller's limits: several keys in one, and limits that are lower after a reconnect.

use frwr_engine::gather::Segment;
use frwr_engine::provider::Port;
use frwr_nvmf::controller::{Subsystem, TargetOptions};
use frwr_nvmf::host::{HostError, HostOptions, IoError};
use frwr_nvmf::storage::MemoryStorage;
use frwr_nvmf::wire::{DISCOVERY_SUBSYSTEM, Nqn};
use frwr_support::nvmf_harness::{BLOCK, PROFILES, Pair, host_options, memory, subsystem, target_options};

/// A target that takes as many keys per command, and no data in capsules beside their descriptors.
fn listing(data_blocks: u8) -> TargetOptions {
    target_options().data_blocks(data_blocks).in_capsule_bytes(16 * u32::from(data_blocks))
}

fn pair(profile: &str, host: HostOptions, target: TargetOptions) -> Pair {
    let mut pair = Pair::with(profile, host, target);
    pair.bring_up();
    pair
}

/// Blocks far from each other.
fn apart(pair: &Pair, first: u64, count: u64) -> Vec<Segment> {
    (0..count).map(|at| pair.segment(first + 2 * at, 1)).collect()
}

fn half(pair: &Pair, block: u64) -> Segment {
    Segment { length: BLOCK / 2, ..pair.segment(block, 1) }
}

#[test]
fn a_list_of_several_keys_is_one_command_where_the_controller_takes_as_many() {
    for profile in PROFILES {
        for invite in [true, false] {
            let options = host_options().remote_invalidation(invite);
            let mut pair = pair(profile, options, listing(4));
            assert_eq!(pair.host.max_data_blocks(), 4);
            let single_range = ["window", "rxe"].contains(&profile);
            let before = pair.host.statistics().submissions;
            for round in 0..20 {
                for at in 0..4 {
                    pair.fill(2 * at, (round * 4 + at) as u8);
                }
                let list = apart(&pair, 0, 4);
                pair.host.write(10, &list, 1).unwrap();
                assert_eq!(pair.completed(1)[0].result, Ok(()), "{profile}");
                let list = apart(&pair, 20, 4);
                pair.host.read(10, &list, 2).unwrap();
                assert_eq!(pair.completed(1)[0].result, Ok(()), "{profile}");
                for at in 0..4 {
                    assert_eq!(pair.block(20 + 2 * at), vec![(round * 4 + at) as u8; BLOCK as usize], "{profile}");
                }
                assert_eq!(pair.host.engine().port().remote_bytes_open().unwrap_or(0), 0, "{profile}: all keys dead");
            }
            let statistics = pair.host.statistics();
            assert_eq!((statistics.submissions - before, statistics.split_requests), (40, 0), "{profile}");
            assert_eq!(statistics.multi_key_commands, if single_range { 40 } else { 0 }, "{profile}");
            assert_eq!(statistics.bounced_commands, 0, "{profile}");
            let engine = pair.host.engine().statistics();
            if single_range {
                // Whatever the host would like: SPDK's target refuses a list that invites it to kill one of its keys.
                assert_eq!(engine.remote_invalidations, 0, "{profile}");
                assert!(engine.local_invalidations >= 160, "{profile} {engine:?}");
            }
            pair.finish();
        }
    }
}

#[test]
fn what_exceeds_the_keys_of_a_command_is_split_or_bounced() {
    for (host_blocks, target_blocks) in [(8, 3), (3, 8), (8, 1), (1, 8)] {
        let options = host_options().data_blocks(host_blocks);
        let mut pair = pair("window", options, listing(target_blocks));
        let keys = u64::from(host_blocks.min(target_blocks));
        let before = pair.host.statistics().submissions;
        for at in 0..7 {
            pair.fill(2 * at, at as u8 + 1);
        }
        let list = apart(&pair, 0, 7);
        pair.host.write(0, &list, 1).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()));
        let statistics = pair.host.statistics();
        assert_eq!(statistics.submissions - before, 7_u64.div_ceil(keys), "{keys} keys");
        assert_eq!((statistics.split_requests, statistics.bounced_commands), (1, 0));
        pair.host.read(0, &[pair.segment(40, 7)], 2).unwrap();
        pair.completed(1);
        for at in 0..7 {
            assert_eq!(pair.block(40 + at), vec![at as u8 + 1; BLOCK as usize], "{keys} keys");
        }
        // One block in four pieces.
        let quarter = |at: u64| Segment { length: BLOCK / 4, ..pair.segment(2 * at, 1) };
        let pieces = [quarter(0), quarter(1), quarter(2), quarter(3)];
        pair.host.write(7, &pieces, 3).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()));
        assert_eq!(pair.host.statistics().bounced_commands, u64::from(keys < 4), "{keys} keys");
        pair.host.read(7, &[pair.segment(60, 1)], 4).unwrap();
        pair.completed(1);
        let expected: Vec<u8> = (1..=4).flat_map(|byte| vec![byte; BLOCK as usize / 4]).collect();
        assert_eq!(pair.block(60), expected, "{keys} keys");
        pair.finish();
    }
}

#[test]
fn a_bounce_buffer_comes_back_with_its_command() {
    let options = host_options().bounce_buffers(1);
    let mut pair = pair("window", options, listing(1));
    for request in 0..3 {
        pair.fill(0, 2 * request + 1);
        pair.fill(2, 2 * request + 2);
        pair.host.write(7, &[half(&pair, 0), half(&pair, 2)], 1).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()));
        pair.host.read(7, &[pair.segment(40, 1)], 2).unwrap();
        pair.completed(1);
        let halves = |first: u8| vec![first; BLOCK as usize / 2];
        assert_eq!(pair.block(40), [halves(2 * request + 1), halves(2 * request + 2)].concat());
    }
    assert_eq!(pair.host.statistics().bounced_commands, 3);
    pair.finish();
}

#[test]
fn a_deep_queue_of_commands_with_several_keys_is_served() {
    for profile in ["window", "rxe"] {
        let mut pair = pair(profile, host_options(), listing(8));
        for round in 0..8_u64 {
            for cookie in 0..32 {
                let list = apart(&pair, cookie, 8);
                let result = if (cookie + round) % 2 == 0 {
                    pair.host.read(cookie * 8, &list, cookie)
                } else {
                    pair.host.write(cookie * 8, &list, cookie)
                };
                result.unwrap();
            }
            assert!(pair.completed(32).iter().all(|ended| ended.result == Ok(())), "{profile}");
        }
        assert_eq!(pair.host.statistics().multi_key_commands, 256, "{profile}");
        // One that uses all keys, of which a connection has few.
        pair.host.drop_connections();
        let list = apart(&pair, 0, 8);
        pair.host.read(0, &list, 1).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()), "{profile}");
        pair.finish();
    }
}

#[test]
fn the_shallowest_queue_has_keys_for_the_largest_command() {
    let options = host_options().queue_depth(1);
    let mut pair = pair("window", options, listing(8));
    let list = apart(&pair, 0, 8);
    pair.host.write(0, &list, 1).unwrap();
    assert_eq!(pair.completed(1)[0].result, Ok(()));
    let statistics = pair.host.statistics();
    assert_eq!((statistics.split_requests, statistics.multi_key_commands), (0, 1));
    pair.finish();
}

#[test]
fn lost_commands_are_cut_again_where_the_next_session_takes_less() {
    for profile in ["window", "reg_mr"] {
        for read in [false, true] {
            let large = listing(8).buffer_bytes(64 << 10);
            let mut pair = pair(profile, host_options(), large);
            assert_eq!(pair.host.max_transfer_bytes(), 64 << 10);
            for block in 0..48 {
                pair.fill(block, block as u8 + 1);
            }
            // 16 blocks in one piece, 8 in pieces, and a block in pieces.
            let list = apart(&pair, 16, 8);
            let halves = [half(&pair, 40), half(&pair, 42)];
            let before = pair.host.statistics().submissions;
            pair.host.write(0, &[pair.segment(0, 16)], 1).unwrap();
            pair.host.write(16, &list, 2).unwrap();
            pair.host.write(24, &halves, 3).unwrap();
            if read {
                pair.completed(3);
                for block in 100..148 {
                    pair.fill(block, 0);
                }
                let list = apart(&pair, 116, 8);
                let halves = [half(&pair, 140), half(&pair, 142)];
                pair.host.read(0, &[pair.segment(100, 16)], 1).unwrap();
                pair.host.read(16, &list, 2).unwrap();
                pair.host.read(24, &halves, 3).unwrap();
            }
            pair.step_host();
            let submitted = pair.host.statistics().submissions - before;
            pair.replace_target(target_options().buffer_bytes(8 << 10));
            let ended = pair.completed(3);
            assert!(ended.iter().all(|ended| ended.result == Ok(())), "{profile} {ended:?}");
            assert_eq!(pair.host.max_transfer_bytes(), 8 << 10);
            let statistics = pair.host.statistics();
            assert!(statistics.lost >= 3 && statistics.submissions - before > submitted + 12, "{statistics:?}");
            assert_eq!(pair.host.engine().port().remote_bytes_open().unwrap_or(0), 0, "{profile}");
            if read {
                // The new target's medium is zeros: read back all the same, piece by piece.
                assert_eq!([100, 115, 116, 130, 140].map(|block| pair.block(block)[0]), [0; 5]);
            } else {
                pair.host.read(0, &[pair.segment(150, 25)], 4).unwrap();
                pair.completed(1);
                let expected = (0..16).chain((0..8).map(|at| 16 + 2 * at));
                for (at, block) in (150..).zip(expected) {
                    assert_eq!(pair.block(at), vec![block as u8 + 1; BLOCK as usize], "{profile} {block}");
                }
                assert_eq!((pair.block(174)[0], pair.block(174)[2048]), (41, 43), "{profile}");
            }
            pair.finish();
        }
    }
}

#[test]
fn a_request_given_up_while_its_rest_waits_ends_once() {
    let large = target_options().buffer_bytes(64 << 10);
    let mut pair = pair("reg_mr", host_options(), large);
    pair.host.write(0, &[pair.segment(0, 16)], 1).unwrap();
    pair.step_host();
    pair.replace_target(target_options().buffer_bytes(8 << 10));
    pair.until("half way", |pair| pair.target.statistics().writes >= 2);
    assert_eq!(pair.host.abort(1), 1);
    let ended = pair.completed(1);
    assert_eq!((ended.len(), ended[0].result), (1, Err(IoError::Aborted)));
    for _ in 0..1000 {
        pair.step();
    }
    assert!(pair.completions.is_empty() && pair.target.statistics().writes < 8);
    pair.finish();
}

#[test]
fn a_number_of_keys_that_cannot_be_is_refused() {
    for data_blocks in [0, 9] {
        let options = host_options().data_blocks(data_blocks);
        let error = Pair::host_error("reg_mr", options);
        assert_eq!(error, HostError::DataBlocks(data_blocks));
        assert!(error.to_string().contains("1 to 8"), "{error}");
    }
}

#[test]
fn a_discovery_controller_has_nobody_to_follow() {
    let subsystem = Nqn::new(DISCOVERY_SUBSYSTEM).unwrap();
    let options = host_options().subsystem(subsystem).followers(1);
    assert_eq!(Pair::host_error("reg_mr", options), HostError::DiscoveryFollowers(1));
}

#[test]
fn zeroes_are_written_by_commands_that_the_controller_takes() {
    // Two times and a bit what one command of this target may zero (WZSL, 1 MiB).
    let blocks = 2 * (1 << 20) / BLOCK + 88;
    let medium = memory(blocks as usize * BLOCK as usize);
    medium.fill(0, medium.len(), 0xff).unwrap();
    let namespace = MemoryStorage::new(medium.clone(), BLOCK, 64).unwrap();
    let subsystems = vec![Subsystem::new(subsystem(), vec![namespace])];
    let mut pair = Pair::with_subsystems("reg_mr", host_options(), target_options(), subsystems, 8);
    pair.bring_up();
    let before = pair.host.statistics().submissions;
    pair.host.write_zeroes(0, blocks, false, 1).unwrap();
    assert_eq!(pair.completed(1)[0].result, Ok(()));
    assert_eq!(pair.host.statistics().submissions - before, 3);
    let mut bytes = vec![1; medium.len()];
    medium.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    pair.finish();
}

#[test]
fn lost_commands_that_need_more_bounce_buffers_than_there_are_all_end_with_their_own_bytes() {
    const REQUESTS: u64 = 6;
    // More requests than buffers, of a block each.
    let options = host_options().bounce_buffers(4);
    let mut pair = pair("window", options, listing(8));
    let longer = |segment: Segment| Segment { length: BLOCK * 3 / 2, ..segment };
    for request in 0..REQUESTS {
        let from = request * 8;
        for block in from..from + 6 {
            pair.fill(block, block as u8 + 1);
        }
        // Four blocks in three ranges; the second and the third lie in two each.
        let list = [longer(pair.segment(from, 1)), pair.segment(from + 2, 1), longer(pair.segment(from + 4, 1))];
        pair.host.write(request * 4, &list, request).unwrap();
    }
    pair.step_host();
    assert_eq!(pair.host.statistics().multi_key_commands, REQUESTS);
    pair.replace_target(target_options());
    let ended = pair.completed(REQUESTS as usize);
    assert!(ended.iter().all(|ended| ended.result == Ok(())), "{ended:?}");
    assert_eq!(pair.host.statistics().bounced_commands, 2 * REQUESTS);
    pair.host.read(0, &[pair.segment(100, 4 * REQUESTS as u32)], 99).unwrap();
    pair.completed(1);
    for request in 0..REQUESTS {
        let half = |block: u64| vec![(request * 8 + block) as u8 + 1; BLOCK as usize / 2];
        let expected = [0, 0, 1, 2, 2, 4, 4, 5].map(half).concat();
        let written: Vec<u8> = (0..4).flat_map(|block| pair.block(100 + request * 4 + block)).collect();
        assert!(written == expected, "request {request}");
    }
    pair.finish();
}
