//! Bursts of requests, transfers and cancellations in one iteration, by seed: each transfer of a burst is told once, without anything
//! behind it that could vouch for it, whatever the signal policy, and wherever the device cuts the chain.

use frwr_engine::{
    Chunk, FetchRequest, InvalidateOrder, InvalidateSignalling, OnPostError, RemoteSegment, RequestHandle,
    ResponseRequest, ReturnPolicy, WriteRequest,
    mr::Grant,
    provider::{Access, PostRefusal, RemoteRange},
    signal::SignalPolicy,
};
use frwr_support::Random;
use frwr_support::engine_harness::{PROFILES, Setup, scripted::Scripted};

const SEEDS: u64 = 150;
const BURSTS: u32 = 25;
/// Bytes of each RDMA operation.
const EACH: u32 = 128;
/// More than it takes to end anything on devices that answer at once.
const STEPS: u32 = 400;

struct Bursts {
    test: Scripted,
    random: Random,
    cookie: u64,
    grant: Option<Grant>,
    requests: Vec<RequestHandle>,
    transfers: Vec<u64>,
    /// Events of the host that were looked at.
    seen: usize,
}

impl Bursts {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let profile = random.of(&PROFILES);
        let policies = [
            SignalPolicy::Sparse,
            SignalPolicy::KernelBudget { batch: 16 },
            SignalPolicy::SendsOnly { batch: 5 },
            SignalPolicy::GlobalCounter { max_send_wr: 64 },
        ];
        let before = random.one_in(2);
        let test = Scripted::of(Setup::new(profile).host(|host| {
            host.transfer_depth = random.of(&[2, 8]);
            host.transfer_operations = random.of(&[1, 4]);
            host.queue_depth = random.of(&[2, 8]);
            host.registrations = 8;
            host.signal = random.of(&policies);
            host.on_post_error = random.of(&[OnPostError::Disconnect, OnPostError::DeregisterAndContinue]);
            host.invalidate_signalling = random.of(&[InvalidateSignalling::LastOfChain, InvalidateSignalling::Every]);
            if before {
                host.return_policy =
                    random.of(&[ReturnPolicy::OnInvalidateCompleted, ReturnPolicy::OnInvalidatePosted]);
            } else {
                host.invalidate_order = InvalidateOrder::AfterMessages;
            }
        }));
        Self { test, random, cookie: 0, grant: None, requests: Vec::new(), transfers: Vec::new(), seen: 0 }
    }

    /// Both are connected, and the target has memory open.
    fn open(&mut self) {
        if self.grant.is_some() && self.test.host.is_ready() {
            return;
        }
        self.requests.clear();
        self.test.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
        self.test.connect();
        let target = &mut self.test.pair.target;
        target.grants.clear();
        let chunk = Chunk { access: Access::RemoteReadWrite, segments: &[target.segment(524_288, 4096)] };
        self.cookie += 1;
        target.engine.register_now(target.connection.unwrap(), &chunk, self.cookie, &mut target.protocol).unwrap();
        self.test.until("registered", |pair| !pair.target.grants.is_empty());
        self.grant = Some(self.test.target.grants[0].1);
    }

    fn transfer(&mut self) {
        let (Some(grant), host) = (self.grant, &mut self.test.pair.host) else { return };
        let operations = self.random.of(&[1, 1, 2, 5]);
        let range = |at: u32| RemoteSegment {
            remote: RemoteRange { address: grant.address + u64::from(EACH * at), key: grant.key },
            length: EACH,
        };
        let ranges: Vec<_> = (0..operations).map(range).collect();
        let (local, remote) = (&[host.segment(786_432, EACH * operations)][..], &ranges[..]);
        self.cookie += 1;
        let (cookie, connection) = (self.cookie, host.connection.unwrap());
        let begun = match self.random.below(4) {
            0 => host.engine.fetch(connection, &FetchRequest { local, remote, cookie }),
            1..=2 => host.engine.write(connection, &WriteRequest { local, remote, cookie }),
            _ => {
                // To nobody: the target counts it and goes on.
                let (local, remote) = if self.random.one_in(2) { (local, remote) } else { (&[][..], &[][..]) };
                let response = ResponseRequest { local, remote, message: &[0xFF; 12], invalidate: None, cookie };
                host.engine.respond(connection, &response)
            }
        };
        if begun.is_ok() {
            self.transfers.push(cookie);
        }
    }

    fn request(&mut self) {
        self.cookie += 1;
        let mrs = self.random.below(3);
        if let Ok(request) = self.test.try_submit(self.cookie, mrs, false) {
            self.requests.push(request);
        }
    }

    fn register(&mut self) {
        self.cookie += 1;
        let host = &mut self.test.pair.host;
        let chunk = Chunk { access: Access::RemoteRead, segments: &[host.segment(524_288, 512)] };
        let (cookie, connection) = (self.cookie, host.connection.unwrap());
        if let Ok(request) = host.engine.register_now(connection, &chunk, cookie, &mut host.protocol) {
            host.outstanding.insert(cookie, 512);
            self.requests.push(request);
        }
    }

    fn burst(&mut self) {
        for _ in 0..1 + self.random.below(12) {
            match self.random.below(10) {
                0..=2 => self.request(),
                3 => self.register(),
                4..=7 => self.transfer(),
                _ if self.requests.is_empty() => {}
                _ => {
                    // The latest is the one that may not be posted yet.
                    let at = self.requests.len() - 1 - self.random.below(self.requests.len().min(3) as u64) as usize;
                    let request = self.requests.remove(at);
                    let _ = self.test.host.engine.cancel(request);
                }
            }
        }
        if self.random.one_in(8) {
            let connection = self.test.host.connection.unwrap();
            self.test.host.engine.disconnect(connection);
        } else if self.random.one_in(3) {
            let (queue_pair, accepted) = (self.test.queue_pair(), self.random.below(12) as usize);
            self.test.faults.refuse_post(queue_pair, accepted, PostRefusal::Invalid);
        }
    }

    /// Takes what was told of transfers off the list of those that began.
    fn take_told(&mut self) {
        for event in &self.test.pair.host.events[self.seen..] {
            let ends = ["Fetched", "Written", "Responded"].iter().any(|name| event.starts_with(name));
            if let Some(rest) = event.split("cookie: ").nth(1).filter(|_| ends) {
                let cookie: u64 = rest.split(',').next().unwrap().parse().unwrap();
                let at = self.transfers.iter().position(|begun| *begun == cookie);
                self.transfers.remove(at.expect("told once, and only if it began"));
            }
        }
        self.seen = self.test.host.events.len();
    }

    fn run(&mut self) {
        for _ in 0..BURSTS {
            self.open();
            self.burst();
            // Nobody answers, so that nothing else is posted.
            for _ in 0..STEPS {
                self.take_told();
                if self.transfers.is_empty() {
                    break;
                }
                self.test.steps(1);
            }
            assert!(self.transfers.is_empty(), "transfers {:?} are not told", self.transfers);
            self.test.faults.clear();
            if self.random.one_in(2) {
                for _ in 0..20 {
                    self.test.serve(false);
                    self.test.steps(1);
                }
            }
        }
        if let Some(connection) = self.test.host.connection {
            self.test.host.engine.disconnect(connection);
        }
        self.test.until_gone();
        let statistics = self.test.host.engine.statistics();
        assert_eq!((statistics.request_slots_used, statistics.slots_held), (0, 0));
        self.test.reconnect_works();
    }
}

#[test]
fn s97_f05_each_transfer_of_random_bursts_is_told_once_by_its_own_chain() {
    let only = std::env::var("FRWR_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in only.map_or(1..SEEDS + 1, |seed| seed..seed + 1) {
        let result = std::panic::catch_unwind(|| Bursts::new(seed).run());
        assert!(result.is_ok(), "seed {seed}; again by FRWR_SEED={seed}");
    }
}
