//! Hostile peers on the software NIC, beside a host that behaves: each attack costs only itself, and is one line.

use core::time::Duration;
use frwr_engine::provider::soft::{SoftDevice, SoftProfile};
use frwr_nvmf::controller::{Incident, TargetStatistics};
use frwr_nvmf::wire::Nqn;
use frwr_tests::carried::{SUBSYSTEM, Stepped};
use frwr_tests::hostile::{Names, Peer, World, all};

/// The host's.
const QUEUE_DEPTH: u16 = 16;
/// How long peers may say nothing; virtual time.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(2);
/// Controllers at the same time: the host's, and those that attacks hold.
const CONTROLLERS: u16 = 8;
/// Steps in which what is left of an attack goes away.
const STEPS_TO_SETTLE: u32 = 200_000;

/// Host and target, and what the target tells.
struct Soft {
    stepped: Stepped<SoftDevice>,
    incidents: Vec<Incident>,
}

impl World for Soft {
    fn pass(&mut self) -> Duration {
        self.stepped.controls();
        self.stepped.step();
        while let Some(incident) = self.stepped.reactor.context_mut().target.next_incident() {
            self.incidents.push(incident);
        }
        self.stepped.now()
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(500)
    }
}

impl Soft {
    fn new(profile: SoftProfile) -> Self {
        let change = |options: &mut frwr_nvmf::controller::TargetOptions| {
            options.controllers = CONTROLLERS;
            options.in_capsule_bytes = 4096;
            options.connect_timeout = CONNECT_TIMEOUT;
        };
        let mut stepped = Stepped::with_target(profile, QUEUE_DEPTH, true, |device| device, change).unwrap();
        stepped.reactor.context_mut().refill = true;
        Self { stepped, incidents: Vec::new() }
    }

    fn target(&self) -> TargetStatistics {
        self.stepped.reactor.context().target.statistics()
    }

    /// Only the host's connections are left, and nothing is in flight.
    fn settle(&mut self, queues: u64) {
        self.stepped.reactor.context_mut().refill = false;
        for _ in 0..STEPS_TO_SETTLE {
            self.pass();
            let now = self.target();
            if (now.queues, now.slots_used) == (queues, 0) && now.buffers_free == now.buffers {
                self.stepped.reactor.context_mut().refill = true;
                return;
            }
        }
        panic!("something is left: {:?}", self.target());
    }
}

#[test]
fn each_attack_costs_only_itself_and_is_one_line_with_keys_of_mrs() {
    each_attack_costs_only_itself_and_is_one_line(SoftProfile::RegMr);
}

#[test]
fn each_attack_costs_only_itself_and_is_one_line_with_keys_of_windows() {
    each_attack_costs_only_itself_and_is_one_line(SoftProfile::Window);
}

#[test]
fn each_attack_costs_only_itself_and_is_one_line_where_soft_roce_forgets_bounds() {
    each_attack_costs_only_itself_and_is_one_line(SoftProfile::Rxe);
}

fn each_attack_costs_only_itself_and_is_one_line(profile: SoftProfile) {
    let soft = Soft::new(profile);
    let (device, address, queues) = (soft.stepped.device(profile), soft.stepped.address(), soft.target().queues);
    let mut peer = Peer::new(device, address, soft).unwrap();
    for attack in all() {
        peer.forget();
        peer.world.settle(queues);
        peer.world.incidents.clear();
        let before = peer.world.stepped.reactor.context().succeeded;
        let outcome = (attack.run)(&mut peer, &Names::of(attack.name, Nqn::new(SUBSYSTEM).unwrap()).unwrap());
        assert_eq!(outcome, Ok(()), "{profile:?}: {}: {:?}", attack.name, peer.world.target());
        peer.world.settle(queues);
        let lines: Vec<_> = peer.world.incidents.iter().map(ToString::to_string).collect();
        let is_said = |line: &String| attack.said.split('|').any(|said| line.contains(said));
        assert!(lines.iter().all(is_said), "{profile:?}: {}: {lines:#?}", attack.name);
        let expected = match attack.name {
            "flood" => lines.len() > 1,
            // This NIC is so fast that nothing may be in flight any more.
            "vanishes" => lines.len() <= 1,
            _ => lines.len() == 1,
        };
        assert!(expected, "{profile:?}: {}: {lines:#?}", attack.name);
        let carried = peer.world.stepped.reactor.context();
        assert!(carried.succeeded > before && carried.failed == 0, "{profile:?}: {}", attack.name);
    }
    let carried = peer.world.stepped.reactor.context();
    assert_eq!((carried.host.statistics().sessions, carried.host.last_failure()), (1, None), "{profile:?}");
    let statistics = peer.world.target();
    assert_eq!((statistics.commands_in_flight, statistics.orphans), (1, 0), "{profile:?}: the host's event request");
}
