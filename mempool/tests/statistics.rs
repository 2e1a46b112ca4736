//! Structs of statistics: each rule of a field, in sums and in differences.

use frwr_mempool::statistics::Figure;

frwr_mempool::statistics! {
    /// A part of another one.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Part {
        taken: u64,
        in_hand: u64 => Gauge,
    }
}

frwr_mempool::statistics! {
    /// A field of each rule.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct All {
        count: u64,
        gauge: u64 => Gauge,
        part: Part,
        parts_now: Part => Gauge,
        latest: Option<&'static str> => Latest,
        first: Option<&'static str> => First,
        errno: i32 => First,
        least: Option<u64> => Least,
    }
}

const fn part(taken: u64, in_hand: u64) -> Part {
    Part { taken, in_hand }
}

const ONE: All = All {
    count: 3,
    gauge: 5,
    part: part(7, 11),
    parts_now: part(13, 17),
    latest: Some("one"),
    first: Some("one"),
    errno: 22,
    least: Some(19),
};
const OTHER: All = All {
    count: 100,
    gauge: 200,
    part: part(300, 400),
    parts_now: part(500, 600),
    latest: Some("other"),
    first: Some("other"),
    errno: 5,
    least: Some(700),
};

#[test]
fn a_sum_is_of_several_cores() {
    let both = All {
        count: 103,
        gauge: 205,
        part: part(307, 411),
        parts_now: part(513, 617),
        latest: Some("other"),
        first: Some("one"),
        errno: 22,
        least: Some(19),
    };
    assert_eq!(ONE + OTHER, both);
    // Nothing adds nothing, on either side.
    assert_eq!((ONE + All::default(), All::default() + ONE), (ONE, ONE));
}

#[test]
fn a_difference_is_what_was_counted_and_what_is_there() {
    let between = All { count: 97, part: part(293, 400), ..OTHER };
    assert_eq!(OTHER - ONE, between);
    assert_eq!(OTHER - All::default(), OTHER);
    // From the wrong end: no counter is below 0.
    assert_eq!(ONE - OTHER, All { count: 0, part: part(0, 11), ..ONE });
    // What went on meanwhile and what was there add up to what is there.
    assert_eq!((OTHER - ONE).count + ONE.count, OTHER.count);
}

#[test]
fn numbers_end_at_their_largest() {
    assert_eq!(u64::MAX.sum(1), u64::MAX);
    assert_eq!((part(u64::MAX, u64::MAX) + part(1, 1)), part(u64::MAX, u64::MAX));
}
