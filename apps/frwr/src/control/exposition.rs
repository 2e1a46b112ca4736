//! The two ways in which figures are written down for who collects them: OpenMetrics, and the text format that was before it, which whoever
//! does not ask for the other one gets (as Prometheus' own clients do, and `promtool check metrics` wants).

use std::borrow::Cow;

/// What OpenMetrics is called.
const OPEN_METRICS: &str = "application/openmetrics-text";
const OPEN_METRICS_VERSION: &str = "1.0.0";
const TEXT: &str = "text/plain";
/// Behind the names of counters.
const OF_COUNTERS: &str = "_total";

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    Text,
}

impl Format {
    /// That which somebody would rather have who says this (Accept, RFC 9110 12.5.1), if anything.
    pub(super) fn wanted(accept: &str) -> Self {
        let ranges = || accept.split(',').map(Range::of);
        let best =
            |is_it: fn(&Range<'_>) -> bool| ranges().filter(is_it).map(|range| range.quality).fold(0.0, f64::max);
        let open_metrics = best(|range| {
            let is_known = range.version.is_none_or(|version| version == OPEN_METRICS_VERSION);
            range.name.eq_ignore_ascii_case(OPEN_METRICS) && is_known
        });
        let text = best(|range| range.name.eq_ignore_ascii_case(TEXT));
        if open_metrics > 0.0 && open_metrics >= text { Self::OpenMetrics } else { Self::Text }
    }

    /// What it is called in an answer.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// OpenMetrics text in this format.
    pub(super) fn of(self, open_metrics: &str) -> Cow<'_, str> {
        match self {
            Self::OpenMetrics => open_metrics.into(),
            Self::Text => text(open_metrics).into(),
        }
    }
}

/// What somebody would take.
struct Range<'a> {
    name: &'a str,
    version: Option<&'a str>,
    /// From 0, not at all, to 1.
    quality: f64,
}

impl<'a> Range<'a> {
    fn of(said: &'a str) -> Self {
        let mut parts = said.split(';').map(str::trim);
        let mut range = Self { name: parts.next().unwrap_or_default(), version: None, quality: 1.0 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name {
                "version" => range.version = Some(value.trim_matches('"')),
                "q" => range.quality = value.parse().unwrap_or(0.0),
                _ => {}
            }
        }
        range
    }
}

/// There a counter's family has the name of its figures, and neither units nor an end are told.
fn text(open_metrics: &str) -> String {
    let (mut text, mut help) = (String::with_capacity(open_metrics.len()), "");
    let mut tell = |parts: &[&str]| {
        parts.iter().for_each(|part| text.push_str(part));
        text.push('\n');
    };
    for line in open_metrics.lines() {
        if let Some(said) = line.strip_prefix("# HELP ") {
            // Its type follows, which says what it is called.
            help = said;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|said| said.split_once(' ')) {
            let end = if kind == "counter" { OF_COUNTERS } else { "" };
            let about = help.strip_prefix(name).unwrap_or_default();
            tell(&["# HELP ", name, end, about]);
            tell(&["# TYPE ", name, end, " ", kind]);
        } else if !line.starts_with("# ") {
            tell(&[line]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Format;

    #[test]
    fn who_asks_for_open_metrics_gets_it_and_everybody_else_text() {
        let of_prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                             text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, wanted) in [
            (of_prometheus, Format::OpenMetrics),
            ("application/OpenMetrics-Text", Format::OpenMetrics),
            ("text/plain; q=0.5, application/openmetrics-text; version=\"1.0.0\"; q=0.5", Format::OpenMetrics),
            ("application/openmetrics-text;q=0.2,text/plain;q=0.3", Format::Text),
            ("application/openmetrics-text;version=0.0.1", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
            ("application/openmetrics-text;q=x", Format::Text),
            ("text/html,*/*", Format::Text),
            ("", Format::Text),
            (",;=;q=,", Format::Text),
        ] {
            assert_eq!(Format::wanted(accept), wanted, "{accept}");
        }
    }

    #[test]
    fn counters_are_called_as_their_figures_in_text() {
        let open_metrics = "# HELP a_seconds What it is.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1.5\n# HELP b \
                            Another one.\n# TYPE b gauge\nb{of=\"# HELP x\"} 2\n# EOF\n";
        let text = "# HELP a_seconds_total What it is.\n# TYPE a_seconds_total counter\na_seconds_total 1.5\n# HELP b \
                    Another one.\n# TYPE b gauge\nb{of=\"# HELP x\"} 2\n";
        assert_eq!(Format::Text.of(open_metrics), text);
        assert_eq!(Format::OpenMetrics.of(open_metrics), open_metrics);
    }
}
