//! The normal path of verbs.md 5.1, on every profile.

mod harness;

use frwr_engine::provider::{Access, Port, Success};
use harness::soft::{on_all, pair};
use harness::{Builder, pattern, statuses};

const KIB64: u32 = 64 << 10;

/// `[BIND, BIND, SEND sig]`: one completion; the peer writes and reads 64 KiB at odd addresses through the two keys.
#[test]
fn s32_two_registrations_and_a_send_give_one_completion() {
    on_all(|profile| {
        let mut pair = pair(profile);
        let ends = pair.connect();
        pair.peer.post_receives(ends.peer, 0, 4);
        let (mut first, mut second) = (pair.owner.slot(ends.owner), pair.owner.slot(ends.owner));
        let target = pair.owner.element(4096 + 1, KIB64);
        let source = pair.owner.element(200_000, KIB64);
        let (chain, write) = Builder::new().register(&pair.owner, &mut first, &[target], Access::RemoteWrite);
        let (chain, read) = chain.register(&pair.owner, &mut second, &[source], Access::RemoteRead);
        let chain = chain.send(&[pair.owner.element(0, 48)]).signalled();
        let done = pair.owner_runs(ends.owner, &chain, 1);
        assert_eq!(statuses(&done), [None]);
        assert_eq!(done[0].token, chain.requests[2].token);
        assert_eq!(pair.owner.port.remote_bytes_open(), Some(2 * u64::from(KIB64)));

        pair.owner.write_memory(200_000, &pattern(9, KIB64 as usize));
        pair.peer.write_memory(0, &pattern(5, KIB64 as usize));
        let local = [pair.peer.element(0, KIB64)];
        let back = [pair.peer.element(100_001, KIB64)];
        let chain = Builder::new().write(&local, write.at(0)).read(&back, read.at(0)).signalled();
        let done = pair.peer_runs(ends.peer, &chain, 1);
        assert_eq!(statuses(&done), [None]);
        assert_eq!(pair.owner.read_memory(4097, KIB64 as usize), pattern(5, KIB64 as usize));
        assert_eq!(pair.peer.read_memory(100_001, KIB64 as usize), pattern(9, KIB64 as usize));

        let chain = Builder::new().invalidate(first).invalidate(second).signalled();
        let done = pair.owner_runs(ends.owner, &chain, 1);
        assert_eq!(done[0].result, Ok(Success::default()));
        assert_eq!(pair.owner.port.remote_bytes_open(), Some(0));
        pair.settle();
        assert_eq!(pair.owner.sent.len(), 2, "unsignalled successes are silent");
    });
}
