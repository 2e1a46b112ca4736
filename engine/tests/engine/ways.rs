//! Promises that each way of a request into the chain has to keep for itself: made at once, staged, or after it waited.

use frwr_engine::{
    Chunk, DisconnectCause, EngineOptions, InvalidateOrder, IovaPolicy, RemoteSegment, ResponseRequest, WriteRequest,
    mr,
    provider::{
        Access, AsyncEvent, BaseAddress, Completion, CompletionQueue, DeviceEvent, FailureStatus, QueuePairId,
        RemoteRange, Success, Token, TokenKind,
        fault::{CompletionFault, CompletionFilter},
        record::{Record, RecordedOperation},
    },
    signal::SignalPolicy,
    sizing::ReceiveBatch,
};
use frwr_support::engine_harness::{self, PROFILES, scripted::Scripted, ways::*};

const READ: Access = Access::RemoteRead;
const WRITE: Access = Access::RemoteWrite;
const BOTH: Access = Access::RemoteReadWrite;

/// What the harness's requests have for the upper half of their base address.
const COOKIE: u32 = 0x0A0B_0C0D;

/// Profiles whose hosts can have keys invalidated by the peer.
const INVALIDATED: [&str; 4] = ["reg_mr", "window", "umr", "umr:fixed-key"];

#[test]
fn s32_s36_d13_each_registration_has_its_chunks_right_and_its_requests_cookie() {
    for profile in PROFILES {
        for way in WAYS {
            for rights in [[READ, WRITE, BOTH], [WRITE, BOTH, READ], [BOTH, READ, WRITE]] {
                let mut test = way.connected(way.setup(profile));
                way.submit(&mut test, 1, rights, false);
                way.admit(&mut test, 1);
                let (_, grants) = test.command();
                let rule = test.host.engine.capabilities().base_address;
                let start = test.host.data.address();
                let (step, data) = (way.segments_per_mr(), way.segments(&test, 1));
                let address = |at: usize| {
                    mr::IovaRule::of(IovaPolicy::Cookie, rule).apply(start + data[at * step].offset, COOKIE)
                };
                let expected: Vec<_> = (0..way.mrs()).map(|at| (rights[at], address(at))).collect();
                assert_eq!(registrations(&mut test), expected, "{profile} {way:?}");
                let told: Vec<_> = grants.iter().map(|grant| grant.address).collect();
                let posted: Vec<_> = expected.iter().map(|(_, address)| *address).collect();
                assert_eq!(told, posted, "{profile} {way:?}: the peer is told what the device was");
                if rule == BaseAddress::Any {
                    assert!(
                        told.iter().all(|address| (address >> 32) as u32 == COOKIE),
                        "{profile} {way:?}: {told:x?}"
                    );
                }
            }
        }
    }
}

/// Right and base address of the registrations posted.
fn registrations(test: &mut Scripted) -> Vec<(Access, u64)> {
    let fields = test.watch.wrs().into_iter().filter_map(|wr| match wr.operation {
        RecordedOperation::Register { access, iova, .. } => Some((access, iova)),
        _ => None,
    });
    fields.collect()
}

/// A command of the peer kills a key: it is no reply, whatever it kills.
#[test]
fn f13_i25_a_command_must_not_invalidate_and_is_not_handed_up() {
    for profile in INVALIDATED {
        for way in WAYS {
            for invited in [true, false] {
                let mut test = way.connected(way.setup(profile));
                let (_, grants) = way.command(&mut test, 1, invited);
                let commands = test.host.commands.len();
                let connection = test.target.connection.unwrap();
                let message = [0; engine_harness::HEADER];
                let invalidate = grants.last().map(|grant| grant.key);
                let command = ResponseRequest { local: &[], remote: &[], message: &message, invalidate, cookie: 0 };
                test.target.engine.respond(connection, &command).unwrap();
                test.until_gone();
                let context = format!("{profile} {way:?} {invited}");
                assert_eq!(test.host.causes, [DisconnectCause::ForeignInvalidation], "{context}");
                assert_eq!(test.status(1), Some("lost"), "{context}");
                assert_eq!(test.host.commands.len(), commands, "{context}: nobody is given such a command");
                let statistics = test.host.engine.statistics();
                assert_eq!((statistics.foreign_invalidations, statistics.remote_invalidations), (1, 0), "{context}");
                test.reconnect_works();
            }
        }
    }
}

