//! `frwr serve`: the target's half of the job, on whatever device.

use super::{
    clash::served_twice,
    depth::Depth,
    incident_log,
    main_loop::{MainLoop, ended, leave},
    media_watch::MediaWatch,
    namespaces::{NamespaceReport, SubsystemConfig, SubsystemPlan, Users},
    operator::{Doors, Facts, KeyTrace, Operator},
    orders::Orders,
    outcome::Outcome,
    plan,
    progress::{Doing, IoCounters, Progress},
    remedy::cannot_listen,
    serve_command::{ServeArguments, ServeConfig, TargetArguments},
    serve_report::{ServeReport, ServedTarget, addresses_text},
    stalls::StallWatch,
    start::{Beginning, Sides, for_target, launch, open, reactors},
    stock::Stock,
    target_side::TargetSide,
    trace::{self, OF_KEYS, TARGET, Trace, check_path},
};
use crate::{
    Error,
    control::{Server, Web},
    options::{ControlArguments, ControlSocket},
    output::in_line,
    service::Service,
    signals::Asked,
    watch::{Lookout, with_neighbours},
};
use core::time::Duration;
use frwr_engine::{control::Control, provider::Device};
use frwr_nvmf::controller::{HOME_CORE, TargetListening, place_queues};
use frwr_reactor::{Placement, Topology};

/// Said where hosts that ask for the end of their keys do not get it.
const PLAIN_REPLIES: &str =
    "this device's SEND_WITH_INV does not work: responses are plain SENDs, and hosts invalidate their keys themselves";

