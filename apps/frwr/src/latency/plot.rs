//! The percentile curves as SVG.

use super::{report::LatencyReport, summary::Scale};
use crate::Error;
use hdrhistogram::Histogram;
use plotters::prelude::{
    BLACK, ChartBuilder, Circle, Color as _, IntoDrawingArea as _, IntoLogRange as _, LineSeries, PathElement,
    RGBColor, SVGBackend, SeriesLabelPosition, WHITE,
};

/// Pixels.
const SIZE: (u32, u32) = (960, 540);
/// Steps of the axis: 90 %, 99 %, and so on.
const MOST_NINES: f64 = 7.0;
/// Points of a curve: closer than pixels.
const POINTS: i32 = 400;
/// Pixels of a digit of the labels at most, and of what stands beside them: what the axis is of, and a mark.
const DIGIT: u32 = 8;
const BESIDE_LABELS: u32 = 26;
/// Pixels for the labels of latencies at least.
const LABELS: u32 = 70;
/// Colours of curves, which are told apart by everybody (Okabe and Ito), in turn.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// One measurement as it is drawn.
struct Curve {
    name: String,
    /// Nines and microseconds.
    points: Vec<(f64, f64)>,
    /// The longest, at the end of the curve.
    maximum: (f64, f64),
}

/// Draws latency over percentiles, a curve for each measurement; each step of the axis is a tenth of the requests of the one before. The
/// axis of latencies is logarithmic, so that one stall hides nothing, and the longest of each curve is marked, and told beside its name.
pub(super) fn percentile_curves(reports: &[LatencyReport]) -> Result<String, Error> {
    let mut text = String::new();
    draw(&mut text, reports)
        .map_err(|reason| Error::failed("plot", format!("--svg: the curve cannot be drawn: {reason}")))?;
    Ok(text)
}

/// As far as there are requests: of a thousand none is beyond 99.9 %.
fn nines(requests: u64) -> f64 {
    (requests.max(10) as f64).log10().clamp(1.0, MOST_NINES)
}

fn curve(report: &LatencyReport) -> Curve {
    let (points, maximum) = curve_of(&report.histogram, report.scale());
    let name = format!("{} bytes, max {} us", report.parameters.size, microseconds(maximum.1));
    Curve { name, points, maximum }
}

fn curve_of(histogram: &Histogram<u64>, scale: Scale) -> (Vec<(f64, f64)>, (f64, f64)) {
    let right = nines(histogram.len());
    let point = |step: i32| {
        let x = right * f64::from(step) / f64::from(POINTS);
        (x, scale.microseconds(histogram.value_at_quantile(1.0 - 10_f64.powf(-x)) as f64))
    };
    ((0..=POINTS).map(point).collect(), (right, scale.microseconds(histogram.max() as f64)))
}

/// Powers of ten around all values, so that each end of the axis has a label.
fn bounds(curves: &[Curve]) -> (f64, f64) {
    let values = || curves.iter().flat_map(|curve| curve.points.iter().chain([&curve.maximum]).map(|point| point.1));
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let power = |value: f64, round: fn(f64) -> f64| 10_f64.powf(round(value.max(1e-3).log10()));
    let (bottom, top) = (power(least.min(most), f64::floor), power(most, f64::ceil));
    (bottom, if top > bottom { top } else { 10.0 * bottom })
}

fn draw(text: &mut String, reports: &[LatencyReport]) -> Result<(), String> {
    let said = |error: plotters::drawing::DrawingAreaErrorKind<std::io::Error>| error.to_string();
    let Some(first) = reports.first() else { return Ok(()) };
    let curves: Vec<Curve> = reports.iter().map(curve).collect();
    let right = curves.iter().map(|curve| curve.maximum.0).fold(1.0, f64::max);
    let (bottom, top) = bounds(&curves);
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(said)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title(reports, first), ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(label_area(top))
        // Room for the marks of the longest, which stand at the end.
        .build_cartesian_2d(0.0..right * 1.02, (bottom..top).log_scale())
        .map_err(said)?;
    chart
        .configure_mesh()
        .x_labels(right.floor() as usize + 1)
        .x_label_formatter(&|x| percentile(*x))
        .y_label_formatter(&|y| microseconds(*y))
        .x_desc("percentile")
        .y_desc(format!("latency in us ({})", first.scale().name().replace('_', " ")))
        .label_style(("sans-serif", 14, &BLACK))
        .draw()
        .map_err(said)?;
    for (curve, colour) in curves.into_iter().zip(COLOURS.iter().cycle()) {
        let Curve { name, points, maximum } = curve;
        let drawn = chart.draw_series(LineSeries::new(points, colour.stroke_width(2))).map_err(said)?;
        drawn.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series([Circle::new(maximum, 4, colour.filled())]).map_err(said)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 14))
        .draw()
        .map_err(said)?;
    area.present().map_err(said)
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

