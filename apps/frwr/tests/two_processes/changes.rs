//! A target that is changed at random by `frwr ctl`, under hosts that verify what they read. No error that no change explains, nothing
//! lost, and the target is what was made of it; who reads its metrics as nobody should disturbs nobody.

use super::Machine;
use super::program::{Program, passed, verified};
use frwr_support::Random;
use frwr_support::changes::{Change, Ctl, HostileReader, Model, Plan, Second, Users, run, until};
use std::path::Path;

const FIRST: &str = "nqn.2026-11.invalid.frwr:file";
/// Of the device that stays.
const FIRST_ADDRESS: &str = "127.0.0.1:4420";
/// The first one is there all the time.
const HOSTS: [&str; 3] = ["nqn.2026-11.invalid.frwr:a", "nqn.2026-11.invalid.frwr:b", "nqn.2026-11.invalid.frwr:c"];
/// Bytes of the namespace that stays, of which its host uses the first half.
const BYTES: u64 = 2 << 20;
/// Half a second each, on a machine that does nothing else.
const CHANGES: u64 = 100;
/// Namespaces that may come.
const SPARE: usize = 8;
/// Loads of namespaces that come and go.
const GUESTS: usize = 2;

/// A host's load of one namespace.
struct Guest {
    host: &'static str,
    subsystem: String,
    namespace: u32,
    bytes: u64,
    /// It came by the device that comes and goes.
    by_second: bool,
    program: Program,
    /// What it may say when it ends by the changes that were made.
    explained: Vec<&'static str>,
    /// By which it is of no use any more.
    doomed: bool,
    /// It waits for a path, or because it is drained.
    waits: bool,
}

impl Guest {
    fn start(
        machine: &Machine,
        host: &'static str,
        of: (&str, u32),
        bytes: u64,
        read_only: bool,
        by: Option<&Second>,
    ) -> Self {
        let (subsystem, namespace) = (of.0.to_owned(), of.1);
        let (identifier, size) = (namespace.to_string(), bytes.to_string());
        let rw: &[&str] = if read_only { &["randread"] } else { &["randrw", "--allow-overwrite"] };
        let fixed = ["--subsystem", &subsystem, "--nsid", &identifier, "--host-nqn", host, "--bytes", &size];
        let more = ["--runtime", "36000", "--reconnects", "100", "--io-retries", "100", "--idle", "sleep", "--rw"];
        // Enough to be in the way of each change, and no more than leaves the machine to the others.
        let rate = ["--block-size", "4096", "--rate-iops", "400", "--queue-depth", "8"];
        let address = by.map_or_else(|| FIRST_ADDRESS.to_owned(), |second| second.address.to_string());
        let program = machine.start(&[&["load", "--connect", &address], &fixed[..], &more, rw, &rate].concat());
        let (by_second, explained) = (by.is_some(), Vec::new());
        Self { host, subsystem, namespace, bytes, by_second, program, explained, doomed: false, waits: false }
    }

    fn is_of(&self, subsystem: &str, namespace: u32) -> bool {
        self.subsystem == subsystem && self.namespace == namespace
    }

    fn reaches_all(&self, model: &Model) -> bool {
        let found = model.namespace(&self.subsystem, self.namespace);
        let has_device = !self.by_second || model.second().is_some();
        has_device
            && model.reaches(self.host, &self.subsystem, self.namespace)
            && found.is_some_and(|found| found.bytes >= self.bytes)
    }

    /// What the next state of the target means for it.
    fn expects(&mut self, after: &Model) {
        let found = after.namespace(&self.subsystem, self.namespace);
        let is_path = after.subsystems.get(&self.subsystem).is_none_or(|found| found.ana_of(self.namespace).is_path());
        let causes = [
            (found.is_none(), &GONE[..]),
            (found.is_some_and(|found| !found.active), &INACTIVE),
            (found.is_some_and(|found| found.bytes < self.bytes), &SMALLER),
            (!after.allows(self.host, &self.subsystem), &NOT_ALLOWED),
        ];
        for (_, texts) in causes.iter().filter(|(applies, _)| *applies) {
            self.explained.extend_from_slice(texts);
            self.doomed = true;
        }
        let is_gone = self.by_second && after.second().is_none();
        self.doomed |= is_gone;
        self.waits = !is_path || is_gone || after.is_drained(self.host);
        if !is_path || is_gone {
            // It may wait for longer than hosts do.
            self.explained.push(NO_PATH);
        }
    }

    /// It is asked to end, or has ended for its reason; what it read was what it had written.
    fn end(mut self) -> Result<(), String> {
        if self.program.runs() {
            self.program.signal("TERM");
        }
        let (code, report) = self.program.ended();
        let told = [&report["caught"], &report["message"]].map(|text| text.as_str().unwrap_or_default()).concat();
        let is_well = code == Some(0) && report["verified"] == true;
        if is_well || code == Some(1) && self.explained.iter().any(|text| told.contains(text)) {
            return Ok(());
        }
        Err(format!("{} ended with {code:?}: {told}; explained is {:?}: {report}", self.host, self.explained))
    }
}

/// How a host ends whose namespace is gone,
const GONE: [&str; 3] = ["Invalid Namespace", "is not active", "Invalid Host"];
/// not active,
const INACTIVE: [&str; 2] = ["Invalid Field", "is not active"];
/// smaller,
const SMALLER: [&str; 2] = ["LBA Out of Range", "outside of the namespace"];
/// kept from it,
const NOT_ALLOWED: [&str; 1] = ["Invalid Host"];
/// or cannot be reached for long.
const NO_PATH: &str = "cannot be reached";

