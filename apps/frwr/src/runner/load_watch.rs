//! The main thread's look at a load: what all cores counted in an interval, as a line, and whether that is a steady state.

use super::{
    intervals::IntervalSink,
    load_observed::ObserveArguments,
    load_rows::{Row, csv, svg},
    steady_state::SteadyState,
};
use crate::{Error, job::Tally};
use core::time::Duration;

/// All intervals of a load.
pub(super) struct LoadWatch {
    /// What the load is called in its lines.
    name: String,
    every: Duration,
    cores: Vec<IntervalSink>,
    /// What has come of the interval that ends with `number`, and of how many cores.
    current: Tally,
    number: u64,
    come: usize,
    /// The one before.
    told: u64,
    rows: Vec<Row>,
    steady: Option<SteadyState>,
    ended: bool,
}

/// What a load over time came to.
pub(super) struct Course {
    name: String,
    rows: Vec<Row>,
    pub(super) steady: Option<SteadyState>,
}

impl LoadWatch {
    /// Of these cores.
    ///
    /// # Errors
    /// No histogram could be made.
    pub(super) fn new(name: String, observe: &ObserveArguments, cores: Vec<IntervalSink>) -> Result<Self, Error> {
        let current = Tally::new().map_err(|error| Error::setup(format!("no latency histogram: {error:?}")))?;
        let (every, steady) = (observe.every(), observe.steady());
        Ok(Self { name, every, cores, current, number: 0, come: 0, told: 0, rows: Vec::new(), steady, ended: false })
    }

    /// Takes what has come, and tells of an interval once all cores have, or one is further. True once the load shall end.
    pub(super) fn pass(&mut self, say: &mut dyn FnMut(&str)) -> bool {
        for core in 0..self.cores.len() {
            while let Some(interval) = self.cores[core].pop() {
                if interval.number > self.number {
                    self.tell(say);
                    self.number = interval.number;
                }
                // What comes late counts for the one that is open.
                self.current.add(&interval.tally);
                self.come += 1;
                self.cores[core].give_back(interval.tally);
            }
        }
        if self.come >= self.cores.len() {
            self.tell(say);
        }
        self.ended
    }

    fn tell(&mut self, say: &mut dyn FnMut(&str)) {
        if core::mem::take(&mut self.come) == 0 || self.number <= self.told {
            return;
        }
        let end = |number: u64| self.every.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX));
        let row = Row::of(&self.current, end(self.number), end(self.number - self.told));
        self.told = self.number;
        self.current.clear();
        say(&row.line(&self.name));
        self.rows.push(row);
        if let Some(steady) = &mut self.steady
            && !self.ended
            && steady.note(&row)
        {
            self.ended = true;
            say(&format!("steady state: {} attained", steady.criterion()));
        }
    }

    /// All cores have ended.
    pub(super) fn finish(mut self, say: &mut dyn FnMut(&str)) -> Course {
        self.pass(say);
        self.tell(say);
        let Self { name, rows, steady, .. } = self;
        Course { name, rows, steady }
    }
}

