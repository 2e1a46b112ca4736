//! After its start a reactor that carries host and target over the software NIC allocates nothing.

use frwr_engine::provider::{record::Recorded, soft::SoftProfile};
use frwr_tests::carried::Stepped;

#[global_allocator]
static COUNTING: frwr_allocations::Counting = frwr_allocations::Counting;

const QUEUE_DEPTH: u16 = 32;
const REQUESTS: u64 = 5_000;
/// Steps in which that many requests have to end.
const STEPS: u32 = 1_000_000;

/// Steps until as many requests ended; returns what was allocated within the steps.
fn allocations<D: frwr_engine::provider::Device>(stepped: &mut Stepped<D>, what: &str) -> u64 {
    stepped.reactor.context_mut().refill = true;
    let before = frwr_allocations::allocations();
    for _ in 0..STEPS {
        stepped.step();
        if stepped.reactor.context().succeeded >= REQUESTS {
            break;
        }
    }
    let allocated = frwr_allocations::allocations() - before;
    let carried = stepped.reactor.context();
    assert!(carried.succeeded >= REQUESTS && carried.failed == 0, "{what}: {:?}", carried.host.statistics());
    allocated
}

#[test]
fn a_reactor_under_load_does_not_allocate() {
    for profile in SoftProfile::ALL {
        for remote_invalidation in [true, false] {
            let what = format!("{profile:?}, remote invalidation {remote_invalidation}");
            let mut stepped = Stepped::new(profile, QUEUE_DEPTH, remote_invalidation, |device| device).unwrap();
            assert_eq!(allocations(&mut stepped, &what), 0, "{what}");
        }
    }
}

#[test]
fn the_recorder_does_not_allocate_either() {
    let mut taps = None;
    let wrap = |device| {
        let (device, found) = Recorded::new(device, 1 << 10);
        taps = Some(found);
        device
    };
    let mut stepped = Stepped::new(SoftProfile::RegMr, QUEUE_DEPTH, true, wrap).unwrap();
    // Nobody drains it: what finds no room is dropped and counted.
    assert_eq!(allocations(&mut stepped, "recorded"), 0);
}

#[test]
fn the_allocator_counts() {
    let before = frwr_allocations::allocations();
    let kept = std::hint::black_box(Box::new(7_u64));
    assert!(frwr_allocations::allocations() > before, "{kept}");
}
