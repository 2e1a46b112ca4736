//! Threads that were moved away from their core, seen now and then.

use super::shortcoming;
use crate::check::Shortcoming;
use core::time::Duration;
use frwr_reactor::{Astray, CoreIndex};

/// How often is looked: two system calls for each reactor.
const PERIOD: Duration = Duration::from_secs(1);

/// Looks every second whether reactors are where they were pinned, and says once what became of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patrol {
    next: Duration,
    /// Those that cannot go back yet.
    away: Vec<CoreIndex>,
    /// Each reactor that was ever found elsewhere, as it was found first, and how often it was moved.
    moved: Vec<(Astray, u32)>,
}

impl Patrol {
    /// When it looks next.
    pub(crate) fn due(&self) -> Duration {
        self.next
    }

    /// To be called from the main thread's loop; `look` is [`frwr_reactor::Running::astray`], which pins again what it finds.
    pub(crate) fn pass(&mut self, now: Duration, look: impl FnOnce() -> Vec<Astray>, say: &mut dyn FnMut(&str)) {
        if now < self.next {
            return;
        }
        self.next = now + PERIOD;
        let found = look();
        for astray in &found {
            let was_away = self.away.contains(&astray.core);
            match (was_away, astray.pinned_again) {
                (true, false) => continue,
                (true, true) => self.away.retain(|core| *core != astray.core),
                (false, false) => self.away.push(astray.core),
                (false, true) => {}
            }
            say(&line(astray, was_away));
            if !was_away {
                self.note(astray);
            }
        }
    }

    /// For the end of a measurement.
    pub(crate) fn shortcomings(&self) -> Vec<Shortcoming> {
        let of = |(astray, times): &(Astray, u32)| {
            let times = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
            let Astray { core, pinned, .. } = astray;
            let text = format!("reactor {core} was moved away from core {pinned} {times}, to {}", place(astray));
            shortcoming("moved", text, "let nobody write to this process's cpuset while it runs")
        };
        self.moved.iter().map(of).collect()
    }

    fn note(&mut self, astray: &Astray) {
        match self.moved.iter_mut().find(|(moved, _)| moved.core == astray.core) {
            Some((_, times)) => *times += 1,
            None => self.moved.push((astray.clone(), 1)),
        }
    }
}

fn place(astray: &Astray) -> String {
    match astray.running {
        Some(cpu) => format!("core {cpu}"),
        None => format!("one of the cores {}", astray.allowed),
    }
}

fn line(astray: &Astray, was_away: bool) -> String {
    let Astray { core, pinned, allowed, pinned_again, .. } = astray;
    match (was_away, pinned_again) {
        (true, _) => format!("reactor {core} is on core {pinned} again"),
        (false, true) => {
            let place = place(astray);
            format!(
                "warning: reactor {core} was moved from core {pinned} to {place} (a cpuset was written?); it is pinned again"
            )
        }
        (false, false) => {
            let place = place(astray);
            format!(
                "warning: reactor {core} was moved from core {pinned} to {place}, and may not go back: this process's cpuset is \
                 {allowed}; it is pinned again once that has core {pinned}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Patrol;
    use core::time::Duration;
    use frwr_reactor::{Astray, CoreIndex, CpuId, CpuSet};

    fn astray(core: u16, pinned_again: bool) -> Astray {
        let cpu = |number| CpuId::new(number).unwrap();
        let allowed = CpuSet::parse_kernel_list("0,2-3").unwrap();
        Astray { core: CoreIndex(core), pinned: cpu(1), allowed, running: Some(cpu(3)), pinned_again }
    }

    #[test]
    fn each_change_is_told_once_and_looked_for_once_a_second() {
        let (mut patrol, mut said) = (Patrol::default(), Vec::new());
        let steps = [
            (0, vec![], None),
            (400, vec![astray(0, false)], None),
            (1_000, vec![astray(0, false)], Some("may not go back: this process's cpuset is 0,2-3")),
            (2_000, vec![astray(0, false)], None),
            (60_000, vec![astray(0, true)], Some("reactor 0 is on core 1 again")),
            (61_000, vec![], None),
            (
                62_000,
                vec![astray(0, true)],
                Some("moved from core 1 to core 3 (a cpuset was written?); it is pinned again"),
            ),
        ];
        for (milliseconds, found, wanted) in steps {
            said.clear();
            patrol.pass(Duration::from_millis(milliseconds), || found, &mut |line| said.push(line.to_owned()));
            assert_eq!(said.len(), usize::from(wanted.is_some()), "{milliseconds}: {said:?}");
            assert!(said.iter().all(|line| line.contains(wanted.unwrap())), "{milliseconds}: {said:?}");
        }
        let all = patrol.shortcomings();
        assert!(all.len() == 1 && all[0].text.contains("away from core 1 2 times, to core 3"), "{all:?}");
        assert!(Patrol::default().shortcomings().is_empty());
    }
}
