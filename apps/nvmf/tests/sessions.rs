//! Host and target together, over every profile of the software NIC.

use core::time::Duration;
use frwr_engine::gather::Segment;
use frwr_engine::provider::Port;
use frwr_nvmf::host::{HostFailure, IoError, MAX_REQUEST_BYTES, RequestError};
use frwr_nvmf::wire::{Nqn, Status};
use frwr_support::nvmf_harness::{BLOCK, BLOCKS, PROFILES, Pair, host_options, target_options};

#[test]
fn the_host_brings_the_controller_up_and_shuts_it_down() {
    for profile in PROFILES {
        let mut pair = Pair::ready(profile);
        let geometry = pair.host.geometry().unwrap();
        assert_eq!((geometry.blocks(), geometry.block_bytes()), (BLOCKS, BLOCK), "{profile}");
        assert_eq!(pair.host.max_transfer_bytes(), target_options().buffer_bytes);
        assert_eq!(pair.target.statistics().queues, 2);
        pair.finish();
        assert_eq!(pair.target.statistics().protocol_errors, 0);
        assert_eq!((pair.host.statistics().sessions, pair.host.statistics().failures), (1, 0));
    }
}

#[test]
fn an_end_that_both_sides_ask_for_at_once_is_no_failure() {
    for profile in PROFILES {
        // The target ends its connections in each state of the host's shutdown.
        for steps in 0..40 {
            let mut pair = Pair::ready(profile);
            pair.host.shut_down();
            for _ in 0..steps {
                pair.step();
            }
            pair.target.shut_down();
            pair.finish();
            let statistics = pair.host.statistics();
            assert_eq!((statistics.sessions, statistics.failures), (1, 0), "{profile}, {steps} steps");
            assert_eq!(pair.host.last_failure(), None);
        }
    }
}

#[test]
fn written_blocks_are_read_back_and_every_key_is_dead() {
    for profile in PROFILES {
        let mut pair = Pair::ready(profile);
        for lba in 0..32 {
            pair.fill(lba, lba as u8 + 1);
            pair.host.write(lba, &[pair.segment(lba, 1)], lba).unwrap();
        }
        assert_eq!(pair.host.write(0, &[pair.segment(0, 1)], 99), Err(RequestError::QueueFull));
        let ended = pair.completed(32);
        assert!(ended.iter().all(|ended| ended.result == Ok(())), "{profile} {ended:?}");
        pair.host.flush_namespace(7).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()));
        for lba in 0..32 {
            pair.host.read(lba, &[pair.segment(100 + lba, 1)], lba).unwrap();
        }
        pair.completed(32);
        for lba in 0..32 {
            assert_eq!(pair.block(100 + lba), vec![lba as u8 + 1; BLOCK as usize], "{profile} block {lba}");
        }
        assert_eq!(pair.host.engine().port().remote_bytes_open().unwrap_or(0), 0, "{profile}");
        let statistics = pair.target.statistics();
        assert_eq!((statistics.reads, statistics.writes, statistics.flushes), (32, 32, 1));
        assert_eq!((statistics.bytes_read, statistics.failed_commands), (32 * u64::from(BLOCK), 0));
        assert_eq!(statistics.remote_invalidations, 64, "{profile}: every response to a keyed transfer invalidates");
        let host = pair.host.engine().statistics();
        assert_eq!((host.remote_invalidations, host.uninvited_invalidations), (64, 0), "{profile}");
        pair.finish();
    }
}

#[test]
fn without_remote_invalidation_the_target_sends_plain_responses() {
    for profile in PROFILES {
        let mut options = host_options();
        options.remote_invalidation = false;
        let mut pair = Pair::with(profile, options, target_options());
        pair.bring_up();
        for lba in 0..8 {
            pair.host.read(lba, &[pair.segment(lba, 1)], lba).unwrap();
        }
        assert!(pair.completed(8).iter().all(|ended| ended.result == Ok(())));
        assert_eq!(pair.target.statistics().remote_invalidations, 0);
        assert!(pair.host.engine().statistics().local_invalidations >= 8);
        pair.finish();
    }
}

