//! The target's core: namespaces behind an NVMe-oF target.

use super::{
    change::Applied,
    descriptors::no_descriptor,
    memory::map,
    messages::Message,
    namespace_plan::{NamespacePlan, PlannedNamespace, SubsystemPlan},
    orders::{Answer, Desk, Order},
    progress::{Asks, Doing, IoCounters, Progress},
    report::MemoryReport,
    snapshot::TargetSnapshot,
};
use crate::Error;
use core::{mem, task::Waker, time::Duration};
use frwr_engine::{
    CoreLink, Engine, Statistics, TraceRecord,
    provider::{Capabilities, Port},
};
use frwr_mempool::{lane, region::PagePolicy};
use frwr_nvmf::{
    authentication::Authenticator,
    controller::{
        ElsewhereListener, HOME_CORE, Incident, ListenerState, NewNamespace, Reservations, Subsystem, Target,
        TargetContext, TargetListening, TargetMessage, TargetOptions, TargetStatistics,
    },
    storage::AnyStorage,
    wire::Nqn,
};
use frwr_reactor::{CoreIndex, Now, Outbox, SendError};
use std::{os::fd::BorrowedFd, sync::Arc};

/// Bytes beside what is computed: the alignment of what is carved.
const SLACK: usize = 128 << 10;

/// Alignment of namespaces and buffers: a page, so that blocks are pages for devices with page lists. Buffers have more
/// where a namespace's medium wants it.
const PAGE: usize = 4096;

/// What the target's core needs to begin.
#[derive(Debug)]
pub(super) struct TargetPlan {
    pub(super) options: TargetOptions,
    pub(super) subsystems: Vec<SubsystemPlan>,
    pub(super) pages: PagePolicy,
    pub(super) capabilities: Capabilities,
    /// Where the targets of other devices listen at the start.
    pub(super) elsewhere: Vec<ElsewhereListener>,
    /// Nobody else reports to the main thread: there is no host in this process.
    pub(super) alone: bool,
    /// Where incidents go; without, they are counted only.
    pub(super) incidents: Option<lane::Sender<Incident>>,
    /// Where orders of the main thread come from.
    pub(super) desk: Option<Desk>,
    /// Who proves hosts.
    pub(super) authenticator: Option<Arc<dyn Authenticator>>,
    /// Who may use its namespaces; without, they have no reservations.
    pub(super) reservations: Option<Reservations>,
}

impl TargetPlan {
    fn namespaces(&self) -> impl Iterator<Item = &NamespacePlan> {
        self.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces).map(|namespace| &namespace.medium)
    }
}

/// The target and what it lives in.
pub(super) struct TargetSide<P: Port> {
    target: Target<P, AnyStorage>,
    /// Which of the targets of its core.
    device: u16,
    progress: Progress,
    alone: bool,
    killed: bool,
    /// A message that another core's lane had no room for.
    kept: Option<(u16, TargetMessage)>,
    incidents: Option<lane::Sender<Incident>>,
    desk: Option<Desk>,
    /// What the main thread asked for, as of the last look.
    heard: Asks,
    memory_report: MemoryReport,
}

