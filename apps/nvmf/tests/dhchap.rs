//! DH-HMAC-CHAP as a protocol: both sides as values, and whatever somebody between them may do.

use frwr_nvmf::authentication::{AuthenticationFailure, Parties, Turn, Verdict};
use frwr_nvmf::dhchap::{
    ControllerSide, DhChapKey, Group, Hash, HostKeys, HostSide, KeyError, NoRandomNumbers, Permitted, Random,
};
use frwr_nvmf::wire::Nqn;
use proptest::prelude::*;

/// What follows from keys and random numbers, by another implementation: Python's hashlib, hmac and pow, by Base 8.13.5. Random numbers
/// are those of [`Counting`]; the raw keys count in steps of 17 and 29.
struct Vector {
    hash: Hash,
    group: Group,
    host: &'static str,
    /// Empty for none.
    controller: &'static str,
    response: &'static str,
    controller_response: &'static str,
}

const VECTORS: [Vector; 9] = [
    Vector {
        hash: Hash::Sha256,
        group: Group::Null,
        host: "DHHC-1:00:ARIjNEVWZ3iJmqu8zd7vABEiM0RVZneImaq7zN3u/xDxPTl+:",
        controller: "",
        response: "0c6fbfc5e9364c12b4d1a66b61e364b7844421cf4763e4037a7450a39b7c9a9d",
        controller_response: "",
    },
    Vector {
        hash: Hash::Sha256,
        group: Group::Null,
        host: "DHHC-1:01:ARIjNEVWZ3iJmqu8zd7vABEiM0RVZneImaq7zN3u/xDxPTl+:",
        controller: "DHHC-1:01:BSI/XHmWs9DtCidEYX6buNXyDyxJZoOgvdr3FDFOa4gkueef:",
        response: "b7eeca1ced56f0a65f762f548919fcba56f360811fdf653b7309cbc8cc5afa93",
        controller_response: "a9e4f7a3fe375af87efae91a814597cd25249e1941ed1f873676f659fb6fdfef",
    },
    Vector {
        hash: Hash::Sha384,
        group: Group::Null,
        host: "DHHC-1:02:AhMkNUZXaHmKm6y9zt/wARIjNEVWZ3iJmqu8zd7vABEiM0RVZneImaq7zN3u/xAhsfH03w==:",
        controller: "",
        response: "d7a5f6a65dba12e20e4958fcb7e86cc2ab6f1832c4420e018d47158b874774739ba59915201eac92c19a66977d7e283d",
        controller_response: "",
    },
    Vector {
        hash: Hash::Sha512,
        group: Group::Null,
        host: "DHHC-1:03:AxQlNkdYaXqLnK2+z+DxAhMkNUZXaHmKm6y9zt/wARIjNEVWZ3iJmqu8zd7vABEiM0RVZneImaq7zN3u/xAhMiHLagU=:",
        controller: "DHHC-1:00:BSI/XHmWs9DtCidEYX6buNXyDyxJZoOgvdr3FDFOa4ilwt/8GTZTcI2qx+QBHjtYBYOEEw==:",
        response: "4941b7be46e789a7048ddb75013b8c78a93a4618eac3059c117077066a4dec3a5fd655a5099ffcc5658e5e337b3919fa9de38206679cb09b4c88c04065be3ac6",
        controller_response: "d0c6ee2cce74c65d117ecee2b44814ee079b5ae0644f5a3394ed3b4682c2694e11939862e847896010ab3cff338442e21b12d5161a3897e0ce7ee8c77322cc87",
    },
    Vector {
        hash: Hash::Sha256,
        group: Group::Ffdhe2048,
        host: "DHHC-1:01:ARIjNEVWZ3iJmqu8zd7vABEiM0RVZneImaq7zN3u/xDxPTl+:",
        controller: "DHHC-1:02:BSI/XHmWs9DtCidEYX6buNXyDyxJZoOgvdr3FDFOa4ilwt/8GTZTcI2qx+QBHjtYBYOEEw==:",
        response: "190171b33d90190ec8ab5363b82a40c8d99a0eea22da679103c53b5bdabf7baf",
        controller_response: "7f08e33102ea7821fb667c98ef3592ac523244c21e944ffdb80c0d0587b623fe",
    },
    Vector {
        hash: Hash::Sha384,
        group: Group::Ffdhe3072,
        host: "DHHC-1:00:AhMkNUZXaHmKm6y9zt/wARIjNEVWZ3iJmqu8zd7vABExNEmy:",
        controller: "DHHC-1:03:BSI/XHmWs9DtCidEYX6buNXyDyxJZoOgvdr3FDFOa4ilwt/8GTZTcI2qx+QBHjtYdZKvzOkGI0Bdepe00e4LKFnDMw0=:",
        response: "60528c6ba8d110600bd3d96a52500b07736a915247b2b8cdcbc98964a3131a62f7dcdc651bd9a304a6aeb90cf7ee5bfa",
        controller_response: "5ed9deddc5ce503cb331c72ab87b11ec30096c8a3290c6a9b656cdea34a483a28fd1530206593a3f95c93e0bc6213798",
    },
    Vector {
        hash: Hash::Sha512,
        group: Group::Ffdhe4096,
        host: "DHHC-1:03:AxQlNkdYaXqLnK2+z+DxAhMkNUZXaHmKm6y9zt/wARIjNEVWZ3iJmqu8zd7vABEiM0RVZneImaq7zN3u/xAhMiHLagU=:",
        controller: "DHHC-1:03:BSI/XHmWs9DtCidEYX6buNXyDyxJZoOgvdr3FDFOa4ilwt/8GTZTcI2qx+QBHjtYdZKvzOkGI0Bdepe00e4LKFnDMw0=:",
        response: "4cf2f61cc59a622c11a957f5e498607e9022f3b6ef4dbece7c04c160928d948a7fabca952ec53a6562ee0760f9fb187bd41f571fbb29eb0bf6d472d034e452ec",
        controller_response: "013ea7788735a350d0d5debc95081e90b69b7426bf13f5bdb6782d2c29eb4c5458612d7eec573cf621762a935efedbcffa4fe2e10515c98fb308b1704a1e098e",
    },
    Vector {
        hash: Hash::Sha256,
        group: Group::Ffdhe6144,
        host: "DHHC-1:02:ARIjNEVWZ3iJmqu8zd7vABEiM0RVZneImaq7zN3u/xAhMkNUZXaHmKm6y9zt/g8g/fOIbw==:",
        controller: "DHHC-1:00:BSI/XHmWs9DtCidEYX6buNXyDyxJZoOgvdr3FDFOa4ilwt/8GTZTcI2qx+QBHjtYBYOEEw==:",
        response: "ef3f3468618167b6ec51e3ab38961ef004d220f41bdc3d57ef3cac714ffee96a",
        controller_response: "4651ddbb4fdbda598f2bb516fc8e2bd367e95937c18ed7d258484a20240937e0",
    },
    Vector {
        hash: Hash::Sha512,
        group: Group::Ffdhe8192,
        host: "DHHC-1:01:AxQlNkdYaXqLnK2+z+DxAhMkNUZXaHmKm6y9zt/wARKTwJlk:",
        controller: "DHHC-1:01:BSI/XHmWs9DtCidEYX6buNXyDyxJZoOgvdr3FDFOa4gkueef:",
        response: "6ec4035033b67db13cc1684f8a98e8341b2f3ad2775ba8faad20f54fdf43bd2a9cedfb73b7560f627c48b2037ce34535099d164dd152e03d174c1a24a84a7bb4",
        controller_response: "fe480498c12ec308019822381ec53385f5474fb4455ed0b0ea35464de97c0d9ebc9b202e369b0f8fa8c7eb027a7605f7cff57a121799b77a37f1daba7792d381",
    },
];

