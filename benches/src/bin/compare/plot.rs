//! The picture of a run: how much of its goal's allowance each case uses, as SVG without scripts or fonts of its own.

use super::figure::readable;
use super::report::Outcome;
use core::fmt::Write;

const WIDTH: f64 = 1120.0;
/// Left of the bars.
const LABELS: f64 = 530.0;
/// Right of the bars, for their numbers.
const NUMBERS: f64 = 170.0;
const LINE: f64 = 18.0;
const TOP: f64 = 56.0;
/// Letters of a label that fit left of the bars, in the widest of the usual fonts.
const LETTERS: usize = 84;
/// Of these a row keeps so many beside its longest case.
const FEWEST: usize = 20;
/// Bars end here, in shares of the goal; a longer one is cut and says so.
const LONGEST: f64 = 2.0;

/// One bar.
struct Bar {
    label: String,
    used: f64,
    spread: f64,
    met: bool,
    number: String,
}

/// The plot: a bar for each case that was measured and has a goal with a size, and the line where goals end.
pub(super) fn svg(outcomes: &[Outcome], caption: &str) -> String {
    let bars = bars(outcomes);
    let bottom = TOP + LINE * bars.len() as f64;
    let height = bottom + 40.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    text(&mut svg, 10.0, 14.0, "start", "Share of what each goal allows: a bar that ends at 1 or before is met.");
    let more = "Red: missed, in one boot at least. Thin line: the largest sample of a time beyond the smallest.";
    text(&mut svg, 10.0, 28.0, "start", more);
    for (at, bar) in bars.iter().enumerate() {
        draw(&mut svg, bar, TOP + LINE * at as f64);
    }
    for share in [0.0, 0.5, 1.0, 1.5, 2.0] {
        let (at, colour) = (place(share), if share == 1.0 { "#000" } else { "#ccc" });
        let from = TOP - 6.0;
        let _ = writeln!(svg, "<path d=\"M{at:.1} {from:.1}V{bottom:.1}\" stroke=\"{colour}\"/>");
        text(&mut svg, at, TOP - 10.0, "middle", &format!("{share}"));
    }
    text(&mut svg, 10.0, bottom + 24.0, "start", caption);
    svg + "</svg>\n"
}

fn bars(outcomes: &[Outcome]) -> Vec<Bar> {
    let mut bars = Vec::new();
    for outcome in outcomes {
        for (case, verdict) in &outcome.cases {
            let Some(used) = verdict.used(case) else { continue };
            let number = match (verdict.ratio, verdict.ours.as_ref()) {
                (Some(ratio), _) => format!("{}x", readable(ratio)),
                (None, Ok(ours)) => format!("{} {}", readable(ours.value), case.unit),
                (None, Err(_)) => String::new(),
            };
            bars.push(Bar {
                label: label(outcome.row.id, outcome.row.what, case.name),
                used,
                spread: verdict.spread().unwrap_or_default(),
                met: verdict.met == Some(true),
                number,
            });
        }
    }
    bars
}

/// Row and case; where both are too long the row's words are cut, since they stand at its other cases, and then the case's.
fn label(id: &str, what: &str, case: &str) -> String {
    let name = if case.is_empty() { String::new() } else { format!(", {case}") };
    let room = LETTERS.saturating_sub(id.chars().count() + 1);
    let what = cut(what, room.saturating_sub(name.chars().count()).max(FEWEST));
    format!("{id} {}", cut(&format!("{what}{name}"), room))
}

/// At most so many letters.
fn cut(words: &str, most: usize) -> String {
    if words.chars().count() <= most {
        return words.to_owned();
    }
    let kept: String = words.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Where a share of the goal is, in the picture.
fn place(share: f64) -> f64 {
    LABELS + share.min(LONGEST) / LONGEST * (WIDTH - LABELS - NUMBERS)
}

fn draw(svg: &mut String, bar: &Bar, top: f64) {
    let colour = if bar.met { "#3a7d44" } else { "#b3372f" };
    let (from, to, middle) = (place(0.0), place(bar.used), top + LINE / 2.0);
    text(svg, LABELS - 8.0, middle + 4.0, "end", &bar.label);
    let (width, thick) = (to - from, LINE - 5.0);
    let _ = writeln!(
        svg,
        "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{thick}\" fill=\"{colour}\"/>"
    );
    if bar.spread > 0.0 && bar.used < LONGEST {
        let end = place(bar.used * (1.0 + bar.spread));
        let _ = writeln!(svg, "<path d=\"M{to:.1} {middle:.1}H{end:.1}\" stroke=\"#555\" stroke-width=\"1.5\"/>");
    }
    let cut = if bar.used > LONGEST { format!(" ({}x the goal)", readable(bar.used)) } else { String::new() };
    text(svg, WIDTH - NUMBERS + 6.0, middle + 4.0, "start", &format!("{}{cut}", bar.number));
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escaped(words));
}

/// Words as text of XML and HTML.
pub(super) fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::figure::Figure;
    use super::super::judge::judge;
    use super::super::rows;
    use super::*;

    #[test]
    fn labels_fit_and_can_be_told_apart() {
        for row in rows::all() {
            let labels: Vec<_> = row.cases.iter().map(|case| label(row.id, row.what, case.name)).collect();
            for (at, one) in labels.iter().enumerate() {
                assert!(one.chars().count() <= LETTERS && one.starts_with(row.id), "{one}");
                assert!(!labels[at + 1..].contains(one), "{one}");
            }
        }
        assert_eq!(label("A0", "a row", ""), "A0 a row");
        assert_eq!(label("A0", "a row", "a case"), "A0 a row, a case");
    }

    #[test]
    fn every_case_with_a_figure_has_a_bar() {
        let outcomes: Vec<_> = rows::all()
            .into_iter()
            .map(|row| Outcome {
                row,
                boots: None,
                cases: row
                    .cases
                    .iter()
                    .map(|case| {
                        let peer = case.peer.map(|_| Ok(Figure::exact(4.0)));
                        (case, judge(case.goals, Ok(Figure { value: 2.0, spread: 0.1, ..Figure::default() }), peer))
                    })
                    .collect(),
            })
            .collect();
        let svg = svg(&outcomes, "a & b");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("a &amp; b"));
        // One for the background, and none for goals of nothing.
        let bars = svg.matches("<rect ").count() - 1;
        let sized =
            outcomes.iter().flat_map(|outcome| &outcome.cases).filter(|(case, v)| v.used(case).is_some()).count();
        assert!(bars == sized && bars > 30, "{bars} bars of {sized}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
