//! Results in files: the percentile file of HdrHistogram, and the table.

use super::{command_line::LatencyConfig, plot, summary::Scale, sweep::LatencySweep};
use crate::{Error, result_files::NamedFiles};
use core::fmt::Write as _;
use hdrhistogram::Histogram;

/// Rows for each halving of the distance to 100 %: what HdrHistogram's own tools write.
const TICKS_PER_HALF: u32 = 5;

/// The option of a file that others must not write over.
const TRACE_KEYS: &str = "--trace-keys";

/// Files of results: looked at before the run, so that a wrong path costs none.
pub struct ResultFiles<'a>(NamedFiles<'a>);

impl<'a> ResultFiles<'a> {
    /// Opens what was asked for; what is there stays until there is something to write.
    ///
    /// # Errors
    /// One cannot be written.
    pub fn open(config: &'a LatencyConfig) -> Result<Self, Error> {
        let results = [("--csv", &config.client.csv), ("--hgrm", &config.client.hgrm), ("--svg", &config.client.svg)];
        let wanted = results.into_iter().chain([(TRACE_KEYS, &config.output.trace_keys)]);
        let mut files = NamedFiles::open(wanted.map(|(flag, path)| (flag, path.as_deref())))?;
        // What becomes of keys is written while they live.
        files.leave(TRACE_KEYS);
        Ok(Self(files))
    }

    /// Writes the results, each file whether or not another can be written. Percentiles are of one measurement; of several the
    /// command line does not ask for them.
    ///
    /// # Errors
    /// The first that cannot be written or drawn.
    pub fn write(self, sweep: &LatencySweep) -> Result<(), Error> {
        self.0.write(|flag| match (flag, sweep.only()) {
            ("--hgrm", Some(report)) => Ok(percentile_file(&report.histogram, report.scale())),
            ("--svg", _) => plot::percentile_curves(sweep.reports()),
            _ => Ok(sweep.csv()),
        })
    }
}

/// The percentile distribution in microseconds, as HdrHistogram's `outputPercentileDistribution` writes it.
pub(super) fn percentile_file(histogram: &Histogram<u64>, scale: Scale) -> String {
    let mut text = format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut counted = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF) {
        counted += step.count_since_last_iteration();
        let (value, quantile) = (scale.microseconds(step.value_iterated_to() as f64), step.quantile_iterated_to());
        let _ = if quantile < 1.0 {
            writeln!(text, "{value:>12.3} {quantile:>14.12} {counted:>10} {:>14.2}", 1.0 / (1.0 - quantile))
        } else {
            writeln!(text, "{value:>12.3} {quantile:>14.12} {counted:>10}")
        };
    }
    let us = |nanoseconds| scale.microseconds(nanoseconds);
    let _ = write!(
        text,
        "#[Mean    = {:>12.3}, StdDeviation   = {:>12.3}]\n#[Max     = {:>12.3}, Total count    = {:>12}]\n\
         #[Buckets = {:>12}, SubBuckets     = {:>12}]\n",
        us(histogram.mean()),
        us(histogram.stdev()),
        us(histogram.max() as f64),
        histogram.len(),
        histogram.buckets(),
        // Of three significant digits.
        2048
    );
    text
}

#[cfg(test)]
mod tests {
    use super::percentile_file;
    use crate::latency::summary::{Scale, histogram};

    #[test]
    fn percentiles_rise_to_all_of_the_requests() {
        let mut histogram = histogram().unwrap();
        (1..=10_000_u64).for_each(|value| histogram.record(value).unwrap());
        let text = percentile_file(&histogram, Scale::RoundTrip);
        let rows: Vec<Vec<f64>> = text
            .lines()
            .skip(2)
            .take_while(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().map(|field| field.parse().unwrap()).collect())
            .collect();
        assert!(rows.len() > 20);
        assert!(rows.is_sorted_by(|a, b| a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2]));
        assert_eq!(rows.last().unwrap()[1..], [1.0, 10_000.0]);
        assert!(text.contains("Total count    =        10000]"), "{text}");
    }
}
