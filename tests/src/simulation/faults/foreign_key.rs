//! A reply says that it invalidated a key that is not the request's (fault 17).

use super::{ENDS, Effects, Fault};
use frwr_engine::provider::{
    Success, TokenKind,
    fault::{CompletionFault, CompletionFilter},
};
use frwr_nvmf::wire::RESPONSE_CAPSULE_BYTES;

pub(super) const FAULT: Fault = Fault {
    name: "foreign key",
    strike: |world, random| {
        let host = random.below(world.hosts.len() as u64) as usize;
        let success = Success { bytes: RESPONSE_CAPSULE_BYTES as u32, invalidated: Some(random.bits() as u32) };
        let filter = CompletionFilter::kind(TokenKind::Receive);
        world.hosts[host].side.faults.on_completions(filter, CompletionFault::Succeed(success), 1);
        ENDS() | Effects::BREACHES
    },
};