impl Course {
    /// As a file has it that an option asks for.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub(super) fn text(&self, flag: &str, device: &str) -> Result<String, Error> {
        match flag {
            "--svg" => svg(format!("frwr load {} on {device}", self.name), &self.rows),
            _ => Ok(csv(&self.rows)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LoadWatch, ObserveArguments};
    use crate::{
        job::{AddressOrder, Change, Content, Job, JobOptions, LoadOptions, Mix, Sizes, Tally},
        runner::intervals::{IntervalSource, intervals},
    };
    use core::time::Duration;
    use frwr_mempool::{PagePolicy, PageSize, Region, RegionOptions};

    fn job() -> Job {
        let load = LoadOptions {
            order: AddressOrder::Random,
            mix: Mix { reads: 100, change: Change::Write },
            sizes: Sizes::uniform(4096),
            verify: false,
            rate: None,
            ramp: Duration::from_secs(1),
            runtime: Duration::from_secs(5),
            bytes: None,
            number: 0,
            loads: 1,
        };
        let content = Content::Range { bytes: 4096 };
        let options = JobOptions { content, first: 0, sector_bytes: 512, pieces: 1, queue_depth: 1, load, seed: 1 };
        let plain = PagePolicy::Exactly(PageSize::Plain);
        let mut region = Region::map(&RegionOptions::new(4096).pages(plain)).unwrap();
        let memory = region.carve(4096, 64).unwrap().into_device_memory();
        Job::new(options, memory, Tally::new().unwrap(), Duration::ZERO)
    }

    /// A core of a load: a request ends each time that it is polled.
    struct Core(IntervalSource, Job);

    impl Core {
        fn poll(&mut self, milliseconds: u64) {
            let now = Duration::from_millis(milliseconds);
            self.0.pass(&mut self.1, now);
            self.1.poll(now);
            if let Some(request) = self.1.next_request(now) {
                self.1.submitted(request, now);
                self.1.completed(request.slot, true, now);
            }
        }
    }

    fn watched(cores: usize, criterion: Option<&str>) -> (LoadWatch, Vec<Core>) {
        let observe = ObserveArguments {
            interval: Some(Duration::from_secs(1)),
            steadystate: criterion.map(|text| text.parse().unwrap()),
            steadystate_duration: Some(2),
            ..ObserveArguments::default()
        };
        let ends: Vec<_> = (0..cores).map(|_| intervals(observe.every()).unwrap()).collect();
        let (sources, sinks): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        let cores = sources.into_iter().map(|source| Core(source, job())).collect();
        (LoadWatch::new("randread".to_owned(), &observe, sinks).unwrap(), cores)
    }

    /// IOPS of each line.
    fn told(lines: &[String]) -> Vec<(String, String)> {
        let words = |line: &String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        lines.iter().map(words).map(|words| (words[0].clone(), words[3].clone())).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(at, iops)| ((*at).to_owned(), (*iops).to_owned())).collect()
    }

    #[test]
    fn a_line_is_of_what_all_cores_did_in_an_interval_and_the_ramp_has_none() {
        let (mut watch, mut cores) = watched(2, None);
        let mut lines = Vec::new();
        for at in (0..7000).step_by(100) {
            // The second core has half as much to do.
            cores[0].poll(at);
            if at % 200 == 0 {
                cores[1].poll(at);
            }
            assert!(!watch.pass(&mut |line| lines.push(line.to_owned())));
        }
        let course = watch.finish(&mut |line| lines.push(line.to_owned()));
        assert_eq!(told(&lines), pairs(&[("1", "15"), ("2", "15"), ("3", "15"), ("4", "15"), ("5", "15")]));
        assert_eq!(course.text("--latency-log", "").unwrap().lines().count(), 6);
    }

    #[test]
    fn a_core_without_a_part_or_late_ones_hold_nothing_up_and_nothing_is_lost() {
        let (mut watch, mut cores) = watched(2, None);
        let mut lines = Vec::new();
        for at in (0..3100).step_by(100) {
            cores[0].poll(at);
            watch.pass(&mut |line| lines.push(line.to_owned()));
        }
        // The first is further.
        assert_eq!(told(&lines), pairs(&[("1", "10")]));
        // It stood still for two seconds: one line of both.
        cores[0].poll(5000);
        watch.pass(&mut |line| lines.push(line.to_owned()));
        let course = watch.finish(&mut |line| lines.push(line.to_owned()));
        assert_eq!(told(&lines)[1..], pairs(&[("2", "10"), ("4", "0")])[..]);
        let text = course.text("--latency-log", "").unwrap();
        assert!(text.contains("\n4,0.500,"), "a request in two seconds: {text}");
    }

    #[test]
    fn a_steady_load_is_told_to_end_once() {
        let (mut watch, mut cores) = watched(1, Some("iops:10%"));
        let (mut lines, mut ended) = (Vec::new(), Vec::new());
        for at in (0..6000).step_by(100) {
            // Faster in the first second that counts.
            if at < 2000 {
                cores[0].poll(at + 50);
            }
            cores[0].poll(at + 60);
            ended.push(watch.pass(&mut |line| lines.push(line.to_owned())));
        }
        let at = ended.iter().position(|ended| *ended).unwrap() as u64 * 100;
        assert!((4000..4200).contains(&at), "{at}");
        assert_eq!(
            lines.iter().filter(|line| line.contains("steady state: iops:10% attained")).count(),
            1,
            "{lines:?}"
        );
        let steady = watch.finish(&mut |_| {}).steady.unwrap();
        assert!(steady.is_attained() && steady.told().is_some_and(|told| told <= 10.0));
    }
}
