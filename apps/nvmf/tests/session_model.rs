//! Host and target against a plain model: random reads and writes, uneven steps, and connections that drop at any time.

use frwr_nvmf::host::HostCompletion;
use frwr_support::nvmf_harness::{BLOCK, PROFILES, Pair};
use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};

/// Blocks that are written and read: the first of the host's memory is for writing, the second for reading.
const SLOTS: u64 = 64;
const STEPS: u32 = 6000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    Writing(u8),
    Reading,
}

struct Model {
    contents: Vec<u8>,
    doing: Vec<Doing>,
    ended: u64,
}

impl Model {
    fn end(&mut self, pair: &Pair, completion: HostCompletion) {
        assert_eq!(completion.result, Ok(()));
        let slot = completion.cookie as usize;
        match self.doing[slot] {
            Doing::Nothing => panic!("request {slot} ended twice"),
            Doing::Writing(byte) => self.contents[slot] = byte,
            Doing::Reading => {
                assert_eq!(pair.block(SLOTS + slot as u64), vec![self.contents[slot]; BLOCK as usize], "block {slot}");
            }
        }
        self.doing[slot] = Doing::Nothing;
        self.ended += 1;
    }

    fn submit(&mut self, pair: &mut Pair, random: u64) {
        let slot = (random >> 8) % SLOTS;
        if self.doing[slot as usize] != Doing::Nothing {
            return;
        }
        let byte = random as u8;
        let (submitted, doing) = if random & 1 << 20 == 0 {
            pair.fill(slot, byte);
            (pair.host.write(slot, &[pair.segment(slot, 1)], slot), Doing::Writing(byte))
        } else {
            (pair.host.read(slot, &[pair.segment(SLOTS + slot, 1)], slot), Doing::Reading)
        };
        if submitted.is_ok() {
            self.doing[slot as usize] = doing;
        }
    }
}

/// Returns how many requests were lost with a connection.
fn run(profile: &str, seed: u8) -> u64 {
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut pair = Pair::ready(profile);
    let count = SLOTS as usize;
    let mut model = Model { contents: vec![0; count], doing: vec![Doing::Nothing; count], ended: 0 };
    for _ in 0..STEPS {
        let word = random.next_u64();
        model.submit(&mut pair, word);
        pair.now += core::time::Duration::from_micros(word >> 56);
        if word & 1 << 21 == 0 {
            pair.step_host();
        }
        if word & 1 << 22 == 0 {
            pair.step_target();
        }
        if (word >> 23).is_multiple_of(800) {
            pair.host.drop_connections();
        }
        for completion in std::mem::take(&mut pair.completions) {
            model.end(&pair, completion);
        }
    }
    pair.until("all ended", |pair| pair.host.statistics().outstanding == 0);
    for completion in std::mem::take(&mut pair.completions) {
        model.end(&pair, completion);
    }
    let statistics = pair.host.statistics();
    assert_eq!((statistics.requests, statistics.succeeded), (model.ended, model.ended));
    assert_eq!(statistics.submissions, statistics.requests + statistics.resubmitted);
    assert_eq!(statistics.lost, statistics.resubmitted);
    pair.finish();
    statistics.lost
}

#[test]
fn random_schedules_with_drops_end_every_request_once_with_the_right_data() {
    let all = |profile: &str| {
        let lost: u64 = (0..4).map(|seed| run(profile, seed)).sum();
        assert!(lost > 0, "{profile}: no connection was dropped with requests outstanding");
    };
    std::thread::scope(|scope| PROFILES.map(|profile| drop(scope.spawn(move || all(profile)))));
}
