//! A load over time: a row for each interval, as a line, as CSV, and as curves.

use crate::{
    Error,
    job::{Side, Tally},
    plot::{Chart, Curve, draw},
};
use core::{fmt::Write as _, time::Duration};

/// Labels of the axis of time.
const LABELS: usize = 10;

/// Figures of CSV: requests and MiB per second, then microseconds.
const COLUMNS: [&str; 8] =
    ["iops", "mib_per_second", "minimum_us", "mean_us", "p50_us", "p99_us", "p99_9_us", "maximum_us"];

/// Requests of one kind in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Figures {
    requests: u64,
    bytes: u64,
    /// In nanoseconds: the columns behind the rates.
    latencies: [f64; 6],
}

impl Figures {
    fn of(side: &Side) -> Self {
        let Side { requests, bytes, latency } = side;
        let at = |quantile| latency.value_at_quantile(quantile) as f64;
        let latencies = [latency.min() as f64, latency.mean(), at(0.5), at(0.99), at(0.999), latency.max() as f64];
        Self { requests: *requests, bytes: *bytes, latencies: if *requests > 0 { latencies } else { [0.0; 6] } }
    }

    fn columns(&self, seconds: f64) -> [f64; 8] {
        let [minimum, mean, p50, p99, p99_9, maximum] = self.latencies.map(|nanoseconds| nanoseconds / 1e3);
        let mebibytes = self.bytes as f64 / f64::from(1 << 20);
        [self.requests as f64 / seconds, mebibytes / seconds, minimum, mean, p50, p99, p99_9, maximum]
    }
}

/// One interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    /// When it ended, since the load counts.
    end: Duration,
    span: Duration,
    all: Figures,
    reads: Figures,
    writes: Figures,
}

impl Row {
    /// Of what was counted in an interval of that length, which is not 0.
    pub(super) fn of(tally: &Tally, end: Duration, span: Duration) -> Self {
        let [reads, writes] = [tally.reads(), tally.writes()].map(Figures::of);
        Self { end, span, all: Figures::of(&tally.total()), reads, writes }
    }

    pub(super) fn iops(&self) -> f64 {
        self.all.requests as f64 / self.span.as_secs_f64()
    }

    pub(super) fn bytes_per_second(&self) -> f64 {
        self.all.bytes as f64 / self.span.as_secs_f64()
    }

    /// In nanoseconds.
    pub(super) fn mean_latency(&self) -> f64 {
        self.all.latencies[1]
    }

    /// For people, of a load of that name.
    pub(super) fn line(&self, name: &str) -> String {
        let [iops, mebibytes, _, mean, p50, p99, p99_9, maximum] = self.all.columns(self.span.as_secs_f64());
        format!(
            "{:>6} s  {name:<9} {iops:>9.0} IOPS {mebibytes:>9.1} MiB/s  mean {mean:.1} p50 {p50:.1} p99 {p99:.1} \
             p99.9 {p99_9:.1} max {maximum:.1} us",
            seconds(self.end)
        )
    }
}

#[cfg(test)]
impl Row {
    /// So many requests of so many bytes, of the same latency.
    pub(super) fn of_requests(requests: u64, bytes: u64, span: Duration) -> Self {
        let all = Figures { requests, bytes: requests * bytes, latencies: [1000.0; 6] };
        Self { end: span, span, all, reads: all, writes: Figures::default() }
    }
}

/// Without what is no part of them.
fn seconds(time: Duration) -> String {
    let text = format!("{:.3}", time.as_secs_f64());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// All rows, under a line of names: everything, then reads and writes by themselves.
pub(super) fn csv(rows: &[Row]) -> String {
    let mut text = "seconds".to_owned();
    for kind in ["", "read_", "write_"] {
        COLUMNS.iter().for_each(|column| {
            let _ = write!(text, ",{kind}{column}");
        });
    }
    text.push('\n');
    for row in rows {
        text += &seconds(row.end);
        let span = row.span.as_secs_f64();
        for figure in [row.all, row.reads, row.writes].iter().flat_map(|figures| figures.columns(span)) {
            let _ = write!(text, ",{figure:.3}");
        }
        text.push('\n');
    }
    text
}

/// Latencies over time; an interval in which nothing ended has none.
///
/// # Errors
/// They cannot be drawn.
pub(super) fn svg(title: String, rows: &[Row]) -> Result<String, Error> {
    let curve = |(column, name): (usize, &str)| {
        let ended = rows.iter().filter(|row| row.all.requests > 0);
        let points = ended.map(|row| (row.end.as_secs_f64(), row.all.latencies[column] / 1e3)).collect();
        Curve { name: name.to_owned(), points, mark: None }
    };
    let curves = [(2, "p50"), (3, "p99"), (4, "p99.9"), (5, "max")].map(curve).into();
    let label = |time: f64| seconds(Duration::try_from_secs_f64(time).unwrap_or_default());
    let latencies = "latency in us".to_owned();
    draw("--svg", Chart { title, axis: "seconds", label: &label, labels: LABELS, latencies, curves })
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, Row, csv, svg};
    use core::time::Duration;

    #[test]
    fn a_row_is_of_its_own_time() {
        let half = Duration::from_millis(500);
        let row = Row { end: Duration::from_millis(1500), ..Row::of_requests(100, 1 << 20, half) };
        assert_eq!(
            row.line("randread"),
            "   1.5 s  randread        200 IOPS     200.0 MiB/s  mean 1.0 p50 1.0 p99 1.0 p99.9 1.0 max 1.0 us"
        );
        let text = csv(&[row, Row::of_requests(0, 0, half)]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert!(lines.len() == 3 && lines.iter().all(|line| line.len() == 1 + 3 * COLUMNS.len()));
        assert_eq!(lines[0][..3], ["seconds", "iops", "mib_per_second"]);
        assert_eq!(lines[1][..4], ["1.5", "200.000", "200.000", "1.000"]);
        assert_eq!(
            (lines[0][9], lines[1][9], lines[0][17], lines[1][17]),
            ("read_iops", "200.000", "write_iops", "0.000")
        );
    }

    #[test]
    fn curves_are_drawn_of_whatever_there_is() {
        let rows: Vec<_> = (0..20).map(|at| Row::of_requests(at, 512, Duration::from_secs(1))).collect();
        for count in [0, 1, 2, 20] {
            let drawn = svg("frwr load".to_owned(), &rows[..count]).unwrap();
            assert!(drawn.starts_with("<svg") && drawn.contains("p99.9") && drawn.contains("seconds"), "{count}");
        }
    }
}
