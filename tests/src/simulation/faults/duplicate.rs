//! Completions come twice (fault 10).

use super::{ENDS, Effects, Fault, Place};
use frwr_engine::provider::fault::{CompletionFault, CompletionFilter};

pub(super) const FAULT: Fault = Fault {
    name: "duplicate completion",
    strike: |world, random| {
        let Some(Place { side, .. }) = world.some_port(random) else { return Effects::NONE };
        let times = 1 + random.below(3) as u32;
        side.faults.on_completions(CompletionFilter::default(), CompletionFault::Duplicate, times);
        // Whoever sees one takes it for a device that cannot be trusted.
        ENDS() | Effects::BREACHES
    },
};
