//! A histogram in perftest's columns.

use crate::options::RUNTIME;
use core::{hint::black_box, time::Duration};
use hdrhistogram::{CreationError, Histogram};

/// The longest time that a histogram tells in full: twice as long as the longest run, since at a rate that is not kept requests wait
/// for almost all of it.
const LONGEST: Duration = Duration::from_secs(2 * RUNTIME.most());
/// Digits that are right.
const DIGITS: u8 = 3;

/// Where latencies are counted, in nanoseconds. All of its memory is there: a page that is written first by a request that took
/// longer than all before it would be a page fault of the reactor's thread.
pub(super) fn histogram() -> Result<Histogram<u64>, CreationError> {
    // Nobody may know that they are zero already: that they are written is what is wanted.
    let mut histogram = black_box(Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, DIGITS)?);
    histogram.reset();
    Ok(histogram)
}

/// Whether a figure is the whole of what the clock saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From the beginning to the end: there and back.
    RoundTrip,
    /// Half of that, as perftest shows messages that are sent to and fro.
    HalfRoundTrip,
}

impl Scale {
    /// For JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "round_trip",
            Self::HalfRoundTrip => "half_round_trip",
        }
    }

    /// From nanoseconds on the clock to microseconds in a report.
    #[must_use]
    pub fn microseconds(self, nanoseconds: f64) -> f64 {
        match self {
            Self::RoundTrip => nanoseconds / 1e3,
            Self::HalfRoundTrip => nanoseconds / 2e3,
        }
    }
}

/// Latencies in microseconds; all 0 of no request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// The shortest.
    pub minimum: f64,
    /// Half of all are not longer: the median.
    pub typical: f64,
    /// The mean.
    pub average: f64,
    /// Standard deviation from the mean.
    pub stdev: f64,
    /// 99 in 100 are not longer.
    pub p99: f64,
    /// 999 in 1000 are not longer.
    pub p99_9: f64,
    /// The longest.
    pub maximum: f64,
}

impl Summary {
    /// Of nanoseconds. Values are right to three digits, as far as the histogram tells them apart.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>, scale: Scale) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let whole = |nanoseconds: u64| scale.microseconds(nanoseconds as f64);
        let at = |quantile| whole(histogram.value_at_quantile(quantile));
        Self {
            minimum: whole(histogram.min()),
            typical: at(0.5),
            average: scale.microseconds(histogram.mean()),
            stdev: scale.microseconds(histogram.stdev()),
            p99: at(0.99),
            p99_9: at(0.999),
            maximum: whole(histogram.max()),
        }
    }

    /// By the names of JSON and CSV, in the order of the columns.
    #[must_use]
    pub fn columns(&self) -> [(&'static str, f64); 7] {
        [
            ("minimum", self.minimum),
            ("typical", self.typical),
            ("average", self.average),
            ("stdev", self.stdev),
            ("p99", self.p99),
            ("p99_9", self.p99_9),
            ("maximum", self.maximum),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::{Scale, Summary, histogram};

    fn summary(nanoseconds: impl IntoIterator<Item = u64>, scale: Scale) -> Summary {
        let mut histogram = histogram().unwrap();
        nanoseconds.into_iter().for_each(|value| histogram.record(value).unwrap());
        Summary::of(&histogram, scale)
    }

    #[test]
    fn columns_are_those_of_a_hand_calculation() {
        // Values below 2048 ns are kept exactly.
        let plain = summary(1..=1000, Scale::RoundTrip);
        for (name, value, wanted) in [
            ("minimum", plain.minimum, 0.001),
            ("typical", plain.typical, 0.500),
            ("average", plain.average, 0.5005),
            // The root of (n^2 - 1) / 12.
            ("stdev", plain.stdev, 0.288_675),
            ("p99", plain.p99, 0.990),
            ("p99_9", plain.p99_9, 0.999),
            ("maximum", plain.maximum, 1.0),
        ] {
            assert!((value - wanted).abs() < 1e-6, "{name}: {value}, not {wanted}");
        }
    }

    #[test]
    fn half_a_round_trip_is_half_of_everything() {
        let (whole, half) =
            (summary([100, 200, 1500], Scale::RoundTrip), summary([100, 200, 1500], Scale::HalfRoundTrip));
        for ((name, whole), (_, half)) in whole.columns().into_iter().zip(half.columns()) {
            assert!((whole - 2.0 * half).abs() < 1e-9, "{name}");
        }
        assert_eq!(summary([], Scale::RoundTrip), Summary::default());
    }
}
