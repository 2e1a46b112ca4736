//! Completions come twice (fault 10).

use super::{Fault, Strike, some_party};
use frwr_engine::provider::fault::{CompletionFault, CompletionFilter};

const TIMES: u32 = 3;

pub(super) const FAULT: Fault = Fault {
    name: "doubled completions",
    ends_connections: false,
    takes_objects: false,
    strike: Strike::World(|world, random| {
        let script = &some_party(world, random).script;
        script.on_completions(CompletionFilter::default(), CompletionFault::Duplicate, TIMES);
    }),
};
