//! Gathering: S28 to S31, S34, S35, the gap rule, F11, F18, I18, I19, U7, U8, U12.

use frwr_engine::gather::{
    GatherError, GatherRules, MemoryId, Piece, Resolved, Segment, check_list, count_pieces, cut, next_piece,
};
use frwr_engine::provider::{BaseId, Contiguity, ScatterElement};
use proptest::prelude::*;

const PAGE: u32 = 4096;

const fn page_list(depth: u32) -> GatherRules {
    GatherRules { contiguity: Contiguity::PageList { page_size: PAGE }, depth, max_bytes: u64::MAX }
}

const fn gaps(depth: u32) -> GatherRules {
    GatherRules { contiguity: Contiguity::Gaps { page_size: PAGE }, depth, max_bytes: u64::MAX }
}

const fn single_range() -> GatherRules {
    GatherRules { contiguity: Contiguity::SingleRange, depth: 1, max_bytes: u64::MAX }
}

fn at(address: u64, length: u32) -> Resolved {
    Resolved { element: ScatterElement { address, length, lkey: 7 }, base: BaseId(1) }
}

/// The table's notation offset+length: every element in pages of its own, far from the others.
fn scattered(elements: &[(u64, u32)]) -> Vec<Resolved> {
    elements
        .iter()
        .enumerate()
        .map(|(index, &(offset, length))| at(0x10_0000 * (elements.len() - index) as u64 + offset, length))
        .collect()
}

fn pieces(rules: GatherRules, segments: &[Resolved]) -> Vec<Piece> {
    let mut rest = segments;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let piece = next_piece(rules, rest).expect("a piece");
        rest = &rest[piece.consumed..];
        found.push(piece);
    }
    assert_eq!(count_pieces(rules, segments), Ok(found.len()));
    found
}

/// Elements per MR, as the table has them.
fn elements_each(rules: GatherRules, segments: &[(u64, u32)]) -> Vec<usize> {
    pieces(rules, &scattered(segments)).iter().map(|piece| piece.consumed).collect()
}

#[test]
fn s29_three_full_pages() {
    assert_eq!(elements_each(page_list(257), &[(0, 4096), (0, 4096), (0, 4096)]), [3]);
}

#[test]
fn s29_first_may_start_inside_a_page() {
    assert_eq!(elements_each(page_list(257), &[(100, 3996), (0, 4096), (0, 4096)]), [3]);
}

#[test]
fn s29_last_may_end_inside_a_page() {
    assert_eq!(elements_each(page_list(257), &[(0, 4096), (0, 4096), (0, 10)]), [3]);
}

#[test]
fn s29_short_element_in_the_middle() {
    assert_eq!(elements_each(page_list(257), &[(0, 4096), (0, 10), (0, 4096)]), [2, 1]);
}

#[test]
fn s29_offset_in_the_middle() {
    assert_eq!(elements_each(page_list(257), &[(0, 4096), (8, 4088), (0, 4096)]), [1, 2]);
    assert_eq!(elements_each(page_list(257), &[(0, 4096), (8, 4096), (0, 4096)]), [1, 1, 1]);
}

#[test]
fn s29_short_first_element() {
    assert_eq!(elements_each(page_list(257), &[(0, 10), (0, 4096)]), [1, 1]);
    assert_eq!(elements_each(page_list(257), &[(100, 10), (0, 4096)]), [1, 1]);
}

#[test]
fn s29_s30_element_longer_than_a_page() {
    let found = pieces(page_list(257), &scattered(&[(0, 8192), (0, 4096)]));
    assert_eq!(found, [Piece { consumed: 2, entries: 3, bytes: 12288 }]);
}

/// The kernel's rule lets it pass; here it is refused.
#[test]
fn i18_zero_length_is_refused() {
    for rules in [page_list(257), gaps(257), single_range()] {
        assert_eq!(next_piece(rules, &scattered(&[(0, 0), (0, 4096)])), Err(GatherError::EmptySegment));
        assert_eq!(count_pieces(rules, &scattered(&[(0, 4096), (0, 0)])), Err(GatherError::EmptySegment));
    }
    assert_eq!(next_piece(page_list(257), &scattered(&[(0, 4096), (0, 0)])), Err(GatherError::EmptySegment));
    assert_eq!(next_piece(single_range(), &[at(1000, 10), at(1010, 0)]), Err(GatherError::EmptySegment));
}

