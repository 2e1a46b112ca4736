//! Devices of libibverbs that refuse to destroy queue pairs, and their windows and lists, through the provider. What such a
//! device still does is real here: a queue pair that it keeps takes what the peer sends. `engine/kept.rs` has the rest, by scripts.

use crate::harness::subject::{Subject, on};
use crate::rig::Rig;
use core::time::Duration;
use frwr_engine::{ConnectionId, WatchedClock};
use frwr_fake::{FakeContext, Refusable};

/// Longer than the drain time-out.
const OVERDUE: Duration = Duration::from_secs(6);

/// More refusals than any test waits for.
const FOR_EVER: u32 = u32::MAX;

/// Steps in which the device is asked several times, whatever the pause in between.
const MANY: u32 = 1000;

/// What kernels and libraries say of objects that they keep; EIO also where the device is gone, which this one is not.
const REASONS: [i32; 2] = [libc::EBUSY, libc::EIO];

/// Runs a test with every device that is not there, and each reason for refusing.
fn on_all_that_can_refuse(test: impl Fn(Subject, i32)) {
    let is_fake = |subject| matches!(subject, Subject::Fake(_));
    on(is_fake, "a real device refuses to destroy nothing on demand", |subject| {
        REASONS.into_iter().for_each(|reason| test(subject, reason));
    });
}

impl Rig {
    fn fake(&self) -> FakeContext {
        self.host.control.device().fake().unwrap()
    }

    /// Steps the host alone: its peer is slow, and hears nothing of what the connection manager tells it.
    fn host_steps(&mut self, count: u32) {
        for _ in 0..count {
            self.pair.now += Duration::from_micros(1);
            self.pair.host.step(self.pair.now);
        }
    }

    /// The same while so much time passes.
    fn host_passes(&mut self, time: Duration) {
        let end = self.pair.now + time;
        while self.pair.now < end {
            self.pair.now += WatchedClock::STANDSTILL / 2;
            self.host_steps(1);
        }
    }

    fn kept_events(&self) -> usize {
        self.host.events.iter().filter(|event| event.starts_with("QueuePairKept")).count()
    }

    fn queue_pairs_kept(&self) -> u64 {
        self.host.control.statistics().queue_pairs_kept
    }

    fn is_told(&self, connection: ConnectionId) -> bool {
        self.host.gone.contains(&connection)
    }

    /// The device complies from now on: everything is told, `Disconnected` last, and the next connection works.
    fn complies(mut self, connection: ConnectionId, lost: &[u64]) {
        let fake = self.fake();
        for what in [Refusable::DestroyQueuePair, Refusable::DestroyRegistration] {
            fake.refuse(what, 0, 0);
        }
        self.pair.until("the end", |pair| pair.host.gone.contains(&connection));
        for &cookie in lost {
            assert_eq!(self.status(cookie), Some("lost"), "{}", self.subject);
        }
        let last = self.host.events.last().unwrap();
        assert!(last.starts_with("Disconnected"), "{last}: everything was reported before");
        assert_eq!((self.host.disconnected, self.host.orphaned_mrs), (1, 0));
        self.pair.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
        self.pair.until("destroyed", |pair| pair.host.control.statistics().queue_pairs_kept == 0);
        self.connect();
        self.round_trip(1000);
        let second = self.host.connection.unwrap();
        self.host.engine.disconnect(second);
        self.pair.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
        let live = self.host.control.device().live();
        assert_eq!((live.queue_pairs.len(), live.registrations.len()), (0, 0), "{}", self.subject);
        assert_eq!((fake.queue_pairs(), fake.remote_bytes()), (0, 0), "{}", self.subject);
    }
}

#[test]
fn s95_hold_nothing_ends_while_a_queue_pair_that_still_works_is_refused_its_destruction() {
    on_all_that_can_refuse(|subject, reason| {
        let mut rig = Rig::new(subject);
        let mut names = Vec::new();
        for cookie in [1, 2] {
            rig.submit(cookie, false);
            names.push(rig.command().0);
        }
        let (connection, fake) = (rig.host.connection.unwrap(), rig.fake());
        let slots = rig.host.engine.statistics().request_slots_used;
        fake.refuse(Refusable::FailQueuePair, reason, 1);
        fake.refuse(Refusable::DestroyQueuePair, reason, FOR_EVER);
        rig.host.engine.disconnect(connection);
        rig.host_steps(50);
        assert_eq!(fake.refused(Refusable::FailQueuePair), 1, "{subject}: it works as before");
        rig.host_passes(OVERDUE);
        assert_eq!((rig.kept_events(), rig.queue_pairs_kept()), (1, 1), "{subject}");
        let posted = rig.host.engine.receive_buffers().posted;
        assert!(posted > 0, "{subject}: its receives are the device's");
        for _ in 0..MANY {
            rig.host_steps(1);
            assert!(rig.host.ended.is_empty() && !rig.is_told(connection), "{subject}");
        }
        // The peer answers late, and the queue pair takes that.
        let open = fake.remote_bytes();
        assert_eq!(open, 0, "{subject}: keys are dead before");
        rig.target.answer(names[0], &[], None);
        rig.target.engine.flush();
        for _ in 0..MANY {
            rig.host_steps(1);
            assert!(rig.host.ended.is_empty() && !rig.is_told(connection), "{subject}: a reply changes nothing");
        }
        assert_eq!(rig.host.engine.receive_buffers().posted, posted - 1, "{subject}: it was taken");
        assert_eq!(rig.host.engine.statistics().request_slots_used, slots, "{subject}");
        assert_eq!((rig.kept_events(), rig.queue_pairs_kept()), (1, 1), "{subject}: told once");
        let asked = fake.refused(Refusable::DestroyQueuePair);
        assert!((8..2 * MANY / 5).contains(&asked), "{subject}: asked {asked} times");
        assert_eq!(fake.queue_pairs(), 1, "{subject}");
        rig.complies(connection, &[1, 2]);
    });
}

