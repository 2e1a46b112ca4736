//! Host and target over two devices of one subject.

use crate::harness::any::{AnyDevice, Posted};
use crate::harness::pattern;
use crate::harness::subject::{Network, Subject};
use core::ops::{Deref, DerefMut};
use frwr_engine::mr::Grant;
use frwr_engine::provider::{Access, RemoteRange};
use frwr_engine::{Chunk, FetchRequest, RemoteSegment, RequestHandle};
use frwr_support::engine_harness::{Pair, Setup};

/// Where the host's requests lie in its memory: each has a part that the target reads and one that it writes.
pub(crate) const SLOT_BYTES: u64 = 32768;
/// Bytes read and bytes written per request; at odd addresses, over several pages.
pub(crate) const DATA_BYTES: u32 = 9000;
pub(crate) const READ_AT: u64 = 17;
pub(crate) const WRITE_AT: u64 = 16384 + 301;

/// A pair over one subject.
pub(crate) struct Rig {
    pub(crate) pair: Pair<AnyDevice>,
    pub(crate) subject: Subject,
    /// The command whose data the target fetches, to answer it then: name and grants.
    fetching: Option<([u8; 8], Vec<Grant>)>,
    /// Commands answered after a fetch.
    answered: u32,
}

impl Deref for Rig {
    type Target = Pair<AnyDevice>;
    fn deref(&self) -> &Self::Target {
        &self.pair
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.pair
    }
}

impl Rig {
    pub(crate) fn new(subject: Subject) -> Self {
        Self::with(subject, |_| {})
    }

    /// A connected pair.
    pub(crate) fn with(subject: Subject, change: impl FnOnce(&mut Setup)) -> Self {
        let network = Network::new(subject);
        let mut setup = Setup::new("reg_mr");
        change(&mut setup);
        let mut pair = setup.over(network.device(), network.device(), network.address());
        pair.connect();
        Self { pair, subject, fetching: None, answered: 0 }
    }

    /// What the host's port accepted so far.
    pub(crate) fn posted(&self) -> Posted {
        self.host.engine.port().posted()
    }

    /// Submits a request whose first grant is for reading and whose second one is for writing.
    pub(crate) fn submit_echo(&mut self, cookie: u64, invite: bool) -> RequestHandle {
        let base = Self::place(cookie);
        let read = [self.host.segment(base + READ_AT, DATA_BYTES)];
        let write = [self.host.segment(base + WRITE_AT, DATA_BYTES)];
        let data = pattern(cookie as u8, DATA_BYTES as usize);
        self.host.data.write((base + READ_AT) as usize, &data).unwrap();
        self.host.data.write((base + WRITE_AT) as usize, &vec![0; DATA_BYTES as usize]).unwrap();
        let chunks = [
            Chunk { access: Access::RemoteRead, segments: &read },
            Chunk { access: Access::RemoteWrite, segments: &write },
        ];
        self.host.submit_chunks(cookie, &chunks, invite).unwrap()
    }

    fn place(cookie: u64) -> u64 {
        (cookie % 16) * SLOT_BYTES
    }

    /// Whether what the target wrote is what it read.
    pub(crate) fn assert_echoed(&self, cookie: u64) {
        let mut found = vec![0; DATA_BYTES as usize];
        self.host.data.read((Self::place(cookie) + WRITE_AT) as usize, &mut found).unwrap();
        assert!(found == pattern(cookie as u8, DATA_BYTES as usize), "data of request {cookie} on {}", self.subject);
    }

    /// The target begins to fetch what a command offers first.
    pub(crate) fn fetch(&mut self, grant: &Grant) {
        let target = &mut self.pair.target;
        let remote = RemoteRange { address: grant.address, key: grant.key };
        let local = [target.segment(0, grant.length)];
        let remote = [RemoteSegment { remote, length: grant.length }];
        let request = FetchRequest { local: &local, remote: &remote, cookie: 1 };
        target.engine.fetch(target.connection.unwrap(), &request).unwrap();
    }

    /// The target answers commands one after the other: it fetches the first grant, writes that to the second, replies.
    pub(crate) fn serve_echo(&mut self, invalidate: bool) {
        match self.fetching.take() {
            Some((name, grants)) if self.target.fetched == 1 => {
                self.target.fetched = 0;
                self.answered += 1;
                let key = invalidate.then(|| grants[0].key);
                self.target.answer(name, &grants[1..], key);
            }
            Some(waiting) => self.fetching = Some(waiting),
            // The memory that is fetched into is read until the answer before is done.
            None if self.target.responded == self.answered => {
                let Some((name, grants)) = self.target.take_command() else { return };
                self.fetch(&grants[0]);
                self.fetching = Some((name, grants));
            }
            None => {}
        }
    }

    /// Submits a request with one MR that the target may write to.
    pub(crate) fn submit(&mut self, cookie: u64, invite: bool) -> RequestHandle {
        let segment = [self.host.segment((cookie % 64) * 4096 + 8, 1024)];
        self.host.submit(cookie, Access::RemoteWrite, &segment, invite).unwrap()
    }

    /// Steps until the target has a command, and takes it.
    pub(crate) fn command(&mut self) -> ([u8; 8], Vec<Grant>) {
        self.pair.until("a command", |pair| !pair.target.commands.is_empty());
        self.target.take_command().unwrap()
    }

    pub(crate) fn status(&self, cookie: u64) -> Option<&'static str> {
        self.host.ended.iter().find(|(ended, _)| *ended == cookie).map(|(_, status)| *status)
    }

    /// One request from its submission to its end.
    pub(crate) fn round_trip(&mut self, cookie: u64) {
        self.submit(cookie, cookie.is_multiple_of(2));
        self.pair.until("a round trip", |pair| {
            pair.serve(cookie.is_multiple_of(2));
            pair.host.ended.iter().any(|(ended, _)| *ended == cookie)
        });
        assert_eq!(self.status(cookie), Some("replied"));
    }

    /// The host ends its connection; nothing of it is left on either side.
    pub(crate) fn disconnect(&mut self) {
        let connection = self.host.connection.unwrap();
        self.host.engine.disconnect(connection);
        self.until_gone();
    }

    /// Steps until no connection and no object of one is left on either side.
    pub(crate) fn until_gone(&mut self) {
        self.pair.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
        assert!(self.host.outstanding.is_empty(), "lost requests {:?}", self.host.outstanding);
        for side in [&self.pair.host, &self.pair.target] {
            let live = side.control.device().live();
            assert_eq!((live.registrations.len(), live.queue_pairs.len()), (0, 0), "objects of dead connections");
            assert_eq!(side.control.statistics().commands_failed, 0, "every object was destroyed, in the right order");
            assert_eq!(side.orphaned_mrs, 0);
            if let Some(monitor) = side.control.device().monitor() {
                assert_eq!((monitor.crashed(), monitor.stalled_destroys()), (false, 0));
            }
            let statistics = side.engine.statistics();
            let fenced = statistics.local_invalidations + statistics.remote_invalidations;
            assert!(statistics.registrations <= fenced + statistics.keys_destroyed_live, "keys without an end");
            assert_eq!(statistics.drain_timeouts, 0);
        }
    }

    /// The end of every test: a real device is left as it was found.
    pub(crate) fn finish(mut self) {
        if self.host.is_ready() {
            self.disconnect();
        }
    }
}