#[test]
fn s28_window() {
    assert_eq!(elements_each(page_list(3), &[(0, 4096); 5]), [3, 2]);
    assert_eq!(elements_each(gaps(3), &[(0, 4096); 5]), [3, 2]);
}

#[test]
fn s28_window_ends_before_the_third_is_examined() {
    assert_eq!(elements_each(page_list(2), &[(0, 4096), (0, 4096), (8, 16)]), [2, 1]);
    // Whatever stands behind the window, even what no device registers, does not disturb the piece.
    let segments = scattered(&[(0, 4096), (0, 4096), (0, 0)]);
    let full = Ok(Piece { consumed: 2, entries: 2, bytes: 8192 });
    assert_eq!(next_piece(page_list(2), &segments), full);
    assert_eq!(next_piece(gaps(2), &segments), full);
}

#[test]
fn s31_list_with_gaps() {
    let elements = [(0, 4096), (0, 10), (8, 20), (0, 4096)];
    assert_eq!(elements_each(gaps(257), &elements), [4]);
    assert_eq!(elements_each(page_list(257), &elements), [2, 1, 1]);
}

#[test]
fn u08_entries_of_any_alignment() {
    let rules = GatherRules { contiguity: Contiguity::Gaps { page_size: 0 }, depth: 3, max_bytes: u64::MAX };
    let found = pieces(rules, &scattered(&[(1, 100_000), (3, 5), (7, 1), (9, 9)]));
    assert_eq!(found, [Piece { consumed: 3, entries: 3, bytes: 100_006 }, Piece { consumed: 1, entries: 1, bytes: 9 }]);
}

/// The list's capacity is pages: an element of two pages takes two entries.
#[test]
fn f18_pages_are_counted() {
    let found = pieces(page_list(2), &scattered(&[(0, 8192), (0, 4096)]));
    assert_eq!(found.iter().map(|piece| (piece.consumed, piece.entries)).collect::<Vec<_>>(), [(1, 2), (1, 1)]);
    // An element that straddles a boundary takes both pages.
    let found = pieces(page_list(2), &scattered(&[(4090, 4102), (0, 1)]));
    assert_eq!(found.iter().map(|piece| (piece.consumed, piece.entries)).collect::<Vec<_>>(), [(1, 2), (1, 1)]);
    assert_eq!(next_piece(page_list(2), &scattered(&[(0, 8193)])), Err(GatherError::SegmentTooLong));
    assert_eq!(next_piece(page_list(2), &scattered(&[(4095, 8192)])), Err(GatherError::SegmentTooLong));
    assert_eq!(count_pieces(page_list(2), &scattered(&[(0, 10), (0, 8193)])), Err(GatherError::SegmentTooLong));
}

#[test]
fn f18_long_segments_are_cut() {
    let (front, rest) = cut(page_list(2), at(0x1_0064, 20_000)).expect("cut");
    assert_eq!((front.element.address, front.element.length), (0x1_0064, 8192 - 100));
    let rest = rest.expect("a rest");
    assert_eq!((rest.element.address, rest.element.length), (0x1_2000, 20_000 - (8192 - 100)));
    assert!(next_piece(page_list(2), &[front]).is_ok());
    // Two pages long, but in three pages.
    let (front, rest) = cut(page_list(2), at(0x1_0064, 8192)).expect("cut");
    assert_eq!((front.element.length, rest.map(|rest| rest.element.length)), (8092, Some(100)));
    assert_eq!(cut(page_list(2), at(0x1_0000, 8192)), Ok((at(0x1_0000, 8192), None)));
    let limited = GatherRules { max_bytes: 5000, ..single_range() };
    let (front, rest) = cut(limited, at(3, 12_000)).expect("cut");
    assert_eq!((front.element.length, rest.map(|rest| rest.element.address)), (5000, Some(5003)));
}

