//! What is checked after every step, and what must be left at the end: nothing.

use super::{
    hosts::{HostSide, Member},
    party::port_of,
    world::{Program, ROUNDS_TO_END, World},
};
use core::fmt::Write as _;
use frwr_engine::{Engine, EngineOptions, ReceiveQueues, ReturnPolicy, provider::Port};

/// Bytes of a write pad.
const PAD_BYTES: u64 = 4;
/// What takes long is looked at in one step of so many: a prime, so that everybody's turn comes where all step in turn.
const LOOKS: u64 = 17;

impl World<'_> {
    /// Behind a step of a core of a host.
    ///
    /// # Errors
    /// What was wrong.
    pub(super) fn check_host(&mut self, host: usize, member: usize) -> Result<(), String> {
        let named = |error: String| format!("host {host}, core {member}: {error}");
        let looks = self.looks.is_multiple_of(LOOKS);
        self.looks += 1;
        self.check_open(host, member).map_err(named)?;
        if looks {
            self.check_keys(host, member).map_err(named)?;
            let side = &mut self.hosts[host].members[member];
            side.conservation().map_err(named)?;
            self.ledger.desks[side.desk].check_some_rest(&mut self.asks).map_err(named)?;
            self.hosts[host].side.check().map_err(named)?;
            self.replace_overrun(Program::Host(host)).map_err(named)?;
        }
        let log = &port_of(self.hosts[host].members[member].host.engine()).log;
        self.run.note(log.trace());
        log.overrun.clone().map_or(Ok(()), |overrun| Err(named(overrun)))
    }

    /// Behind a step of a core of the target.
    ///
    /// # Errors
    /// What was wrong.
    pub(super) fn check_target(&mut self, core: usize) -> Result<(), String> {
        let engine = self.target.cores[core].target.engine();
        let open = engine.port().remote_bytes_open().unwrap_or(0);
        if open > 0 {
            return Err(format!("{open} bytes of the target are open"));
        }
        let log = &port_of(engine).log;
        self.run.note(log.trace());
        if let Some(overrun) = log.overrun.clone() {
            return Err(format!("target: {overrun}"));
        }
        if let Some(violation) = self.medium.borrow_mut().violation.take() {
            return Err(violation);
        }
        let looks = self.looks.is_multiple_of(LOOKS);
        self.looks += 1;
        if looks {
            let named = |error: String| format!("target: {error}");
            self.target.side.check().map_err(named)?;
            self.replace_overrun(Program::Target).map_err(named)?;
        }
        Ok(())
    }

    /// No more bytes are open than requests in flight need: of this core, or of all of the host where its device tells of them together.
    fn check_open(&self, host: usize, member: usize) -> Result<(), String> {
        let members = &self.hosts[host].members;
        let engine = members[member].host.engine();
        let together = port_of(engine).soft().is_none();
        let counted = if together { &members[..] } else { &members[member..=member] };
        let options = &self.scenario.hosts[host].engine;
        let pads = if options.write_pad { u64::from(options.connections) * PAD_BYTES } else { 0 };
        let need = |side: &Member| {
            let desk = &self.ledger.desks[side.desk];
            // A range of a deallocation has 16 bytes, and there is one.
            desk.open_bytes() + side.own_bytes(desk.in_flight() as u64 * 16) + pads
        };
        let most: u64 = counted.iter().map(need).sum();
        let open = engine.port().remote_bytes_open().unwrap_or(0);
        if open > most { Err(format!("{open} bytes are open, requests in flight need {most}")) } else { Ok(()) }
    }

    /// By the device's own table, every key covers bytes of one request in flight, with the right that it needs.
    fn check_keys(&self, host: usize, member: usize) -> Result<(), String> {
        let side = &self.hosts[host].members[member];
        let desk = &self.ledger.desks[side.desk];
        let Some(port) = port_of(side.host.engine()).soft() else { return Ok(()) };
        let (start, end) = (desk.memory().address(), desk.memory().address() + desk.memory().len() as u64);
        for key in port.open_keys() {
            for &(address, length) in &key.ranges {
                let is_data = address >= start && address < end;
                let covered = is_data && desk.covers(address - start, length, key.access);
                if !covered && !side.owns(address, length) && (is_data || length > PAD_BYTES) {
                    return Err(format!(
                        "{key:x?} covers {length} bytes at {address:#x} that no request in flight needs it for"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Faults have stopped: everything ends, sessions stay, every block is read once more, both sides stop, and nothing is left.
    ///
    /// # Errors
    /// What was wrong.
    pub(super) fn calm(&mut self) -> Result<(), String> {
        self.run.event(|| "calm".to_owned());
        self.end_faults()?;
        self.rounds("all requests ended", ROUNDS_TO_END, |world| Ok(world.ledger.is_empty()))?;
        self.rounds("the target listens", ROUNDS_TO_END, |world| Ok(world.target.listens()))?;
        self.rounds("the hosts are ready", ROUNDS_TO_END, |world| {
            Ok(world.hosts.iter().all(HostSide::is_ready) && world.ledger.is_empty())
        })?;
        self.make_peace()?;
        self.read_again()?;
        // What a fault had doomed shows within the longest time-out; behind that nothing may happen any more.
        let settled = self.now + self.scenario.longest_timeout() * 2;
        self.rounds("what was doomed is over", ROUNDS_TO_END, |world| Ok(world.now > settled))?;
        self.rounds("the hosts are ready again", ROUNDS_TO_END, |world| {
            Ok(world.hosts.iter().all(|host| host.is_ready() && host.is_quiet()) && world.ledger.is_empty())
        })?;
        self.explained = super::effects::Effects::NONE;
        self.quarrel()?;
        let quiet = self.now + self.scenario.longest_timeout() * 2;
        self.rounds("time passed in which nothing happens", ROUNDS_TO_END, |world| Ok(world.now > quiet))?;
        self.read_again()?;
        self.stop()?;
        self.nothing_left()
    }

    /// Every block is read once more.
    fn read_again(&mut self) -> Result<(), String> {
        let (mut next, blocks) = (0, self.ledger.blocks());
        self.rounds("every block was read again", ROUNDS_TO_END, |world| {
            let host = (next % world.hosts.len() as u64) as usize;
            let member = &mut world.hosts[host].members[0];
            while next < blocks
                && let Some((cookie, read)) = world.ledger.prepare_read(member.desk, next, &mut world.asks)?
                && member.try_submit(&mut world.ledger, cookie, read)
            {
                next += 1;
            }
            Ok(next == blocks && world.ledger.is_empty())
        })
    }

    fn stop(&mut self) -> Result<(), String> {
        for host in 0..self.hosts.len() {
            for member in 0..self.hosts[host].members.len() {
                let side = &self.hosts[host].members[member];
                let engine = side.host.engine();
                let members = &self.hosts[host].members;
                let together = port_of(engine).soft().is_none();
                let counted = if together { &members[..] } else { core::slice::from_ref(side) };
                let own: u64 = counted.iter().map(|side| side.host.admin_bytes_open()).sum();
                let open = engine.port().remote_bytes_open().unwrap_or(0);
                let options = &self.scenario.hosts[host].engine;
                let pads = if options.write_pad { u64::from(options.connections) * PAD_BYTES } else { 0 };
                let pads = pads * counted.len() as u64;
                if side.host.is_ready() && open > own + pads {
                    return Err(format!("{open} bytes are open although nothing is in flight"));
                }
            }
        }
        for host in &mut self.hosts {
            host.members.iter_mut().for_each(|member| member.host.shut_down());
        }
        if let Some(visitor) = &mut self.visitor {
            visitor.stop();
            self.run.count("visits", visitor.visits);
        }
        self.rounds("the hosts stopped", ROUNDS_TO_END, |world| {
            let is_gone = world.visitor.as_ref().is_none_or(super::visitor::Visitor::is_stopped);
            Ok(is_gone && world.hosts.iter().all(|host| host.members.iter().all(|member| member.host.is_stopped())))
        })?;
        // A shutdown in order leaves nothing to be lost.
        let dirty = self.medium.borrow().dirty_blocks();
        if dirty > 0 {
            return Err(format!("{dirty} blocks are not on the medium although every host was shut down in order"));
        }
        self.target.cores.iter_mut().for_each(|core| core.target.shut_down());
        self.rounds("the target drained", ROUNDS_TO_END, |world| Ok(world.target.is_drained()))
    }

    fn nothing_left(&mut self) -> Result<(), String> {
        for desk in &mut self.ledger.desks {
            desk.check_all_rest()?;
        }
        let mut counted = frwr_support::TraceHash::new();
        for (host, scenario) in self.hosts.iter().zip(&self.scenario.hosts) {
            host.side.check()?;
            for member in &host.members {
                check_engine("host", member.host.engine(), &scenario.engine, &mut counted)?;
                let statistics = member.host.statistics();
                let ended = statistics.succeeded + statistics.failed;
                if (statistics.requests, statistics.outstanding) != (ended, 0) {
                    return Err(format!("requests never ended: {statistics:?}"));
                }
                self.run.count("sessions", statistics.sessions);
                self.run.count("sent again", statistics.resubmitted);
                self.run.count("aborts", statistics.aborts);
                self.run.note(member.trace());
            }
        }
        self.target.side.check()?;
        for core in &self.target.cores {
            check_engine("target", core.target.engine(), &self.scenario.target_engine, &mut counted)?;
        }
        self.run.note(counted.value());
        let statistics = self.target.statistics();
        let pending = self.medium.borrow().pending;
        if (statistics.commands_in_flight, statistics.slots_used, statistics.orphans, pending) != (0, 0, 0, 0) {
            return Err(format!("the target is not empty: {statistics:?}, {pending} operations of the disk"));
        }
        self.network.violations().first().map_or(Ok(()), |what| Err(format!("what no program may do: {what}")))
    }

    /// Where everything stands, for messages.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for (index, host) in self.hosts.iter().enumerate() {
            for member in &host.members {
                let told = (member.host.statistics(), member.host.last_failure(), member.host.failure());
                let _ = writeln!(text, "host {index} {told:?}\n  {:?}", member.host.engine().statistics());
            }
            let _ = writeln!(text, "  {:?}", host.side.control.statistics());
        }
        let _ = writeln!(text, "target {:?}", self.target.statistics());
        for core in &self.target.cores {
            let _ = writeln!(text, "  {:?}", core.target.engine().statistics());
        }
        let _ = write!(text, "now {:?} explained {:?}\n{:?}", self.now, self.explained, self.scenario);
        text
    }
}

fn check_engine<P: Port>(
    name: &str,
    engine: &Engine<P>,
    options: &EngineOptions,
    trace: &mut frwr_support::TraceHash,
) -> Result<(), String> {
    let statistics = engine.statistics();
    let _ = write!(trace, "{statistics:?}");
    if !engine.is_idle() {
        return Err(format!("the {name}'s engine is not idle: {statistics:?}"));
    }
    // Requests that were lost before they got MRs ended as well.
    if statistics.requests > statistics.requests_ended {
        return Err(format!("{name}: requests that never ended: {statistics:?}"));
    }
    if (statistics.request_slots_used, statistics.slots_held) != (0, 0) {
        return Err(format!("{name}: slots are left: {statistics:?}"));
    }
    let dead = statistics.local_invalidations + statistics.remote_invalidations + statistics.keys_destroyed_live;
    // With the early return an MR may take several keys with it, of which two count.
    let exact = options.return_policy != ReturnPolicy::OnInvalidatePosted;
    if exact && statistics.registrations != dead {
        return Err(format!("{name}: {} keys made, {dead} ended: {statistics:?}", statistics.registrations));
    }
    let (receives, entries) = (engine.receive_buffers(), statistics.shared_receives_free);
    if receives.held > 0 {
        return Err(format!("{name}: receives are left with the caller: {receives:?}"));
    }
    let is_shared = options.receive_queues != ReceiveQueues::PerConnection;
    if is_shared && (entries, statistics.shared_receives_withdrawn) != (u64::from(receives.posted + receives.idle), 0) {
        return Err(format!("{name}: {entries} shared receives are free of {receives:?}: {statistics:?}"));
    }
    let open = engine.port().remote_bytes_open().unwrap_or(0);
    if open > 0 { Err(format!("{name}: {open} bytes are open after everything ended")) } else { Ok(()) }
}
