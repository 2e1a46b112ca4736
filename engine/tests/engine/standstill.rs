//! Drain time-outs where nobody polls for a while: time in which nobody did is nobody's, and what came back is read first,
//! whatever stands in front of it.

use core::time::Duration;
use frwr_engine::{
    EngineOptions, ReceiveQueues,
    provider::{CommandError, TokenKind, fault::CommandKind},
};
use frwr_support::engine_harness::{PROFILES, Setup, scripted::*};

const SECOND: Duration = Duration::from_secs(1);
const TENTH: Duration = Duration::from_millis(100);
/// The default of the drain time-out.
const DRAIN: Duration = Duration::from_secs(5);
/// Just below it, at it, above it, and far above.
const STOPS: [Duration; 5] = [
    Duration::from_millis(4900),
    DRAIN,
    Duration::from_millis(5100),
    Duration::from_secs(60),
    Duration::from_secs(86_400),
];

fn drain_timeouts(test: &Scripted) -> u64 {
    test.host.engine.statistics().drain_timeouts
}

#[test]
fn what_came_back_while_the_core_stood_still_is_read_before_the_drain_is_given_up() {
    // Of a batch of completions, around one, and many.
    for receives in [63, 64, 65, 200, 1000] {
        for stop in STOPS {
            let options = EngineOptions::default().receive_depth(receives);
            let mut test = Scripted::with("reg_mr", options);
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
            test.until("drains", |pair| pair.host.engine.statistics().drain_markers == 1);
            test.now += stop;
            test.until_gone();
            assert_eq!(drain_timeouts(&test), 0, "{receives} receives, {stop:?}");
        }
    }
}

/// Nobody stands still here: the deadline passes while what came back in time is still unread.
#[test]
fn what_came_back_just_before_the_deadline_is_read_before_the_drain_is_given_up() {
    for receives in [63, 64, 65, 200, 1000] {
        let options = EngineOptions::default().receive_depth(receives);
        let mut test = Scripted::with("reg_mr", options);
        test.hold(TokenKind::Receive);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.until("drains", |pair| pair.host.engine.statistics().drain_markers == 1);
        test.pass(DRAIN - TENTH / 2);
        assert_eq!(drain_timeouts(&test), 0);
        test.faults.release();
        test.now += TENTH * 9 / 10;
        test.until_gone();
        assert_eq!(drain_timeouts(&test), 0, "{receives} receives");
    }
}

#[test]
fn what_comes_late_because_both_sides_stood_still_is_waited_for() {
    for profile in PROFILES {
        for kind in [TokenKind::Drain, TokenKind::Receive] {
            for stop in STOPS {
                let mut test = Scripted::new(profile);
                test.hold(kind);
                let connection = test.host.connection.unwrap();
                test.host.engine.disconnect(connection);
                // Half of it was over.
                test.pass(DRAIN / 2);
                for _ in 0..3 {
                    test.now += stop;
                    test.steps(10);
                }
                assert_eq!((drain_timeouts(&test), test.host.disconnected), (0, 0), "{profile} {kind:?} {stop:?}");
                test.faults.release();
                test.until_gone();
                assert_eq!(drain_timeouts(&test), 0, "{profile} {kind:?} {stop:?}");
                test.reconnect_works();
            }
        }
    }
}

#[test]
fn a_drain_that_never_ends_is_given_up_however_rarely_the_engine_is_polled() {
    for period in [Duration::from_micros(700), TENTH / 3, TENTH, 2 * TENTH, 7 * SECOND, 600 * SECOND] {
        let mut test = Scripted::new("reg_mr");
        test.hold(TokenKind::Drain);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.until("drains", |pair| pair.host.engine.statistics().drain_markers == 1);
        let (begin, mut polls) = (test.now, 0);
        while drain_timeouts(&test) == 0 {
            test.now += period;
            test.steps(1);
            polls += 1;
            assert!(test.now - begin < DRAIN + SECOND || polls <= 60, "{period:?} {polls}");
        }
        assert!(test.now - begin >= DRAIN, "{period:?}");
        test.faults.release();
        test.until_gone();
    }
}

/// However long nothing had to be judged before, and however short its time-out is.
#[test]
fn a_drain_that_never_ends_is_given_up_at_its_deadline() {
    const MILLISECOND: Duration = Duration::from_millis(1);
    for drain_timeout in [2 * MILLISECOND, DRAIN] {
        for idle in [Duration::ZERO, 60 * SECOND] {
            let mut test = Scripted::with("reg_mr", EngineOptions::default().drain_timeout(drain_timeout));
            test.pass(idle);
            test.hold(TokenKind::Drain);
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
            test.until("drains", |pair| pair.host.engine.statistics().drain_markers == 1);
            let begin = test.now;
            while drain_timeouts(&test) == 0 {
                test.now += MILLISECOND;
                test.steps(1);
                assert!(test.now - begin <= drain_timeout + 2 * MILLISECOND, "{drain_timeout:?} behind {idle:?}");
            }
            test.faults.release();
            test.until_gone();
        }
    }
}

/// A host that is idle for so long, and ends then: its queue pair, which could not be moved to the error state, never says that it takes no
/// more shared receives. Control has answered before anybody polls again.
fn drains_in_the_next_poll(idle: Duration) -> Scripted {
    let shared = |host: &mut EngineOptions| host.receive_queues = ReceiveQueues::Shared { entries: 0 };
    let mut test = Scripted::of(Setup::new("window").host(shared));
    test.connect();
    test.pass(idle);
    test.faults.fail_command(CommandKind::FailQueuePair, CommandError::BUSY, 1);
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    while test.host.control.poll() > 0 {}
    test
}

/// A poll of the host's engine at a time: the work that it says it did.
fn poll(test: &mut Scripted, now: Duration) -> u32 {
    let host = &mut test.pair.host;
    host.engine.poll(now, &mut host.protocol)
}

/// The drain takes so long from the error state on, whatever there was to look at before that: nothing, for however long.
#[test]
fn a_drain_is_given_up_at_its_deadline_where_its_first_poll_is_the_first_look_at_the_clock() {
    for idle in [Duration::ZERO, SECOND, 60 * SECOND] {
        let mut test = drains_in_the_next_poll(idle);
        let begin = test.now;
        for tick in 0..100 {
            poll(&mut test, begin + tick * TENTH / 2);
            assert_eq!(drain_timeouts(&test), 0, "{tick} behind {idle:?}");
        }
        poll(&mut test, begin + DRAIN);
        assert_eq!(drain_timeouts(&test), 1, "behind {idle:?}");
        test.now = begin + DRAIN;
        test.until_gone();
    }
}

/// A poll that finds nothing says so, and is counted, also while something ends; one that has to do with the end is none of these.
#[test]
fn polls_are_empty_while_a_drain_waits_and_the_one_that_gives_it_up_is_not() {
    let mut test = drains_in_the_next_poll(Duration::ZERO);
    let begin = test.now;
    let empty = |test: &Scripted| test.host.engine.statistics().empty_polls;
    for tick in 0..100 {
        let before = empty(&test);
        let work = poll(&mut test, begin + tick * TENTH / 2);
        assert_eq!(empty(&test) - before, u64::from(work == 0), "{tick}");
        assert_eq!(work > 0, tick == 0, "{tick}: {work} was done, where only Control's answer was to be read");
    }
    let before = empty(&test);
    assert!(poll(&mut test, begin + DRAIN) > 0);
    assert_eq!((drain_timeouts(&test), empty(&test)), (1, before));
    test.now = begin + DRAIN;
    test.until_gone();
}
