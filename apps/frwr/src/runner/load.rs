//! `frwr load`: the host's half of the job, on whatever device.

use super::{
    connect_all::connect_all,
    depth::Depth,
    intervals::intervals,
    load_command::{LoadArguments, LoadConfig},
    load_file::{LoadedFile, load as load_file},
    load_report::{LoadReport, SteadyReport},
    load_watch::LoadWatch,
    main_loop::{MainLoop, ended, leave},
    media_watch::MediaWatch,
    outcome::Outcome,
    path_log::PathLog,
    places::Places,
    plan,
    progress::Progress,
    report::{Compared, RunReport, Subject},
    served::removed,
    stalls::StallWatch,
    start::{Beginning, Sides, for_host, launch, open},
    trace::{self, OF_KEYS, OF_PORT, RING_RECORDS, Trace, check_path},
};
use crate::{
    Error,
    options::reactors,
    result_file::ResultFile,
    result_files::NamedFiles,
    signals::Asked,
    watch::{Lookout, with_neighbours},
};
use frwr_engine::{
    control::Control,
    provider::{
        Device, Port,
        record::{Recorded, Taps},
    },
};
use frwr_reactor::Topology;
use std::{io, path::Path};

/// Moves a namespace, or a file, over `device` from or to a target, and keeps a load going. `say` gets the lines of
/// progress; `asked` may end the run early.
///
/// # Errors
/// [`Error`]; a run that found something wrong returns its report.
pub fn load<D: Device<Port: Send + 'static>>(
    device: D,
    config: &LoadConfig,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<RunReport, Error> {
    let LoadArguments { file, output, job, observe, .. } = &config.arguments;
    let others = [("--file", file.as_deref()), ("--output", output.as_deref())];
    check_path(OF_PORT, job.trace.as_deref(), &others)?;
    let others = [others[0], others[1], (OF_PORT, job.trace.as_deref())];
    check_path(OF_KEYS, job.output.trace_keys.as_deref(), &others)?;
    let others = [others[0], others[1], others[2], (OF_KEYS, job.output.trace_keys.as_deref())];
    for (flag, path) in observe.files() {
        check_path(flag, path, &others)?;
    }
    match &job.trace {
        None => load_on(device, config, None, asked, say),
        Some(path) => {
            let (device, taps) = Recorded::new(device, RING_RECORDS);
            load_on(device, config, Some((path, taps)), asked, say)
        }
    }
}