impl<P: Port> TargetSide<P> {
    /// Makes everything on the calling core. It may sleep where there is a waker.
    pub(super) fn new(
        port: P,
        link: CoreLink,
        plan: TargetPlan,
        node: Option<u32>,
        progress: Progress,
        waker: Option<&Waker>,
    ) -> Result<Self, Error> {
        let engine_options = plan.options.engine();
        let buffer_bytes = plan.options.usual_buffer_memory_bytes();
        let engine_bytes = Engine::<P>::region_bytes(&engine_options, &plan.capabilities)?;
        let bytes = engine_bytes + buffer_bytes + SLACK;
        let mut region = map(bytes, plan.pages, node)?;
        let engine = Engine::new(port, link, &mut region, engine_options, &plan.capabilities)?;
        let alignment = plan.namespaces().map(buffer_alignment).max().unwrap_or(PAGE);
        let buffers = region.carve(buffer_bytes, alignment)?.into_device_memory();
        let depth = usize::from(plan.options.queue_entries);
        let mut subsystems = Vec::with_capacity(plan.subsystems.len());
        for SubsystemPlan { name, hosts, serial, ana_states, namespaces } in plan.subsystems {
            let namespaces = namespaces.into_iter().map(|namespace| new_namespace(namespace, depth));
            let namespaces = namespaces.collect::<Result<_, _>>()?;
            subsystems.push(Subsystem { name, hosts, serial, namespaces, ana_states });
        }
        let (is_home, device) = (plan.options.core == HOME_CORE, plan.options.target);
        let mut target = Target::with_subsystems(engine, subsystems, buffers, plan.options)?;
        if let Some(waker) = waker {
            target.wakes(waker).map_err(no_descriptor)?;
            if plan.alone {
                progress.wakes_core(waker);
            }
        }
        if let Some(authenticator) = plan.authenticator {
            target.authenticates(authenticator);
        }
        if let Some(reservations) = &plan.reservations {
            target.reserve_by(reservations);
        }
        if is_home {
            target.list_elsewhere(&plan.elsewhere).map_err(Error::setup)?;
        }
        // Control's lane is empty: it takes the first messages.
        target.listen().map_err(Error::setup)?;
        let memory_report = MemoryReport::of(&region);
        Ok(Self {
            target,
            device,
            progress,
            alone: plan.alone,
            killed: false,
            kept: None,
            incidents: plan.incidents,
            desk: plan.desk,
            heard: Asks::default(),
            memory_report,
        })
    }

    /// A host stays away from the start, or all do (`None`). On the home core.
    ///
    /// # Errors
    /// They are more than can be kept away.
    pub(super) fn keep_away(&mut self, host: Option<Nqn>) -> Result<(), Error> {
        self.target.drain(host, Duration::ZERO).map(drop).map_err(Error::setup)
    }

    /// Ends it in order; again, it does nothing.
    pub(super) fn end(&mut self, now: Duration) {
        self.target.end(now);
    }

    /// Nothing of a host is left, and what was written is on its medium.
    pub(super) fn is_drained(&self) -> bool {
        self.target.is_drained()
    }

    /// Connections and commands of hosts that it has, those included that a storage has of connections that are gone.
    pub(super) fn left(&self) -> (u64, u64) {
        let TargetStatistics { queues, commands_in_flight, orphans, .. } = self.target.statistics();
        (queues, commands_in_flight + orphans)
    }

