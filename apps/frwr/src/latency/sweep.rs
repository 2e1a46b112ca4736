//! Measurements of one size after the other, told together.

use super::{
    counters::{Counters, ratio},
    report::LatencyReport,
};
use crate::report::Report;
use core::fmt::Write as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// One measurement, or several that differ in their size alone; never none.
#[derive(Clone, Debug)]
pub struct LatencySweep {
    reports: Vec<LatencyReport>,
    /// How many were asked for.
    asked: usize,
}

impl Report for LatencySweep {
    /// One object; of several measurements one with all of theirs.
    fn json(&self) -> Value {
        match self.only() {
            Some(report) => report.json(),
            None => json!({
                "measurements": self.reports.iter().map(LatencyReport::json).collect::<Vec<_>>(),
                "sizes_asked_for": self.asked,
            }),
        }
    }

    /// The tables: of several measurements a row for each.
    fn table(&self) -> String {
        let mut text = String::new();
        match (self.only(), self.reports.first()) {
            (Some(report), _) => text = report.table(),
            (None, Some(first)) if !self.has_figures() => text = first.table(),
            // Writing to a string cannot fail.
            (None, Some(first)) => {
                let _ = self.write_table(first, &mut text);
            }
            (None, None) => {}
        }
        text
    }
}

impl LatencySweep {
    pub(super) fn new(reports: Vec<LatencyReport>, asked: usize) -> Self {
        Self { reports, asked }
    }

    /// All of them, in the order in which they were asked for.
    #[must_use]
    pub fn reports(&self) -> &[LatencyReport] {
        &self.reports
    }

    /// Whether there are figures: a run that is interrupted at once has none.
    pub(super) fn has_figures(&self) -> bool {
        self.reports.iter().any(|report| report.requests() > 0)
    }

    /// Where one alone was asked for.
    pub(super) fn only(&self) -> Option<&LatencyReport> {
        self.reports.first().filter(|_| self.asked == 1)
    }

    /// The figures as a table: a head, and of each measurement a row for all cores, and one for each.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = LatencyReport::csv_head();
        for report in &self.reports {
            report.write_csv(&mut text);
        }
        text
    }

    fn write_table(&self, first: &LatencyReport, out: &mut String) -> core::fmt::Result {
        let sizes: Vec<_> = self.reports.iter().map(|report| report.parameters.size.to_string()).collect();
        writeln!(out, "{}", first.title())?;
        let seconds = self.reports.iter().map(LatencyReport::seconds).sum();
        writeln!(out, "{}", first.settings(&sizes.join(", "), seconds, " in all, each"))?;
        if let Some(hardware) = first.hardware() {
            writeln!(out, "{hardware}: check what it says against another tool, and tell us")?;
        }
        first.write_latency_head(out)?;
        for report in &self.reports {
            report.write_latency(out)?;
        }
        writeln!(
            out,
            "\n{:>9}{:>14}{:>12}{:>10}{:>7}{:>13}{:>18}{:>24}{:>20}",
            "#bytes",
            "requests/s",
            "MiB/s",
            "Gbit/s",
            "busy",
            "empty polls",
            "completions/poll",
            "work requests/doorbell",
            "doorbells/request"
        )?;
        for report in &self.reports {
            write_rates(report, &report.counters(), out)?;
        }
        writeln!(out)?;
        let warnings = self.reports.iter().flat_map(LatencyReport::all_warnings);
        let mut told = BTreeSet::new();
        for warning in warnings {
            let line = format!("warning: {}; {}", warning.text, warning.remedy);
            if told.insert(line.clone()) {
                writeln!(out, "{line}")?;
            }
        }
        self.reports.iter().try_for_each(|report| report.write_undrained(out))?;
        let (rows, asked) = (self.reports.len(), self.asked);
        if self.reports.iter().any(|report| report.interrupted) {
            writeln!(
                out,
                "interrupted: {rows} of {asked} sizes, one of them perhaps with fewer requests than asked for"
            )?;
        } else if rows < asked {
            // Interrupted in front of one, or one failed, which standard error says.
            writeln!(out, "{rows} of {asked} sizes were measured")?;
        }
        Ok(())
    }
}

fn write_rates(report: &LatencyReport, counters: &Counters, out: &mut String) -> core::fmt::Result {
    writeln!(
        out,
        "{:>9}{:>14.0}{:>12.1}{:>10.3}{:>6.0}%{:>12.1}%{:>18.2}{:>24.2}{:>20.3}",
        report.parameters.size,
        report.rate(),
        report.mebibytes(report.rate()),
        report.gigabits(report.rate()),
        100.0 * report.busy_share(),
        100.0 * counters.empty_poll_share(),
        counters.completions_per_poll(),
        counters.work_requests_per_doorbell(),
        ratio(counters.doorbells, report.requests()),
    )
}
