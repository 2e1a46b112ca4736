//! The sizing plan of `Engine::new`: what is refused, and with which error.

use core::time::Duration;
use frwr_engine::{
    Engine, EngineError, EngineOptions, EngineSizes, InvalidateOrder, MAX_MEMORIES, ReceiveQueues, ReturnPolicy,
    control::Control,
    provider::{
        Capabilities, Device,
        soft::{SoftFabric, SoftOptions, SoftPort, SoftProfile},
    },
    sizing::{ReceiveBatch, SizingError},
};
use frwr_support::engine_harness::{self, Setup, region, scripted::Scripted};

/// Bytes that may be left of a region of just the size that was asked for: alignment of the first block, and what slabs may need of it.
const SURPLUS: usize = 1024;

fn capabilities() -> Capabilities {
    SoftProfile::RegMr.capabilities()
}

fn check(options: &EngineOptions, capabilities: &Capabilities) -> Result<(u32, u32), EngineError> {
    let entries = Engine::<SoftPort>::completion_entries(options, capabilities);
    assert_eq!(
        Engine::<SoftPort>::region_bytes(options, capabilities).map(|_| ()),
        entries.clone().map(|_| ()),
        "both functions judge alike"
    );
    entries
}

/// The error for one changed option.
fn refused(change: impl FnOnce(&mut EngineOptions)) -> EngineError {
    let mut options = EngineOptions::default();
    change(&mut options);
    check(&options, &capabilities()).expect_err("refused")
}

#[test]
fn every_option_has_a_range_and_the_error_names_it() {
    let cases: [(&str, EngineError); 13] = [
        ("connections", refused(|options| options.connections = 0)),
        ("connections", refused(|options| options.connections = 4097)),
        ("queue_depth", refused(|options| options.queue_depth = 16385)),
        ("transfer_depth", refused(|options| options.transfer_depth = 16385)),
        ("transfer_operations", refused(|options| options.transfer_operations = 0)),
        ("transfer_operations", refused(|options| options.transfer_operations = 17)),
        ("message_bytes", refused(|options| options.message_bytes = 15)),
        ("message_bytes", refused(|options| options.message_bytes = 128 * 1024 + 65)),
        ("max_segments", refused(|options| options.max_segments = 0)),
        ("max_segments", refused(|options| options.max_segments = 4097)),
        ("memories", refused(|options| options.memories = 0)),
        ("memories", refused(|options| options.memories = MAX_MEMORIES + 1)),
        ("registrations", refused(|options| options.registrations = 65537)),
    ];
    for (wanted, error) in cases {
        let EngineError::Option { name, value, range } = &error else { panic!("{error:?}") };
        assert_eq!(*name, wanted);
        let text = error.to_string();
        assert!(text.contains(name) && text.contains(&value.to_string()) && text.contains(range), "{text}");
    }
    assert!(matches!(
        refused(|options| options.receive_depth = 32769),
        EngineError::Option { name: "receive_depth", value: 32769, .. }
    ));
}

/// An engine that opens no keys needs none of a device, and has none where there are some.
#[test]
fn an_engine_that_opens_no_keys_is_made_on_every_device() {
    let keyless = |profile| SoftOptions::new(profile).without_registrations().capabilities;
    for profile in SoftProfile::ALL {
        let mut options = EngineOptions::default().transfer_depth(8);
        assert_eq!(
            check(&options, &keyless(profile)).unwrap_err(),
            SizingError::NoMemoryExtensions.into(),
            "{profile}"
        );
        options.opens_keys = false;
        let (with, without) = (check(&options, &profile.capabilities()), check(&options, &keyless(profile)));
        assert!(with.is_ok() && without.is_ok(), "{profile}: {without:?}");
        options.write_pad = true;
        let refused = check(&options, &profile.capabilities()).unwrap_err();
        assert!(matches!(refused, EngineError::Option { name: "write_pad", value: 1, .. }), "{refused}");
        assert!(refused.to_string().contains("off where opens_keys is"), "{refused}");
    }
}

