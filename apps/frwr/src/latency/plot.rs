//! The percentile curves as SVG.

use super::{report::LatencyReport, summary::Scale};
use crate::{
    Error,
    plot::{Chart, Curve, draw, microseconds},
};
use hdrhistogram::Histogram;

/// Steps of the axis: 90 %, 99 %, and so on.
const MOST_NINES: f64 = 7.0;
/// Points of a curve: closer than pixels.
const POINTS: i32 = 400;

/// Draws latency over percentiles, a curve for each measurement; each step of the axis is a tenth of the requests of the one before.
/// The longest of each curve is marked, and told beside its name.
pub(super) fn percentile_curves(reports: &[LatencyReport]) -> Result<String, Error> {
    let Some(first) = reports.first() else { return Ok(String::new()) };
    let curves: Vec<Curve> = reports.iter().map(curve).collect();
    let right = curves.iter().filter_map(|curve| curve.mark).map(|mark| mark.0).fold(1.0, f64::max);
    draw(
        "--svg",
        Chart {
            title: title(reports, first),
            axis: "percentile",
            label: &percentile,
            labels: right.floor() as usize + 1,
            latencies: format!("latency in us ({})", first.scale().name().replace('_', " ")),
            curves,
        },
    )
}

/// As far as there are requests: of a thousand none is beyond 99.9 %.
fn nines(requests: u64) -> f64 {
    (requests.max(10) as f64).log10().clamp(1.0, MOST_NINES)
}

fn curve(report: &LatencyReport) -> Curve {
    let (points, maximum) = curve_of(&report.histogram, report.scale());
    let name = format!("{} bytes, max {} us", report.parameters.size, microseconds(maximum.1));
    Curve { name, points, mark: Some(maximum) }
}

fn curve_of(histogram: &Histogram<u64>, scale: Scale) -> (Vec<(f64, f64)>, (f64, f64)) {
    let right = nines(histogram.len());
    let point = |step: i32| {
        let x = right * f64::from(step) / f64::from(POINTS);
        (x, scale.microseconds(histogram.value_at_quantile(1.0 - 10_f64.powf(-x)) as f64))
    };
    ((0..=POINTS).map(point).collect(), (right, scale.microseconds(histogram.max() as f64)))
}

fn title(reports: &[LatencyReport], first: &LatencyReport) -> String {
    let parameters = &first.parameters;
    // Its times count from then.
    let rate = first.rate.map_or_else(String::new, |rate| format!(", {rate}/s meant to begin"));
    let requests: u64 = reports.iter().map(|report| report.histogram.len()).sum();
    let size =
        if reports.len() == 1 { format!("{} bytes", parameters.size) } else { format!("{} sizes", reports.len()) };
    let (operation, device, depth) = (parameters.operation.name(), &first.device, parameters.depth);
    format!("frwr latency {operation} on {device}: {size}, depth {depth}, {requests} requests{rate}")
}

/// 90 % at 1, 99 % at 2.
fn percentile(nines: f64) -> String {
    let percent = 100.0 * (1.0 - 10_f64.powf(-nines));
    let text = format!("{percent:.6}");
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::{curve_of, nines, percentile};
    use crate::latency::summary::{Scale, histogram};

    #[test]
    fn the_axis_counts_nines() {
        let labels = [0.0, 1.0, 2.0, 3.0, 5.0].map(percentile);
        assert_eq!(labels, ["0%", "90%", "99%", "99.9%", "99.999%"]);
        assert_eq!((nines(0), nines(1000), nines(u64::MAX)), (1.0, 3.0, 7.0));
    }

    /// One stall of a second among requests of 3 us: the curve has both, and the mark says how long it was.
    #[test]
    fn a_stall_hides_nothing() {
        let mut histogram = histogram().unwrap();
        (0..9_999).for_each(|_| histogram.record(3_000).unwrap());
        histogram.record(1_000_000_000).unwrap();
        let (points, maximum) = curve_of(&histogram, Scale::RoundTrip);
        assert!((points[0].1 - 3.0).abs() < 0.01 && (maximum.1 / 1e6 - 1.0).abs() < 0.01, "{maximum:?}");
    }
}