    /// What its core waits for where it sleeps.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.target.descriptors()
    }

    /// Tells what is done with the keys of hosts.
    pub(super) fn trace_keys(&mut self, records: lane::Sender<TraceRecord>) {
        self.target.engine_mut().trace_to(records);
    }

    /// What its memory is made of.
    pub(super) fn memory(&self) -> &MemoryReport {
        &self.memory_report
    }

    /// What its hosts have moved.
    pub(super) fn io(&self) -> IoCounters {
        moved(&self.target.statistics())
    }

    /// Where it listens, and what became of that.
    pub(super) fn listeners(&self) -> impl Iterator<Item = ListenerState> {
        self.target.listeners()
    }

    /// The target's figures.
    pub(super) fn statistics(&self) -> TargetStatistics {
        self.target.statistics()
    }

    /// What there is to do beside a poll of the target, which did so much work.
    fn polled(&mut self, work: u32) {
        if !self.killed && self.progress.wants_kill() {
            self.killed = true;
            self.target.shut_down();
        }
        self.pass_incidents();
        if self.alone && work > 0 && !self.target.is_ending() {
            self.publish();
        }
        if self.alone && self.progress.asks() != self.heard {
            self.hear();
        }
    }

    /// What the main thread asks for wakes its core, where it is listened to.
    fn arm(&mut self) {
        if self.alone {
            self.progress.arm_core();
        }
    }

    /// Does what the main thread asks for.
    #[cold]
    fn hear(&mut self) {
        let before = mem::replace(&mut self.heard, self.progress.asks());
        if self.heard.to_stop() {
            self.progress.finish();
        }
        if self.heard.has_orders_since(before) {
            self.obey();
        }
    }

    /// Does what it was ordered, of which no more is there than a lane holds.
    fn obey(&mut self) {
        let Some(mut desk) = self.desk.take() else { return };
        while let Some(order) = desk.next() {
            match order {
                Order::Report { round } => {
                    desk.answer(Answer::Report { round, snapshot: Box::new(self.snapshot()) });
                }
                Order::Change { number, change, ticket } => {
                    desk.answer(if ticket.take() {
                        let Applied { result, returned } = change.apply(&mut self.target);
                        Answer::Changed { number, result: result.map_err(|reason| reason.to_string()), returned }
                    } else {
                        Answer::Withdrawn(change)
                    });
                }
                Order::Outcome => {
                    // What has no room waits until it is asked for again.
                    while desk.has_room()
                        && let Some(event) = self.target.next_change()
                    {
                        desk.answer(Answer::Became(Box::new(event)));
                    }
                }
            }
        }
        self.desk = Some(desk);
        self.progress.tell();
    }

    /// The engine's figures.
    pub(super) fn engine(&self) -> Statistics {
        self.target.engine().statistics()
    }

    /// What it has done so far.
    pub(super) fn snapshot(&self) -> TargetSnapshot {
        TargetSnapshot {
            place: self.device.into(),
            role: "target",
            memory: self.memory_report.clone(),
            io: self.io(),
            target: self.target.statistics(),
            inventory: self.target.inventory(),
            engine: self.engine(),
        }
    }

    /// Hands incidents to the main thread.
    fn pass_incidents(&mut self) {
        let Some(incidents) = &mut self.incidents else { return };
        // What has no room is taken later; what the target has no room for is counted.
        while incidents.len() < incidents.capacity()
            && let Some(incident) = self.target.next_incident()
            && incidents.push(incident).is_ok()
        {
            self.progress.tell();
        }
    }

    /// Takes what another core of the target says.
    pub(super) fn deliver(&mut self, from: CoreIndex, message: TargetMessage) {
        self.target.deliver(from.0, message);
    }

    /// Sends what this core says to the others, as far as their lanes have room.
    pub(super) fn carry(&mut self, outbox: &mut Outbox<Message>) {
        while let Some((core, message)) = self.kept.take().or_else(|| self.target.next_message()) {
            match outbox.send(CoreIndex(core), Message::Target { device: self.device, message }) {
                Err(SendError::Full(_)) => {
                    self.kept = Some((core, message));
                    return;
                }
                // A core that is gone needs to hear nothing.
                Ok(()) | Err(SendError::Closed(_) | SendError::NoSuchReactor(_)) => {}
            }
        }
    }

    fn publish(&self) {
        let statistics = self.target.statistics();
        let doing = match statistics.listening {
            TargetListening::NotAsked | TargetListening::Asked => Doing::OpeningListener,
            // What it has goes on where it takes no more hosts.
            TargetListening::Listens | TargetListening::Stopped => Doing::Serving,
            TargetListening::Failed(_) if self.progress.is_serving() => Doing::Serving,
            TargetListening::Failed(_) => Doing::CannotListen,
        };
        if doing == Doing::CannotListen {
            self.progress.finish();
        }
        if statistics.broken_operations > 0 {
            self.progress.tell_broken_storage();
        }
        self.progress.publish(moved(&statistics), doing);
    }
}

/// What hosts have moved.
fn moved(target: &TargetStatistics) -> IoCounters {
    let commands = target.reads + target.writes + target.flushes + target.compares + target.write_zeroes;
    IoCounters { commands, bytes: target.bytes_read + target.bytes_written }
}

fn buffer_alignment(namespace: &NamespacePlan) -> usize {
    match namespace {
        NamespacePlan::Memory { .. } => PAGE,
        NamespacePlan::Open { alignment, .. } => PAGE.max(*alignment as usize),
    }
}

/// One core's way to a namespace, as large as that is.
fn new_namespace(namespace: PlannedNamespace, depth: usize) -> Result<NewNamespace<AnyStorage>, Error> {
    let PlannedNamespace { identifier, nguid, ana_group, active, blocks, medium } = namespace;
    let storage = medium.storage(depth, blocks)?;
    Ok(NewNamespace { identifier, nguid, ana_group, active, storage })
}

impl<P: Port> TargetContext for TargetSide<P> {
    type Port = P;
    type Storage = AnyStorage;

    fn target(&self) -> Option<&Target<P, AnyStorage>> {
        Some(&self.target)
    }

    fn target_mut(&mut self) -> Option<&mut Target<P, AnyStorage>> {
        Some(&mut self.target)
    }

    fn polled(&mut self, work: u32, _: &Now) {
        self.polled(work);
    }

    fn may_sleep(&self) -> bool {
        self.kept.is_none()
    }

    fn arm(&mut self) {
        self.arm();
    }
}
