//! From plans to running reactors, and the main thread while they run.

use super::{
    board::{Board, Step},
    client::{ClientPlan, ClientSide},
    cores::{ClientPoller, LatencyCore, ServerPoller},
    desk::Desk,
    plan,
    server::{ServerPlan, ServerSide},
};
use crate::{
    Error,
    options::IdleArgument,
    runner::{
        Awaited, GIVEN_UP, GRACE, Idle, LONGEST_WAIT_OF_JOB, Refusals, Served, TRACE_PERIOD, Trace, Verdict, Watchdog,
        launch_watched, left_standing, open, own_descriptors, wake_by, waker,
    },
    signals::Asked,
    watch::Patrol,
};
use core::{convert::Infallible, time::Duration};
use frwr_engine::{
    CoreLink, TraceRecord,
    control::Control,
    provider::{Device, Port},
};
use frwr_mempool::lane;
use frwr_reactor::{
    Clock, CoreIndex, Options, Outbox, Placement, PollerError, Reactor, Reactors, Running, Schedule, Seat, Topology,
};

/// How often a server is polled whose client has the same core and asks nothing of it: what the client waits for does not pass
/// through it, and would wait for its polls. It opens connections and hears of their end as late.
const PASSIVE: Duration = Duration::from_millis(1);

/// The reactors' threads.
pub(super) type Threads<P> = Running<Infallible, LatencyCore<P>>;

/// One side's port, and what its core needs to begin with it.
struct Beginning<P, Plan> {
    port: P,
    link: CoreLink,
    plan: Plan,
    /// Where what becomes of keys is told, where that is asked for.
    keys: Option<lane::Sender<TraceRecord>>,
}

/// What runs in this process: servers on the first cores, clients on the last; one core carries both.
pub(super) struct Sides<P> {
    servers: Vec<Beginning<P, ServerPlan>>,
    clients: Vec<Beginning<P, ClientPlan>>,
}

impl<P: Port + Send + 'static> Sides<P> {
    pub(super) fn new() -> Self {
        Self { servers: Vec::new(), clients: Vec::new() }
    }

    /// How many clients there are.
    pub(super) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Opens a server's port.
    pub(super) fn add_server<D: Device<Port = P>>(
        &mut self,
        control: &mut Control<D>,
        plan: ServerPlan,
        trace: Option<&mut Trace>,
    ) -> Result<(), Error> {
        let options = plan::server(&plan.capacity, plan.connections, &plan.capabilities);
        let (port, link) = open(control, &options, &plan.capabilities)?;
        let keys = trace.map(|trace| trace.follow("server", self.servers.len()));
        self.servers.push(Beginning { port, link, plan, keys });
        Ok(())
    }

    /// Opens a client's port, for the core with the number `reactor`.
    pub(super) fn add_client<D: Device<Port = P>>(
        &mut self,
        control: &mut Control<D>,
        plan: ClientPlan,
        reactor: usize,
        trace: Option<&mut Trace>,
    ) -> Result<(), Error> {
        let options = plan::client(&plan.parameters, plan.connections, &plan.capabilities);
        let (port, link) = open(control, &options, &plan.capabilities)?;
        let keys = trace.map(|trace| trace.follow("client", reactor));
        self.clients.push(Beginning { port, link, plan, keys });
        Ok(())
    }

    /// Starts the reactors. An error may leave cores behind: see [`crate::runner::leave`].
    pub(super) fn launch(
        self,
        topology: Topology,
        placement: Placement,
        (board, desk): (&Board, &Desk),
        idle: IdleArgument,
        asked: &dyn Asked,
        say: &mut dyn FnMut(&str),
    ) -> Result<Threads<P>, Error> {
        let cores = crate::options::reactors(&placement);
        let first_client = cores.saturating_sub(self.clients.len());
        let (mut servers, mut clients) = (self.servers.into_iter(), self.clients.into_iter());
        let (board, desk) = (board.clone(), desk.clone());
        let options = Options::default().idle(idle.of_reactors());
        let reactors = Reactors::<Infallible>::new(placement).topology(topology).options(options).allow_siblings(true);
        let prepare = move |core: CoreIndex| {
            let server = servers.next();
            let client = if core.index() < first_client { None } else { clients.next() };
            let (board, desk) = (board.clone(), desk.clone());
            move |seat: Seat<Infallible>, _: Outbox<Infallible>| build(seat, server, client, board, desk, idle)
        };
        launch_watched(reactors, prepare, asked, say)
    }
}