/// A success that names a queue pair which is not the work request's.
fn of_another_queue_pair(test: &Scripted, token: Token) -> Completion {
    let queue_pair = QueuePairId(test.queue_pair().0 ^ 0x55);
    Completion { token, queue_pair, result: Ok(Success { bytes: 12, invalidated: None }) }
}

fn last_token(test: &mut Scripted, kind: TokenKind) -> Token {
    test.watch.wrs().iter().rev().find(|wr| wr.token.kind() == kind).unwrap().token
}

#[test]
fn s113_i24_completions_of_another_queue_pair_touch_nothing_of_a_request() {
    for profile in PROFILES {
        for way in WAYS {
            let mut test = way.connected(way.setup(profile));
            // Its message: its slot is held until the real one comes.
            let (name, _) = way.command(&mut test, 1, false);
            test.hold(TokenKind::Message);
            test.hold(TokenKind::Invalidate);
            test.reply(name, None);
            let fences = way.mrs() as u64;
            test.until("fencing", |pair| pair.host.engine.statistics().local_inv_needed == fences);
            for kind in [TokenKind::Register, TokenKind::Message, TokenKind::Invalidate] {
                let stale = test.host.engine.statistics().stale_completions;
                let token = last_token(&mut test, kind);
                test.inject(CompletionQueue::Send, of_another_queue_pair(&test, token));
                test.steps(5);
                let context = format!("{profile} {way:?} {kind:?}");
                assert_eq!(test.host.engine.statistics().stale_completions, stale + 1, "{context}");
                assert_eq!(test.status(1), None, "{context}: nothing shows that its keys are dead");
            }
            test.faults.clear();
            test.faults.release();
            test.until("ended", |pair| pair.host.ended.iter().any(|(ended, _)| *ended == 1));
            assert_eq!((test.status(1), test.host.disconnected), (Some("replied"), 0), "{profile} {way:?}");
        }
    }
}

/// Slots that only Hold keeps are not freed by such a completion either.
#[test]
fn hold_s113_completions_of_another_queue_pair_free_no_slot() {
    for way in WAYS {
        let mut test = way.connected(way.setup("reg_mr"));
        test.faults.hold(CompletionQueue::Send);
        let (name, grants) = way.command(&mut test, 1, false);
        let key = (way.mrs() == 1).then(|| grants[0].key);
        test.reply(name, key);
        test.until("in", |pair| pair.host.engine.statistics().receive_completions > u64::from(way.waits()));
        let held = test.host.engine.statistics().slots_held;
        let used = test.host.engine.statistics().request_slots_used;
        assert!(used > 0, "{way:?}");
        let token = last_token(&mut test, TokenKind::Message);
        test.inject(CompletionQueue::Send, of_another_queue_pair(&test, token));
        test.steps(5);
        let after = test.host.engine.statistics();
        assert_eq!((after.slots_held, after.request_slots_used), (held, used), "{way:?}");
    }
}

#[test]
fn s113_i24_a_receive_completion_of_another_queue_pair_is_no_message() {
    let mut test = Scripted::unconnected("reg_mr", EngineOptions::default());
    test.connect();
    let posted = test.watch.log().iter().find_map(|record| match *record {
        Record::Receive { token, .. } => Some(token),
        _ => None,
    });
    let token = posted.unwrap();
    let before = test.host.engine.receive_buffers();
    test.inject(CompletionQueue::Receive, of_another_queue_pair(&test, token));
    test.steps(5);
    let statistics = test.host.engine.statistics();
    assert_eq!((statistics.stale_completions, statistics.bad_reply_count, test.host.disconnected), (1, 0, 0));
    assert_eq!((test.host.engine.receive_buffers(), test.host.commands.len()), (before, 0));
    test.round_trip(1);
}