/// Pixels for labels up to `top`: with a stall they are of seven digits and more.
fn label_area(top: f64) -> u32 {
    (BESIDE_LABELS + (microseconds(top).len() as u32 + 1) * DIGIT).max(LABELS)
}

/// A time as labels have it: three digits are all that a histogram knows.
fn microseconds(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}").trim_end_matches(".0").to_owned(),
        value => format!("{value:.3}"),
    }
}

/// 90 % at 1, 99 % at 2.
fn percentile(nines: f64) -> String {
    let percent = 100.0 * (1.0 - 10_f64.powf(-nines));
    let text = format!("{percent:.6}");
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::{Curve, bounds, curve_of, label_area, microseconds, nines, percentile};
    use crate::latency::summary::{Scale, histogram};

    #[test]
    fn the_axis_counts_nines() {
        let labels = [0.0, 1.0, 2.0, 3.0, 5.0].map(percentile);
        assert_eq!(labels, ["0%", "90%", "99%", "99.9%", "99.999%"]);
        assert_eq!((nines(0), nines(1000), nines(u64::MAX)), (1.0, 3.0, 7.0));
    }

    /// One stall of a second among requests of 3 us: the axis has both, and the mark says how long it was.
    #[test]
    fn a_stall_hides_nothing() {
        let mut histogram = histogram().unwrap();
        (0..9_999).for_each(|_| histogram.record(3_000).unwrap());
        histogram.record(1_000_000_000).unwrap();
        let (points, maximum) = curve_of(&histogram, Scale::RoundTrip);
        assert!((points[0].1 - 3.0).abs() < 0.01 && (maximum.1 / 1e6 - 1.0).abs() < 0.01, "{maximum:?}");
        let curve = Curve { name: String::new(), points, maximum };
        assert_eq!(bounds(&[curve]), (1.0, 10_000_000.0));
    }

    #[test]
    fn bounds_are_powers_of_ten_around_all_curves() {
        let curve =
            |values: [f64; 2]| Curve { name: String::new(), points: vec![(0.0, values[0])], maximum: (1.0, values[1]) };
        for (curves, wanted) in [
            (vec![curve([2.0, 30.0])], (1.0, 100.0)),
            (vec![curve([2.0, 30.0]), curve([0.2, 900.0])], (0.1, 1000.0)),
            (vec![curve([10.0, 10.0])], (10.0, 100.0)),
            (vec![], (0.001, 0.01)),
        ] {
            let (bottom, top) = bounds(&curves);
            assert!(
                (bottom / wanted.0 - 1.0).abs() < 1e-9 && (top / wanted.1 - 1.0).abs() < 1e-9,
                "{bottom} {top} {wanted:?}"
            );
        }
    }

    /// A digit of 11 pixels' height is 7 wide, and what the axis is of stands 12 from the left.
    #[test]
    fn labels_have_room_beside_what_the_axis_is_of() {
        for (top, longest) in
            [(0.002, "0.002"), (9.9, "9.9"), (60_000.0, "60000"), (4.5e5, "450000"), (1.8e11, "180000000000")]
        {
            assert_eq!(microseconds(top), longest);
            let wanted = 12 + 7 * longest.len() as u32;
            assert!(label_area(top) >= wanted + 10 && label_area(top) <= 200, "{top}: {}", label_area(top));
        }
    }
}
