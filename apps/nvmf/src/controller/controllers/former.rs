//! Hosts that come again, and of which a controller is here already. Whether that is another session of theirs or one that they left
//! without a word that arrived, their devices know: one that has the admin queue acknowledges a probe, one that left it does not.

use super::Controllers;
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, Engine};

impl Controllers {
    /// A number for what is asked from now on: greater than that of all questions before.
    pub(in super::super) fn next_question(&mut self) -> u64 {
        self.questions += 1;
        self.questions
    }

    /// Asks the device of the host of a place whether the admin queue is there, where it has not said so since that question. True where
    /// it owes the answer. One whose connection ends owes none: its end is told.
    pub(in super::super) fn ask<P: Port>(
        &mut self,
        place: usize,
        question: u64,
        now: Duration,
        engine: &mut Engine<P>,
    ) -> bool {
        let Some(controller) = self.controllers.get_mut(place).and_then(Option::as_mut) else { return false };
        let Some(admin) = controller.admin().filter(|admin| engine.is_ready(*admin)) else { return false };
        if !controller.probe().ask(question) {
            return false;
        }
        if !controller.probe().is_under_way() {
            self.counted.probes += u64::from(controller.send_probe(admin, place, now, engine));
        }
        true
    }

    /// A controller whose host's device left such a question open for too long: it is to be ended.
    pub(in super::super) fn next_unanswered(&mut self, now: Duration) -> Option<(usize, ConnectionId)> {
        let mut all = self.controllers.iter_mut().enumerate();
        let (place, controller) = all.find_map(|(place, found)| {
            Some((place, found.as_mut().filter(|found| found.leaves_question_open(now))?))
        })?;
        controller.expire();
        self.counted.silent_hosts += 1;
        Some((place, controller.admin()?))
    }
}
