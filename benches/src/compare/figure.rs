//! Numbers that were measured, and how sure they are.

/// Which of several samples of one figure counts. What disturbs a run makes a time or a rate worse; a ratio it may make better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Best {
    /// Times.
    Least,
    /// Rates.
    Most,
    /// Ratios, and times that depend on where the host puts the processors: the median, of an even number of samples the lesser of
    /// the two in the middle.
    Middle,
}

/// One number of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// The sample that counts.
    pub(super) value: f64,
    /// How much larger the largest sample is than the smallest, as a share of it: 0 where the figure is exact.
    pub(super) spread: f64,
}

/// A figure, or the reason why there is none.
pub(super) type Measured = Result<Figure, String>;

impl Figure {
    /// A figure that every run repeats.
    pub(super) fn exact(value: f64) -> Self {
        Self { value, spread: 0.0 }
    }

    /// The one of these samples that counts, or nothing where there is none.
    pub(super) fn best_of(samples: &[f64], best: Best) -> Option<Self> {
        let least = samples.iter().copied().reduce(f64::min)?;
        let most = samples.iter().copied().reduce(f64::max)?;
        let spread = if least > 0.0 { most / least - 1.0 } else { 0.0 };
        let value = match best {
            Best::Least => least,
            Best::Most => most,
            Best::Middle => {
                let mut sorted = samples.to_vec();
                sorted.sort_by(f64::total_cmp);
                sorted[(sorted.len() - 1) / 2]
            }
        };
        Some(Self { value, spread })
    }
}

/// The sum of figures with weights. Its spread is that of the worst.
pub(super) fn weighted(parts: impl IntoIterator<Item = (f64, Measured)>) -> Measured {
    let mut sum = Figure::exact(0.0);
    for (weight, part) in parts {
        let part = part?;
        sum.value += weight * part.value;
        sum.spread = sum.spread.max(part.spread);
    }
    Ok(sum)
}

/// One figure by another. Its spread is that of the worse.
pub(super) fn quotient(part: Figure, whole: Figure) -> Measured {
    if whole.value <= 0.0 {
        return Err(format!("{} is nothing to divide by", readable(whole.value)));
    }
    Ok(Figure { value: part.value / whole.value, spread: part.spread.max(whole.spread) })
}

/// A number with as many digits as are worth reading.
pub(super) fn readable(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        0.0 => 0,
        _ if size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ if size >= 0.1 => 3,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_sample_counts_and_the_spread_is_of_all() {
        for (samples, best, expected) in [
            (&[][..], Best::Least, None),
            (&[5.0], Best::Least, Some(Figure { value: 5.0, spread: 0.0 })),
            (&[10.0, 8.0, 12.0], Best::Least, Some(Figure { value: 8.0, spread: 0.5 })),
            (&[10.0, 8.0, 12.0], Best::Most, Some(Figure { value: 12.0, spread: 0.5 })),
            (&[10.0, 8.0, 12.0], Best::Middle, Some(Figure { value: 10.0, spread: 0.5 })),
            (&[10.0, 8.0, 12.0, 11.0], Best::Middle, Some(Figure { value: 10.0, spread: 0.5 })),
            (&[0.0, 1.0], Best::Least, Some(Figure { value: 0.0, spread: 0.0 })),
        ] {
            assert_eq!(Figure::best_of(samples, best), expected, "{samples:?}");
        }
    }

    #[test]
    fn a_sum_has_the_worst_spread_and_the_first_reason() {
        let four = Ok(Figure { value: 4.0, spread: 0.1 });
        let sum = weighted([(1.0, four.clone()), (-0.5, Ok(Figure::exact(2.0)))]);
        assert_eq!(sum, Ok(Figure { value: 3.0, spread: 0.1 }));
        assert_eq!(weighted([(1.0, four), (1.0, Err("absent".to_owned()))]), Err("absent".to_owned()));
    }

    #[test]
    fn a_quotient_needs_something_to_divide_by() {
        let four = Figure { value: 4.0, spread: 0.1 };
        assert_eq!(quotient(four.clone(), Figure::exact(2.0)), Ok(Figure { value: 2.0, spread: 0.1 }));
        assert!(quotient(four, Figure::exact(0.0)).is_err());
    }

    #[test]
    fn numbers_have_the_digits_that_are_worth_reading() {
        for (value, text) in [
            (0.0, "0"),
            (2039.4, "2039"),
            (22.04, "22"),
            (5.312, "5.31"),
            (0.4782, "0.478"),
            (0.0625, "0.0625"),
            (1.0, "1"),
            (-3.5, "-3.5"),
        ] {
            assert_eq!(readable(value), text);
        }
    }
}