/// All hosts.
struct Hosts<'a> {
    machine: &'a Machine,
    steady: Guest,
    guests: Vec<Guest>,
    random: Random,
}

fn operations(ctl: &mut Ctl, subsystem: &str, namespace: u32) -> Result<u64, String> {
    let all = ctl.list("namespaces")?;
    let found = all.iter().find(|one| one["subsystem"] == subsystem && one["namespace"] == namespace);
    found.and_then(|one| one["operations"].as_u64()).ok_or_else(|| format!("no {subsystem} {namespace}: {all:?}"))
}

fn goes_on(guest: &mut Guest, ctl: &mut Ctl) -> Result<(), String> {
    let before = operations(ctl, &guest.subsystem, guest.namespace)?;
    until(&format!("{} goes on in {} {}", guest.host, guest.subsystem, guest.namespace), || {
        if !guest.program.runs() {
            return Err(format!("{} has ended: {:?}", guest.host, guest.program.last_words()));
        }
        Ok(operations(ctl, &guest.subsystem, guest.namespace)? > before)
    })
}

impl Users for Hosts<'_> {
    fn before(&mut self, change: &Change, model: &Model) -> Result<(), String> {
        let after = model.after(change);
        for guest in &mut self.guests {
            guest.expects(&after);
        }
        Ok(())
    }

    fn after(&mut self, _: &Change, model: &Model, ctl: &mut Ctl) -> Result<(), String> {
        if self.steady.reaches_all(model) {
            goes_on(&mut self.steady, ctl)?;
        }
        let guests = core::mem::take(&mut self.guests);
        for mut guest in guests {
            if guest.doomed || !guest.program.runs() {
                // One that waits would wait as long as hosts do, and is killed.
                if !guest.waits || !guest.program.runs() {
                    guest.end()?;
                }
                continue;
            }
            if guest.reaches_all(model) {
                goes_on(&mut guest, ctl)?;
            }
            self.guests.push(guest);
        }
        self.welcome(model, ctl)
    }
}

impl Hosts<'_> {
    /// Another guest, where there is room and a namespace that nobody uses.
    fn welcome(&mut self, model: &Model, ctl: &mut Ctl) -> Result<(), String> {
        let host = self.random.of(&HOSTS[1..]);
        let used = |subsystem: &str, namespace: u32| {
            self.steady.is_of(subsystem, namespace) || self.guests.iter().any(|guest| guest.is_of(subsystem, namespace))
        };
        let all: Vec<_> = model
            .namespaces()
            .filter(|(subsystem, namespace, _)| {
                !used(subsystem, *namespace) && model.reaches(host, subsystem, *namespace)
            })
            .collect();
        if self.guests.len() >= GUESTS || all.is_empty() {
            return Ok(());
        }
        let (subsystem, namespace, found) = self.random.of(&all);
        let of = (subsystem, namespace);
        let by = model.second().filter(|_| self.random.one_in(2));
        let mut guest = Guest::start(self.machine, host, of, found.bytes, found.read_only, by);
        goes_on(&mut guest, ctl)?;
        self.guests.push(guest);
        Ok(())
    }
}

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn a_target_that_is_changed_at_random_loses_nothing() {
    let (seed, changes) = (number("FRWR_CHANGES_SEED", 1), number("FRWR_CHANGES", CHANGES) as u32);
    let machine = Machine::new();
    let (file, socket) = (machine.zeros("medium-0", BYTES), machine.path("control"));
    let fixed = ["serve", "--device", "soft", "--listen", FIRST_ADDRESS, "--pages", "plain", "--json"];
    let more = ["--namespace", &file, "--backing", "auto", "--cores", "unpinned:2", "--io-queues", "2", "--hosts", "6"];
    let control = ["--control", socket.to_str().unwrap(), "--metrics", "127.0.0.1:0", "--idle", "sleep"];
    let target = machine.start_exactly(&[&fixed[..], &more, &control].concat());
    let listening = target.says("listening on");
    let metrics = listening.rsplit_once("http://").unwrap().1.trim_end_matches("/metrics").parse().unwrap();
    let mut ctl = Ctl::open(Path::new(env!("CARGO_BIN_EXE_frwr")), &socket).unwrap();
    let listener = FIRST_ADDRESS.parse().unwrap();
    let mut model = Model::new(listener, FIRST, BYTES, BYTES / 2, &HOSTS, false, 1 + SPARE);
    let names = ["soft".to_owned(), "soft:window@b".to_owned()];
    model.second = Some(Second { names, address: "127.0.0.2:4420".parse().unwrap(), serves: false });
    let steady = Guest::start(&machine, HOSTS[0], (FIRST, 1), BYTES / 2, false, None);
    let mut hosts = Hosts { machine: &machine, steady, guests: Vec::new(), random: Random::new(seed) };
    goes_on(&mut hosts.steady, &mut ctl).unwrap();
    let reader = HostileReader::start(metrics, &socket, seed);
    let folder = file.rsplit_once('/').unwrap().0.into();
    let plan = Plan { seed, changes, folder, tell: |line| println!("{line}") };
    let summary = run(&plan, &mut model, &mut ctl, &mut hosts).unwrap_or_else(|error| panic!("{error}"));
    let (attacks, _) = reader.end().unwrap();
    let Hosts { steady, guests, .. } = hosts;
    // Those that wait are killed.
    guests.into_iter().filter(|guest| guest.reaches_all(&model)).try_for_each(Guest::end).unwrap();
    let report = verified(steady.program.stop());
    println!("{summary}; {attacks} attacks; {} reconnects", report["reconnects"]);
    let served = passed(target.stop());
    assert_eq!(served["left"]["queues"], 0, "{served}");
}