#[test]
fn requests_that_cannot_be_are_refused_at_once() {
    let mut pair = Pair::new("reg_mr");
    assert_eq!(pair.host.read(0, &[pair.segment(0, 1)], 1), Err(RequestError::NotReady));
    pair.bring_up();
    assert_eq!(pair.host.read(0, &[], 1), Err(RequestError::Segments(0)));
    assert_eq!(pair.host.read(0, &[pair.segment(0, 1); 9], 1), Err(RequestError::Segments(9)));
    assert_eq!(pair.host.read(BLOCKS, &[pair.segment(0, 1)], 1), Err(RequestError::OutOfRange));
    assert_eq!(pair.host.read(u64::MAX, &[pair.segment(0, 1)], 1), Err(RequestError::OutOfRange));
    // A length that no request has, whatever memory there is.
    let long = [Segment { length: u32::MAX - 4095, ..pair.segment(0, 1) }];
    let bytes = u64::from(u32::MAX - 4095);
    assert_eq!(pair.host.read(0, &long, 1), Err(RequestError::Length { bytes, limit: MAX_REQUEST_BYTES }));
    assert_eq!(pair.host.deallocate(&[], 1), Err(RequestError::Ranges(0)));
    assert_eq!(pair.host.deallocate(&[(BLOCKS, 1)], 1), Err(RequestError::OutOfRange));
    assert_eq!(pair.host.write_zeroes(BLOCKS, 1, false, 1), Err(RequestError::OutOfRange));
    let mut uneven = pair.segment(0, 1);
    uneven.length -= 1;
    assert!(matches!(pair.host.read(0, &[uneven], 1), Err(RequestError::Length { .. })));
    pair.finish();
}

#[test]
fn a_list_that_takes_several_keys_is_split_at_block_boundaries() {
    for (profile, commands) in [("reg_mr", 1), ("umr", 1), ("window", 3), ("rxe", 3)] {
        let mut pair = Pair::ready(profile);
        for block in [5, 9, 2] {
            pair.fill(block, block as u8);
        }
        let before = pair.host.statistics().submissions;
        let list = [pair.segment(5, 1), pair.segment(9, 1), pair.segment(2, 1)];
        pair.host.write(0, &list, 1).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()), "{profile}: one completion");
        let statistics = pair.host.statistics();
        assert_eq!(statistics.submissions - before, commands, "{profile}");
        assert_eq!((statistics.split_requests, statistics.bounced_commands), (u64::from(commands > 1), 0), "{profile}");
        pair.host.read(0, &[pair.segment(20, 3)], 2).unwrap();
        pair.completed(1);
        let read = [20, 21, 22].map(|block| (pair.block(block)[0], pair.block(block)[4095]));
        assert_eq!(read, [(5, 5), (9, 9), (2, 2)], "{profile}");
        assert_eq!(pair.host.engine().port().remote_bytes_open().unwrap_or(0), 0, "{profile}");
        pair.finish();
    }
}

#[test]
fn a_block_that_lies_in_several_ranges_goes_through_a_bounce_buffer() {
    for profile in ["window", "rxe", "reg_mr", "umr"] {
        let mut pair = Pair::ready(profile);
        let bytes: Vec<u8> = (0..3 * BLOCK).map(|at| (at % 251) as u8).collect();
        // Three blocks in pieces of 1000, 7096 and 4192 bytes, far from each other.
        let at = |block: u64, length: u32| Segment { length, ..pair.segment(block, 1) };
        let list = [at(10, 1000), at(20, 7096), at(30, 4192)];
        let mut done = 0;
        for segment in &list {
            pair.data.write(segment.offset as usize, &bytes[done..][..segment.length as usize]).unwrap();
            done += segment.length as usize;
        }
        pair.host.write(7, &list, 1).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()), "{profile}");
        let gaps_allowed = profile == "umr";
        assert_eq!(pair.host.statistics().bounced_commands > 0, !gaps_allowed, "{profile}");
        // Read back in one piece, and then again in pieces over wiped memory.
        pair.host.read(7, &[pair.segment(50, 3)], 2).unwrap();
        pair.completed(1);
        let whole: Vec<u8> = (50..53).flat_map(|block| pair.block(block)).collect();
        assert!(whole == bytes, "{profile}");
        for block in 10..33 {
            pair.fill(block, 0xee);
        }
        pair.host.read(7, &list, 3).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()), "{profile}");
        let mut pieces = Vec::new();
        for segment in &list {
            let mut piece = vec![0; segment.length as usize];
            pair.data.read(segment.offset as usize, &mut piece).unwrap();
            pieces.extend(piece);
        }
        assert!(pieces == bytes, "{profile}");
        assert_eq!((pair.block(10)[1000], pair.block(32)[4095]), (0xee, 0xee), "{profile}: the gaps are untouched");
        pair.finish();
    }
}

