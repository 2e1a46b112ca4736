//! Completions of a kind are kept back, and come together (faults 9, 11).

use super::{ENDS, Effects, Fault, Place};
use frwr_engine::provider::{
    TokenKind,
    fault::{CompletionFault, CompletionFilter},
};

const KEPT: [TokenKind; 4] = [TokenKind::Register, TokenKind::Invalidate, TokenKind::Message, TokenKind::Receive];

pub(super) const FAULT: Fault = Fault {
    name: "held completions",
    strike: |world, random| {
        let (time, long) = world.spell(random);
        let Some(Place { side, .. }) = world.some_port(random) else { return Effects::NONE };
        side.faults.on_all_completions(CompletionFilter::kind(random.of(&KEPT)), CompletionFault::Hold);
        world.release_at = world.now + time;
        ENDS().when(long)
    },
};