/// Serves namespaces over `device` until it is `asked` to stop or the runtime is over. `say` is told what they live in, and the
/// digests of files that were read into memory, then that the target listens, then what is moved in a second where something is.
///
/// # Errors
/// [`Error`].
pub fn serve<D: Device>(
    device: D,
    config: &ServeConfig,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<ServeReport, Error>
where
    D::Port: Send + 'static,
{
    serve_on(device, config, asked, say).map_err(|error| {
        let ServeArguments { device, target: TargetArguments { queue_depth, io_queues, hosts, .. }, .. } =
            &config.arguments;
        let asked = format!("--queue-depth {queue_depth} --io-queues {io_queues} --hosts {hosts}");
        error.of_options(device.name(), &asked, "--queue-depth, --io-queues or --hosts, or have more --cores")
    })
}

fn serve_on<D: Device>(
    device: D,
    config: &ServeConfig,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<ServeReport, Error>
where
    D::Port: Send + 'static,
{
    let ServeArguments { device: of_device, target, core, output, .. } = &config.arguments;
    check_trace(config)?;
    let mut keys = output.trace_keys.as_deref().map(Trace::of_keys).transpose()?;
    let topology = with_neighbours(Topology::of_machine());
    let (mut reports, mut media) = (Vec::new(), MediaWatch::default());
    let placement = config.placement.clone().unwrap_or_else(|| for_target(&topology));
    let users = users(config, &placement, &topology);
    let of_cores = prepare(config, &users, &mut media, say, &mut reports)?;
    let options = config.options(users.cores)?;
    let stock = Stock::new(config, users, &options);
    if config.arguments.invalidation.remote_invalidate && !device.capabilities().send_with_invalidate {
        say(PLAIN_REPLIES);
    }
    let plans = plan::served(config, of_cores, device.capabilities())?;
    let buffers = plans.first().map(|plan| plan.options.usual_buffer_memory_bytes()).unwrap_or_default();
    let depth =
        plans.first().map(|plan| Depth::of_transfers(target.queue_depth, &plan.options.engine(), &plan.capabilities));
    if let Some(line) = depth.and_then(|depth| depth.line("--queue-depth", "answers of an I/O queue")) {
        say(&line);
    }
    let progress = Progress::new(plans.len());
    let mut control = Control::new(device);
    // Cores are opened in the order of their numbers.
    control.place_connections(place_queues(HOME_CORE.into()));
    let mut targets = Vec::with_capacity(plans.len());
    let (mut incidents, mut orders) = (Vec::with_capacity(plans.len()), Orders::new(&progress));
    for (core, mut plan) in plans.into_iter().enumerate() {
        let (sender, receiver) = incident_log::lane();
        plan.incidents = Some(sender);
        incidents.push(receiver);
        plan.desk = Some(orders.add());
        let (port, link) = open(&mut control, &plan.options.engine(), &plan.capabilities)?;
        progress.part(core).publish(IoCounters::default(), Doing::OpeningListener);
        let keys = keys.as_mut().map(|keys| keys.follow(TARGET, core));
        targets.push(Beginning { port, link, plan, keys });
    }
    let doors = doors(&config.arguments.control, say)?;
    let mut lookout = Lookout::begin(&topology);
    let threads = match launch(
        topology,
        placement,
        core,
        Sides::<_, D::Port> { targets, hosts: Vec::new() },
        &progress,
        asked,
        say,
    ) {
        Ok(threads) => threads,
        Err(error) => return Err(leave(error, control)),
    };
    lookout.placed(threads.cpus(), say);
    keys.iter_mut().for_each(|trace| trace.started(&threads.cpus().collect::<Vec<_>>()));
    reports.iter().for_each(|report| say(&report.line()));
    let all = reports.iter().map(NamespaceReport::size).collect::<Vec<_>>().join("; ");
    let listen = target.listen.clone();
    let served = ServedTarget {
        device: of_device.label(),
        queue_depth: target.queue_depth,
        effective_queue_depth: depth.map_or(target.queue_depth, |depth| depth.effective),
        listen: listen.clone(),
        namespaces: reports,
        identities: config.subsystems.iter().flat_map(SubsystemConfig::identities).collect(),
        shared_receives: target.shared_receives.0,
    };
    let facts = Facts::new(served, config.clone(), progress.clone(), KeyTrace::of_option(keys));
    let (size, asked_at) = (buffers_of(buffers, target.max_transfer), where_asked(&doors));
    let mut operator = Operator::new(facts, stock, orders, doors, output.json);
    let main = MainLoop {
        controls: vec![&mut control],
        threads: &threads,
        progress: &progress,
        incidents,
        load: None,
        operator: Some(&mut operator),
        media,
        lookout: &mut lookout,
        stalls: StallWatch::new(core.stall_threshold()),
        traces: &mut [],
        listening: Some(format!("listening on {}, {all}; {size}{asked_at}", addresses_text(&listen))),
        stop_at: target.runtime.map(Duration::from_secs),
        service: Some(Service::of_environment()),
        gives_up: false,
    };
    let driven = main.drive(asked, say);
    let (served, mut keys) = operator.end();
    let outcome = match ended(threads, driven) {
        Ok(ended) => Outcome::<D::Port, D::Port>::collect(ended)?,
        Err(error) => return Err(leave(error, control)),
    };
    keys.iter_mut().try_for_each(|trace| trace.ended(outcome.records_lost()))?;
    trace::finish(keys, say)?;
    let Outcome { targets, cores, undrained, .. } = outcome;
    if progress.doing() == Doing::CannotListen {
        let failed = targets.iter().flat_map(TargetSide::listeners).find_map(|listener| match listener.listening {
            TargetListening::Failed(reason) => Some((listener.address, reason)),
            _ => None,
        });
        let (address, reason) = failed.unzip();
        let address = address.or(listen.first().copied()).ok_or_else(Error::lost)?;
        return Err(cannot_listen(address, reason));
    }
    if targets.is_empty() {
        return Err(Error::lost());
    }
    let reactors = cores.into_iter().map(|core| core.reactor).collect();
    let snapshots = targets.iter().map(TargetSide::snapshot).collect();
    let report = served.report(snapshots, reactors, control.statistics());
    Ok(ServeReport { undrained, warnings: lookout.end(say), ..report })
}

/// Where the target is asked.
fn doors(asked: &ControlArguments, say: &mut dyn FnMut(&str)) -> Result<Doors, Error> {
    let web = asked.metrics.map(|address| {
        Web::open(address).map_err(|error| {
            let remedy = "name another address of this machine, or a free port";
            Error::failed("metrics", format!("--metrics: nothing can be served at {address} ({error}); {remedy}"))
        })
    });
    Ok(Doors { server: control_socket(asked.control.as_ref(), say)?, web: web.transpose()? })
}

/// The same, for people.
fn where_asked(doors: &Doors) -> String {
    let socket = doors.server.as_ref().map(|server| in_line(&server.path().display().to_string()));
    let web = doors.web.as_ref().and_then(|web| web.address().ok());
    let socket = socket.map(|path| format!("; control socket {path}")).unwrap_or_default();
    socket + &web.map(|address| format!("; metrics http://{address}/metrics")).unwrap_or_default()
}

/// The control socket. One that was asked for has to be there; one by default is said, or why there is none.
fn control_socket(asked: Option<&ControlSocket>, say: &mut dyn FnMut(&str)) -> Result<Option<Server>, Error> {
    const REMEDY: &str = "name another one by --control, or none";
    match asked {
        Some(ControlSocket::None) => Ok(None),
        Some(ControlSocket::At(path)) => Server::open(path).map(Some).map_err(|error| {
            Error::failed("control_socket", format!("--control: no socket at {path:?} ({error}); {REMEDY}"))
        }),
        None => {
            let Some(server) = Server::open_default() else {
                say(&format!("no control socket, since XDG_RUNTIME_DIR is not set; {REMEDY}"));
                return Ok(None);
            };
            if let Err((path, error)) = &server {
                say(&format!("warning: no control socket at {path:?} ({error}); {REMEDY}"));
            }
            Ok(server.ok())
        }
    }
}

/// What transfers of this size cost.
fn buffers_of(bytes: usize, each: u64) -> String {
    let (count, mebibytes, each) = (bytes / each as usize, bytes >> 20, each >> 10);
    format!("transfers of up to {each} KiB, {count} buffers for them on each core, {mebibytes} MiB")
}

/// That a trace of keys does not go to what is served.
fn check_trace(config: &ServeConfig) -> Result<(), Error> {
    let media = config.subsystems.iter().flat_map(SubsystemConfig::files);
    let media: Vec<_> = media.map(|path| ("what a namespace lives in", Some(path))).collect();
    check_path(OF_KEYS, config.arguments.output.trace_keys.as_deref(), &media)
}

/// Who uses what is served.
fn users(config: &ServeConfig, placement: &Placement, topology: &Topology) -> Users {
    let home = placement.resolve(topology, false).ok().and_then(|seats| seats.cores().first().copied().flatten());
    Users {
        cores: reactors(placement),
        depth: plan::storage_depth(&config.arguments.target),
        pages: config.arguments.memory.pages.policy(),
        node: home.and_then(|core| topology.node_of(core)),
        at_start: true,
    }
}

/// Opens what is served for each core that serves it.
fn prepare(
    config: &ServeConfig,
    users: &Users,
    media: &mut MediaWatch,
    say: &mut dyn FnMut(&str),
    reports: &mut Vec<NamespaceReport>,
) -> Result<Vec<Vec<SubsystemPlan>>, Error> {
    // For configurations that no file has passed.
    if let Some((_, reason)) = served_twice(config.subsystems.iter().flat_map(SubsystemConfig::configs)) {
        return Err(Error::failed("namespace", reason));
    }
    let mut of_cores: Vec<_> = (0..users.cores).map(|_| Vec::with_capacity(config.subsystems.len())).collect();
    for subsystem in &config.subsystems {
        let plans = subsystem.prepare(users, media, say, reports)?;
        of_cores.iter_mut().zip(plans).for_each(|(core, plan)| core.push(plan));
    }
    Ok(of_cores)
}