#[test]
fn without_bounce_buffers_such_a_block_is_refused() {
    let mut options = host_options();
    options.bounce_buffers = 0;
    let mut pair = Pair::with("window", options, target_options());
    pair.bring_up();
    let half = |block: u64| Segment { length: BLOCK / 2, ..pair.segment(block, 1) };
    pair.host.write(0, &[half(1), half(3)], 1).unwrap();
    assert_eq!(pair.completed(1)[0].result, Err(IoError::TooManyKeys));
    pair.finish();
}

#[test]
fn requests_above_the_largest_transfer_are_split() {
    for profile in PROFILES {
        let mut options = host_options();
        options.queue_depth = 3;
        let mut pair = Pair::with(profile, options, target_options());
        pair.bring_up();
        let most = pair.host.max_transfer_bytes();
        let blocks = 100;
        for block in 0..blocks {
            pair.fill(block, block as u8 + 1);
        }
        let before = pair.host.statistics().submissions;
        pair.host.write(0, &[pair.segment(0, blocks as u32)], 1).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()), "{profile}");
        let commands = pair.host.statistics().submissions - before;
        assert!(commands >= (blocks * u64::from(BLOCK)).div_ceil(most.into()), "{profile}: {commands}");
        pair.host.read(0, &[pair.segment(120, blocks as u32)], 2).unwrap();
        pair.completed(1);
        for block in 0..blocks {
            assert_eq!(pair.block(120 + block), vec![block as u8 + 1; BLOCK as usize], "{profile} {block}");
        }
        // Lost in the middle, it still ends once and right.
        pair.host.write(0, &[pair.segment(0, blocks as u32)], 3).unwrap();
        for _ in 0..4 {
            pair.step();
        }
        pair.host.drop_connections();
        let ended = pair.completed(1);
        assert_eq!((ended.len(), ended[0].result), (1, Ok(())), "{profile}");
        pair.finish();
    }
}

#[test]
fn blocks_are_compared_zeroed_and_deallocated() {
    for profile in PROFILES {
        let mut pair = Pair::ready(profile);
        for block in 0..4 {
            pair.fill(block, 0x40 + block as u8);
        }
        pair.host.write(0, &[pair.segment(0, 4)], 1).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()), "{profile}");
        pair.host.compare(0, &[pair.segment(0, 1), pair.segment(1, 1)], 2).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()), "{profile}");
        pair.host.compare(0, &[pair.segment(1, 1)], 3).unwrap();
        let Err(IoError::Status(status)) = pair.completed(1)[0].result else { panic!("{profile}: equal") };
        assert_eq!(status.code(), Status::COMPARE_FAILURE.code(), "{profile}");
        pair.host.write_zeroes(1, 2, false, 4).unwrap();
        pair.completed(1);
        pair.host.read(0, &[pair.segment(10, 4)], 5).unwrap();
        pair.completed(1);
        assert_eq!([10, 11, 12, 13].map(|block| pair.block(block)[7]), [0x40, 0, 0, 0x43], "{profile}");
        pair.host.deallocate(&[(0, 1), (3, 1)], 6).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()), "{profile}");
        assert_eq!(pair.host.engine().port().remote_bytes_open().unwrap_or(0), 0, "{profile}");
        pair.finish();
    }
}

