//! Names with their figures, as what collects metrics reads them.

use core::{fmt, time::Duration};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, text::encode},
    metrics::MetricType,
    registry::{Registry, Unit},
};

/// In front of all names.
const PREFIX: &str = "frwr";

/// A number.
#[derive(Clone, Debug)]
pub(super) enum Figure {
    Count(u64),
    Seconds(f64),
    /// How much took how long.
    Histogram {
        counts: Vec<Length>,
        /// Of all together.
        sum: Duration,
    },
}

/// So much took longer than the length in front of this one, and until this end at most; `None` is without one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    pub(super) end: Option<Duration>,
    pub(super) count: u64,
}

impl From<u64> for Figure {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Figure {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<bool> for Figure {
    fn from(holds: bool) -> Self {
        Self::Count(holds.into())
    }
}

impl From<Duration> for Figure {
    fn from(time: Duration) -> Self {
        Self::Seconds(time.as_secs_f64())
    }
}

/// Names and values of labels.
pub(super) type Labels = Vec<(&'static str, String)>;

/// One name with its figures.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    figures: Vec<(Labels, Figure)>,
}

/// All of a time.
#[derive(Debug, Default)]
pub(super) struct Families(Vec<Family>);

impl Families {
    fn add(&mut self, kind: MetricType, name: &'static str, help: &'static str, figures: Vec<(Labels, Figure)>) {
        let (name, unit) = match name.rsplit_once('_') {
            Some((name, "seconds")) => (name, Some(Unit::Seconds)),
            Some((name, "bytes")) => (name, Some(Unit::Bytes)),
            _ => (name, None),
        };
        // A name without figures says nothing.
        if !figures.is_empty() {
            self.0.push(Family { name, help, unit, kind, figures });
        }
    }

    /// Of what was done so far.
    pub(super) fn counter(&mut self, name: &'static str, help: &'static str, figures: Vec<(Labels, Figure)>) {
        self.add(MetricType::Counter, name, help, figures);
    }

    /// Of what there is now.
    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str, figures: Vec<(Labels, Figure)>) {
        self.add(MetricType::Gauge, name, help, figures);
    }

    /// Of how long something took.
    pub(super) fn histogram(&mut self, name: &'static str, help: &'static str, figures: Vec<(Labels, Figure)>) {
        self.add(MetricType::Histogram, name, help, figures);
    }

    /// As OpenMetrics text.
    pub(super) fn text(self) -> String {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, unit, kind, figures } in &self.0 {
            let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), *kind)?;
            for (labels, figure) in figures {
                let mut one = family.encode_family(labels)?;
                match (kind, figure) {
                    (_, Figure::Histogram { counts, sum }) => encode_histogram(&mut one, counts, *sum)?,
                    (MetricType::Counter, Figure::Count(count)) => {
                        one.encode_counter::<Labels, u64, u64>(count, None)?;
                    }
                    (MetricType::Counter, Figure::Seconds(time)) => {
                        one.encode_counter::<Labels, f64, u64>(time, None)?;
                    }
                    (_, Figure::Count(count)) => one.encode_gauge(count)?,
                    (_, Figure::Seconds(time)) => one.encode_gauge(time)?,
                }
            }
        }
        Ok(())
    }
}

fn encode_histogram(one: &mut MetricEncoder<'_>, counts: &[Length], sum: Duration) -> fmt::Result {
    let end = |length: &Length| length.end.map_or(f64::INFINITY, |end| end.as_secs_f64());
    let buckets: Vec<_> = counts.iter().map(|length| (end(length), length.count)).collect();
    let all = counts.iter().map(|length| length.count).sum();
    one.encode_histogram::<Labels>(sum.as_secs_f64(), all, &buckets, None)
}
