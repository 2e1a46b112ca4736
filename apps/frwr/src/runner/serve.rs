//! `frwr serve`: the target's half of the job, on whatever devices.

use super::{
    clash::served_twice,
    depth::Depth,
    fleet::{OnCores, Opener},
    host_keys::HostKeyring,
    incident_log,
    main_loop::{MainLoop, ended, leave},
    media_watch::MediaWatch,
    namespace_plan::SubsystemPlan,
    namespaces::{NamespaceReport, SubsystemConfig},
    operator::{Doors, Facts, KeyTrace, Operator},
    orders::{self, Orders},
    outcome::Outcome,
    path_log::PathLog,
    places::{self, Places},
    plan,
    prepared::{Patience, Users},
    progress::{Doing, Progress},
    remedy::cannot_listen,
    report::CoreReport,
    reservations::reservations,
    serve_command::{ServeArguments, ServeConfig, TargetArguments},
    serve_report::{ServeReport, ServedDevice, ServedTarget, addresses_text},
    stalls::StallWatch,
    start::{Beginning, PLACES, Sides, first_node, for_target, launch, open, poller_name, unit},
    stock::Stock,
    target_side::{TargetPlan, TargetSide},
    trace::{self, OF_KEYS, Trace, check_path},
};
use crate::{
    Error,
    control::{Server, Web},
    options::{ControlArguments, ControlSocket, DeviceArguments, reactors},
    output::in_line,
    service::Service,
    signals::Asked,
    watch::{Lookout, with_neighbours},
};
use core::{ops::Add, time::Duration};
use frwr_engine::{control::Control, provider::Device};
use frwr_nvmf::controller::{HOME_CORE, TargetListening, place_queues};
use frwr_reactor::{Placement, Topology};
use std::sync::{Arc, mpsc};

/// The devices of a target.
pub struct Devices<D> {
    open: Vec<D>,
    opener: Opener<D>,
}

impl<D> Devices<D> {
    /// Those of the start, and what opens further ones while it serves, by their names: on a thread of its own, for as long as that takes.
    #[must_use]
    pub const fn new(open: Vec<D>, opener: Opener<D>) -> Self {
        Self { open, opener }
    }
}

impl<D> From<Vec<D>> for Devices<D> {
    /// No further ones can be opened.
    fn from(open: Vec<D>) -> Self {
        let refused = |name: &str| {
            let text = format!("{name} cannot be opened: who runs this target has it open none; start it with {name}");
            Err(Error::failed("device", text))
        };
        Self::new(open, Box::new(refused))
    }
}