#[test]
fn several_queues_share_the_load() {
    for profile in PROFILES {
        let mut options = host_options();
        (options.queues, options.queue_depth) = (3, 4);
        let mut pair = Pair::with(profile, options, target_options());
        pair.bring_up();
        let granted = pair.host.queues();
        assert!((1..=3).contains(&granted), "{profile}");
        assert_eq!(pair.target.statistics().queues as usize, granted + 1, "{profile}");
        for lba in 0..12 {
            pair.host.write(lba, &[pair.segment(lba, 1)], lba).unwrap();
        }
        assert!(pair.completed(12).iter().all(|ended| ended.result == Ok(())), "{profile}");
        pair.host.drop_connections();
        pair.host.write(0, &[pair.segment(0, 1)], 0).unwrap();
        assert_eq!(pair.completed(1)[0].result, Ok(()), "{profile}");
        pair.finish();
    }
}

#[test]
fn a_request_that_is_given_up_ends_once_after_its_keys_are_dead() {
    for profile in PROFILES {
        let mut pair = Pair::ready(profile);
        for lba in 0..32 {
            pair.host.read(lba, &[pair.segment(lba, 1)], lba).unwrap();
        }
        pair.host.flush();
        assert_eq!(pair.host.abort(5), 1, "{profile}");
        assert_eq!(pair.host.abort(77), 0, "{profile}");
        let mut ended = pair.completed(32);
        ended.sort_by_key(|ended| ended.cookie);
        assert_eq!(ended.len(), 32, "{profile}");
        assert_eq!(ended[5].result, Err(IoError::Aborted), "{profile}");
        assert_eq!(ended.iter().filter(|ended| ended.result.is_ok()).count(), 31, "{profile}");
        assert_eq!(pair.host.engine().port().remote_bytes_open().unwrap_or(0), 0, "{profile}");
        pair.finish();
    }
}

#[test]
fn a_command_without_an_answer_is_aborted_and_then_the_session_is_set_up_again() {
    let mut options = host_options();
    (options.command_timeout, options.step_timeout) = (Duration::from_secs(2), Duration::from_secs(1));
    options.keep_alive = Duration::ZERO;
    let mut pair = Pair::with("reg_mr", options, target_options());
    pair.bring_up();
    pair.host.read(0, &[pair.segment(0, 1)], 1).unwrap();
    // The target is silent.
    let begin = pair.now;
    while pair.host.last_failure().is_none() && pair.now - begin < Duration::from_secs(60) {
        pair.now += Duration::from_millis(50);
        pair.step_host();
    }
    assert_eq!(pair.host.statistics().aborts, 1);
    assert_eq!(pair.host.last_failure(), Some(HostFailure::CommandTimeout { stood_still: Duration::ZERO }));
    assert!(pair.now - begin >= Duration::from_secs(3), "{:?}", pair.now - begin);
    pair.tick = Duration::from_millis(1);
    assert_eq!(pair.completed(1)[0].result, Ok(()), "on the next session");
    pair.finish();
}

#[test]
fn a_controller_that_stays_away_is_given_up_after_the_loss_timeout() {
    let mut options = host_options();
    options.address = "127.0.0.1:4999".parse().unwrap();
    (options.max_attempts, options.controller_loss_timeout) = (u32::MAX, Duration::from_secs(5));
    let mut pair = Pair::with("reg_mr", options, target_options());
    pair.host.start();
    let begin = pair.now;
    pair.tick = Duration::from_millis(10);
    pair.until("failed", |pair| pair.host.failure().is_some());
    assert_eq!(pair.host.failure(), Some(HostFailure::ControllerLoss));
    assert!(pair.now - begin >= Duration::from_secs(5));
}

