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
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figure {
    /// The sample that counts.
    pub(super) value: f64,
    /// How much larger the largest sample is than the smallest, as a share of it: 0 where the figure is exact.
    pub(super) spread: f64,
    /// The samples in the order of their turns, where the median counts.
    pub(super) turns: Vec<f64>,
}

/// A figure, or the reason why there is none.
pub(super) type Measured = Result<Figure, String>;

impl Figure {
    /// A figure that every run repeats.
    pub(super) fn exact(value: f64) -> Self {
        Self { value, ..Self::default() }
    }

    /// The one of these samples that counts, or nothing where there is none.
    pub(super) fn best_of(samples: &[f64], best: Best) -> Option<Self> {
        let least = samples.iter().copied().reduce(f64::min)?;
        let most = samples.iter().copied().reduce(f64::max)?;
        let spread = if least > 0.0 { most / least - 1.0 } else { 0.0 };
        let (value, turns) = match best {
            Best::Least => (least, Vec::new()),
            Best::Most => (most, Vec::new()),
            Best::Middle => (median(samples.to_vec())?, samples.to_vec()),
        };
        Some(Self { value, spread, turns })
    }

    /// This one by a peer's, where that is above 0 and this one is not below: a difference of times that comes out below nothing (A15 on a
    /// machine that others use) says that they were disturbed, and would pass for a price of less than nothing. Of two medians it is the median of the ratios of each turn: the host may
    /// have the processors near each other in one turn and far apart in the next, and a ratio of two turns of different kinds says
    /// nothing.
    pub(super) fn by(&self, peer: &Self) -> Option<f64> {
        let of_turns = !self.turns.is_empty() && self.turns.len() == peer.turns.len();
        if of_turns && peer.turns.iter().all(|turn| *turn > 0.0) {
            return median(self.turns.iter().zip(&peer.turns).map(|(ours, peer)| ours / peer).collect());
        }
        (peer.value > 0.0 && self.value >= 0.0).then_some(self.value / peer.value)
    }
}

/// The one in the middle, of an even number the lesser of the two.
fn median(mut samples: Vec<f64>) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len().checked_sub(1)? / 2).copied()
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
    Ok(Figure { value: part.value / whole.value, spread: part.spread.max(whole.spread), ..Figure::default() })
}

/// Digits behind the point beyond those that are worth reading, where these would hide by what a limit is missed.
const MORE_DIGITS: usize = 5;

/// A number with as many digits as are worth reading.
pub(super) fn readable(value: f64) -> String {
    rounded(value, digits(value))
}

/// The same of a number that misses a limit: not what reads as if it were the limit.
pub(super) fn readable_beside(value: f64, limit: f64) -> String {
    let (few, limit) = (digits(value), readable(limit));
    let mut texts = (few..few + MORE_DIGITS).map(|digits| rounded(value, digits));
    texts.clone().find(|text| *text != limit).or(texts.next_back()).unwrap_or(limit)
}

/// How many behind the point are worth reading.
fn digits(value: f64) -> usize {
    match value.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        _ => 4,
    }
}

fn rounded(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64, spread: f64, turns: &[f64]) -> Figure {
        Figure { value, spread, turns: turns.to_vec() }
    }

    #[test]
    fn turns_of_one_kind_are_compared_with_each_other() {
        let middle = |samples: &[f64]| Figure::best_of(samples, Best::Middle).unwrap();
        // Both were far apart in the third turn and in the fourth.
        let (ours, peer) = (middle(&[90.0, 95.0, 480.0, 500.0, 92.0]), middle(&[150.0, 155.0, 660.0, 700.0, 148.0]));
        assert_eq!(ours.by(&peer), Some(92.0 / 148.0));
        // One of ours alone was far apart: that is one turn of five.
        assert_eq!(middle(&[90.0, 480.0, 480.0]).by(&middle(&[150.0, 150.0, 660.0])), Some(480.0 / 660.0));
        // Other figures, and those with other numbers of turns, are compared as they are.
        assert_eq!(Figure::exact(3.0).by(&Figure::exact(2.0)), Some(1.5));
        assert_eq!(ours.by(&middle(&[200.0])), Some(95.0 / 200.0));
        assert_eq!(Figure::exact(3.0).by(&Figure::exact(0.0)), None);
        assert_eq!(Figure::exact(-3.0).by(&Figure::exact(-2.0)), None);
        assert_eq!(Figure::exact(-3.0).by(&Figure::exact(2.0)), None);
    }

    #[test]
    fn the_best_sample_counts_and_the_spread_is_of_all() {
        for (samples, best, expected) in [
            (&[][..], Best::Least, None),
            (&[5.0], Best::Least, Some(figure(5.0, 0.0, &[]))),
            (&[10.0, 8.0, 12.0], Best::Least, Some(figure(8.0, 0.5, &[]))),
            (&[10.0, 8.0, 12.0], Best::Most, Some(figure(12.0, 0.5, &[]))),
            (&[10.0, 8.0, 12.0], Best::Middle, Some(figure(10.0, 0.5, &[10.0, 8.0, 12.0]))),
            (&[10.0, 8.0, 12.0, 11.0], Best::Middle, Some(figure(10.0, 0.5, &[10.0, 8.0, 12.0, 11.0]))),
            (&[0.0, 1.0], Best::Least, Some(figure(0.0, 0.0, &[]))),
        ] {
            assert_eq!(Figure::best_of(samples, best), expected, "{samples:?}");
        }
    }

    #[test]
    fn a_sum_has_the_worst_spread_and_the_first_reason() {
        let four = Ok(figure(4.0, 0.1, &[]));
        let sum = weighted([(1.0, four.clone()), (-0.5, Ok(Figure::exact(2.0)))]);
        assert_eq!(sum, Ok(figure(3.0, 0.1, &[])));
        assert_eq!(weighted([(1.0, four), (1.0, Err("absent".to_owned()))]), Err("absent".to_owned()));
    }

    #[test]
    fn a_quotient_needs_something_to_divide_by() {
        let four = figure(4.0, 0.1, &[]);
        assert_eq!(quotient(four.clone(), Figure::exact(2.0)), Ok(figure(2.0, 0.1, &[])));
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

    #[test]
    fn what_misses_a_limit_does_not_read_as_the_limit() {
        for (value, limit, text) in [
            (1.0516, 1.05, "1.052"),
            (1.05004, 1.05, "1.05004"),
            (0.9496, 0.95, "0.9496"),
            (250.2, 250.0, "250.2"),
            (428.0, 250.0, "428"),
            (1.2, 1.05, "1.2"),
            // Less than is counted.
            (1.05 + 1e-9, 1.05, "1.05"),
        ] {
            assert_eq!(readable_beside(value, limit), text);
        }
    }
}
