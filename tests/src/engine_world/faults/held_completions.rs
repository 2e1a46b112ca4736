//! Completions of one kind are kept back while others pass (faults 9, 11).

use super::{Fault, Strike, some_party};
use frwr_engine::provider::{
    TokenKind,
    fault::{CompletionFault, CompletionFilter},
};
use frwr_support::engine_harness::TOKEN_KINDS;

pub(super) const FAULT: Fault = Fault {
    name: "held completions",
    ends_connections: false,
    takes_objects: false,
    strike: Strike::World(|world, random| {
        let (kind, party) = (random.of(&TOKEN_KINDS), some_party(world, random));
        // Its grant goes to others when it is destroyed, and a receiver that is not ready hangs rxe's peer.
        let dies = party.shares_receives && party.is_rxe() && kind == TokenKind::Receive;
        let hold = if dies { CompletionFault::HoldWhileAlive } else { CompletionFault::Hold };
        party.script.on_all_completions(CompletionFilter::kind(kind), hold);
    }),
};