#[test]
fn i20_d14_a_key_does_not_follow_itself_on_any_way_however_many_were_burnt() {
    for profile in ["reg_mr", "rxe", "umr:fixed-key"] {
        for way in WAYS {
            for burnt in [254, 255, 256] {
                let registrations = way.mrs() as u32;
                let mut test = way.connected(way.setup(profile).host(|host| host.registrations = registrations));
                let rotates = test.host.engine.capabilities().rotating_key_bits > 0;
                let (name, first) = way.command(&mut test, 1, true);
                test.reply(name, None);
                test.until("ended", |pair| pair.host.ended.iter().any(|(ended, _)| *ended == 1));
                for at in 0..burnt {
                    let request = way.submit_for(&mut test, 100 + at, WRITE, true);
                    way.admit_unposted(&mut test, 100 + at);
                    test.host.engine.cancel(request).unwrap();
                    let now = test.pair.now;
                    test.host.step(now);
                    assert_eq!(test.status(100 + at), Some("cancelled"));
                }
                let (_, then) = way.command(&mut test, 2, true);
                for grant in then {
                    let follows = first.iter().any(|former| former.key == grant.key);
                    assert_eq!(follows, !rotates, "{profile} {way:?} after {burnt}");
                }
            }
        }
    }
}

/// The target sends the host messages of its own: each tells of another receive that the host may use.
fn give_credit(test: &mut Scripted, messages: u32) {
    let connection = test.target.connection.unwrap();
    for _ in 0..messages {
        let message = [0; engine_harness::HEADER];
        let command = ResponseRequest { local: &[], remote: &[], message: &message, invalidate: None, cookie: 0 };
        test.target.engine.respond(connection, &command).unwrap();
        test.until("a message", |pair| pair.host.take_command().is_some());
    }
}

/// The peer of a cancelled request may still reply, and finds a receive.
#[test]
fn s75_i31_a_receive_is_kept_for_the_reply_to_a_cancelled_request_and_free_behind_it() {
    for way in WAYS {
        // Two receives, so that two replies may come.
        let mut test = Scripted::of(way.setup("reg_mr").host(|host| host.receive_depth = 2));
        test.target.peer_receives = 64;
        test.connect();
        // Who is to wait has no credit of the peer; later there is enough, so that receives alone decide.
        for round in 0..if way.waits() { 1 } else { 8 } {
            let cookies = [10 * round + 1, 10 * round + 2];
            let mut late = Vec::new();
            for cookie in cookies {
                let request = way.submit_for(&mut test, cookie, WRITE, false);
                way.admit(&mut test, cookie);
                late.push(test.command().0);
                test.host.engine.cancel(request).unwrap();
                test.until("cancelled", |pair| pair.host.ended.contains(&(cookie, "cancelled")));
                give_credit(&mut test, if way.waits() { 1 } else { 0 });
            }
            give_credit(&mut test, if way.waits() { 8 } else { 0 });
            let next = 10 * round + 3;
            test.submit(next, 0, false);
            test.steps(20);
            let context = format!("{way:?} {round}");
            assert!(test.target.commands.is_empty(), "{context}: both receives are promised to late replies");
            let bad = test.host.engine.statistics().bad_reply_count;
            test.reply(late[0], None);
            let (name, _) = test.command();
            assert_eq!(test.host.engine.statistics().bad_reply_count, bad + 1, "{context}");
            test.submit(next + 1, 0, false);
            test.steps(20);
            assert!(test.target.commands.is_empty(), "{context}: one is still promised, one is its own");
            test.reply(late[1], None);
            let (other, _) = test.command();
            assert_eq!(test.host.engine.statistics().bad_reply_count, bad + 2, "{context}");
            test.submit(next + 2, 0, false);
            test.reply(77u64.to_le_bytes(), None);
            test.steps(20);
            assert!(test.target.commands.is_empty(), "{context}: a reply to nobody frees nobody's receive");
            test.reply(name, None);
            test.reply(other, None);
            let (last, _) = test.command();
            test.reply(last, None);
            test.until("all", |pair| pair.host.outstanding.is_empty());
            assert_eq!(test.host.disconnected, 0, "{context}");
        }
    }
}