fn load_on<D: Device<Port: Send + 'static>>(
    device: D,
    config: &LoadConfig,
    tracing: Option<(&Path, Taps)>,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<RunReport, Error> {
    let mut control = Control::new(device);
    let (found, mut following) = connect_all(&mut control, config, asked, say)?.unzip();
    let (config, mut following) = (found.as_ref().unwrap_or(config), following.take().flatten());
    let LoadArguments { job, queues, file, output, observe, shape, nsid, connect, .. } = &config.arguments;
    let file = file.as_deref().map(load_file).transpose()?;
    let output = output.as_deref().map(Output::new).transpose()?;
    let files = NamedFiles::open(observe.files())?;
    let topology = with_neighbours(Topology::of_machine());
    let placement = config.placement.clone().unwrap_or_else(|| for_host(&topology));
    let cores = reactors(&placement);
    let plan = plan::loaded(config, cores, file.as_ref(), control.device().capabilities())?;
    let depth = Depth::of_requests(plan.options.queue_depth.into(), &plan.options.engine(), &plan.capabilities);
    if let Some(line) = depth.line("--queue-depth", "requests of a connection") {
        say(&line);
    }
    let effective = job.queue_depth.min(depth.effective * u32::from(*queues));
    let mut keys = job.output.trace_keys.as_deref().map(Trace::of_keys).transpose()?;
    let (mut hosts, mut sinks, mut paths) =
        (Vec::with_capacity(cores), Vec::new(), PathLog::new(connect, config.places, config.waits()));
    for member in 0..cores {
        let mut of_core = Vec::with_capacity(nsid.len());
        for (job, namespace) in nsid.iter().enumerate() {
            let mut plan = plan.of_member(member, *namespace, job, nsid.len());
            if observe.is_wanted() {
                let (source, sink) = intervals(observe.every())?;
                plan.intervals = Some(source);
                sinks.push(sink);
            }
            let mut open = || open(&mut control, &plan.options.engine(), &plan.capabilities);
            let (port, link) = open()?;
            let further = (1..config.places).map(|_| open()).collect::<Result<Vec<_>, _>>()?;
            // The only path is the first core's, whose session others take part in.
            if config.places > 1 || member == 0 {
                let core = (cores > 1 && config.places > 1).then_some(member);
                plan.desk = Some(paths.follow(core, (nsid.len() > 1).then_some(*namespace)));
            }
            let keys = keys.as_mut().map(|keys| keys.follow("host", member));
            of_core.push(Beginning { port, link, further, plan, keys });
        }
        hosts.push(of_core);
    }
    let of_port = match (tracing, hosts.iter().flatten().next()) {
        (Some((path, taps)), Some(first)) => Trace::of_port(path, &taps, first.port.id())?,
        _ => None,
    };
    let named = || shape.name(file.is_some());
    let watch = observe.is_wanted().then(|| LoadWatch::new(named(), observe, sinks));
    let mut watch = watch.transpose()?;
    let progress = Progress::new(cores * nsid.len());
    let sides = Sides::<D::Port, _> { targets: Vec::new(), hosts, doors: None };
    let mut lookout = Lookout::begin(&topology);
    let threads = match launch(topology, placement, &job.core, sides, &progress, asked, say) {
        Ok(threads) => threads,
        Err(error) => return Err(leave(error, (following, control))),
    };
    lookout.placed(threads.cpus(), say);
    let mut traces: Vec<_> = of_port.into_iter().chain(keys).collect();
    traces.iter_mut().for_each(|trace| trace.started(&threads.cpus().collect::<Vec<_>>()));
    let main = MainLoop {
        controls: vec![&mut control],
        threads: &threads,
        progress: &progress,
        places: &mut Places::default(),
        load: watch.as_mut(),
        paths,
        following: following.as_mut(),
        operator: None,
        media: &mut MediaWatch::default(),
        lookout: &mut lookout,
        stalls: StallWatch::new(job.core.stall_threshold()),
        traces: &mut traces,
        listening: None,
        stop_at: None,
        service: None,
    };
    let driven = main.drive(asked, say);
    let outcome = match ended(threads, driven) {
        Ok(ended) => Outcome::collect(ended)?,
        Err(error) => return Err(leave(error, (following, control))),
    };
    if let Some(following) = &mut following {
        following.end(&mut control, say);
    }
    traces.iter_mut().try_for_each(|trace| trace.ended(outcome.records_lost()))?;
    trace::finish(traces, say)?;
    if outcome.gave_up()
        && let Some(error) = removed(&control)
    {
        return Err(error);
    }
    let (mut report, host) = outcome.report(
        subject(config, file.as_ref(), effective),
        Some(LoadReport::of(&config.arguments)),
        control.statistics(),
    )?;
    report.warnings = lookout.end(say);
    if let Some(watch) = watch {
        let course = watch.finish(say);
        if let Some(load) = &mut report.load {
            load.steady_state = course.steady.as_ref().map(SteadyReport::of);
        }
        files.write(|flag| course.text(flag, config.arguments.device.name()))?;
    }
    if let (Some(output), Some(job)) = (output, host.job())
        && job.digest().is_some()
    {
        output.write(job.read_back())?;
    }
    Ok(report)
}

fn subject(config: &LoadConfig, file: Option<&LoadedFile>, effective_queue_depth: u32) -> Subject {
    let LoadArguments { device, file: path, connect, job, shape, .. } = &config.arguments;
    let compared = match (file, config.expected) {
        (Some(_), _) => Compared::File,
        (None, Some(_)) => Compared::Digest,
        (None, None) if !shape.verify => Compared::Nothing,
        (None, None) if shape.is_range(false) => Compared::Writes,
        (None, None) => Compared::Itself,
    };
    let name = path.as_ref().map(|path| path.display().to_string());
    Subject {
        device: device.label(),
        file: name.unwrap_or_else(|| format!("the namespace of {}", connect[0])),
        compared,
        block_bytes: shape.sizes(job).most(),
        queue_depth: job.queue_depth,
        effective_queue_depth,
        read_share: shape.read_share(job, file.is_some()),
        address: connect[0],
    }
}

/// Where what was read goes.
struct Output<'a> {
    file: ResultFile,
    path: &'a Path,
}

impl<'a> Output<'a> {
    fn new(path: &'a Path) -> Result<Self, Error> {
        let file = ResultFile::open(path).map_err(|source| unwritable(path, &source))?;
        Ok(Self { file, path })
    }

    fn write(self, bytes: &[u8]) -> Result<(), Error> {
        self.file.replace(bytes).map_err(|source| unwritable(self.path, &source))
    }
}

fn unwritable(path: &Path, source: &io::Error) -> Error {
    let text = format!("--output: {path:?} cannot be written ({source}); name a file in a writable folder");
    Error::failed("output_file", text)
}
