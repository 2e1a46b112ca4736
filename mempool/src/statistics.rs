//! Structs of counters whose fields are listed once: [`statistics!`](crate::statistics!) declares one, with its sum, of several
//! cores, its difference, from one reading to a later one, and what counts on of one that is no more.
//!
//! ```
//! use frwr_mempool::statistics::Figure as _;
//!
//! frwr_mempool::statistics! {
//!     /// What a cache did, and what it has in hand.
//!     #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
//!     pub struct CacheStatistics {
//!         /// Look-ups.
//!         pub lookups: u64,
//!         /// Entries now.
//!         pub entries: u64 => Gauge,
//!         /// What the last look-up that failed said.
//!         pub last_error: Option<i32> => Latest,
//!     }
//! }
//!
//! let one = CacheStatistics { lookups: 5, entries: 2, last_error: None };
//! let other = CacheStatistics { lookups: 7, entries: 3, last_error: Some(5) };
//! assert_eq!(one + other, CacheStatistics { lookups: 12, entries: 5, last_error: Some(5) });
//! assert_eq!(other - one, CacheStatistics { lookups: 2, ..other });
//! assert_eq!(other.left(), CacheStatistics { entries: 0, ..other });
//! ```

/// What can be counted on several cores, and read twice: a number, or a struct of [`statistics!`](crate::statistics!).
pub trait Figure: Copy {
    /// Of two cores together. Numbers end at their largest.
    #[must_use]
    fn sum(self, other: Self) -> Self;

    /// What came between an earlier reading and this one. Of a number that was larger then: 0.
    #[must_use]
    fn since(self, before: Self) -> Self;

    /// Of one that is no more: what it counted, and nothing of what it had.
    #[must_use]
    fn left(self) -> Self {
        self
    }
}

impl Figure for u64 {
    fn sum(self, other: Self) -> Self {
        self.saturating_add(other)
    }

    fn since(self, before: Self) -> Self {
        self.saturating_sub(before)
    }
}

/// How the field of a struct of [`statistics!`](crate::statistics!) is added and subtracted.
pub trait Rule<T> {
    /// Of two cores together.
    fn sum(one: T, other: T) -> T;

    /// Between an earlier reading and a later one.
    fn since(now: T, before: T) -> T;

    /// What counts on of one that is no more.
    fn left(last: T) -> T;
}

/// What only grows. A field without another rule has this one.
#[derive(Clone, Copy, Debug)]
pub struct Count;

impl<T: Figure> Rule<T> for Count {
    fn sum(one: T, other: T) -> T {
        one.sum(other)
    }

    fn since(now: T, before: T) -> T {
        now.since(before)
    }

    fn left(last: T) -> T {
        last.left()
    }
}

/// What is there now: several cores have the sum, and between two readings is the later one.
#[derive(Clone, Copy, Debug)]
pub struct Gauge;

impl<T: Figure + Default> Rule<T> for Gauge {
    fn sum(one: T, other: T) -> T {
        one.sum(other)
    }

    fn since(now: T, _before: T) -> T {
        now
    }

    fn left(_last: T) -> T {
        T::default()
    }
}

/// What was said last, if anything: several cores have that of the last one that has any.
#[derive(Clone, Copy, Debug)]
pub struct Latest;

impl<T> Rule<Option<T>> for Latest {
    fn sum(one: Option<T>, other: Option<T>) -> Option<T> {
        other.or(one)
    }

    fn since(now: Option<T>, _before: Option<T>) -> Option<T> {
        now
    }

    fn left(last: Option<T>) -> Option<T> {
        last
    }
}

/// What is wrong for good, if anything; a number (errno) is 0 where nothing is. Several cores have that of the first one that has any.
#[derive(Clone, Copy, Debug)]
pub struct First;

impl<T> Rule<Option<T>> for First {
    fn sum(one: Option<T>, other: Option<T>) -> Option<T> {
        one.or(other)
    }

    fn since(now: Option<T>, _before: Option<T>) -> Option<T> {
        now
    }

    fn left(_last: Option<T>) -> Option<T> {
        None
    }
}

impl Rule<i32> for First {
    fn sum(one: i32, other: i32) -> i32 {
        if one == 0 { other } else { one }
    }

    fn since(now: i32, _before: i32) -> i32 {
        now
    }

    fn left(_last: i32) -> i32 {
        0
    }
}

/// The least there was, if it is known. What it was between two readings nobody knows: the later one is of the whole time.
#[derive(Clone, Copy, Debug)]
pub struct Least;

impl<T: Ord> Rule<Option<T>> for Least {
    fn sum(one: Option<T>, other: Option<T>) -> Option<T> {
        one.into_iter().chain(other).min()
    }

    fn since(now: Option<T>, _before: Option<T>) -> Option<T> {
        now
    }

    fn left(last: Option<T>) -> Option<T> {
        last
    }
}

/// Declares a struct of statistics with `+` and `-`, so that nobody lists its fields again. Behind a field's type stands its
/// rule where it is none that only grows: `=> Gauge`, `Latest`, `First`, `Least` ([`Rule`](crate::statistics::Rule)). The struct
/// has to be `Copy`; it is a [`Figure`](crate::statistics::Figure) itself, and so may be the field of another one.
#[macro_export]
macro_rules! statistics {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_attribute:meta])* $field_visibility:vis $field:ident: $kind:ty $(=> $rule:ident)?,)*
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($(#[$field_attribute])* $field_visibility $field: $kind,)*
        }

        impl $crate::statistics::Figure for $name {
            fn sum(self, other: Self) -> Self {
                Self { $($field: <$crate::statistics!(@rule $($rule)?) as $crate::statistics::Rule<$kind>>::sum(self.$field, other.$field),)* }
            }

            fn since(self, before: Self) -> Self {
                Self { $($field: <$crate::statistics!(@rule $($rule)?) as $crate::statistics::Rule<$kind>>::since(self.$field, before.$field),)* }
            }

            fn left(self) -> Self {
                Self { $($field: <$crate::statistics!(@rule $($rule)?) as $crate::statistics::Rule<$kind>>::left(self.$field),)* }
            }
        }

        /// Of several together.
        impl ::core::ops::Add for $name {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                $crate::statistics::Figure::sum(self, other)
            }
        }

        /// What came behind an earlier reading of the same: counters since then, all else as it is now.
        impl ::core::ops::Sub for $name {
            type Output = Self;

            fn sub(self, before: Self) -> Self {
                $crate::statistics::Figure::since(self, before)
            }
        }
    };
    (@rule) => { $crate::statistics::Count };
    (@rule $rule:ident) => { $crate::statistics::$rule };
}