/// Commands that Control gives the device at once, when it looks again behind several polls of a core with requests that find no MR.
/// `full`: the core finds its lane to Control full meanwhile.
fn commands_of_a_refill(way: Way, requests: u64, full: bool) -> u64 {
    let setup = way.setup("reg_mr").host(|host| (host.first_fill, host.registrations) = (1, 32));
    let mut test = way.connected(setup.peer_receives(32));
    if full {
        test.pair.host.fill_lane();
    }
    // The first takes the only MR, or finds too few.
    for cookie in 0..1 + requests {
        way.submit_alone(&mut test, cookie, [WRITE; 3], false).unwrap();
        let now = test.pair.now;
        let host = &mut test.pair.host;
        for _ in 0..4 {
            host.engine.poll(now, &mut host.protocol);
            host.engine.flush();
        }
    }
    let (now, host) = (test.pair.now, &mut test.pair.host);
    let before = host.control.statistics().commands;
    // What a lane had no room for is sent by the poll behind.
    while host.control.poll() > 0 {}
    host.engine.poll(now, &mut host.protocol);
    while host.control.poll() > 0 {}
    host.control.statistics().commands - before
}

/// A device that is asked and has not answered is not asked again.
#[test]
fn s24_d22_one_refill_is_under_way_at_a_time() {
    for (way, full) in [Way::AtOnce, Way::List, Way::Staged].into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let one = commands_of_a_refill(way, 1, full);
        assert!(one > 0, "{way:?}");
        assert_eq!(commands_of_a_refill(way, 12, full), one, "{way:?}, the lane full: {full}");
    }
}

#[test]
fn s65_invalidations_stand_where_the_order_says_beside_requests_of_every_way() {
    for (order, in_front) in [(InvalidateOrder::BeforeMessages, true), (InvalidateOrder::AfterMessages, false)] {
        for way in WAYS {
            let mut test = way.connected(way.setup("rxe").host(|host| host.invalidate_order = order));
            // One whose key is due when the next request comes into the chain, and whose reply is the credit of one that waits.
            let (name, _) = Way::AtOnce.command(&mut test, 50, false);
            test.posted();
            test.reply(name, None);
            let submit = |test: &mut Scripted| way.submit_alone(test, 1, [WRITE; 3], false).unwrap();
            if way.waits() {
                submit(&mut test);
            }
            let now = test.pair.now;
            for _ in 0..20 {
                test.pair.target.step(now);
                let host = &mut test.pair.host;
                host.engine.poll(now, &mut host.protocol);
            }
            if !way.waits() {
                submit(&mut test);
            }
            test.host.engine.flush();
            let chain: String = test.chains().concat().replace('*', "");
            let expected = if in_front { format!("L{}", way.letters()) } else { format!("{}L", way.letters()) };
            assert_eq!(chain, expected, "{order:?} {way:?}");
        }
    }
}

/// Every second message asks for a completion, which tells of the one before it as well.
#[test]
fn i31_s52_a_cancelled_request_takes_no_completion_along_that_others_need() {
    let every_second = SignalPolicy::SendsOnly { batch: 1 };
    for way in WAYS {
        // In one chain with the one before it, and posted behind it.
        for together in [true, false] {
            let setup = way.setup("reg_mr").peer_receives(32).host(|host| host.signal = every_second);
            let mut test = Way::AtOnce.connected(setup);
            test.submit(1, 0, false);
            if !together {
                test.steps(1);
                assert_eq!(test.chains(), ["S"]);
            }
            let way = if way.waits() { Way::Staged } else { way };
            let asks = way.submit_for(&mut test, 2, WRITE, false);
            test.host.engine.cancel(asks).unwrap();
            test.submit(3, 0, false);
            test.submit(4, 0, false);
            test.steps(1);
            // In one chain the first asks instead; behind it the next one does.
            let chain = test.chains().concat();
            assert!(chain.starts_with(if together { "S*SS*" } else { "S*S" }), "{way:?} {together}: {chain}");
        }
    }
}

