//! What the engine counted between two moments, and what that is per request.

use core::ops::{Add, Sub};
use frwr_engine::Statistics;
use serde_json::{Value, json};

macro_rules! counters {
    ($($name:ident,)*) => {
        /// Counters of [`Statistics`] that a measurement shows.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(super) struct Counters { $(pub(super) $name: u64,)* }

        impl Counters {
            /// Nothing.
            pub(super) const NONE: Self = Self { $($name: 0,)* };
        }

        impl From<Statistics> for Counters {
            fn from(statistics: Statistics) -> Self {
                Self { $($name: statistics.$name,)* }
            }
        }

        impl Sub for Counters {
            type Output = Self;

            fn sub(self, before: Self) -> Self {
                Self { $($name: self.$name.saturating_sub(before.$name),)* }
            }
        }

        impl Add for Counters {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name.saturating_add(other.$name),)* }
            }
        }
    };
}

counters! {
    polls, empty_polls, doorbells, work_requests, receive_doorbells, send_completions, receive_completions, registrations,
    lists_registered, local_invalidations, remote_invalidations, requests_waited,
}

impl Counters {
    pub(super) fn completions(&self) -> u64 {
        self.send_completions + self.receive_completions
    }

    /// What is told of each core, and of all.
    pub(super) fn shares_json(&self) -> Value {
        json!({
            "completions_per_poll": self.completions_per_poll(),
            "work_requests_per_doorbell": self.work_requests_per_doorbell(),
            "empty_poll_share": self.empty_poll_share(),
        })
    }

    /// Completions of a poll that found something.
    pub(super) fn completions_per_poll(&self) -> f64 {
        ratio(self.completions(), self.polls - self.empty_polls.min(self.polls))
    }

    /// Work requests of a doorbell of a send queue.
    pub(super) fn work_requests_per_doorbell(&self) -> f64 {
        ratio(self.work_requests, self.doorbells)
    }

    /// Polls that found nothing, 0 to 1.
    pub(super) fn empty_poll_share(&self) -> f64 {
        ratio(self.empty_polls, self.polls)
    }
}

/// 0 of nothing.
pub(super) fn ratio(count: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { count as f64 / of as f64 }
}