/// U7: contiguity in one base registration, at any alignment.
#[test]
fn u07_single_range() {
    let found = pieces(single_range(), &[at(1000, 10), at(1010, 5000), at(6010, 1), at(6012, 4)]);
    assert_eq!(found, [Piece { consumed: 3, entries: 1, bytes: 5011 }, Piece { consumed: 1, entries: 1, bytes: 4 }]);
    let mut other_base = at(1010, 10);
    other_base.base = BaseId(2);
    assert_eq!(pieces(single_range(), &[at(1000, 10), other_base]).len(), 2);
    // Page alignment without contiguity does not help.
    assert_eq!(pieces(single_range(), &scattered(&[(0, 4096), (0, 4096)])).len(), 2);
}

/// S34: four elements that the device merges into one range; the caller moves on by four, the list takes one.
#[test]
fn s34_f11_u12_two_counts() {
    let segments: Vec<_> = (0..4).map(|page| at(0x8000 + page * 4096, 4096)).collect();
    let piece = next_piece(single_range(), &segments).expect("a piece");
    assert_eq!((piece.consumed, piece.entries, piece.bytes), (4, 1, 16384));
    let piece = next_piece(page_list(257), &[at(0x8000, 12288), at(0xB000, 4096)]).expect("a piece");
    assert_eq!((piece.consumed, piece.entries), (2, 4));
}

#[test]
fn s35_length_is_the_sum_of_the_elements() {
    let piece = next_piece(page_list(257), &scattered(&[(4001, 95), (0, 4096), (0, 17)])).expect("a piece");
    assert_eq!(piece.bytes, 95 + 4096 + 17);
}

#[test]
fn s35_byte_limit_ends_a_piece() {
    let rules = GatherRules { max_bytes: 10_000, ..page_list(257) };
    assert_eq!(elements_each(rules, &[(0, 4096); 5]), [2, 2, 1]);
    let rules = GatherRules { max_bytes: 4095, ..page_list(257) };
    assert_eq!(next_piece(rules, &scattered(&[(0, 4096)])), Err(GatherError::SegmentTooLong));
}

/// The builder takes what meets at page boundaries or follows without a gap, in as many pages as it has.
#[test]
fn s35_i19_incomplete_list_is_refused() {
    let elements = |list: &[Resolved]| list.iter().map(|segment| segment.element).collect::<Vec<_>>();
    let two_and_one = elements(&scattered(&[(0, 8192), (0, 4096)]));
    assert_eq!(check_list(page_list(2), &two_and_one), Err(GatherError::MapIncomplete));
    assert_eq!(check_list(page_list(3), &two_and_one), Ok(3));
    let gap = elements(&scattered(&[(0, 10), (0, 4096)]));
    assert_eq!(check_list(page_list(257), &gap), Err(GatherError::MapIncomplete));
    assert_eq!(check_list(gaps(257), &gap), Ok(2));
    assert_eq!(check_list(single_range(), &gap), Err(GatherError::MapIncomplete));
    // A contiguous element goes on in the page of the one before.
    assert_eq!(check_list(page_list(1), &elements(&[at(0x1000, 100), at(0x1064, 200)])), Ok(1));
    assert_eq!(check_list(page_list(1), &[]), Err(GatherError::NoSegments));
}

#[test]
fn i18_nothing_to_map_is_refused() {
    assert_eq!(next_piece(page_list(257), &[]), Err(GatherError::NoSegments));
    assert_eq!(count_pieces(page_list(257), &[]), Err(GatherError::NoSegments));
}

#[test]
fn i18_length_sum_above_32_bit_is_refused() {
    let segments = [at(0, 1 << 31), at(1 << 40, 1 << 31)];
    for rules in [page_list(u32::MAX), gaps(u32::MAX), single_range()] {
        assert_eq!(count_pieces(rules, &segments), Err(GatherError::TooManyBytes));
        // One registration stops before its length could wrap.
        assert_eq!(next_piece(rules, &segments).map(|piece| piece.consumed), Ok(1));
    }
    let adjacent = [at(0, 1 << 31), at(1 << 31, 1 << 31)];
    assert_eq!(next_piece(single_range(), &adjacent).map(|piece| piece.bytes), Ok(1 << 31));
}

