//! Section 1.D: what stands in a chain, and in how many posts.

mod engine_harness;

use engine_harness::{Setup, Watched};
use frwr_engine::provider::Access;

/// Submits one request that needs `mrs` MRs, and lets it end by the peer's invalidation of one key and LOCAL_INV of others.
fn run(pair: &mut Watched, cookie: u64, mrs: u64) {
    // Each segment starts and ends inside a page, so that no two share an MR.
    let segments: Vec<_> = (0..mrs).map(|at| pair.pair.host.segment(16384 * at + 8, 100)).collect();
    let ended = pair.pair.host.ended.len();
    pair.pair.host.submit(cookie, Access::RemoteWrite, &segments, true).unwrap();
    pair.until("replied", |pair| {
        pair.serve(true);
        pair.host.ended.len() > ended
    });
}

#[test]
fn s45_one_chain_one_post_for_zero_one_and_three_mrs() {
    let mut pair = Setup::new("reg_mr").watched();
    pair.clear();
    for (mrs, chains) in [(0, vec!["S"]), (1, vec!["RS"]), (3, vec!["RRRS", "LL*"])] {
        run(&mut pair, mrs, mrs);
        assert_eq!(pair.host.chains(), chains, "{mrs} MRs");
        pair.clear();
    }
    assert_eq!(pair.host.counters().doorbells, 4);
}
