//! The last incidents, for who asks: the main thread's log may have counted them only.

use core::time::Duration;
use frwr_nvmf::controller::Incident;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Incidents that are kept: what a person scrolls through, some 50 KiB.
pub(super) const MAX_RECENT: usize = 256;

/// The newest is the last.
#[derive(Debug, Default)]
pub(super) struct Recent {
    kept: VecDeque<(Duration, Incident)>,
    count: u64,
}

impl Recent {
    pub(super) fn note(&mut self, now: Duration, incident: &Incident) {
        if self.kept.len() == MAX_RECENT {
            self.kept.pop_front();
        }
        self.kept.push_back((now, *incident));
        self.count += 1;
    }

    /// All that there were.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// As JSON; ages are of `now`.
    pub(super) fn json(&self, now: Duration) -> Value {
        let one = |(at, incident): &(Duration, Incident)| {
            json!({
                "age_seconds": now.saturating_sub(*at).as_secs_f64(),
                "peer": incident.peer.map(|peer| peer.to_string()),
                "host": incident.host.as_ref().map(|host| host.as_str()),
                "queue": incident.queue_id,
                "text": incident.to_string(),
            })
        };
        json!({ "count": self.count, "incidents": self.kept.iter().map(one).collect::<Vec<_>>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frwr_nvmf::controller::Fault;

    #[test]
    fn the_last_incidents_are_kept_and_all_are_counted() {
        let mut recent = Recent::default();
        for second in 0..MAX_RECENT as u64 + 10 {
            recent.note(Duration::from_secs(second), &Incident::new(None, Fault::Overrun { entries: second as u16 }));
        }
        let told = recent.json(Duration::from_secs(1000));
        let all = told["incidents"].as_array().unwrap();
        assert_eq!((all.len(), told["count"].as_u64()), (MAX_RECENT, Some(MAX_RECENT as u64 + 10)));
        assert_eq!(all[0]["age_seconds"], 990.0, "the oldest that is kept");
        assert!(all[0]["text"].as_str().unwrap().contains("10 entries"), "{}", all[0]);
    }
}