#[test]
fn i18_segment_outside_its_memory_is_refused() {
    let segment = |offset, length| Segment { memory: MemoryId(0), offset, length };
    let resolve = |segment: Segment| segment.resolve(0x1_0000, 8192, BaseId(1), 7);
    assert_eq!(resolve(segment(96, 8096)), Ok(at(0x1_0060, 8096)));
    assert_eq!(resolve(segment(96, 8097)), Err(GatherError::OutOfBounds));
    assert_eq!(resolve(segment(8192, 1)), Err(GatherError::OutOfBounds));
    assert_eq!(resolve(segment(u64::MAX, 1)), Err(GatherError::OutOfBounds));
    assert_eq!(resolve(segment(0, 0)), Err(GatherError::EmptySegment));
    assert_eq!(segment(0, 8192).resolve(u64::MAX - 100, 8192, BaseId(1), 7), Err(GatherError::OutOfBounds));
    assert_eq!(next_piece(page_list(257), &[at(u64::MAX - 4, 8)]), Err(GatherError::OutOfBounds));
    let over_the_top = [at(u64::MAX - 1023, 512), at(u64::MAX - 511, 512)];
    assert_eq!(next_piece(single_range(), &over_the_top), Err(GatherError::OutOfBounds));
}

#[test]
fn rules_without_sense_are_refused() {
    let odd = GatherRules { contiguity: Contiguity::PageList { page_size: 1000 }, ..page_list(1) };
    let none = GatherRules { contiguity: Contiguity::PageList { page_size: 0 }, ..page_list(1) };
    for rules in [odd, none, page_list(0), GatherRules { max_bytes: 0, ..single_range() }] {
        assert_eq!(next_piece(rules, &[at(0, 1)]), Err(GatherError::InvalidRules));
    }
}

fn any_rules() -> impl Strategy<Value = GatherRules> {
    let contiguity = prop_oneof![
        Just(Contiguity::PageList { page_size: PAGE }),
        Just(Contiguity::Gaps { page_size: PAGE }),
        Just(Contiguity::Gaps { page_size: 0 }),
        Just(Contiguity::SingleRange),
    ];
    (contiguity, 8u32..40, prop_oneof![Just(u64::MAX), 40_000u64..200_000])
        .prop_map(|(contiguity, depth, max_bytes)| GatherRules { contiguity, depth, max_bytes })
}

/// Runs of whole pages, broken now and then by anything else; adjacent ones as well as jumps.
fn any_segments() -> impl Strategy<Value = Vec<Resolved>> {
    let step = (0u8..8, 0u64..4096, 1u32..20_000, 0u32..8);
    proptest::collection::vec(step, 1..60).prop_map(|steps| {
        let mut end = 0x100_0000u64;
        steps
            .into_iter()
            .map(|(kind, offset, length, base)| {
                let (address, length) = match kind {
                    0 => (end + 0x10_0000 + offset, length),
                    1 => (end, length),
                    2 => ((end + 0xF_FFFF) & !0xFFF, 8192),
                    3 => (end, 4096),
                    4 => (((end + 0xFFF) & !0xFFF) + offset, 4096),
                    _ => ((end + 0xFFF) & !0xFFF, 4096),
                };
                end = address + u64::from(length);
                Resolved { element: ScatterElement { address, length, lkey: 1 }, base: BaseId(u32::from(base == 0)) }
            })
            .collect()
    })
}

