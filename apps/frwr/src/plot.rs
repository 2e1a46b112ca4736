//! Curves of latencies as SVG: one axis is what the caller wants, the other one microseconds, logarithmic, so that one stall hides
//! nothing.

use crate::Error;
use plotters::prelude::{
    BLACK, ChartBuilder, Circle, Color as _, IntoDrawingArea as _, IntoLogRange as _, LineSeries, PathElement,
    RGBColor, SVGBackend, SeriesLabelPosition, WHITE,
};

/// Pixels.
const SIZE: (u32, u32) = (960, 540);
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

/// One of them.
pub(crate) struct Curve {
    pub(crate) name: String,
    /// What the caller's axis is of, and microseconds.
    pub(crate) points: Vec<(f64, f64)>,
    /// What stands out.
    pub(crate) mark: Option<(f64, f64)>,
}

/// All that is drawn.
pub(crate) struct Chart<'a> {
    pub(crate) title: String,
    /// What the caller's axis is of, its labels and how many of them.
    pub(crate) axis: &'a str,
    pub(crate) label: &'a dyn Fn(f64) -> String,
    pub(crate) labels: usize,
    /// What the axis of latencies is of.
    pub(crate) latencies: String,
    pub(crate) curves: Vec<Curve>,
}

/// Draws them, as the file that `flag` asks for.
///
/// # Errors
/// It cannot be drawn.
pub(crate) fn draw(flag: &str, chart: Chart<'_>) -> Result<String, Error> {
    let mut text = String::new();
    drawn(&mut text, chart)
        .map_err(|reason| Error::failed("plot", format!("{flag}: the curve cannot be drawn: {reason}")))?;
    Ok(text)
}

fn drawn(text: &mut String, chart: Chart<'_>) -> Result<(), String> {
    let said = |error: plotters::drawing::DrawingAreaErrorKind<std::io::Error>| error.to_string();
    let Chart { title, axis, label, labels, latencies, curves } = chart;
    let right = all(&curves).map(|point| point.0).fold(1.0, f64::max);
    let (bottom, top) = bounds(&curves);
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(said)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(label_area(top))
        // Room for marks at the end.
        .build_cartesian_2d(0.0..right * 1.02, (bottom..top).log_scale())
        .map_err(said)?;
    chart
        .configure_mesh()
        .x_labels(labels)
        .x_label_formatter(&|x| label(*x))
        .y_label_formatter(&|y| microseconds(*y))
        .x_desc(axis)
        .y_desc(latencies)
        .label_style(("sans-serif", 14, &BLACK))
        .draw()
        .map_err(said)?;
    for (curve, colour) in curves.into_iter().zip(COLOURS.iter().cycle()) {
        let Curve { name, points, mark } = curve;
        let drawn = chart.draw_series(LineSeries::new(points, colour.stroke_width(2))).map_err(said)?;
        drawn.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(mark.map(|mark| Circle::new(mark, 4, colour.filled()))).map_err(said)?;
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

fn all(curves: &[Curve]) -> impl Iterator<Item = &(f64, f64)> {
    curves.iter().flat_map(|curve| curve.points.iter().chain(&curve.mark))
}

/// Powers of ten around all values, so that each end of the axis has a label.
fn bounds(curves: &[Curve]) -> (f64, f64) {
    let values = || all(curves).map(|point| point.1);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let power = |value: f64, round: fn(f64) -> f64| 10_f64.powf(round(value.max(1e-3).log10()));
    let (bottom, top) = (power(least.min(most), f64::floor), power(most, f64::ceil));
    (bottom, if top > bottom { top } else { 10.0 * bottom })
}

/// Pixels for labels up to `top`: with a stall they are of seven digits and more.
fn label_area(top: f64) -> u32 {
    (BESIDE_LABELS + (microseconds(top).len() as u32 + 1) * DIGIT).max(LABELS)
}

/// A time as labels have it: three digits are all that a histogram knows.
pub(crate) fn microseconds(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}").trim_end_matches(".0").to_owned(),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Curve, bounds, label_area, microseconds};

    #[test]
    fn bounds_are_powers_of_ten_around_all_curves() {
        let curve = |values: [f64; 2]| Curve {
            name: String::new(),
            points: vec![(0.0, values[0])],
            mark: Some((1.0, values[1])),
        };
        for (curves, wanted) in [
            (vec![curve([2.0, 30.0])], (1.0, 100.0)),
            (vec![curve([2.0, 30.0]), curve([0.2, 900.0])], (0.1, 1000.0)),
            (vec![curve([10.0, 10.0])], (10.0, 100.0)),
            // One stall of a second among requests of 3 us: the axis has both.
            (vec![curve([3.0, 1_000_001.0])], (1.0, 10_000_000.0)),
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
