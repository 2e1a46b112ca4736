//! One controller on several cores against a plain model: random reads and writes of all of them in the same blocks, uneven
//! steps, slow news between cores, connections of any of them that drop at any time, and a path that comes and goes.

use frwr_nvmf::host::HostCompletion;
use frwr_nvmf::wire::AnaState;
use frwr_support::nvmf_harness::spread::Spread;
use frwr_support::nvmf_harness::{BLOCK, PROFILES, host_options, subsystem, target_options};
use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};

/// Blocks that are written and read: the first of each host's memory is for writing, the second for reading.
const SLOTS: u64 = 64;
const STEPS: u32 = 6000;
const FOLLOWERS: u16 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    Writing { by: usize, byte: u8 },
    Reading { by: usize },
}

struct Model {
    contents: Vec<u8>,
    doing: Vec<Doing>,
    ended: u64,
}

impl Model {
    fn end(&mut self, spread: &Spread, host: usize, completion: HostCompletion) {
        assert_eq!(completion.result, Ok(()));
        let slot = completion.cookie as usize;
        match self.doing[slot] {
            Doing::Writing { by, byte } if by == host => self.contents[slot] = byte,
            Doing::Reading { by } if by == host => {
                let read = spread.members[host].block(SLOTS + slot as u64);
                assert_eq!(read, vec![self.contents[slot]; BLOCK as usize], "block {slot}");
            }
            _ => panic!("request {slot} of host {host} ended twice"),
        }
        self.doing[slot] = Doing::Nothing;
        self.ended += 1;
    }

    fn end_all(&mut self, spread: &mut Spread) {
        for host in 0..spread.members.len() {
            for completion in std::mem::take(&mut spread.members[host].completions) {
                self.end(spread, host, completion);
            }
        }
    }

    fn submit(&mut self, spread: &mut Spread, random: u64) {
        let (slot, by) = ((random >> 8) % SLOTS, (random >> 32) as usize % spread.members.len());
        if self.doing[slot as usize] != Doing::Nothing {
            return;
        }
        let (member, byte) = (&mut spread.members[by], random as u8);
        let (submitted, doing) = if random & 1 << 20 == 0 {
            member.fill(slot, byte);
            (member.host.write(slot, &[member.segment(slot, 1)], slot), Doing::Writing { by, byte })
        } else {
            (member.host.read(slot, &[member.segment(SLOTS + slot, 1)], slot), Doing::Reading { by })
        };
        if submitted.is_ok() {
            self.doing[slot as usize] = doing;
        }
    }
}

/// With `paths` the namespace cannot be reached now and then. Returns how many requests were lost with a connection, and how many of them by followers.
fn run(profile: &str, seed: u8, paths: bool) -> (u64, u64) {
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let target = target_options().io_queues(FOLLOWERS + 1);
    // Sessions end soon, and time goes by slowly.
    let longest_back_off = host_options().first_back_off;
    let host = host_options().queue_depth(16).longest_back_off(longest_back_off);
    let mut spread = Spread::ready(profile, FOLLOWERS, host, target);
    let count = SLOTS as usize;
    let mut model = Model { contents: vec![0; count], doing: vec![Doing::Nothing; count], ended: 0 };
    for _ in 0..STEPS {
        let word = random.next_u64();
        model.submit(&mut spread, word);
        spread.now += core::time::Duration::from_micros(word >> 56);
        for host in 0..spread.members.len() {
            if word & 1 << (21 + host) == 0 {
                spread.step_host(host);
            }
        }
        for follower in 0..usize::from(FOLLOWERS) {
            if (word >> (26 + 2 * follower)) & 3 == 0 {
                spread.carry(follower);
            }
        }
        if word & 1 << 25 == 0 {
            spread.step_target();
        }
        if (word >> 30).is_multiple_of(600) {
            let host = (word >> 42) as usize % spread.members.len();
            spread.members[host].host.drop_connections();
        }
        if paths && (word >> 34).is_multiple_of(60) {
            let states = [AnaState::Optimized, AnaState::NonOptimized, AnaState::Inaccessible, AnaState::Change];
            spread.target.set_ana_state(&subsystem(), None, states[(word >> 50) as usize % 4]).unwrap();
        }
        model.end_all(&mut spread);
    }
    spread.target.set_ana_state(&subsystem(), None, AnaState::Optimized).unwrap();
    // A notice may have been lost with a session; the log page is read once a second.
    spread.tick = core::time::Duration::from_micros(100);
    spread.until("all ended", |spread| {
        let mut hosts = spread.members.iter().map(|member| &member.host);
        // What one of them reads of the controller has ended as well.
        hosts.all(|host| host.statistics().outstanding == 0 && host.admin_bytes_open() == 0)
    });
    model.end_all(&mut spread);
    let statistics: Vec<_> = spread.members.iter().map(|member| member.host.statistics()).collect();
    assert_eq!(statistics.iter().map(|host| host.succeeded).sum::<u64>(), model.ended);
    for host in &statistics {
        assert_eq!((host.requests, host.failed), (host.succeeded, 0));
        // What was refused for its path is sent again, too.
        let refused = host.submissions - host.requests - host.resubmitted;
        assert!(paths || refused == 0, "{refused}");
        assert_eq!(host.lost, host.resubmitted);
    }
    spread.assert_closed();
    spread.finish();
    (statistics.iter().map(|host| host.lost).sum(), statistics[1..].iter().map(|host| host.lost).sum())
}

#[test]
fn random_schedules_with_drops_end_every_request_once_with_the_right_data() {
    let all = |profile: &str| {
        let lost: Vec<_> = (0..4).map(|seed| run(profile, seed, seed % 2 == 1)).collect();
        assert!(lost.iter().any(|lost| lost.1 > 0), "{profile}: no follower lost a request: {lost:?}");
    };
    std::thread::scope(|scope| PROFILES.map(|profile| drop(scope.spawn(move || all(profile)))));
}
