//! A port loses its link: nothing crosses the wire of any queue pair of it for a while (faults 33, 39).

use super::{ENDS, Effects, Fault, Place};
use frwr_engine::provider::{QueuePairId, soft::Interference};

/// Steps of queue pairs: from a few to more than all retries of many last.
const STEPS: [u64; 4] = [4, 50, 500, 4000];

pub(super) const FAULT: Fault = Fault {
    name: "cut port",
    strike: |world, random| {
        let Some(Place { side, port, .. }) = world.some_port(random) else { return Effects::NONE };
        let Some(monitor) = &side.monitor else { return Effects::NONE };
        monitor.interfere(port, Box::new(CutPort { steps: random.of(&STEPS) }));
        ENDS()
    },
};

struct CutPort {
    steps: u64,
}

impl Interference for CutPort {
    fn cuts_wire(&mut self, _: QueuePairId) -> bool {
        let cuts = self.steps > 0;
        self.steps -= u64::from(cuts);
        cuts
    }

    fn is_over(&self) -> bool {
        self.steps == 0
    }
}