/// Foretellable numbers: every byte is one more than that before it, below 251.
struct Counting(u64);

impl Random for Counting {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandomNumbers> {
        for byte in bytes {
            *byte = (self.0 % 251) as u8;
            self.0 += 1;
        }
        Ok(())
    }
}

/// A machine without any.
struct Nothing;

impl Random for Nothing {
    fn fill(&mut self, _: &mut [u8]) -> Result<(), NoRandomNumbers> {
        Err(NoRandomNumbers)
    }
}

fn parties() -> Parties {
    let name = |text| Nqn::new(text).unwrap();
    Parties { host: name("nqn.2026-11.invalid.example:host"), subsystem: name("nqn.2026-11.invalid.example:disk") }
}

fn key(text: &str) -> DhChapKey {
    DhChapKey::parse(text).unwrap()
}

fn keys(vector: &Vector) -> HostKeys {
    let controller = (!vector.controller.is_empty()).then(|| key(vector.controller));
    HostKeys { host: key(vector.host), controller }
}

fn only(hash: Hash, group: Group) -> Permitted {
    Permitted { hashes: vec![hash], groups: vec![group] }
}

/// Both sides with what they have.
struct Pair {
    host: HostSide,
    controller: ControllerSide,
    host_keys: Option<HostKeys>,
    controller_keys: Option<HostKeys>,
    host_permits: Permitted,
    controller_permits: Permitted,
    host_random: Counting,
    controller_random: Counting,
}

