//! Two gateways in front of one image of a Ceph cluster, of which the one that has its lock serves it, and a host with a path to each;
//! where `tests/run ceph` has started a cluster.

use super::Machine;
use super::program::{Program, passed, verified};
use super::rbd::{BLOCKS, cluster};
use frwr_support::storage_harness::ceph::Image;
use serde_json::Value;
use std::path::PathBuf;

const FIRST: &str = "127.0.0.1:4420";
const SECOND: &str = "127.0.0.1:4421";
const NQN: &str = "nqn.2026-11.invalid.frwr:gateways";

/// As methods take it.
fn of() -> String {
    format!("subsystem={NQN}")
}

/// One of them.
struct Gateway<'a> {
    machine: &'a Machine,
    address: &'static str,
    program: Program,
}

impl<'a> Gateway<'a> {
    fn socket(machine: &Machine, address: &str) -> PathBuf {
        machine.path(&format!("{address}.sock"))
    }

    /// It serves, and has said this of the lock.
    fn start(machine: &'a Machine, image: &Image<'_>, address: &'static str, says: &str) -> Self {
        let (name, socket) = (image.options().exclusive(true).name(), Self::socket(machine, address));
        let words = ["serve", "--listen", address, "--namespace", &name, "--subsystem", NQN];
        let program = machine.start(&[&words[..], &["--control", socket.to_str().unwrap()]].concat());
        program.says_all(&[&format!("listening on {address}"), says]);
        Self { machine, address, program }
    }

    fn started(&self, words: &[&str]) -> Program {
        let socket = Self::socket(self.machine, self.address);
        self.machine.start_exactly(&[&["ctl", "--control", socket.to_str().unwrap()], words].concat())
    }

    /// What `frwr ctl` answers.
    fn ctl(&self, words: &[&str]) -> Value {
        passed(self.started(&[&["--json"], words].concat()).ended())
    }

    /// It says that it does not do that, and this.
    fn refuses(&self, words: &[&str], says: &str) {
        self.started(words).says(says);
    }

    fn asked(&self, method: &str) -> Value {
        self.ctl(&[method, &of(), "namespace=1"])
    }

    /// A figure of its namespace, by the labels behind those of the namespace.
    fn figure(&self, name: &str, labels: &str) -> String {
        let all = self.ctl(&["metrics"]);
        let begins = format!(r#"frwr_{name}{{subsystem="{NQN}",namespace="1",{labels}}} "#);
        let found = all.as_str().and_then(|text| text.lines().find_map(|line| line.strip_prefix(&begins)));
        found.unwrap_or_else(|| panic!("no {begins}: {all}")).to_owned()
    }

    fn lock(&self) -> Value {
        self.ctl(&["namespaces"])["namespaces"][0]["lock"].clone()
    }
}

const SERVES: &str = "has taken the lock, which nobody had";
const STANDS_BY: &str = "has the lock, and serves the image";
const TAKES_OVER: &str = "has taken over the lock from";

/// Both, of which the first one serves.
fn gateways<'a>(machine: &'a Machine, image: &Image<'_>) -> [Gateway<'a>; 2] {
    let first = Gateway::start(machine, image, FIRST, SERVES);
    [first, Gateway::start(machine, image, SECOND, STANDS_BY)]
}

/// A host whose load goes on, by the first one.
fn host(machine: &Machine) -> Program {
    let file = machine.file("file");
    let fenced = ["--keep-alive", "1", "--path-timeout", "600", "--io-timeout", "600", "--storage-fences"];
    let words = ["--connect", SECOND, "--subsystem", NQN, "--file", &file, "--runtime", "3600"];
    let host = machine.load(&[&words[..], &fenced].concat());
    host.says("mixed load");
    host
}

/// The load goes on, by this gateway.
fn goes_on_by(host: &Program, address: &str) {
    host.says(&format!("path {address}: connected, optimized"));
    host.says("mixed load");
    host.says("mixed load");
}

/// What happens to the gateway that serves, or to what is behind both.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Killed,
    OsdKilled,
    StoppedAndLetGoOn,
    GivesTheLockBack,
}

const FATES: [Fate; 4] = [Fate::Killed, Fate::OsdKilled, Fate::StoppedAndLetGoOn, Fate::GivesTheLockBack];

/// How many of them, where `FRWR_FAILOVERS` does not say: each kind once.
fn rounds() -> usize {
    std::env::var("FRWR_FAILOVERS").map_or(FATES.len(), |count| count.parse().expect("FRWR_FAILOVERS is a number"))
}