#[test]
fn s105_i11_windows_and_lists_that_a_device_keeps_with_their_queue_pair_are_no_orphans_once_it_complies() {
    on_all_that_can_refuse(|subject, reason| {
        let mut rig = Rig::new(subject);
        rig.submit(1, true);
        rig.command();
        let (connection, fake) = (rig.host.connection.unwrap(), rig.fake());
        fake.refuse(Refusable::DestroyRegistration, reason, FOR_EVER);
        fake.refuse(Refusable::DestroyQueuePair, reason, FOR_EVER);
        rig.host.engine.disconnect(connection);
        rig.pair.until("kept", |pair| pair.host.control.statistics().queue_pairs_kept == 1);
        rig.steps(MANY);
        assert!(rig.host.ended.is_empty() && !rig.is_told(connection), "{subject}: its key is alive");
        assert_eq!(rig.kept_events(), 1, "{subject}: told once");
        assert!(fake.refused(Refusable::DestroyRegistration) > 0);
        assert_eq!(fake.queue_pairs(), 1, "{subject}");
        rig.complies(connection, &[1]);
    });
}

#[test]
fn fault33_a_drained_queue_pair_that_is_kept_reaches_nothing_and_its_connection_ends() {
    on_all_that_can_refuse(|subject, reason| {
        let mut rig = Rig::new(subject);
        rig.submit(1, true);
        rig.command();
        let (connection, fake) = (rig.host.connection.unwrap(), rig.fake());
        fake.refuse(Refusable::DestroyQueuePair, reason, FOR_EVER);
        rig.host.engine.disconnect(connection);
        rig.pair.until("the end", |pair| pair.host.gone.contains(&connection));
        assert_eq!((rig.status(1), rig.kept_events(), rig.queue_pairs_kept()), (Some("lost"), 0, 1), "{subject}");
        rig.pair.until("the target's end", |pair| pair.target.engine.is_disconnected());
        rig.connect();
        rig.round_trip(2);
        assert_eq!(fake.queue_pairs(), 2, "{subject}: it is still there");
        let second = rig.host.connection.unwrap();
        fake.refuse(Refusable::DestroyQueuePair, 0, 0);
        rig.pair.until("destroyed", |pair| pair.host.control.statistics().queue_pairs_kept == 0);
        assert_eq!((fake.queue_pairs(), rig.host.disconnected), (1, 1), "{subject}: its end is told once");
        rig.host.engine.disconnect(second);
        rig.pair.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
        assert_eq!(fake.queue_pairs(), 0, "{subject}");
    });
}

#[test]
fn fault33_a_connection_that_does_not_open_waits_for_its_queue_pair_as_well() {
    on_all_that_can_refuse(|subject, reason| {
        let mut rig = Rig::new(subject);
        rig.disconnect();
        let (address, fake) = (rig.address, rig.fake());
        rig.target.engine.stop_listening(address).unwrap();
        rig.steps(10);
        fake.refuse(Refusable::DestroyQueuePair, reason, FOR_EVER);
        let options = rig.host.connection_options();
        rig.host.engine.connect(address, b"hello", &options).unwrap();
        rig.pair.until("kept", |pair| pair.host.control.statistics().queue_pairs_kept == 1);
        rig.steps(MANY);
        assert_eq!((rig.host.open_failed, rig.kept_events()), (0, 1), "{subject}");
        fake.refuse(Refusable::DestroyQueuePair, 0, 0);
        rig.pair.until("failed", |pair| pair.host.open_failed == 1);
        assert!(rig.host.engine.is_disconnected(), "{subject}");
        assert_eq!(fake.queue_pairs(), 0, "{subject}");
    });
}

/// A program may end over it. What it leaves on its device would be a violation of the fake.
#[test]
fn who_drops_a_device_asks_once_more_for_a_queue_pair_that_was_kept() {
    on_all_that_can_refuse(|subject, reason| {
        let mut rig = Rig::new(subject);
        let (connection, fake) = (rig.host.connection.unwrap(), rig.fake());
        fake.refuse(Refusable::FailQueuePair, reason, 1);
        fake.refuse(Refusable::DestroyQueuePair, reason, FOR_EVER);
        rig.host.engine.disconnect(connection);
        rig.host_steps(50);
        rig.host_passes(OVERDUE);
        assert_eq!((rig.kept_events(), rig.is_told(connection)), (1, false), "{subject}");
        fake.refuse(Refusable::DestroyQueuePair, 0, 0);
    });
}
