//! What one queue knows of its entries: which of them count, where one is found, and who waits for it.

use crate::chain::{NO_OWNER, Posted, Registered, SendQueue, WORD, reserved_entries, work};
use crate::provider::{Access, SendQueueCost, Token, TokenKind};
use frwr_mempool::{PagePolicy, Region, RegionOptions};

fn queue(entries: u32, cost: SendQueueCost) -> SendQueue {
    let options = RegionOptions::new(1 << 16).pages(PagePolicy::Ladder { allow_plain: true });
    let mut region = Region::map(&options).expect("a few pages");
    let mut queue = SendQueue::new_in(&mut region, entries, cost).expect("it fits");
    queue.open(entries);
    queue
}

const EQUAL: SendQueueCost = SendQueueCost { register: 1, invalidate: 1, message: 1 };
const UNEQUAL: SendQueueCost = SendQueueCost { register: 3, invalidate: 2, message: 1 };

fn token(kind: TokenKind, index: u32) -> Token {
    Token::new(kind, index, 1)
}

/// The marker is a message and the pad a registration; each takes an entry even where these take none.
#[test]
fn s7_s92_marker_and_pad_have_their_entries_whatever_they_cost() {
    for (register, message, entries) in [(0, 0, 2), (1, 1, 2), (0, 3, 4), (4, 0, 5), (4, 3, 7), (1, 2, 3), (2, 1, 3)] {
        let cost = SendQueueCost { register, invalidate: 1, message };
        assert_eq!(reserved_entries(cost), entries, "{cost:?}");
    }
}

/// Marker and pad give no entry back, by themselves or among others, since none was taken for them.
#[test]
fn s7_s92_marker_and_pad_bring_no_credits() {
    for cost in [EQUAL, UNEQUAL] {
        for set_aside in
            [vec![TokenKind::Register], vec![TokenKind::Drain], vec![TokenKind::Register, TokenKind::Drain]]
        {
            for by_completion in [false, true] {
                let mut queue = queue(16, cost);
                let free = queue.free;
                assert!(queue.reserve(2 * cost.message));
                queue.push(Posted::new(token(TokenKind::Message, 1), 1));
                set_aside.iter().for_each(|&kind| queue.push(Posted::new(token(kind, 2), NO_OWNER)));
                queue.push(Posted::new(token(TokenKind::Message, 3), 3));
                if by_completion {
                    queue.retire_through(queue.head - 1);
                } else {
                    while queue.retire().is_some() {}
                }
                assert_eq!((queue.free, queue.posted()), (free, 0), "{cost:?} {set_aside:?}");
                // What comes behind them counts again.
                assert!(queue.reserve(cost.message));
                queue.push(Posted::new(token(TokenKind::Message, 4), 4));
                queue.retire_through(queue.head - 1);
                assert_eq!(queue.free, free, "{cost:?} {set_aside:?}");
            }
        }
    }
}

/// A registration that a message vouches for, and one that stands alone, under names that differ in nothing.
#[test]
fn i16_each_kind_of_registration_is_found_beside_the_other() {
    let mut queue = queue(16, EQUAL);
    assert!(queue.reserve(4));
    let first = queue.next_position();
    queue.stage(Posted::new(token(TokenKind::Register, 1), 5));
    queue.stage_request(&[work(token(TokenKind::Register, 2)), work(token(TokenKind::Message, 3))], false);
    queue.accept(3);
    let found = |kind, index| queue.position_of(token(kind, index)).map(|position| position - first);
    assert_eq!(found(TokenKind::Register, 1), Some(0), "alone, and the oldest");
    assert_eq!(found(TokenKind::Register, 2), Some(1), "vouched for, behind one that stands alone");
    assert_eq!(found(TokenKind::Message, 3), Some(2));
    assert_eq!((found(TokenKind::Register, 3), found(TokenKind::Message, 1)), (None, None));
    assert!(queue.is_posted(TokenKind::Message, 3) && queue.is_posted(TokenKind::Register, 1));
    assert!(!queue.is_posted(TokenKind::Message, 1) && !queue.is_posted(TokenKind::Invalidate, 3));
}

/// Of an empty queue nothing is the oldest, though its ring has names of former entries.
#[test]
fn i16_an_empty_queue_has_no_oldest_entry() {
    let mut queue = queue(2, SendQueueCost { register: 0, invalidate: 0, message: 0 });
    for index in [1, 2] {
        queue.stage_request(&[work(token(TokenKind::Message, index))], false);
        queue.accept(1);
        assert!(queue.is_oldest(token(TokenKind::Message, index)));
        queue.retire_through(queue.head - 1);
    }
    assert!(!queue.is_oldest(token(TokenKind::Message, 1)) && !queue.is_oldest(token(TokenKind::Message, 2)));
}

/// Who waited for an entry that was refused or given up is not told of the next one in its place, round the whole ring.
#[test]
fn s84_nobody_is_told_of_an_entry_that_took_the_place_of_his() {
    let message = |index| token(TokenKind::Message, index);
    for refused in [true, false] {
        let mut queue = queue(8, SendQueueCost { register: 0, invalidate: 0, message: 0 });
        for index in 0..2 {
            queue.stage_request(&[work(message(index))], true);
        }
        queue.accept(if refused { 0 } else { 2 });
        while queue.abandon().is_some() {}
        // The ring of positions that are awaited has two words at least.
        for index in 0..3 * 2 * WORD as u32 {
            let position = queue.next_position();
            queue.stage_request(&[work(message(index))], false);
            queue.accept(1);
            assert_eq!(queue.retire_through(position), position);
            assert_eq!(queue.take_awaited(position - position % WORD, position), 0, "{position}, refused {refused}");
        }
    }
}

/// What is staged is so from the first behind all that is posted to the last, and what the device took is posted.
#[test]
fn s45_what_is_staged_ends_where_the_chain_does() {
    let mut queue = queue(8, EQUAL);
    let first = queue.next_position();
    assert!(queue.reserve(3));
    (1..=3).for_each(|index| queue.stage_request(&[work(token(TokenKind::Message, index))], false));
    let staged = |queue: &SendQueue, at: u64| queue.next_at(at).map(|posted| posted.token.index());
    assert_eq!([0, 1, 2, 3].map(|at| staged(&queue, at)), [Some(1), Some(2), Some(3), None]);
    assert!(!queue.was_posted(first));
    queue.accept(2);
    assert!(queue.was_posted(first) && queue.was_posted(first + 1) && !queue.was_posted(first + 2));
    assert_eq!((staged(&queue, 0), queue.staged_behind(first + 1)), (None, None));
}

#[test]
fn lists_are_registrations_of_more_than_one_element() {
    let mut registered = Registered::default();
    let counted = [(1, 0), (2, 1), (1, 1), (16, 2)].map(|(elements, lists)| {
        registered.add(Access::RemoteWrite, 100, elements);
        (registered.lists, lists)
    });
    assert!(counted.iter().all(|(found, expected)| found == expected), "{counted:?}");
    assert_eq!((registered.registrations, registered.bytes), (4, [0, 400, 0]));
}