#[test]
fn gateways_and_the_osd_fail_in_turn_over_ceph_and_nothing_is_lost() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image_of(BLOCKS);
    let machine = Machine::new();
    let [mut serves, mut other] = gateways(&machine, &image);
    let host = host(&machine);
    let again = |gateway: Gateway<'_>| Gateway::start(&machine, &image, gateway.address, STANDS_BY);
    for fate in FATES.into_iter().cycle().take(rounds()) {
        match fate {
            Fate::OsdKilled => {
                cluster.daemon("kill-osd");
                cluster.daemon("start-osd");
                host.says("mixed load");
                host.says("mixed load");
                continue;
            }
            Fate::Killed => {
                serves.program.kill();
                other.program.says(TAKES_OVER);
                goes_on_by(&host, other.address);
                serves = again(serves);
                host.says(&format!("path {}: connected, inaccessible", serves.address));
            }
            Fate::StoppedAndLetGoOn => {
                serves.program.signal("STOP");
                other.program.says(TAKES_OVER);
                goes_on_by(&host, other.address);
                serves.program.signal("CONT");
                serves.program.says("has lost the lock");
                let address = serves.address;
                passed(serves.program.stop());
                serves = Gateway::start(&machine, &image, address, STANDS_BY);
                host.says(&format!("path {address}: connected, inaccessible"));
            }
            Fate::GivesTheLockBack => {
                assert_eq!(serves.asked("release_lock")["changed"], true);
                other.program.says(SERVES);
                goes_on_by(&host, other.address);
                serves.program.says(STANDS_BY);
            }
        }
        core::mem::swap(&mut serves, &mut other);
    }
    verified(host.stop());
    for gateway in [serves, other] {
        passed(gateway.program.stop());
    }
}

#[test]
fn a_gateway_over_ceph_that_is_killed_is_followed_by_the_other_one_and_nothing_is_lost() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image_of(BLOCKS);
    let machine = Machine::new();
    let [mut first, second] = gateways(&machine, &image);
    let host = host(&machine);
    first.program.kill();
    let line = second.program.says(TAKES_OVER);
    assert!(line.contains("whose watch was gone") && line.contains("blocklist"), "{line}");
    goes_on_by(&host, SECOND);
    assert_eq!(second.figure("namespace_lock", r#"state="owner""#), "1");
    assert_eq!(second.figure("namespace_lock_taken_total", r#"from="gone""#), "1");
    assert_eq!(second.ctl(&["status"])["locks"]["owner"], 1);
    let first = Gateway::start(&machine, &image, FIRST, STANDS_BY);
    host.says(&format!("path {FIRST}: connected, inaccessible"));
    let report = verified(host.stop());
    let paths = report["load"]["paths"].as_array().unwrap();
    assert!(paths[1]["requests"].as_u64() > Some(0), "{report}");
    for gateway in [second, first] {
        passed(gateway.program.stop());
    }
}

#[test]
fn a_gateway_over_ceph_that_is_stopped_with_commands_and_goes_on_later_writes_nothing_more() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image_of(BLOCKS);
    let machine = Machine::new();
    let [first, second] = gateways(&machine, &image);
    let host = host(&machine);
    first.program.signal("STOP");
    second.program.says(TAKES_OVER);
    goes_on_by(&host, SECOND);
    first.program.signal("CONT");
    let line = first.program.says("has lost the lock");
    assert!(line.contains("remove_namespace"), "{line}");
    host.says(&format!("path {FIRST}: connected, inaccessible"));
    host.says("mixed load");
    host.says("mixed load");
    // It does not come back by itself, nor since somebody asks.
    assert_eq!(first.lock(), "lost");
    first.refuses(&["acquire_lock", &of(), "namespace=1"], "remove_namespace");
    verified(host.stop());
    for gateway in [first, second] {
        passed(gateway.program.stop());
    }
}

#[test]
fn operators_take_the_lock_of_an_image_over_ceph_and_give_it_back() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image_of(BLOCKS);
    let machine = Machine::new();
    let [first, second] = gateways(&machine, &image);
    let host = host(&machine);
    assert_eq!((first.lock(), second.lock()), ("owner".into(), "standby".into()));
    // Its ANA group is the lock's, whoever says something else.
    second.refuses(&["set_ana_state", &of(), "group=1", "state=optimized"], "follows the lock");
    // Given back, the other one has it; nobody was blocklisted.
    assert_eq!(first.asked("release_lock")["changed"], true);
    first.program.says("has given the lock back");
    second.program.says(SERVES);
    goes_on_by(&host, SECOND);
    first.program.says(STANDS_BY);
    // Taken from who lives.
    assert_eq!(first.asked("acquire_lock")["changed"], true);
    let line = first.program.says(TAKES_OVER);
    assert!(line.contains("as it was asked to"), "{line}");
    goes_on_by(&host, FIRST);
    second.program.says("has lost the lock");
    assert_eq!((first.lock(), second.lock()), ("owner".into(), "lost".into()));
    // Opened again, it stands by.
    passed(second.program.stop());
    let second = Gateway::start(&machine, &image, SECOND, STANDS_BY);
    host.says(&format!("path {SECOND}: connected, inaccessible"));
    // Who ends gives it back.
    passed(first.program.stop());
    second.program.says(SERVES);
    goes_on_by(&host, SECOND);
    verified(host.stop());
    passed(second.program.stop());
}