#[test]
fn s97_s98_a_failure_of_the_device_is_told_as_that_and_an_end_by_the_peer_as_the_peers() {
    for way in WAYS {
        for how in 0..4 {
            let mut test = way.connected(way.setup("reg_mr"));
            way.submit_for(&mut test, 1, WRITE, true);
            test.steps(1);
            let (queue_pair, port) = (test.queue_pair(), test.watch.port);
            let event = match how {
                0 => Some(AsyncEvent::QueuePairFatal(queue_pair)),
                1 => Some(AsyncEvent::DeviceFatal),
                2 => Some(AsyncEvent::CompletionQueueOverrun(port)),
                _ => None,
            };
            if let Some(event) = event {
                test.faults.inject_event(DeviceEvent::Async(event));
            } else {
                let connection = test.target.connection.unwrap();
                test.target.engine.disconnect(connection);
            }
            test.until_gone();
            let expected = if event.is_some() { DisconnectCause::Device } else { DisconnectCause::Peer };
            assert_eq!(test.host.causes, [expected], "{way:?} {event:?}");
        }
    }
}

#[test]
fn s121_memory_with_both_rights_counts_as_read_and_as_written() {
    for way in WAYS {
        for (access, reads, writes) in [(READ, 1, 0), (WRITE, 0, 1), (BOTH, 1, 1)] {
            let mut test = way.connected(way.setup("reg_mr"));
            way.submit_for(&mut test, 1, access, false);
            way.admit(&mut test, 1);
            test.command();
            let statistics = test.host.engine.statistics();
            let counted = (statistics.bytes_registered_read, statistics.bytes_registered_write);
            assert_eq!(counted, (reads * way.bytes(), writes * way.bytes()), "{way:?} {access:?}");
        }
    }
}

#[test]
fn s58_uninvited_invalidations_are_counted_on_every_way_and_invited_ones_are_not() {
    for profile in INVALIDATED {
        for way in WAYS {
            for invited in [true, false] {
                let mut test = way.connected(way.setup(profile));
                let (name, grants) = way.command(&mut test, 1, invited);
                test.reply(name, Some(grants[0].key));
                test.until("ended", |pair| pair.host.ended.contains(&(1, "replied")));
                let statistics = test.host.engine.statistics();
                let counted = (statistics.remote_invalidations, statistics.uninvited_invalidations);
                assert_eq!(counted, (1, u64::from(!invited)), "{profile} {way:?}");
                assert_eq!(statistics.local_inv_needed, way.mrs() as u64 - 1, "{profile} {way:?}");
            }
        }
    }
}

/// What the device was given and no completion has passed is never more than its queue has, though nothing ever completes.
#[test]
fn i31_no_more_is_posted_than_the_send_queue_holds_whatever_completes() {
    const ENTRIES: u32 = 40;
    for profile in PROFILES {
        for way in WAYS {
            let mut setup = way.setup(profile).device(|soft| soft.capabilities.attributes.max_qp_wr = ENTRIES);
            setup.host.wishes.backward_requests = 8;
            setup.host.wishes.receive_batch = ReceiveBatch::Fixed(0);
            setup.host.wishes.ranges_per_request = Some(1);
            (setup.host.queue_depth, setup.host.receive_depth, setup.host.registrations) = (8, 24, 24);
            let mut test = way.connected(setup);
            test.faults.hold(CompletionQueue::Send);
            let mut cookie = 0;
            // Some are answered and leave their messages and invalidations; others stay open.
            for turn in 0..60 {
                cookie += 1;
                if turn % 3 == 0 {
                    register(&mut test, cookie);
                } else {
                    let _ = way.submit_alone(&mut test, cookie, [WRITE; 3], false);
                }
                test.steps(2);
                if turn % 5 > 1
                    && let Some((name, _)) = test.target.take_command()
                {
                    test.reply(name, None);
                }
                test.steps(2);
            }
            let posted = test.watch.wrs().len();
            let context = format!("{profile} {way:?}");
            assert!(posted > ENTRIES as usize / 2, "{context}: {posted} are not a full queue");
            assert!(posted <= ENTRIES as usize, "{context}: {posted}");
            assert_eq!((test.host.engine.statistics().posts_refused, test.host.disconnected), (0, 0), "{context}");
        }
    }
}

