//! `frwr serve`: the target's half of the job, on whatever devices.

use super::{
    clash::served_twice,
    depth::Depth,
    host_keys::HostKeyring,
    incident_log,
    main_loop::{MainLoop, Served, ended, leave},
    media_watch::MediaWatch,
    namespaces::{NamespaceReport, SubsystemConfig, SubsystemPlan},
    operator::{Doors, Facts, KeyTrace, Operator},
    orders::Orders,
    outcome::Outcome,
    path_log::PathLog,
    plan,
    prepared::{Patience, Users},
    progress::{Doing, IoCounters, Progress},
    remedy::cannot_listen,
    report::CoreReport,
    reservations::reservations,
    serve_command::{ServeArguments, ServeConfig, TargetArguments},
    serve_report::{ServeReport, ServedDevice, ServedTarget, addresses_text},
    stalls::StallWatch,
    start::{Beginning, Sides, for_target, launch, open, poller_name, reactors, unit},
    stock::Stock,
    target_side::{TargetPlan, TargetSide},
    trace::{self, OF_KEYS, Trace, check_path},
};
use crate::{
    Error,
    control::{Server, Web},
    options::{ControlArguments, ControlSocket, DeviceArguments},
    output::in_line,
    service::Service,
    signals::Asked,
    watch::{Lookout, with_neighbours},
};
use core::{ops::Add, time::Duration};
use frwr_engine::{control::Control, provider::Device};
use frwr_mempool::lane;
use frwr_nvmf::controller::{HOME_CORE, Incident, TargetListening, place_queues};
use frwr_reactor::{Placement, Topology};

/// Said where hosts that ask for the end of their keys do not get it.
const PLAIN_REPLIES: &str =
    "this device's SEND_WITH_INV does not work: responses are plain SENDs, and hosts invalidate their keys themselves";

/// Serves namespaces over `devices`, which are those that `config` names, in its order, until it is `asked` to stop or the runtime is
/// over. `say` is told what they live in, and the digests of files that were read into memory, then that the target listens, then what
/// is moved in a second where something is.
///
/// # Errors
/// [`Error`]; also where there are fewer devices, or more.
pub fn serve<D: Device<Port: Send + 'static>>(
    devices: Vec<D>,
    config: &ServeConfig,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<ServeReport, Error> {
    if devices.len() != config.devices().len() {
        let (got, named) = (devices.len(), config.devices().len());
        let text = format!("{got} devices are open, and --device names {named}; open each that it names");
        return Err(Error::usage("devices", text));
    }
    serve_on(devices, config, asked, say).map_err(|error| {
        let ServeArguments { device, target: TargetArguments { queue_depth, io_queues, hosts, .. }, .. } =
            &config.arguments;
        let asked = format!("--queue-depth {queue_depth} --io-queues {io_queues} --hosts {hosts}");
        error.of_options(
            &device.device.join(", "),
            &asked,
            "--queue-depth, --io-queues or --hosts, or have more --cores",
        )
    })
}

