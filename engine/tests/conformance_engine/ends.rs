//! Connections that end with a request in every state, and what comes after.

use crate::harness::subject::on_all;
use crate::rig::Rig;
use frwr_engine::Chunk;
use frwr_engine::mr::Grant;
use frwr_engine::provider::Access;

/// How far a request has got when the connection ends.
#[derive(Clone, Copy, Debug)]
enum State {
    /// No MR is left for it.
    WaitingForMrs,
    /// The target has its message.
    Sent,
    /// The target has replied, LOCAL_INV is posted.
    BeingFenced,
    /// Ended, but no completion has passed its message.
    Held,
    /// A registration of its own, without a message.
    Open,
    /// The target reads from its memory.
    BeingFetched,
    /// The target writes to its memory and replies.
    BeingAnswered,
    /// All of them at once.
    All,
}

const STATES: [State; 8] = [
    State::WaitingForMrs,
    State::Sent,
    State::BeingFenced,
    State::Held,
    State::Open,
    State::BeingFetched,
    State::BeingAnswered,
    State::All,
];

#[derive(Clone, Copy, Debug)]
enum By {
    Host,
    Target,
    Both,
}

/// A name for the target's answers, and what it was granted.
type Command = ([u8; 8], Vec<Grant>);

impl Rig {
    /// Brings requests with cookies from `first` into a state. More than one part of `All` is in flight at its end.
    fn bring(&mut self, state: State, first: u64) {
        match state {
            State::WaitingForMrs => {
                for cookie in first..first + 12 {
                    self.submit(cookie, cookie.is_multiple_of(2));
                }
                assert!(self.host.engine.statistics().requests_waited > 0, "some wait for MRs");
                self.steps(1);
            }
            State::Sent => drop(self.sent(first, true)),
            State::BeingFenced => {
                let (name, _) = self.sent(first, false);
                let before = self.posted().invalidations;
                self.target.answer(name, &[], None);
                self.pair.until("LOCAL_INV", |pair| pair.host.engine.port().posted().invalidations > before);
            }
            State::Held => {
                self.host.submit(first, Access::RemoteRead, &[], false).unwrap();
                let (name, _) = self.command();
                self.target.answer(name, &[], None);
                self.pair.until("the end", |pair| pair.host.ended.iter().any(|(ended, _)| *ended == first));
                assert!(self.host.engine.statistics().slots_held > 0, "no completion has passed its message");
            }
            State::Open => {
                let host = &mut self.pair.host;
                let segment = [host.segment(900_000, 256)];
                let chunk = Chunk { access: Access::RemoteRead, segments: &segment };
                let connection = host.connection.unwrap();
                host.engine.register_now(connection, &chunk, first, &mut host.protocol).unwrap();
                host.outstanding.insert(first, 256);
                self.pair.until("open", |pair| !pair.host.grants.is_empty());
            }
            State::BeingFetched => {
                let grants = self.echo_sent(first);
                self.fetch(&grants.1[0]);
                self.target.engine.flush();
            }
            State::BeingAnswered => {
                let (name, grants) = self.echo_sent(first);
                self.target.answer(name, &grants[1..], Some(grants[0].key));
                self.target.engine.flush();
            }
            State::All => {
                // The states that need steps first: further ones are reached while these stay.
                for (at, state) in [State::Held, State::Open, State::Sent, State::BeingFetched].into_iter().enumerate()
                {
                    self.bring(state, first + at as u64);
                }
                let (name, _) = self.sent(first + 10, false);
                let (echo, grants) = self.echo_sent(first + 11);
                for cookie in first + 20..first + 32 {
                    self.submit(cookie, true);
                }
                self.target.answer(name, &[], None);
                self.target.answer(echo, &grants[1..], Some(grants[0].key));
                self.steps(1);
            }
        }
    }

    fn sent(&mut self, cookie: u64, invite: bool) -> Command {
        self.submit(cookie, invite);
        self.command()
    }

    fn echo_sent(&mut self, cookie: u64) -> Command {
        self.submit_echo(cookie, true);
        self.command()
    }

    fn end(&mut self, by: By) {
        let (host, target) = (self.host.connection.unwrap(), self.target.connection.unwrap());
        if !matches!(by, By::Target) {
            self.host.engine.disconnect(host);
        }
        if !matches!(by, By::Host) {
            self.target.engine.disconnect(target);
        }
        self.until_gone();
    }
}

#[test]
fn s94_s95_s96_every_end_with_a_request_in_every_state_and_then_the_next_connection() {
    on_all(|subject| {
        for by in [By::Host, By::Target, By::Both] {
            let mut rig = Rig::with(subject, |setup| setup.host.registrations = 10);
            for (round, state) in STATES.into_iter().enumerate() {
                let first = 1000 * round as u64;
                rig.bring(state, first);
                rig.end(by);
                assert_eq!(rig.host.disconnected, round as u32 + 1, "{subject} {state:?} {by:?}: told once");
                let last = rig.host.events.last().unwrap();
                assert!(last.starts_with("Disconnected"), "{last}: everything was reported before (S95)");
                rig.host.grants.clear();
                rig.connect();
                rig.round_trip(first + 900);
            }
            rig.finish();
        }
    });
}

/// The host hears of a connection that nobody takes, and finds the next one that somebody does.
#[test]
fn f31_a_connection_that_nobody_takes_fails_and_the_next_one_works() {
    on_all(|subject| {
        let mut rig = Rig::new(subject);
        rig.disconnect();
        let address = rig.address;
        rig.target.engine.stop_listening(address).unwrap();
        rig.steps(10);
        let options = rig.host.connection_options();
        rig.host.engine.connect(address, b"hello", &options).unwrap();
        rig.pair.until("failed", |pair| pair.host.open_failed == 1);
        rig.pair.until("gone", |pair| pair.host.engine.is_disconnected());
        rig.target.engine.listen(address).unwrap();
        rig.steps(10);
        rig.connect();
        rig.round_trip(1);
        rig.finish();
    });
}

/// rxe never flushes a receive that is posted to a dead queue pair, so that the drain would wait for it: a
/// buffer that was given back before the end is not posted any more.
#[test]
fn u19_no_receive_is_posted_once_a_connection_ends() {
    on_all(|subject| {
        let mut rig = Rig::new(subject);
        rig.submit(1, true);
        rig.command();
        let doorbells = rig.target.engine.statistics().receive_doorbells;
        rig.end(By::Target);
        assert_eq!(rig.target.engine.statistics().receive_doorbells, doorbells, "{subject}");
        rig.connect();
        rig.round_trip(2);
        rig.finish();
    });
}