fn register(test: &mut Scripted, cookie: u64) {
    let host = &mut test.pair.host;
    let segment = host.segment(524_288 + 4096 * (cookie % 64), 256);
    let chunk = Chunk { access: READ, segments: &[segment] };
    if host.engine.register_now(host.connection.unwrap(), &chunk, cookie, &mut host.protocol).is_ok() {
        host.outstanding.insert(cookie, 256);
    }
}

/// A completion that was lost in between would look the same: a failure vouches for no invalidation in front of it.
#[test]
fn s67_s74_fault13_what_stands_in_front_of_a_failed_invalidation_is_not_known_to_be_dead() {
    for profile in PROFILES {
        for way in WAYS {
            let mut test = way.connected(way.setup(profile).peer_receives(if way.waits() { 1 } else { 32 }));
            let (first, _) = way.command(&mut test, 1, false);
            let second = (!way.waits()).then(|| way.command(&mut test, 2, false).0);
            // Both replies are in before the host looks.
            test.faults.hold(CompletionQueue::Receive);
            test.reply(first, None);
            second.inspect(|name| test.reply(*name, None));
            test.steps(10);
            test.posted();
            test.fail(TokenKind::Invalidate, FailureStatus::LocalProtection);
            test.faults.release();
            test.until_gone();
            let fences = way.mrs() * if second.is_some() { 2 } else { 1 };
            let chain = test.chains().concat();
            assert!(chain.starts_with(&format!("{}L*", "L".repeat(fences - 1))), "{profile} {way:?}: {chain}");
            assert_eq!(test.host.causes, [DisconnectCause::WorkRequest(FailureStatus::LocalProtection.into())]);
            for cookie in if second.is_some() { vec![1, 2] } else { vec![1] } {
                assert_eq!(test.status(cookie), Some("lost"), "{profile} {way:?} {cookie}");
            }
        }
    }
}

#[test]
fn s133_s52_fault13_what_stands_in_front_of_a_failed_registration_is_not_told_to_be_open() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.fail(TokenKind::Register, FailureStatus::LocalProtection);
        for cookie in [1, 2, 3] {
            register(&mut test, cookie);
        }
        test.until_gone();
        assert!(test.host.grants.is_empty(), "{profile}: {:?}", test.host.grants);
    }
}

#[test]
fn s52_fault13_what_stands_in_front_of_a_failed_transfer_is_not_told_to_be_done() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        let offered = [test.host.segment(0, 1024)];
        test.host.submit(1, WRITE, &offered, false).unwrap();
        let (_, grants) = test.command();
        let failed = CompletionFault::Fail(FailureStatus::RemoteAccess.into());
        test.target_faults.on_completions(CompletionFilter::kind(TokenKind::Transfer), failed, 1);
        let target = &mut test.pair.target;
        let connection = target.connection.unwrap();
        // One completion tells of all three.
        for at in 0..3 {
            let range = RemoteRange { address: grants[0].address + at * 256, key: grants[0].key };
            let remote = [RemoteSegment { remote: range, length: 256 }];
            let local = [target.segment(4096 + at * 256, 256)];
            target.engine.write(connection, &WriteRequest { local: &local, remote: &remote, cookie: at }).unwrap();
        }
        test.until("gone", |pair| pair.target.engine.is_disconnected());
        let written = |status| {
            test.target.events.iter().filter(|told| told.starts_with("Written") && told.contains(status)).count()
        };
        assert_eq!((written("Lost"), written("Done")), (3, 0), "{profile}: {:?}", test.target.events);
    }
}