fn serve_on<D: Device<Port: Send + 'static>>(
    devices: Vec<D>,
    config: &ServeConfig,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<ServeReport, Error> {
    let ServeArguments { target, core, output, .. } = &config.arguments;
    check_trace(config)?;
    let mut keys = output.trace_keys.as_deref().map(Trace::of_keys).transpose()?;
    let topology = with_neighbours(Topology::of_machine());
    let (mut reports, mut media) = (Vec::new(), MediaWatch::default());
    let placement = config.placement.clone().unwrap_or_else(|| for_target(&topology));
    let users = users(config, &placement, &topology);
    let mut of_units = prepare(config, &users, &mut media, say, &mut reports)?.into_iter();
    let cores = reactors(&placement);
    let options = config.options(0, cores)?;
    let (stock, buffers) = (Stock::new(config, users, &options), options.usual_buffer_memory_bytes());
    if config.arguments.invalidation.remote_invalidate
        && devices.iter().any(|device| !device.capabilities().send_with_invalidate)
    {
        say(PLAIN_REPLIES);
    }
    let reservations = reservations(config, say)?;
    reservations.iter().cloned().for_each(|reservations| media.add_reservations(reservations));
    let keyring = HostKeyring::new(&config.host_keys, target.require_authentication, target.permitted())?;
    let progress = Progress::new(devices.len() * cores);
    let mut controls: Vec<_> = devices.into_iter().map(Control::new).collect();
    let mut targets: Vec<_> = (0..cores).map(|_| Vec::with_capacity(controls.len())).collect();
    let mut desks = Desks { orders: Orders::new(&progress, cores), incidents: Vec::new() };
    let mut depths = Vec::with_capacity(controls.len());
    for (device, control) in controls.iter_mut().enumerate() {
        // Cores are opened in the order of their numbers.
        control.place_connections(place_queues(HOME_CORE.into()));
        let plans =
            plan::served(config, device, of_units.by_ref().take(cores).collect(), control.device().capabilities())?;
        depths.extend(
            plans
                .first()
                .map(|plan| Depth::of_transfers(target.queue_depth, &plan.options.engine(), &plan.capabilities)),
        );
        for ((core, plan), of_core) in plans.into_iter().enumerate().zip(&mut targets) {
            let mut plan = desks.furnish(plan);
            plan.authenticator = Some(keyring.authenticator());
            plan.reservations = reservations.clone();
            let (port, link) = open(control, &plan.options.engine(), &plan.capabilities)?;
            progress.part(unit(device, core, cores)).publish(IoCounters::default(), Doing::OpeningListener);
            let keys = keys.as_mut().map(|keys| keys.follow(poller_name(device), core));
            of_core.push(Beginning { port, link, further: Vec::new(), plan, keys });
        }
    }
    let mut lines: Vec<_> =
        depths.iter().filter_map(|depth| depth.line("--queue-depth", "answers of an I/O queue")).collect();
    lines.dedup();
    lines.iter().for_each(|line| say(line));
    let Desks { orders, incidents } = desks;
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
        Err(error) => return Err(leave(error, controls)),
    };
    lookout.placed(threads.cpus(), say);
    keys.iter_mut().for_each(|trace| trace.started(&threads.cpus().collect::<Vec<_>>()));
    reports.iter().for_each(|report| say(&report.line()));
    let all = reports.iter().map(NamespaceReport::size).collect::<Vec<_>>().join("; ");
    let (listen, devices) = (target.listen.clone(), served_devices(&config.arguments.device, &depths));
    let served = ServedTarget {
        device: devices.iter().map(|device| device.label.as_str()).collect::<Vec<_>>().join(", "),
        queue_depth: target.queue_depth,
        effective_queue_depth: depths.iter().map(|depth| depth.effective).min().unwrap_or(target.queue_depth),
        devices,
        listen: listen.clone(),
        namespaces: reports,
        identities: config.subsystems.iter().flat_map(SubsystemConfig::identities).collect(),
        shared_receives: target.shared_receives.0,
    };
    let facts = Facts::new(served, config.clone(), keyring, progress.clone(), KeyTrace::of_option(keys));
    let (size, asked_at) = (buffers_of(buffers, target.max_transfer), where_asked(&doors));
    let mut operator = Operator::new(facts, stock, orders, doors, output.json);
    let main = MainLoop {
        controls: controls.iter_mut().map(|control| control as &mut dyn Served).collect(),
        threads: &threads,
        progress: &progress,
        incidents,
        load: None,
        paths: PathLog::default(),
        following: None,
        operator: Some(&mut operator),
        // They are closed behind the storages over them.
        media: &mut media,
        lookout: &mut lookout,
        stalls: StallWatch::new(core.stall_threshold()),
        traces: &mut [],
        listening: Some(format!("listening on {}, {all}; {size}{asked_at}", addresses_text(&listen))),
        stop_at: target.runtime.map(Duration::from_secs),
        service: Some(Service::of_environment()),
    };
    let driven = main.drive(asked, say);
    let (served, mut keys) = operator.end();
    let outcome = match ended(threads, driven) {
        Ok(ended) => Outcome::<D::Port, D::Port>::collect(ended)?,
        Err(error) => return Err(leave(error, controls)),
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
        let at = |address| listen.iter().find(|one| one.address == address).cloned();
        let listen = address.map_or_else(|| listen.first().cloned(), at).ok_or_else(Error::lost)?;
        return Err(cannot_listen(listen, reason));
    }
    if targets.is_empty() {
        return Err(Error::lost());
    }
    let mut snapshots = targets.iter().map(TargetSide::snapshot);
    let of_core = |core: CoreReport| (snapshots.by_ref().take(controls.len()).collect(), core.reactor);
    let of_cores = cores.into_iter().map(of_core).collect();
    let control = controls.iter().map(Control::statistics).reduce(Add::add).unwrap_or_default();
    let report = served.report(of_cores, control);
    Ok(ServeReport { undrained, warnings: lookout.end(say), ..report })
}

/// What cores and the main thread have between them.
struct Desks {
    orders: Orders,
    incidents: Vec<lane::Receiver<Incident>>,
}

impl Desks {
    /// A plan whose core takes orders and tells incidents.
    fn furnish(&mut self, plan: TargetPlan) -> TargetPlan {
        let (sender, receiver) = incident_log::lane();
        self.incidents.push(receiver);
        TargetPlan { incidents: Some(sender), desk: Some(self.orders.add()), ..plan }
    }
}

/// What serves, for reports.
fn served_devices(device: &DeviceArguments, depths: &[Depth]) -> Vec<ServedDevice> {
    let one = |(device, depth): (DeviceArguments, &Depth)| ServedDevice {
        name: device.name().to_owned(),
        label: device.label(),
        effective_queue_depth: depth.effective,
    };
    device.each().zip(depths).map(one).collect()
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
        // Each core has a way of its own to each medium for each device.
        cores: reactors(placement) * config.devices().len(),
        depth: plan::storage_depth(&config.arguments.target),
        pages: config.arguments.memory.pages.policy(),
        node: home.and_then(|core| topology.node_of(core)),
        at_start: true,
        wait: Patience::default(),
    }
}

/// Opens what is served for each core that serves it, on each device: those of the first device first.
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