proptest! {
    /// Every piece is taken whole by the device's builder, in exactly the entries that were counted.
    #[test]
    fn s35_i19_f18_builder_takes_every_piece(rules in any_rules(), segments in any_segments()) {
        let mut rest = segments.as_slice();
        while !rest.is_empty() {
            let piece = next_piece(rules, rest).expect("no segment here exceeds the rules");
            let elements: Vec<_> = rest[..piece.consumed].iter().map(|segment| segment.element).collect();
            let bytes: u64 = elements.iter().map(|element| u64::from(element.length)).sum();
            prop_assert_eq!(u64::from(piece.bytes), bytes);
            prop_assert_eq!(check_list(rules, &elements), Ok(piece.entries));
            rest = &rest[piece.consumed..];
        }
    }

    /// What an MR is opened with is checked where it is gathered: there are bytes, as many as the
    /// registration's length can say, at least one for each element, and they do not wrap around,
    /// in no element.
    #[test]
    fn i18_a_piece_has_a_byte_for_each_element_and_none_wraps_around(
        rules in any_rules(),
        start in prop_oneof![Just(0u64), Just(u64::MAX - 300_000), Just(u64::MAX - 20_000), any::<u64>()],
        steps in proptest::collection::vec((0u64..20_000, 0u32..20_000), 1..60),
    ) {
        let mut address = start;
        let segments: Vec<_> = steps.into_iter().map(|(gap, length)| {
            let segment = at(address.saturating_add(gap % 3 * gap), length);
            address = segment.element.address.saturating_add(length.into());
            segment
        }).collect();
        let mut rest = segments.as_slice();
        while let Ok(piece) = next_piece(rules, rest) {
            let covered = &rest[..piece.consumed];
            let bytes: u64 = covered.iter().map(|segment| u64::from(segment.element.length)).sum();
            prop_assert_eq!(u64::from(piece.bytes), bytes);
            prop_assert!((1..=bytes).contains(&(piece.consumed as u64)), "{:?}", piece);
            for segment in covered {
                let element = &segment.element;
                prop_assert!(element.length > 0 && element.address.checked_add(element.length.into()).is_some());
            }
            rest = &rest[piece.consumed..];
        }
        prop_assert_eq!(rest.is_empty(), count_pieces(rules, &segments).is_ok());
    }

    /// The gap rule of S29 written down element by element: the loop for whole pages changes nothing.
    #[test]
    fn s28_s29_same_as_the_plain_rule(depth in 8u32..40, segments in any_segments()) {
        let pages = |element: &ScatterElement| (element.address % 4096 + u64::from(element.length)).div_ceil(4096);
        let mut taken = 0;
        let mut used = 0;
        for (index, segment) in segments.iter().enumerate() {
            let element = &segment.element;
            let gap = index > 0 && {
                let before = &segments[index - 1].element;
                (before.address + u64::from(before.length)) % 4096 != 0 || element.address % 4096 != 0
            };
            if gap || used + pages(element) > u64::from(depth) {
                break;
            }
            used += pages(element);
            taken += 1;
        }
        let piece = next_piece(page_list(depth), &segments).expect("a piece");
        prop_assert_eq!((piece.consumed, u64::from(piece.entries)), (taken, used));
    }

    /// U7 written down element by element: the loop for equal lengths changes nothing.
    #[test]
    fn u07_same_as_the_plain_rule(
        start in prop_oneof![Just(0x1000u64), Just(u64::MAX - 5000)],
        max_bytes in prop_oneof![Just(u64::MAX), 600u64..6000],
        steps in proptest::collection::vec((0u8..16, 0u8..16, 0u8..16), 1..30),
    ) {
        let rules = GatherRules { max_bytes, ..single_range() };
        let mut end = start;
        let mut segments: Vec<Resolved> = Vec::new();
        for (gap, length, base) in steps {
            let length = if length == 0 { 100 } else { 512 };
            let address = end.saturating_add(u64::from(gap == 0));
            let Some(next) = address.checked_add(u64::from(length)) else { break };
            end = next;
            segments.push(Resolved { base: BaseId(u32::from(base == 0)), ..at(address, length) });
        }
        let (mut taken, mut bytes) = (0, 0);
        for (index, segment) in segments.iter().enumerate() {
            let apart = index > 0 && {
                let before = &segments[index - 1];
                before.element.address + u64::from(before.element.length) != segment.element.address
                    || before.base != segment.base
            };
            if apart || bytes + u64::from(segment.element.length) > max_bytes {
                break;
            }
            bytes += u64::from(segment.element.length);
            taken += 1;
        }
        let piece = next_piece(rules, &segments).expect("a piece");
        prop_assert_eq!((piece.consumed, u64::from(piece.bytes), piece.entries), (taken, bytes, 1));
    }

    /// Cutting and gathering covers a segment of any length, byte for byte.
    #[test]
    fn f18_cut_covers_everything(rules in any_rules(), address in 0u64..1 << 40, length in 1u32..10_000_000) {
        let mut rest = Some(at(address, length));
        let mut next = address;
        while let Some(segment) = rest {
            let (front, remaining) = cut(rules, segment).expect("cut");
            prop_assert_eq!(front.element.address, next);
            prop_assert!(next_piece(rules, &[front]).is_ok());
            next += u64::from(front.element.length);
            rest = remaining;
        }
        prop_assert_eq!(next, address + u64::from(length));
    }
}
