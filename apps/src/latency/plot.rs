//! The percentile curve as SVG.

use super::{error::LatencyError, report::LatencyReport};
use plotters::prelude::{BLACK, ChartBuilder, IntoDrawingArea as _, LineSeries, RGBColor, SVGBackend, WHITE};

/// Pixels.
const SIZE: (u32, u32) = (960, 540);
/// Steps of the axis: 90 %, 99 %, and so on.
const MOST_NINES: f64 = 7.0;
/// Pixels of a digit of the labels at most, and of what stands beside them: what the axis is of, and a mark.
const DIGIT: u32 = 8;
const BESIDE_LABELS: u32 = 26;
/// Pixels for the labels of latencies at least.
const LABELS: u32 = 70;
const LINE: RGBColor = RGBColor(0, 90, 160);

/// Draws latency over percentiles; each step of the axis is a tenth of the requests of the one before.
pub(super) fn percentile_curve(report: &LatencyReport) -> Result<String, LatencyError> {
    let mut text = String::new();
    draw(&mut text, report).map_err(LatencyError::Plot)?;
    Ok(text)
}

/// As far as there are requests: of a thousand none is beyond 99.9 %.
fn nines(requests: u64) -> f64 {
    (requests.max(10) as f64).log10().clamp(1.0, MOST_NINES)
}

fn draw(text: &mut String, report: &LatencyReport) -> Result<(), String> {
    let histogram = &report.histogram;
    let said = |error: plotters::drawing::DrawingAreaErrorKind<std::io::Error>| error.to_string();
    let scale = report.scale();
    let right = nines(histogram.len());
    let points: Vec<(f64, f64)> = (0..=200)
        .map(|step| {
            let x = right * f64::from(step) / 200.0;
            let value = histogram.value_at_quantile(1.0 - 10_f64.powf(-x));
            (x, scale.microseconds(value as f64))
        })
        .collect();
    let top = points.last().map_or(1.0, |point| point.1).max(0.001) * 1.05;
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(said)?;
    let parameters = &report.parameters;
    // Its times count from then.
    let rate = report.rate.map_or_else(String::new, |rate| format!(", {rate}/s meant to begin"));
    let title = format!(
        "frwr-latency {} on {}: {} bytes, depth {}, {} requests{rate}",
        parameters.operation.name(),
        report.device,
        parameters.size,
        parameters.depth,
        histogram.len()
    );
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(label_area(top))
        .build_cartesian_2d(0.0..right, 0.0..top)
        .map_err(said)?;
    chart
        .configure_mesh()
        .x_labels(right.floor() as usize + 1)
        .x_label_formatter(&|x| percentile(*x))
        .x_desc("percentile")
        .y_desc(format!("latency in us ({})", scale.name().replace('_', " ")))
        .label_style(("sans-serif", 14, &BLACK))
        .draw()
        .map_err(said)?;
    chart.draw_series(LineSeries::new(points, &LINE)).map_err(said)?;
    area.present().map_err(said)
}

/// Pixels for labels up to `top`, which have a point and a digit behind it: with a stall they are of seven digits and more.
fn label_area(top: f64) -> u32 {
    let digits = top.max(1.0).log10() as u32 + 1;
    (BESIDE_LABELS + (digits + 2) * DIGIT).max(LABELS)
}

/// 90 % at 1, 99 % at 2.
fn percentile(nines: f64) -> String {
    let percent = 100.0 * (1.0 - 10_f64.powf(-nines));
    let text = format!("{percent:.6}");
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::{label_area, nines, percentile};

    #[test]
    fn the_axis_counts_nines() {
        let labels = [0.0, 1.0, 2.0, 3.0, 5.0].map(percentile);
        assert_eq!(labels, ["0%", "90%", "99%", "99.9%", "99.999%"]);
        assert_eq!((nines(0), nines(1000), nines(u64::MAX)), (1.0, 3.0, 7.0));
    }

    /// A digit of 11 pixels' height is 7 wide, and what the axis is of stands 12 from the left.
    #[test]
    fn labels_have_room_beside_what_the_axis_is_of() {
        for (top, longest) in
            [(0.002, "0.002"), (9.9, "9.5"), (60_000.0, "60000.0"), (4.5e5, "450000.0"), (1.8e11, "180000000000.0")]
        {
            let wanted = 12 + 7 * longest.len() as u32;
            assert!(label_area(top) >= wanted + 10 && label_area(top) <= 200, "{top}: {}", label_area(top));
        }
    }
}