#[test]
fn in_capsule_data_needs_no_key() {
    for profile in PROFILES {
        let mut options = host_options();
        options.in_capsule_data = true;
        let mut target = target_options();
        target.in_capsule_bytes = BLOCK;
        let mut pair = Pair::with(profile, options, target);
        pair.bring_up();
        let before = pair.host.engine().statistics().registrations;
        for lba in 0..32 {
            pair.fill(lba, lba as u8 + 1);
            pair.host.write(lba, &[pair.segment(lba, 1)], lba).unwrap();
        }
        assert!(pair.completed(32).iter().all(|ended| ended.result == Ok(())), "{profile}");
        assert_eq!(pair.host.engine().statistics().registrations, before, "{profile}");
        pair.host.read(31, &[pair.segment(50, 1)], 0).unwrap();
        pair.completed(1);
        assert_eq!(pair.block(50), vec![32; BLOCK as usize], "{profile}");
        pair.finish();
    }
}

#[test]
fn commands_wait_in_order_when_buffers_are_short() {
    for profile in PROFILES {
        let mut pair = Pair::with_buffers(profile, host_options(), target_options(), 0);
        pair.bring_up();
        let mut ended = 0;
        for round in 0..20 {
            for lba in 0..32 {
                let result = if (lba + round) % 2 == 0 {
                    pair.host.read(lba, &[pair.segment(lba, 1)], lba)
                } else {
                    pair.host.write(lba, &[pair.segment(lba, 1)], lba)
                };
                result.unwrap();
            }
            ended += pair.completed(32).iter().filter(|ended| ended.result == Ok(())).count();
        }
        assert_eq!(ended, 640, "{profile}");
        pair.finish();
    }
}

#[test]
fn corrupted_reads_differ_in_one_byte() {
    let mut target = target_options();
    target.corrupt_reads = core::num::NonZeroU64::new(3);
    let mut pair = Pair::with("reg_mr", host_options(), target);
    pair.bring_up();
    for lba in 0..6 {
        pair.host.read(lba, &[pair.segment(lba, 1)], lba).unwrap();
    }
    pair.completed(6);
    let wrong = (0..6).filter(|block| pair.block(*block).iter().filter(|byte| **byte != 0).count() == 1).count();
    assert_eq!((wrong, pair.target.statistics().corrupted_reads), (2, 2));
    pair.finish();
}

#[test]
fn lost_requests_are_submitted_once_more_on_the_next_connection() {
    for profile in PROFILES {
        let mut pair = Pair::ready(profile);
        for round in 0..3 {
            for lba in 0..32 {
                pair.fill(lba, (round * 32 + lba) as u8);
                pair.host.write(lba, &[pair.segment(lba, 1)], lba).unwrap();
            }
            for _ in 0..3 {
                pair.step();
            }
            pair.host.drop_connections();
            let mut ended = pair.completed(32);
            ended.sort_by_key(|ended| ended.cookie);
            let cookies: Vec<u64> = ended.iter().map(|ended| ended.cookie).collect();
            assert_eq!(cookies, (0..32).collect::<Vec<u64>>(), "{profile}: each request ends once");
            assert!(ended.iter().all(|ended| ended.result == Ok(())), "{profile} {ended:?}");
        }
        let statistics = pair.host.statistics();
        assert_eq!(statistics.sessions, 4, "{profile} {statistics:?}");
        assert!(statistics.lost > 0, "{profile}");
        assert_eq!(statistics.lost, statistics.resubmitted, "{profile}");
        assert_eq!(statistics.submissions, statistics.requests + statistics.resubmitted, "{profile}");
        assert_eq!(pair.host.engine().port().remote_bytes_open().unwrap_or(0), 0, "{profile}");
        pair.finish();
    }
}

#[test]
fn a_wrong_subsystem_is_a_permanent_failure() {
    let mut options = host_options();
    options.subsystem = Nqn::new("nqn.unknown").unwrap();
    let mut pair = Pair::with("reg_mr", options, target_options());
    pair.host.start();
    pair.until("failed", |pair| pair.host.failure().is_some());
    let Some(HostFailure::Command { status, .. }) = pair.host.failure() else { panic!("{:?}", pair.host.failure()) };
    assert_eq!(status.code(), Status::CONNECT_INVALID_PARAMETERS.code());
    assert!(pair.host.is_stopped());
}

