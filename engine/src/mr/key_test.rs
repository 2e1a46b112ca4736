//! Keys over any sequence of uses: what the device is told follows from what it was told before
//! (I20), however many keys were burnt in between (S86, D14).

use super::{ConnectionKey, Mr, MrError, Opening, ReturnPolicy, open, tag_mask};
use crate::provider::{Access, BaseId, Operation, RegistrationFields, RegistrationId, Token, TokenKind, WorkRequest};
use proptest::prelude::*;

const CONNECTION: ConnectionKey = ConnectionKey { index: 3, epoch: 1 };
const OWNER: u32 = 5;
const FIRST_KEY: u32 = 0xABCD_EF07;

const OPENING: Opening = Opening {
    owner: OWNER,
    bytes: 4096,
    base: BaseId(1),
    elements: 1,
    access: Access::RemoteRead,
    iova: 0x1000,
    key_mask: tag_mask(8),
};

/// An MR, and what its device knows of it.
struct Pair {
    mr: Mr,
    bits: u8,
    /// The key that the device has.
    key: u32,
    generation: u32,
    /// Invalidations in flight.
    invalidations: Vec<u32>,
}

impl Pair {
    fn new(bits: u8) -> Self {
        let mut mr = Mr::numbered(9, 90);
        mr.install(RegistrationId(4), FIRST_KEY, CONNECTION).expect("absent");
        Self { mr, bits, key: FIRST_KEY, generation: 0, invalidations: Vec::new() }
    }

    /// A registration is staged. Whether the device gets to see it says `posted`.
    fn staged(&mut self, fields: RegistrationFields, posted: bool) -> Result<(), TestCaseError> {
        let mask = tag_mask(self.bits);
        prop_assert_eq!(fields.old_key, self.key, "the key before is the one that the device has");
        prop_assert_eq!(fields.key & !mask, FIRST_KEY & !mask, "the index stays");
        prop_assert!(mask == 0 || fields.key != self.key, "no key follows on itself");
        prop_assert_eq!((fields.object, fields.elements.first), (RegistrationId(4), 90));
        let token = self.mr.token_register();
        prop_assert_eq!((token.kind(), token.index(), token.generation() % 2), (TokenKind::Register, 9, 1));
        prop_assert!(token.generation() != self.generation, "each registration has a name of its own");
        self.generation = token.generation();
        if posted {
            self.key = fields.key;
        } else {
            self.mr.register_refused().expect("registering");
        }
        Ok(())
    }

    fn open(&mut self, posted: bool) -> Result<(), TestCaseError> {
        let key_mask = tag_mask(self.bits);
        let mut place = WorkRequest { signalled: true, fence: true, ..WorkRequest::VACANT };
        let mut begins_round = false;
        let opening = Opening { key_mask, ..OPENING };
        let Ok(key) = self.mr.open(CONNECTION, &opening, &mut place, &mut begins_round) else {
            return Ok(());
        };
        let Operation::Register(fields) = place.operation else { panic!("{place:?}") };
        prop_assert_eq!((fields.key, place.token), (key, self.mr.token_register()));
        prop_assert!(!place.signalled && !place.fence);
        prop_assert_eq!(begins_round, fields.key & key_mask == 0);
        self.staged(fields, posted)
    }

    fn step(&mut self, step: u8) -> Result<(), TestCaseError> {
        match step {
            0..=2 => self.open(true)?,
            3 => self.open(false)?,
            4 | 5 => drop(self.mr.give_back()),
            6 => drop(self.mr.remotely_invalidated(OWNER, CONNECTION, self.key)),
            7 | 8 => {
                let early =
                    if step == 7 { ReturnPolicy::OnInvalidatePosted } else { ReturnPolicy::OnInvalidateCompleted };
                if self.mr.invalidate_posted(self.mr.key(), early).is_ok() {
                    self.invalidations.push(self.mr.generation());
                }
            }
            _ => {
                for generation in self.invalidations.drain(..) {
                    let _ = self.mr.invalidated(generation);
                }
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn i20_d14_a_key_never_follows_on_itself_however_many_were_burnt(
        bits in prop_oneof![Just(0u8), Just(1), Just(2), Just(8)],
        steps in proptest::collection::vec(0u8..10, 1..200),
    ) {
        let mut pair = Pair::new(bits);
        for step in steps {
            pair.step(step)?;
        }
    }
}

/// Generations come round, in the same index, wherever their keys are: at the latest when those have come round.
#[test]
fn u16_generations_come_round_without_touching_the_index() {
    for last in [open::GENERATIONS, open::GENERATIONS + 1, u32::MAX] {
        let next = open::following(Token::new(TokenKind::Register, Token::MAX_INDEX, last));
        assert_eq!((next.kind(), next.index(), next.generation()), (TokenKind::Register, Token::MAX_INDEX, 1));
    }
    for bits in [0, 1, 8] {
        for before in [0, 1, 2, 255, 600] {
            let mut pair = Pair::new(bits);
            pair.mr.token = Token::new(TokenKind::Register, 9, open::GENERATIONS - 2 * before - 1);
            let mut first = 0;
            for _ in 0..2000 {
                pair.open(true).expect("as any other");
                pair.mr.remotely_invalidated(OWNER, CONNECTION, pair.key).expect("valid");
                first += u32::from(pair.mr.generation() == 1);
            }
            assert_eq!(first, 1, "{bits} bits, {before} generations before the last");
        }
    }
}

/// Also one that is spent, for which less is looked at, is of its connection alone.
#[test]
fn i23_i24_an_mr_of_another_connection_makes_no_work_request() {
    for uses in [0, 1] {
        let mut pair = Pair::new(8);
        for _ in 0..uses {
            pair.open(true).expect("as any other");
            pair.mr.remotely_invalidated(OWNER, CONNECTION, pair.key).expect("valid");
        }
        let vacant = WorkRequest { signalled: true, fence: true, ..WorkRequest::VACANT };
        let before = pair.mr.state();
        for (connection, error) in [
            (ConnectionKey { index: CONNECTION.index + 1, ..CONNECTION }, MrError::WrongQueue),
            (ConnectionKey { epoch: CONNECTION.epoch + 1, ..CONNECTION }, MrError::StaleConnection),
        ] {
            let mut place = vacant;
            let opened = pair.mr.open(connection, &OPENING, &mut place, &mut false);
            assert_eq!((opened, place, pair.mr.state()), (Err(error), vacant, before), "{uses} uses");
        }
    }
}