#[test]
fn d02_early_return_needs_invalidations_in_front() {
    let early = |order| {
        move |options: &mut EngineOptions| {
            (options.return_policy, options.invalidate_order) = (ReturnPolicy::OnInvalidatePosted, order);
        }
    };
    assert_eq!(refused(early(InvalidateOrder::AfterMessages)), EngineError::ReturnOrder);
    let mut options = EngineOptions::default();
    early(InvalidateOrder::BeforeMessages)(&mut options);
    assert!(check(&options, &capabilities()).is_ok());
}

#[test]
fn s01_s02_s06_s10_d18_the_gates_of_sizing_come_through_one_by_one() {
    let error = |change: fn(&mut Capabilities)| {
        let mut device = capabilities();
        change(&mut device);
        match check(&EngineOptions::default(), &device).expect_err("refused") {
            EngineError::Sizing(error) => error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(error(|device| device.attributes.memory_management_extensions = false), SizingError::NoMemoryExtensions);
    assert_eq!(error(|device| device.attributes.max_fast_reg_page_list_len = 0), SizingError::NoPageList);
    assert!(matches!(
        error(|device| device.attributes.max_send_sge = 2),
        SizingError::TooFewSendElements { have: 2, .. }
    ));
    assert!(matches!(error(|device| device.attributes.max_qp_wr = 16), SizingError::QueueTooSmall { have: 16, .. }));
    assert!(matches!(error(|device| device.attributes.max_qp_wr = 38), SizingError::RequestsDoNotFit { .. }));
    assert!(matches!(
        error(|device| device.attributes.max_fast_reg_page_list_len = 16),
        SizingError::SegmentsTooFew { .. }
    ));
}

#[test]
fn f02_s08_a_receive_queue_above_the_device_is_refused() {
    let mut device = capabilities();
    device.attributes.max_qp_wr = 512;
    let entries = |receive_depth, transfer_depth| {
        let options =
            EngineOptions::default().queue_depth(1).receive_depth(receive_depth).transfer_depth(transfer_depth);
        check(&options, &device)
    };
    let error = |need| EngineError::Sizing(SizingError::ReceiveQueueExceedsLimit { need, limit: 512 });
    assert_eq!(entries(512, 0).map(|entries| entries.1), Ok(8 * 512));
    assert_eq!(entries(513, 0), Err(error(513)), "asked for");
    assert_eq!(entries(0, 513), Err(error(513)), "for the transfers");
    device.attributes.max_qp_wr = 42;
    // One request in flight: 1 + 32 + 7 + 1 receives fit, a batch of 9 does not.
    let mut options = EngineOptions::default().queue_depth(1);
    assert_eq!(check(&options, &device).map(|entries| entries.1), Ok(8 * 41));
    options.wishes.receive_batch = ReceiveBatch::Fixed(9);
    assert_eq!(
        check(&options, &device),
        Err(EngineError::Sizing(SizingError::ReceiveQueueExceedsLimit { need: 43, limit: 42 }))
    );
}

#[test]
fn i31_a_send_queue_holds_the_largest_transfer() {
    // Sixteen RDMA operations and their reply, beside the invalidation of the only key and what is kept free.
    const NEED: u32 = 16 + 1 + 1 + 2;
    let mut options = EngineOptions::default().queue_depth(1).transfer_depth(1).connections(1).receive_depth(4);
    options.wishes.backward_requests = 0;
    let mut device = SoftProfile::Window.capabilities();
    let (send, _) = check(&options, &device).unwrap();
    assert!(send >= NEED, "{send} entries, or such a transfer and all behind it would wait for ever");
    device.attributes.max_qp_wr = NEED;
    assert!(check(&options, &device).is_ok());
    device.attributes.max_qp_wr = NEED - 1;
    let error = EngineError::Sizing(SizingError::QueueTooSmall { have: NEED - 1, need: NEED });
    assert_eq!(check(&options, &device), Err(error));
}

#[test]
fn a_drain_may_be_given_all_the_time_there_is() {
    let mut test = Scripted::with("rxe", EngineOptions::default().drain_timeout(Duration::MAX));
    test.round_trip(1);
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    test.until_gone();
}

#[test]
fn d20_the_receive_batch_is_part_of_the_receive_queue() {
    let receives = |batch| {
        let mut options = EngineOptions::default().connections(3).queue_depth(64);
        options.wishes.receive_batch = batch;
        check(&options, &capabilities()).unwrap().1
    };
    // r + reverse direction + batch + drain, for each of three connections.
    assert_eq!(receives(ReceiveBatch::Fixed(0)), 3 * (64 + 32 + 1));
    assert_eq!(receives(ReceiveBatch::Fixed(7)), 3 * (64 + 32 + 7 + 1));
    assert_eq!(receives(ReceiveBatch::QuarterOfRequests), 3 * (64 + 32 + 16 + 1));
}

#[test]
fn i31_all_connections_together_fit_the_completion_queue() {
    let mut device = capabilities();
    let (send, receive) = check(&EngineOptions::default(), &device).unwrap();
    device.attributes.max_cqe = send.max(receive);
    assert!(check(&EngineOptions::default(), &device).is_ok());
    device.attributes.max_cqe -= 1;
    let need = device.attributes.max_cqe + 1;
    let limit = device.attributes.max_cqe;
    let error = check(&EngineOptions::default(), &device).expect_err("one short");
    assert_eq!(error, EngineError::CompletionQueue { connections: 8, need, limit });
}

#[test]
fn tables_that_cannot_be_numbered_are_refused_without_overflow() {
    let mut device = capabilities();
    device.attributes.max_cqe = u32::MAX;
    let huge = EngineOptions::default()
        .connections(4096)
        .queue_depth(16384)
        .transfer_depth(16384)
        .registrations(65536)
        .max_segments(4096)
        .write_pad(true);
    device.attributes.max_qp_wr = 1 << 20;
    let error = check(&huge, &device).expect_err("refused");
    assert!(matches!(error, EngineError::TooLarge { .. } | EngineError::CompletionQueue { .. }), "{error:?}");
    let registrations = EngineOptions::default().connections(4096).queue_depth(1).registrations(65536);
    let error = check(&registrations.max_segments(4096), &device).expect_err("refused");
    let EngineError::TooLarge { what: "registrations", need, limit } = error else { panic!("{error:?}") };
    assert!(need > limit && error.to_string().contains(&need.to_string()));
}

/// What an engine takes is what it says, whatever its options are: a region of just that size is enough, and hardly a line too much.
#[test]
fn a23_a_region_of_just_the_bytes_asked_for_holds_every_table() {
    let usual = EngineOptions::default().connections(1);
    for options in [
        usual.clone(),
        usual.clone().connections(7).queue_depth(3).transfer_depth(5),
        usual.clone().connections(33).queue_depth(32).message_bytes(192).registrations(5),
        usual.clone().connections(2).queue_depth(0).transfer_depth(128).max_segments(1),
        usual.clone().connections(3).receive_queues(ReceiveQueues::Shared { entries: 0 }),
        usual.clone().connections(5).receive_queues(ReceiveQueues::Shared { entries: 77 }),
        usual.write_pad(true).receive_depth(99).transfer_operations(16).transfer_depth(7),
    ] {
        let mut control = Control::new(SoftFabric::new().device(SoftOptions::default()));
        let device = *control.device().capabilities();
        let bytes = Engine::<SoftPort>::region_bytes(&options, &device).unwrap();
        for missing in [0, SURPLUS + 1] {
            let mut region = region(bytes);
            let surplus = region.len() - bytes;
            drop(region.carve(surplus + missing, 1).unwrap());
            let (port, link) = control.open_core(1024, 1024).unwrap();
            let made = Engine::new(port, link, &mut region, options.clone(), &device);
            assert_eq!(made.is_ok(), missing == 0, "{options:?}: {:?}", made.err());
        }
    }
}

#[test]
fn a_region_that_is_too_small_is_refused() {
    let options = EngineOptions::default().connections(1);
    let mut control = Control::new(SoftFabric::new().device(SoftOptions::default()));
    let device = *control.device().capabilities();
    let bytes = Engine::<SoftPort>::region_bytes(&options, &device).unwrap();
    // Large enough, and one block too small.
    for (taken, fits) in [(0, true), (bytes / 2, false)] {
        let mut region = region(bytes);
        let surplus = region.len() - bytes;
        if taken > 0 {
            drop(region.carve(surplus + taken, 8).unwrap());
        }
        let (port, link) = control.open_core(1024, 1024).unwrap();
        let made = Engine::new(port, link, &mut region, options.clone(), &device);
        match made {
            Ok(_) => assert!(fits),
            Err(error) => {
                assert!(!fits && matches!(error, EngineError::Region(_)), "{error:?}");
                assert!(error.to_string().contains("region_bytes"));
            }
        }
    }
}

#[test]
fn s07_s43_a_short_send_queue_limits_the_mrs_of_a_request() {
    // Windows: no page list, one range per request, so that a queue of 40 holds requests at all.
    let mut setup = Setup::new("window").device(|soft| soft.capabilities.attributes.max_qp_wr = 45);
    (setup.host.queue_depth, setup.host.registrations, setup.peer_receives) = (1, 16, 8);
    setup.host.wishes.receive_batch = ReceiveBatch::Fixed(0);
    setup.host.wishes.backward_requests = 8;
    let mut pair = setup.clone().watched();
    pair.request(1, 16, false, true);
    setup.host_device.capabilities.attributes.max_qp_wr = 20;
    let mut pair = setup.watched();
    // 20 entries: two in reserve, one for the message, two per MR.
    pair.request(1, 8, false, true);
    let segments = pair.scattered(9);
    let refused = pair.pair.host.submit(2, frwr_engine::provider::Access::RemoteWrite, &segments, true);
    assert_eq!(refused, Err(frwr_engine::SubmitError::TooManyRegistrations), "it would wait for ever");
    for cookie in 3..50 {
        pair.request(cookie, 8, false, true);
    }
}

#[test]
fn what_a_short_send_queue_leaves_of_the_options_is_told() {
    let options =
        EngineOptions::default().connections(1).queue_depth(128).receive_depth(60).transfer_depth(40).write_pad(true);
    let sizes = |entries: u32| {
        let mut capabilities = capabilities();
        capabilities.attributes.max_qp_wr = entries;
        EngineSizes::of(&options, &capabilities).unwrap()
    };
    let enough = sizes(4096);
    assert_eq!((enough.requests, enough.registrations, enough.transfers), (128, 128, 40));
    assert_eq!((enough.keys_per_request, enough.receive_entries), (16, 60));
    assert_eq!(enough.shortfalls(&options).count(), 0);
    let mut before = enough;
    for entries in [512, 256, 128, 96, 80, 72, 64] {
        let found = sizes(entries);
        assert!(found.send_entries <= entries && found.usable_entries < found.send_entries);
        assert!(found.requests <= before.requests && found.transfers <= before.transfers, "{found:?}");
        assert!(found.requests > 0 && found.keys_per_request > 0 && found.transfers > 0, "{found:?}");
        let told: Vec<String> = found.shortfalls(&options).map(|shortfall| shortfall.to_string()).collect();
        let short = [found.requests < 128, found.registrations < 128, found.transfers < 40];
        assert_eq!(told.len(), short.into_iter().filter(|is_short| *is_short).count(), "{told:?}");
        assert!(told.iter().all(|line| line.contains(&format!("{} entries", found.send_entries))), "{told:?}");
        before = found;
    }
    assert!(before.requests < 128);
}

/// What is told is what happens: so many are in flight, and the next one waits.
#[test]
fn as_many_requests_are_in_flight_as_was_told() {
    for profile in engine_harness::PROFILES {
        for entries in [64, 80, 120] {
            let mut setup = Setup::new(profile).device(|soft| soft.capabilities.attributes.max_qp_wr = entries);
            setup.peer_receives = 64;
            (setup.host.queue_depth, setup.host.receive_depth) = (128, 40);
            let options = setup.host.clone();
            let mut test = Scripted::of(setup);
            test.connect();
            let sizes = test.host.engine.sizes();
            let shortfall = sizes.shortfalls(&options).next().unwrap();
            assert_eq!((shortfall.what, shortfall.asked, shortfall.effective), ("requests", 128, sizes.requests));
            for cookie in 0..200 {
                test.submit(cookie, 1, false);
                // The device takes each before the next one comes, and nothing is answered.
                test.steps(3);
            }
            let (statistics, waiting) = (test.host.engine.statistics(), test.host.engine.waiting().requests);
            assert_eq!(statistics.requests, u64::from(sizes.requests), "{profile} {entries}");
            assert_eq!(waiting.total(), 200 - statistics.requests, "{profile} {entries}");
            assert_eq!(waiting.registrations, 1, "{profile} {entries}: {waiting:?}");
        }
    }
}