impl Pair {
    fn new(keys: &HostKeys, permitted: &Permitted) -> Self {
        Self {
            host: HostSide::new(parties()),
            controller: ControllerSide::new(parties()),
            host_keys: Some(keys.clone()),
            controller_keys: Some(keys.clone()),
            host_permits: permitted.clone(),
            controller_permits: permitted.clone(),
            host_random: Counting(100),
            controller_random: Counting(7),
        }
    }

    /// With another key each way, without an exchange, and mutual.
    fn mutual() -> Self {
        Self::new(&keys(&VECTORS[1]), &only(Hash::Sha256, Group::Null))
    }

    fn tell_host(&mut self, message: &[u8]) -> Turn {
        self.host.take(message, self.host_keys.as_ref(), &self.host_permits, &mut self.host_random)
    }

    fn tell_controller(&mut self, message: &[u8]) -> Turn {
        let Self { controller, controller_keys, controller_permits, controller_random, .. } = self;
        controller.take(message, controller_keys.as_ref(), controller_permits, controller_random)
    }

    /// All messages, the host's first, and both verdicts.
    fn run(&mut self) -> (Vec<Vec<u8>>, Verdict, Verdict) {
        let (mut messages, mut at_controller) = (Vec::new(), Verdict::Open);
        let mut turn = self.tell_host(&[]);
        loop {
            let at_host = turn.verdict;
            let Some(said) = turn.say else { return (messages, at_host, at_controller) };
            messages.push(said.clone());
            let answer = self.tell_controller(&said);
            at_controller = answer.verdict;
            if at_host != Verdict::Open {
                return (messages, at_host, at_controller);
            }
            let said = answer.say.expect("the controller says nothing, and the host waits");
            messages.push(said.clone());
            turn = self.tell_host(&said);
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn proofs_are_those_of_another_implementation() {
    for vector in &VECTORS {
        let mut pair = Pair::new(&keys(vector), &only(vector.hash, vector.group));
        let (messages, at_host, at_controller) = pair.run();
        assert_eq!((at_host, at_controller), (Verdict::Proven, Verdict::Proven));
        let bytes = vector.hash.bytes();
        assert_eq!(hex(&messages[2][16..16 + bytes]), vector.response, "{:?} {:?}", vector.hash, vector.group);
        let mutual = !vector.controller.is_empty();
        assert_eq!(messages.len(), if mutual { 5 } else { 4 });
        // Where there is no response there is room for one all the same: hosts look at its length.
        let (head, room) = messages[3].split_at(16);
        assert_eq!((usize::from(head[6]), room.len(), head[8] != 0), (bytes, bytes, mutual));
        assert_eq!(if mutual { hex(room) } else { String::new() }, vector.controller_response);
    }
}

#[test]
fn messages_have_the_bytes_of_the_standard() {
    let (messages, ..) = Pair::mutual().run();
    // Common, negotiate; transaction 0x6564; no secure channel; one protocol: DH-HMAC-CHAP with SHA-256 and no group.
    assert_eq!(messages[0][..8], [0, 0, 0, 0, 0x64, 0x65, 0, 1]);
    assert_eq!(messages[0][8..14], [1, 0, 1, 1, 1, 0]);
    assert_eq!((messages[0].len(), messages[0][42]), (72, 0));
    // DH-HMAC-CHAP, challenge: 32 bytes, SHA-256, no group, no public value, sequence number.
    assert_eq!(messages[1][..12], [1, 1, 0, 0, 0x64, 0x65, 32, 0, 1, 0, 0, 0]);
    assert_eq!(messages[1][12..16], [39, 40, 41, 42]);
    assert_eq!(messages[1].len(), 16 + 32);
    // Reply with a challenge of the host's.
    assert_eq!(messages[2][..12], [1, 2, 0, 0, 0x64, 0x65, 32, 0, 1, 0, 0, 0]);
    assert_eq!(messages[2].len(), 16 + 32 + 32);
    // Success1 with a response, Success2.
    assert_eq!(messages[3][..9], [1, 3, 0, 0, 0x64, 0x65, 32, 0, 1]);
    assert_eq!(messages[3].len(), 16 + 32);
    assert_eq!(messages[4][..6], [1, 4, 0, 0, 0x64, 0x65]);
    assert_eq!(messages[4].len(), 16);
}

#[test]
fn a_wrong_key_a_missing_one_and_another_name_are_refused() {
    let right = keys(&VECTORS[1]);
    let other = HostKeys { host: key(VECTORS[0].host), ..right.clone() };
    let wrong_controller = HostKeys { controller: Some(key(VECTORS[4].controller)), ..right.clone() };
    let without = HostKeys { controller: None, ..right.clone() };
    let refused = |failure| Verdict::Failed(failure);
    use AuthenticationFailure::{ByPeer, NoKey, Response};
    for (host, controller, at_host, at_controller) in [
        (Some(&other), Some(&right), ByPeer(1), Some(Response)),
        (Some(&right), Some(&other), ByPeer(1), Some(Response)),
        (Some(&right), None, ByPeer(1), Some(NoKey)),
        (None, Some(&right), NoKey, None),
        // It is asked to prove itself, and has nothing to do so with.
        (Some(&right), Some(&without), ByPeer(1), Some(NoKey)),
        (Some(&right), Some(&wrong_controller), Response, Some(ByPeer(1))),
        (Some(&wrong_controller), Some(&right), Response, Some(ByPeer(1))),
    ] {
        let mut pair = Pair::mutual();
        (pair.host_keys, pair.controller_keys) = (host.cloned(), controller.cloned());
        let (_, host, controller) = pair.run();
        assert_eq!(host, refused(at_host), "{controller:?}");
        assert_eq!(controller, at_controller.map_or(Verdict::Open, refused));
    }
    let mut pair = Pair::mutual();
    let Parties { host, subsystem } = parties();
    pair.host = HostSide::new(Parties { host: subsystem, subsystem: host });
    assert_eq!(pair.run().2, refused(Response));
}

#[test]
fn what_is_not_permitted_on_both_sides_is_refused_by_name() {
    use AuthenticationFailure::{ByPeer, Concatenation, Group as NoGroup, Hash as NoHash, Protocol};
    let mut pair = Pair::mutual();
    pair.host_permits.hashes = vec![Hash::Sha512];
    let (_, host, controller) = pair.run();
    assert_eq!((host, controller), (Verdict::Failed(ByPeer(4)), Verdict::Failed(NoHash)));
    let mut pair = Pair::mutual();
    pair.host_permits.groups = vec![Group::Ffdhe2048];
    let (_, host, controller) = pair.run();
    assert_eq!((host, controller), (Verdict::Failed(ByPeer(5)), Verdict::Failed(NoGroup)));
    // A controller that chooses what the host did not offer.
    let mut pair = Pair::mutual();
    let said = pair.tell_host(&[]).say.unwrap();
    let mut challenge = pair.tell_controller(&said).say.unwrap();
    challenge[8] = Hash::Sha384.identifier();
    assert_eq!(pair.tell_host(&challenge).verdict, Verdict::Failed(NoHash));
    let payload = AuthenticationFailure::Payload;
    for (at, value, failure) in [
        (6, 1, Concatenation),
        (8, 2, Protocol),
        (7, 0, payload),
        (7, 2, payload),
        (10, 0, NoHash),
        (11, 0, NoGroup),
        (10, 31, payload),
        (11, 255, payload),
    ] {
        let mut pair = Pair::mutual();
        let mut said = pair.tell_host(&[]).say.unwrap();
        said[at] = value;
        let turn = pair.tell_controller(&said);
        assert_eq!(turn.verdict, Verdict::Failed(failure));
        // AUTH_Failure1 of this transaction.
        assert_eq!(turn.say.unwrap()[..7], [0, 0xf0, 0, 0, 0x64, 0x65, 1]);
    }
}

#[test]
fn without_random_numbers_nothing_is_said_and_nobody_believed() {
    let vector = &VECTORS[0];
    let (keys, permitted) = (keys(vector), only(vector.hash, vector.group));
    let none = Verdict::Failed(AuthenticationFailure::NoRandomNumbers);
    assert_eq!(HostSide::new(parties()).take(&[], Some(&keys), &permitted, &mut Nothing).verdict, none);
    let mut pair = Pair::new(&keys, &permitted);
    let said = pair.tell_host(&[]).say.unwrap();
    assert_eq!(pair.controller.take(&said, Some(&keys), &permitted, &mut Nothing).verdict, none);
}

#[test]
fn replayed_and_reflected_messages_are_refused() {
    let (recorded, ..) = Pair::mutual().run();
    // The reply of a former transaction: the challenge is another one.
    let mut pair = Pair::mutual();
    pair.controller_random = Counting(9);
    let _ = pair.tell_controller(&recorded[0]);
    assert_eq!(pair.tell_controller(&recorded[2]).verdict, Verdict::Failed(AuthenticationFailure::Response));
    // The success of a former transaction.
    let mut pair = Pair::mutual();
    pair.host_random = Counting(100 + 251 - 2);
    let said = pair.tell_host(&[]).say.unwrap();
    let challenge = pair.tell_controller(&said).say.unwrap();
    let _ = pair.tell_host(&challenge);
    assert!(matches!(pair.tell_host(&recorded[3]).verdict, Verdict::Failed(_)));
    // Our own challenge, to be answered by us.
    let mut reflected = recorded[2].clone();
    reflected[16 + 32..].copy_from_slice(&recorded[1][16..]);
    let mut pair = Pair::mutual();
    let _ = pair.tell_controller(&recorded[0]);
    assert_eq!(pair.tell_controller(&reflected).verdict, Verdict::Failed(AuthenticationFailure::Payload));
    // One key both ways, and the host's own proof shown to it as the controller's.
    let same = HostKeys { host: key(VECTORS[0].host), controller: Some(key(VECTORS[0].host)) };
    let mut pair = Pair::new(&same, &only(Hash::Sha256, Group::Null));
    let said = pair.tell_host(&[]).say.unwrap();
    let challenge = pair.tell_controller(&said).say.unwrap();
    let reply = pair.tell_host(&challenge).say.unwrap();
    let mut success = recorded[3].clone();
    success[16..].copy_from_slice(&reply[16..16 + 32]);
    assert_eq!(pair.tell_host(&success).verdict, Verdict::Failed(AuthenticationFailure::Response));
}

#[test]
fn each_message_has_its_turn_and_a_transaction_ends_once() {
    let (recorded, ..) = Pair::mutual().run();
    for (at, message) in recorded.iter().enumerate() {
        let mut pair = Pair::mutual();
        if at != 0 {
            let turn = pair.tell_controller(message);
            assert_eq!(turn.verdict, Verdict::Failed(AuthenticationFailure::Message), "{at}");
            // Nothing follows.
            assert!(matches!(pair.tell_controller(&recorded[0]).verdict, Verdict::Failed(_)));
        }
        let mut pair = Pair::mutual();
        let _ = pair.tell_host(&[]);
        if at != 1 {
            assert_eq!(pair.tell_host(message).verdict, Verdict::Failed(AuthenticationFailure::Message), "{at}");
            assert!(matches!(pair.tell_host(&recorded[1]).verdict, Verdict::Failed(_)));
        }
    }
    // A controller that does not answer the host's challenge has not proven itself.
    let mut pair = Pair::mutual();
    let said = pair.tell_host(&[]).say.unwrap();
    let challenge = pair.tell_controller(&said).say.unwrap();
    let _ = pair.tell_host(&challenge);
    let unanswered = [1, 3, 0, 0, 0x64, 0x65, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(pair.tell_host(&unanswered).verdict, Verdict::Failed(AuthenticationFailure::Response));
}

/// Where the messages of [`Pair::mutual`] have bytes that are reserved, or that nobody needs: a receiver looks at none of them.
fn is_looked_at(message: usize, at: usize) -> bool {
    let ignored: &[core::ops::Range<usize>] = match message {
        // More entries of the lists, and those beyond their length: nobody vouches for what else might be offered.
        0 => &[2..4, 9..12, 13..42, 43..72],
        1 => &[2..4, 7..8],
        2 => &[2..4, 7..8, 9..10],
        3 => &[2..4, 7..8, 9..16],
        _ => &[2..4, 6..16],
    };
    !ignored.iter().any(|range| range.contains(&at))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, max_global_rejects: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_message_that_somebody_changed_is_refused(
        message in 0..5_usize, at in any::<prop::sample::Index>(), flip in 1..=255_u8, cut in any::<bool>(), longer in any::<bool>(),
    ) {
        let mut pair = Pair::mutual();
        let mut said = Vec::new();
        let mut verdicts = (Verdict::Open, Verdict::Open);
        for number in 0..5 {
            let turn = if number % 2 == 0 { pair.tell_host(&said) } else { pair.tell_controller(&said) };
            if number % 2 == 0 { verdicts.0 = turn.verdict } else { verdicts.1 = turn.verdict }
            let Some(next) = turn.say else { break };
            said = next;
            if number == message {
                let at = at.index(said.len());
                if cut {
                    said.truncate(at);
                } else if longer && number % 2 == 0 {
                    said.push(flip);
                } else {
                    let mask = if number == 2 && at == 8 { 1 } else { flip };
                    prop_assume!(is_looked_at(number, at));
                    // Of two flags one bit is looked at.
                    said[at] ^= if number == 3 && at == 8 { 1 } else { mask };
                }
                if number == 4 {
                    verdicts.1 = pair.tell_controller(&said).verdict;
                }
            }
        }
        let failed = |verdict: Verdict| matches!(verdict, Verdict::Failed(_));
        prop_assert!(failed(verdicts.0) || failed(verdicts.1), "{:?}", verdicts);
    }

    #[test]
    fn no_bytes_at_all_are_believed_or_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), begins in any::<bool>()) {
        let mut pair = Pair::mutual();
        let said = pair.tell_host(&[]).say.unwrap();
        if begins {
            let _ = pair.tell_controller(&said);
        }
        let (host, controller) = (pair.tell_host(&bytes).verdict, pair.tell_controller(&bytes).verdict);
        prop_assert!(matches!(host, Verdict::Failed(_)));
        prop_assert!(matches!(controller, Verdict::Failed(_)));
    }
}

#[test]
fn keys_are_read_as_nvme_prints_them_and_refused_by_what_is_wrong() {
    let text = VECTORS[0].host;
    assert!(DhChapKey::parse(&format!(" {text}\n")).is_ok());
    for (text, error) in [
        (String::new(), KeyError::Form),
        (text.replace("DHHC-1", "DHHC-2"), KeyError::Form),
        (text.trim_end_matches(':').to_owned(), KeyError::Form),
        (text.replace(":00:", ":0:"), KeyError::Form),
        (text.replace(":00:", ":+1:"), KeyError::Form),
        (text.replace(":00:", ":04:"), KeyError::Hash(4)),
        (text.replace(":00:", ":03:"), KeyError::OtherLength { bytes: 32, wanted: 64 }),
        ("DHHC-1:00:!!!!:".to_owned(), KeyError::Base64),
        ("DHHC-1:00::".to_owned(), KeyError::Length(0)),
        ("DHHC-1:00:AAAAAAAA:".to_owned(), KeyError::Length(2)),
        (format!("DHHC-1:00:{}:", "A".repeat(400)), KeyError::Form),
        (text.replacen("ARI", "ARM", 1), KeyError::Check),
    ] {
        assert_eq!(DhChapKey::parse(&text).map(|_| ()), Err(error), "{text}");
    }
}

#[test]
fn no_debug_shows_a_key_or_what_follows_from_it() {
    let vector = &VECTORS[4];
    let (keys, permitted) = (keys(vector), only(vector.hash, vector.group));
    let raw: Vec<u8> = (0..32).map(|at| (17 * at + 1) as u8).collect();
    let mut pair = Pair::new(&keys, &permitted);
    let mut shown = format!("{keys:?}");
    let said = pair.tell_host(&[]).say.unwrap();
    let challenge = pair.tell_controller(&said).say.unwrap();
    let _ = pair.tell_host(&challenge);
    shown += &format!("{:?}{:?}", pair.host, pair.controller);
    let decimal = raw[..4].iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    // The exponents, which are random numbers: each side's.
    for secret in [&decimal[..], "50, 51, 52, 53", "102, 103, 104, 105", &vector.host[10..20]] {
        assert!(!shown.contains(secret), "{secret} is in {shown}");
    }
    assert!(shown.contains("secret"));
}
