//! How a storage is accepted: what [`Storage`](crate::storage::Storage) promises, shown over any
//! one.
//!
//! [`PROMISES`] has a function for each promise, which says where the storage breaks it. A storage
//! of one's own is tried by a test of a few lines; the feature `conformance` is for a crate's
//! `dev-dependencies`:
//!
//! ```
//! use frwr_nvmf::{
//!     conformance::{Only, Suite},
//!     frwr_mempool::{Region, RegionOptions},
//!     storage::MemoryStorage,
//! };
//!
//! let own = || {
//!     let mut region = Region::map(&RegionOptions::new(1 << 20)).unwrap();
//!     MemoryStorage::new(region.carve(1 << 20, 4096).unwrap().into_device_memory(), 4096, 64).unwrap()
//! };
//! let report = Suite::new("mine", || Only::new(own())).run();
//! report.assert_unbroken();
//! assert!(report.is_shown("written_blocks_are_read_back"));
//! ```
//!
//! Each promise gets a new medium. [`Only`] has one way to it, and shows what can be shown so; a
//! [`Medium`] of one's own can do more: be opened again, lose its power, run full, become shorter.
//! What a medium cannot do is named with its promise ([`Verdict::NotShown`]), never left out
//! silently: a test that asserts [`Report::not_shown`] hears when something is not tried any more.
//!
//! Nothing here reads a clock, sleeps, or starts a thread. What is drawn at random comes from a
//! seed.

mod bounds;
mod buffers;
mod cancel;
mod clock;
mod compare;
mod content;
mod contents;
mod durability;
mod ends;
mod errors;
mod medium;
mod model;
mod outcome;
mod queue;
mod report;
mod resize;
mod suite;
mod trial;
mod waking;
mod way;
mod ways;
mod zeroes;

pub use medium::{LEAST_BLOCKS, Medium, Only};
pub use report::{Report, Verdict};
pub use suite::Suite;

use outcome::Outcome;
use trial::Trial;

/// One thing that every storage does, and the function that shows it.
#[derive(Clone, Copy)]
pub struct Promise {
    name: &'static str,
    shown: fn(&mut Trial<'_>) -> Outcome,
}

impl Promise {
    /// The name of the function, which says what is promised.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl core::fmt::Debug for Promise {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! promises {
    ($($room:ident: $($name:ident),+;)+) => {
        /// All of them, in the order in which they are tried.
        pub const PROMISES: &[Promise] = &[$($(Promise { name: stringify!($name), shown: $room::$name },)+)+];
    };
}

promises! {
    bounds: the_first_and_the_last_block_are_reached, blocks_outside_of_the_namespace_are_refused,
        a_run_of_no_blocks_moves_nothing;
    buffers: buffers_outside_of_the_memory_are_refused, a_buffer_may_begin_anywhere_or_is_refused,
        buffers_are_attached_once;
    contents: written_blocks_are_read_back, what_is_in_flight_together_ends_as_one_of_it,
        what_was_written_is_there_when_it_is_opened_again;
    zeroes: zeroed_blocks_read_as_zeros, deallocated_blocks_are_theirs_alone, what_is_not_offered_is_refused;
    compare: only_what_was_expected_is_overwritten, of_those_that_expect_the_same_one_writes,
        a_write_beside_it_is_in_front_or_behind, ways_that_count_lose_nothing;
    queue: every_operation_ends_once, a_full_queue_refuses_and_has_room_again, a_full_batch_keeps_the_rest,
        what_has_nothing_to_do_says_nothing, what_a_storage_is_does_not_change, statistics_count_what_happened;
    cancel: what_is_taken_back_never_happens, nothing_else_goes_with_what_is_taken_back;
    waking: who_sleeps_is_woken_by_what_ends;
    ways: what_one_way_wrote_another_one_reads;
    durability: what_was_flushed_survives_a_loss_of_power, a_flush_covers_what_every_way_wrote,
        what_is_written_through_needs_no_flush, no_flush_succeeds_over_what_is_lost;
    errors: a_read_only_way_changes_nothing, a_full_medium_is_told_as_full, what_was_cut_off_is_never_read_again;
    resize: fewer_blocks_end_where_they_end, blocks_are_there_again_when_it_has_them_again, more_blocks_are_had_when_the_medium_has_them;
    ends: other_ways_go_on_when_one_is_dropped, a_storage_that_is_dropped_leaves_everything_alone;
}