/// Builds one core, on that core. Where it may sleep, what arrives wakes it.
fn build<P: Port>(
    seat: Seat<Infallible>,
    server: Option<Beginning<P, ServerPlan>>,
    client: Option<Beginning<P, ClientPlan>>,
    board: Board,
    desk: Desk,
    idle: IdleArgument,
) -> Result<Reactor<LatencyCore<P>>, Error> {
    let (seat, waker) = waker(seat, idle);
    let (node, clock) = (seat.node(), seat.clock().clone());
    let driven = server.as_ref().is_some_and(|server| server.plan.moves_data_in_polls);
    let passive = client.as_ref().is_some_and(|client| {
        let operation = client.plan.parameters.operation;
        operation.leaves_server_alone() && !(driven && operation.is_transfer())
    });
    let schedule = if passive { Schedule::Every(PASSIVE) } else { Schedule::Busy };
    let server = server.map(|Beginning { port, link, plan, keys }| {
        let mut side = ServerSide::new(port, link, plan, node, desk, waker.as_ref())?;
        if let Some(records) = keys {
            side.trace_keys(records);
        }
        Ok::<_, Error>(side)
    });
    let client = client.map(|Beginning { port, link, plan, keys }| {
        let mut side = ClientSide::new(port, link, plan, node, clock, board, waker.as_ref())?;
        if let Some(records) = keys {
            side.trace_keys(records);
        }
        Ok::<_, Error>(side)
    });
    let (server, client) = (server.transpose()?, client.transpose()?);
    let (has_server, has_client) = (server.is_some(), client.is_some());
    let mut reactor = seat.reactor(LatencyCore { server, client });
    if waker.is_some() {
        let LatencyCore { server, client } = reactor.context();
        let of_server = server.as_ref().and_then(ServerSide::descriptor);
        let own = own_descriptors(of_server.into_iter().chain(client.as_ref().and_then(ClientSide::descriptor)));
        wake_by(&mut reactor, own?)?;
    }
    let failed = |error: PollerError| Error::setup(format!("no poller: {error}"));
    if has_server {
        reactor.add("server", schedule, ServerPoller).map_err(failed)?;
    }
    if has_client {
        reactor.add("client", Schedule::Busy, ClientPoller).map_err(failed)?;
    }
    Ok(reactor)
}

/// What the main thread looks after beside Control.
pub(super) struct Aside<'a> {
    pub(super) patrol: &'a mut Patrol,
    /// The trace of keys.
    pub(super) keys: &'a mut Option<Trace>,
}

/// Serves Control until all reactors have ended; they are asked to when the board says so, `is_over`, or a device fails.
/// `is_over` is asked between, and may say something, as is said of queue pairs that a device refuses to destroy, and of cores that
/// stand still. With clients such a core ends it; without, the others serve on.
///
/// # Errors
/// What a device could not go on with, or a trace that cannot be written.
pub(super) fn drive<P: Port + Send + 'static>(
    mut controls: Vec<&mut dyn Served>,
    threads: &Threads<P>,
    board: &Board,
    asked: &dyn Asked,
    Aside { patrol, keys }: Aside<'_>,
    say: &mut dyn FnMut(&str),
    mut is_over: impl FnMut(&mut dyn FnMut(&str)) -> bool,
) -> Result<(), Error> {
    let (mut idle, mut ending, mut trouble) = (Idle::new(&controls)?, false, None);
    let (clock, mut refusals, mut watchdog) = (Clock::system(), Refusals::default(), Watchdog::default());
    let began = clock.now();
    while !threads.is_finished() {
        let mut work: u32 = controls.iter_mut().map(|control| control.poll()).sum();
        if let Some(keys) = keys {
            work += keys.drain()?;
        }
        if trouble.is_none() {
            trouble = controls.iter().find_map(|control| control.trouble());
        }
        let now = clock.now();
        refusals.tell(controls.iter().map(|control| control.queue_pairs_kept()).sum(), now, say);
        patrol.pass(now, || threads.astray(), say);
        let verdict = if watchdog.is_due(now) { watchdog.look(now, threads.pulses(), say) } else { Verdict::GoOn };
        let given_up = verdict != Verdict::GoOn && board.has_clients();
        if given_up && !ending {
            say(GIVEN_UP);
        }
        if let Verdict::Alone(cores) = verdict
            && ending
        {
            return Err(left_standing(&cores));
        }
        if asked.to_stop() {
            board.stop();
        }
        if asked.to_report() {
            let seconds = now.saturating_sub(began).as_secs();
            say(&format!("{seconds:>4} s  {}; figures are told at the end", board.doing()));
        }
        let over = is_over(say);
        if !ending
            && (over
                || given_up
                || (asked.to_stop() && watchdog.sees_standstill())
                || trouble.is_some()
                || board.has_failed())
        {
            ending = true;
            threads.shutdown_handle().request(GRACE);
        }
        let at_most = if keys.is_some() { TRACE_PERIOD } else { LONGEST_WAIT_OF_JOB };
        idle.pass(work, Awaited { controls: &controls, asked, others: Vec::new(), at_most }, || {});
    }
    trouble.map_or(Ok(()), Err)
}

/// Whether all clients are done.
pub(super) fn finished(board: &Board) -> bool {
    board.all_reached(Step::Finished)
}
