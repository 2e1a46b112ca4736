//! Messages of DH-HMAC-CHAP, to either side, wherever it is in a transaction.

use frwr_nvmf::authentication::{MAX_MESSAGE_BYTES, Parties, Turn, Verdict};
use frwr_nvmf::dhchap::{
    ControllerSide, DhChapKey, Group, Hash, HostKeys, HostSide, NoRandomNumbers, Permitted, Random,
};
use frwr_nvmf::wire::Nqn;

/// Negotiate, challenge, reply, success: one more would be the host's last word.
const MESSAGES: u8 = 4;

const KEYS: [&str; 2] = [
    "DHHC-1:01:CRYjMD1KV2RxfouYpbK/zNnm8wANGic0QU5baHWCj5xifzXX:",
    "DHHC-1:00:CShHZoWkw+IBID9efZy72vkYN1Z1lLPS8RAvTm2Mq8rpCCdGZYSjwuEAHz5dfJu6uaiyng==:",
];

/// Numbers that are the same each time: nobody but the seeds knows them.
struct Counting(u8);

impl Random for Counting {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandomNumbers> {
        for byte in bytes {
            *byte = self.0;
            self.0 = self.0.wrapping_add(1);
        }
        Ok(())
    }
}

/// Both sides, which have one key.
struct Pair {
    host: HostSide,
    controller: ControllerSide,
    keys: HostKeys,
    permitted: Permitted,
    random: [Counting; 2],
}

impl Pair {
    fn new(key: &str) -> Self {
        let key = DhChapKey::parse(key).unwrap();
        let name = |text| Nqn::new(text).unwrap();
        let parties = Parties { host: name("nqn.2026-11.invalid.example:host"), subsystem: name("nqn.x:disk") };
        Self {
            host: HostSide::new(parties),
            controller: ControllerSide::new(parties),
            keys: HostKeys { host: key.clone(), controller: Some(key) },
            permitted: Permitted { hashes: vec![Hash::Sha256], groups: vec![Group::Null] },
            random: [Counting(1), Counting(101)],
        }
    }

    /// To the controller, whom the host's messages are for, or to the host: messages alternate.
    fn tell(&mut self, number: usize, message: &[u8]) -> Turn {
        let Self { host, controller, keys, permitted, random: [of_host, of_controller] } = self;
        match number % 2 {
            0 => controller.take(message, Some(keys), permitted, of_controller),
            _ => host.take(message, Some(keys), permitted, of_host),
        }
    }

    /// The first messages of a transaction.
    fn messages(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = Vec::new();
        while all.len() < count {
            // The host begins, by an empty one.
            let last = all.last().cloned().unwrap_or_default();
            let Some(said) = self.tell(all.len() + 1, &last).say else { break };
            all.push(said);
        }
        all
    }
}

/// The first byte says how many messages were said. Whoever does not know the key is believed by nobody.
pub(crate) fn messages(bytes: &[u8]) {
    let Some((number, message)) = bytes.split_first() else { return };
    let (number, mut pair) = (usize::from(number % MESSAGES), Pair::new(KEYS[0]));
    assert_eq!(pair.messages(number).len(), number);
    let turn = pair.tell(number, message);
    assert!(matches!(turn.verdict, Verdict::Open | Verdict::Failed(_)), "{turn:?}");
    assert!(turn.say.is_none_or(|said| said.len() <= MAX_MESSAGE_BYTES));
}

/// A transaction of others.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let all = Pair::new(KEYS[1]).messages(MESSAGES.into());
    (0..).zip(all).map(|(number, message)| [&[number], &message[..]].concat()).collect()
}
