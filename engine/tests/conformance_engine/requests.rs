//! The normal path: data in both directions, keys invalidated by either side.

use crate::harness::pattern;
use crate::harness::subject::on_all;
use crate::rig::{DATA_BYTES, READ_AT, Rig, WRITE_AT};
use frwr_engine::provider::Access;
use frwr_engine::{Chunk, GatherError, MemoryAccess, Segment, SubmitError};

#[test]
fn s45_s58_s61_s79_data_goes_both_ways_and_either_side_invalidates() {
    on_all(|subject| {
        for invalidate in [true, false] {
            let mut rig = Rig::new(subject);
            for cookie in 0..50 {
                rig.submit_echo(cookie, true);
                let mut patience = rig.pace.patience();
                while rig.host.ended.len() as u64 <= cookie && patience.is_left() {
                    rig.serve_echo(invalidate);
                    rig.steps(1);
                }
                assert_eq!(rig.status(cookie), Some("replied"), "{subject}");
                rig.assert_echoed(cookie);
            }
            let statistics = rig.host.engine.statistics();
            let remote = if invalidate && subject.invalidates_remotely() { 50 } else { 0 };
            assert_eq!(statistics.remote_invalidations, remote);
            assert_eq!(statistics.local_invalidations, statistics.registrations - remote);
            assert_eq!(rig.posted().invalidations, statistics.local_invalidations);
            assert_eq!(rig.host.engine.statistics().stale_completions, 0);
            rig.finish();
        }
    });
}

/// Many at a time, answered in order; none waits for another's memory.
#[test]
fn s45_requests_overlap_up_to_the_queue_depth() {
    on_all(|subject| {
        let mut rig = Rig::new(subject);
        for cookie in 0..32 {
            rig.submit(cookie, cookie % 3 == 0);
        }
        rig.pair.until("all", |pair| {
            pair.serve(true);
            pair.host.ended.len() == 32
        });
        assert!(rig.host.ended.iter().all(|(_, status)| *status == "replied"));
        rig.finish();
    });
}

/// Registered without local write it is read by the peer, and sent behind the message.
#[test]
fn memory_that_is_read_only_is_registered_without_local_write_and_used() {
    on_all(|subject| {
        let mut rig = Rig::new(subject);
        let bytes = rig.host.data.slice(0, READ_AT as usize + DATA_BYTES as usize).unwrap();
        let memory = rig.host.engine.add_memory(bytes, MemoryAccess::ReadOnly).unwrap();
        rig.pair.until("registered", |pair| {
            pair.host.events.iter().any(|event| event.starts_with("MemoryRegistered") && event.contains("Ok(())"))
        });
        assert_eq!(rig.host.control.device().local_writes(), [true, true, false], "{subject}: messages, data, and it");
        rig.host.data.write(READ_AT as usize, &pattern(0, DATA_BYTES as usize)).unwrap();
        let read = [Segment { memory, offset: READ_AT, length: DATA_BYTES }];
        let write = [rig.host.segment(WRITE_AT, DATA_BYTES)];
        let inline = [Segment { memory, offset: READ_AT, length: 64 }];
        let refused = rig.host.submit(0, Access::RemoteWrite, &read, true);
        assert_eq!(refused, Err(SubmitError::Segment(GatherError::ReadOnly)), "{subject}");
        let chunks = [(Access::RemoteRead, &read), (Access::RemoteWrite, &write)];
        let chunks = chunks.map(|(access, segments)| Chunk { access, segments });
        rig.host.submit_mixed(0, &chunks, &inline, true).unwrap();
        let mut patience = rig.pace.patience();
        while rig.host.ended.is_empty() && patience.is_left() {
            rig.serve_echo(true);
            rig.steps(1);
        }
        assert_eq!(rig.status(0), Some("replied"), "{subject}");
        rig.assert_echoed(0);
        rig.finish();
    });
}