#[test]
fn a_queue_that_is_too_deep_is_a_permanent_failure() {
    let mut options = host_options();
    options.queue_depth = 64;
    let mut pair = Pair::with("reg_mr", options, target_options());
    pair.host.start();
    pair.until("failed", |pair| pair.host.failure().is_some());
    assert_eq!(pair.host.failure(), Some(HostFailure::QueueDepth { wanted: 64, limit: 39 }));
}

#[test]
fn nobody_listening_is_tried_again_with_growing_pauses_until_it_is_given_up() {
    let mut options = host_options();
    options.address = "127.0.0.1:4999".parse().unwrap();
    options.max_attempts = 3;
    let mut pair = Pair::with("reg_mr", options, target_options());
    pair.host.start();
    let begin = pair.now;
    pair.tick = Duration::from_millis(1);
    pair.until("failed", |pair| pair.host.failure().is_some());
    assert_eq!(pair.host.failure(), Some(HostFailure::TooManyAttempts));
    assert!(matches!(pair.host.last_failure(), Some(HostFailure::Open(_))));
    // 10, 20 and 40 ms.
    assert!(pair.now - begin >= Duration::from_millis(70), "{:?}", pair.now - begin);
    assert_eq!(pair.host.statistics().failures, 4);
}

#[test]
fn keep_alives_keep_an_idle_session() {
    let mut pair = Pair::ready("reg_mr");
    pair.tick = Duration::from_millis(100);
    while pair.now < host_options().keep_alive * 12 {
        pair.step();
    }
    assert!(pair.host.is_ready());
    assert_eq!((pair.host.statistics().sessions, pair.target.statistics().keep_alive_expirations), (1, 0));
    assert!(pair.host.statistics().keep_alives >= 20);
    pair.finish();
}

#[test]
fn a_silent_host_loses_its_controller() {
    let mut pair = Pair::ready("reg_mr");
    let end = pair.now + host_options().keep_alive * 2;
    while pair.now < end {
        pair.now += Duration::from_millis(50);
        pair.step_target();
    }
    assert_eq!(pair.target.statistics().keep_alive_expirations, 1);
    pair.until("a new session", |pair| pair.host.statistics().sessions == 2 && pair.host.is_ready());
    pair.finish();
}

#[test]
fn commands_that_overtake_the_connection_event_are_answered() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        // The target's Control is slow: the host's first capsule arrives before the target hears of the connection.
        pair.target_control_every = 300;
        for session in 1..=3 {
            pair.host.start();
            pair.until("ready", |pair| pair.host.statistics().sessions == session && pair.host.is_ready());
            pair.host.read(0, &[pair.segment(0, 1)], 0).unwrap();
            assert_eq!(pair.completed(1)[0].result, Ok(()), "{profile}");
            pair.tick = Duration::from_millis(1);
            pair.host.drop_connections();
            pair.until("lost", |pair| !pair.host.is_ready());
        }
        assert_eq!(pair.host.statistics().failures, 3, "{profile}: only those that were asked for");
    }
}

#[test]
fn a_silent_target_loses_its_host_after_the_keep_alive_timeout() {
    let mut pair = Pair::ready("reg_mr");
    let timeout = host_options().keep_alive;
    let begin = pair.now;
    while pair.host.last_failure().is_none() && pair.now - begin < timeout * 3 {
        pair.now += Duration::from_millis(50);
        pair.step_host();
    }
    assert_eq!(pair.host.last_failure(), Some(HostFailure::KeepAlive { stood_still: Duration::ZERO }));
    // Sent after half of it, and awaited for all of it.
    assert!(pair.now - begin >= timeout + timeout / 2, "{:?}", pair.now - begin);
    pair.tick = Duration::from_millis(1);
    pair.until("a new session", |pair| pair.host.statistics().sessions == 2 && pair.host.is_ready());
    pair.finish();
}
