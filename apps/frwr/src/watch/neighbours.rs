//! What else happens on a machine while something is measured on it.

use crate::check::{names, text};
use frwr_reactor::{CpuId, CpuSet};
use std::path::Path;

/// Names of reactors' threads begin so; the kernel cuts them at 15 bytes.
const REACTOR: &str = "frwr-reactor-";

/// Threads of other processes that look like reactors and may run on one CPU only: process and CPU.
#[must_use]
pub fn pinned_reactors(root: &Path) -> Vec<(u32, CpuId)> {
    let (processes, own) = (root.join("proc"), std::process::id());
    let mut found = Vec::new();
    for process in names(&processes).iter().filter_map(|name| name.parse::<u32>().ok()).filter(|&id| id != own) {
        let tasks = processes.join(process.to_string()).join("task");
        for task in names(&tasks) {
            let task = tasks.join(task);
            let is_reactor = text(&task.join("comm")).is_some_and(|name| name.starts_with(REACTOR));
            if let Some(cpu) =
                is_reactor.then(|| text(&task.join("status"))).flatten().and_then(|status| only_cpu(&status))
            {
                found.push((process, cpu));
            }
        }
    }
    found
}

/// The one CPU in the line `Cpus_allowed_list:` of a task's status.
fn only_cpu(status: &str) -> Option<CpuId> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let allowed = CpuSet::parse_kernel_list(list.trim())?;
    allowed.iter().next().filter(|_| allowed.len() == 1)
}

/// How long each CPU has worked and rested, in the kernel's ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusyTimes(Vec<(CpuId, u64, u64)>);

impl BusyTimes {
    /// Of the machine whose `proc` lies below `root`; of no CPU where that cannot be read.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        text(&root.join("proc/stat")).map_or_else(Self::default, |stat| Self::parse(&stat))
    }

    /// From the lines `cpuN user nice system idle iowait ...` of /proc/stat (proc_stat(5)).
    #[must_use]
    pub fn parse(stat: &str) -> Self {
        let of_line = |line: &str| {
            // The first line is of all of them: the number behind its name is of ticks.
            let of_one = line.strip_prefix("cpu").filter(|rest| !rest.starts_with(' '))?;
            let mut fields = of_one.split_whitespace();
            let cpu = CpuId::new(fields.next()?.parse().ok()?).ok()?;
            let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
            // Guest times are counted as user and nice already.
            let all: u64 = ticks.iter().take(8).sum();
            let resting: u64 = ticks.iter().skip(3).take(2).sum();
            Some((cpu, all.saturating_sub(resting), all))
        };
        Self(stat.lines().filter_map(of_line).collect())
    }

    fn of(&self, cpu: CpuId) -> Option<(u64, u64)> {
        self.0.iter().find(|(known, ..)| *known == cpu).map(|&(_, busy, all)| (busy, all))
    }

    /// Which share of the time since then a CPU has worked, 0 to 1; `None` where nobody knows.
    #[must_use]
    pub fn busy_share_since(&self, before: &Self, cpu: CpuId) -> Option<f64> {
        let ((busy, all), (busy_before, all_before)) = (self.of(cpu)?, before.of(cpu)?);
        let all = all.checked_sub(all_before).filter(|all| *all > 0)?;
        Some(busy.saturating_sub(busy_before) as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::{BusyTimes, only_cpu};
    use frwr_reactor::CpuId;

    #[test]
    fn a_thread_on_one_cpu_is_told_from_others() {
        let status = |list: &str| format!("Name:\tfrwr-reactor-0\nCpus_allowed:\t2\nCpus_allowed_list:\t{list}\n");
        assert_eq!(only_cpu(&status("1")), CpuId::new(1).ok());
        assert_eq!((only_cpu(&status("0-1")), only_cpu(&status("x")), only_cpu("")), (None, None, None));
    }

    #[test]
    fn shares_are_of_the_time_between() {
        let (before, after) = (BusyTimes::parse("cpu0 1 0 0 9 0\n"), BusyTimes::parse("cpu0 3 0 0 17 0\nintr 5\n"));
        let cpu = CpuId::new(0).unwrap();
        assert_eq!(after.busy_share_since(&before, cpu), Some(0.2));
        assert_eq!(before.busy_share_since(&before, cpu), None);
        // All CPUs together have worked for as many ticks as the one in question is called, as on a machine that has just started.
        let (before, after) = ("cpu  0 0 0 9 0\ncpu0 1 0 0 9 0\n", "cpu  0 0 0 99 0\ncpu0 3 0 0 17 0\n");
        let [before, after] = [before, after].map(BusyTimes::parse);
        assert_eq!(after.busy_share_since(&before, cpu), Some(0.2));
        assert_eq!(BusyTimes::parse("cpu\ncpux 1\ncpu99999999 1\n"), BusyTimes::default());
    }
}