/// Serves namespaces over `devices`, which are those that `config` names, in its order, and those that come later, until it is `asked` to stop or the runtime is
/// over. `say` is told what they live in, and the digests of files that were read into memory, then that the target listens, then what
/// is moved in a second where something is.
///
/// # Errors
/// [`Error`]; also where there are fewer devices, or more.
pub fn serve<D: Device<Port: Send + 'static> + 'static>(
    devices: impl Into<Devices<D>>,
    config: &ServeConfig,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<ServeReport, Error> {
    let devices = devices.into();
    if devices.open.len() != config.devices().len() {
        let (got, named) = (devices.open.len(), config.devices().len());
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

fn serve_on<D: Device<Port: Send + 'static> + 'static>(
    devices: Devices<D>,
    config: &ServeConfig,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<ServeReport, Error> {
    let ServeArguments { target, core, output, .. } = &config.arguments;
    let Devices { open: devices, opener } = devices;
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
        say(plan::PLAIN_REPLIES);
    }
    let reservations = reservations(config, say)?;
    reservations.iter().cloned().for_each(|reservations| media.add_reservations(reservations));
    let keyring = HostKeyring::new(&config.host_keys, target.require_authentication, target.permitted())?;
    let progress = Progress::vacant(PLACES * cores);
    let (mut orders, mut places) = (Orders::new(&progress, cores, PLACES), Places::new(PLACES));
    // Behind them, so that ports are closed before their devices where something is missing.
    let mut targets: Vec<_> = (0..cores).map(|_| Vec::with_capacity(devices.len())).collect();
    let mut depths = Vec::with_capacity(devices.len());
    for (device, opened) in devices.into_iter().enumerate() {
        let mut control = Control::new(opened);
        // Cores are opened in the order of their numbers.
        control.place_connections(place_queues(HOME_CORE.into()));
        let plans =
            plan::served(config, device, of_units.by_ref().take(cores).collect(), control.device().capabilities())?;
        let (mut beginnings, mut of_peers) = (Vec::with_capacity(cores), Vec::with_capacity(cores));
        depths.extend(
            plans
                .first()
                .map(|plan| Depth::of_transfers(target.queue_depth, &plan.options.engine(), &plan.capabilities)),
        );
        for (core, plan) in plans.into_iter().enumerate() {
            let ((ends, desk), (sender, incidents)) = (orders::desk(), incident_log::lane());
            let unit = unit(device, core, cores);
            orders.add(unit, ends);
            of_peers.push(incidents);
            let mut plan = TargetPlan { incidents: Some(sender), desk: Some(desk), ..plan };
            plan.authenticator = Some(keyring.authenticator());
            plan.reservations = reservations.clone();
            let (port, link) = open(&mut control, &plan.options.engine(), &plan.capabilities)?;
            progress.occupy(unit, Doing::OpeningListener);
            let keys = keys.as_mut().map(|keys| keys.follow(poller_name(device), core));
            beginnings.push(Beginning { port, link, further: Vec::new(), plan, keys });
        }
        targets.iter_mut().zip(beginnings).for_each(|(of_core, beginning)| of_core.push(beginning));
        places.seat(device, places::Device { control: Box::new(control), incidents: of_peers });
    }
    let mut lines: Vec<_> =
        depths.iter().filter_map(|depth| depth.line("--queue-depth", "answers of an I/O queue")).collect();
    lines.dedup();
    lines.iter().for_each(|line| say(line));
    let doors = doors(&config.arguments.control, say)?;
    let (to_doors, of_cores) = mpsc::channel();
    let mut lookout = Lookout::begin(&topology);
    let threads = match launch(
        topology,
        placement,
        core,
        Sides::<_, D::Port> { targets, hosts: Vec::new(), doors: Some(to_doors) },
        &progress,
        asked,
        say,
    ) {
        Ok(threads) => threads,
        Err(error) => return Err(leave(error, places)),
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
    // All cores have said it when they are ready.
    let mut of_cores: Vec<_> = of_cores.try_iter().collect();
    of_cores.sort_by_key(|door| door.core);
    let (config, progress_of) = (config.clone(), progress.clone());
    let fleet = OnCores { opener, doors: of_cores.into(), config, reservations, progress: progress_of };
    let mut operator = Operator::new(facts, stock, orders, doors, Arc::new(fleet), output.json);
    let main = MainLoop {
        controls: Vec::new(),
        places: &mut places,
        threads: &threads,
        progress: &progress,
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
    let (served, former, mut keys) = operator.end();
    let outcome = match ended(threads, driven) {
        Ok(ended) => Outcome::<D::Port, D::Port>::collect(ended)?,
        Err(error) => return Err(leave(error, places)),
    };
    keys.iter_mut().try_for_each(|trace| trace.ended(outcome.records_lost()))?;
    trace::finish(keys, say)?;
    let Outcome { targets, cores, undrained, .. } = outcome;
    if progress.doing() == Doing::CannotListen {
        let failed =
            targets.iter().flatten().flat_map(TargetSide::listeners).find_map(|listener| match listener.listening {
                TargetListening::Failed(reason) => Some((listener.address, reason)),
                _ => None,
            });
        let (address, reason) = failed.unzip();
        let at = |address| listen.iter().find(|one| one.address == address).cloned();
        let listen = address.map_or_else(|| listen.first().cloned(), at).ok_or_else(Error::lost)?;
        return Err(cannot_listen(listen, reason));
    }
    if targets.iter().all(Vec::is_empty) {
        return Err(Error::lost());
    }
    let of_core = |(core, sides): (usize, &Vec<_>)| {
        sides.iter().map(TargetSide::snapshot).chain(former.of_core(core)).collect::<Vec<_>>()
    };
    let snapshots = targets.iter().enumerate().map(of_core);
    let of_cores = snapshots.zip(cores).map(|(snapshots, core): (_, CoreReport)| (snapshots, core.reactor)).collect();
    let control = places.served().map(|control| control.statistics()).fold(former.control, Add::add);
    let report = served.report(of_cores, control);
    Ok(ServeReport { undrained, warnings: lookout.end(say), ..report })
}

/// What serves, for reports.
fn served_devices(device: &DeviceArguments, depths: &[Depth]) -> Vec<ServedDevice> {
    let all = device.each().zip(depths).enumerate();
    all.map(|(place, (device, depth))| ServedDevice::new(place, &device, depth.effective)).collect()
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
    Users {
        // Each core has a way of its own to each medium for each device.
        cores: reactors(placement) * config.devices().len(),
        depth: plan::storage_depth(&config.arguments.target),
        pages: config.arguments.memory.pages.policy(),
        node: first_node(placement, topology),
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
