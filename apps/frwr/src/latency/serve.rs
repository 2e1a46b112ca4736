//! The server's half, one client after the other.

use super::{
    askers::Askers,
    board::Board,
    command_line::LatencyConfig,
    desk::{Desk, News},
    operation::Operation,
    parameters::{Invalidation, KeyKind, PROTOCOL_VERSION, Parameters, PeerDoes, Refusal},
    run::{or_removed, registration},
    server::{ServerPlan, ServerSide},
    start::{Aside, Sides, drive},
    warnings::about_cores,
};
use crate::{
    Error,
    check::Machine,
    failures,
    options::reactors,
    report::{Report, value},
    runner::{Trace, cannot_listen, ended, finish_traces, for_target, leave},
    signals::Asked,
    watch::{Patrol, Watch},
};
use frwr_engine::{
    MAX_INCOMING, Statistics,
    control::Control,
    provider::{Device, PrivateData},
};
use frwr_reactor::{Clock, Finished};
use serde::Serialize;
use serde_json::Value;
use std::net::SocketAddr;

/// What there is room for before the first client says what it wants: what it asks for by default, and some more.
const FIRST: Parameters = Parameters {
    operation: Operation::Request,
    key: KeyKind::Request,
    invalidation: Invalidation::Remote,
    peer_does: PeerDoes::Write,
    size: 4096,
    segments: 1,
    ranges: 1,
    depth: 32,
    batch: 1,
    connections: 8,
};

/// What a server did until it was stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencyServerReport {
    /// Clients that were served.
    pub clients: u64,
    /// Commands that were answered.
    pub commands: u64,
    /// Cores that did not drain in time.
    pub undrained: Vec<String>,
}

impl Report for LatencyServerReport {
    fn passed(&self) -> bool {
        self.undrained.is_empty()
    }

    fn json(&self) -> Value {
        value(self)
    }

    fn table(&self) -> String {
        let mut text = format!("{} client(s) served, {} command(s) answered\n", self.clients, self.commands);
        self.undrained.iter().for_each(|who| text += &format!("not drained: {who}\n"));
        text
    }
}

/// Serves clients at `address` until it is `asked` to stop. `open` opens the device, once more for each client that needs more room
/// than there is. `say` is told that it listens, and of each client.
///
/// # Errors
/// [`Error`].
pub fn serve<D: Device<Port: Send + 'static>>(
    open: &mut dyn FnMut() -> Result<D, Error>,
    address: SocketAddr,
    config: &LatencyConfig,
    machine: &Machine,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<LatencyServerReport, Error> {
    let (mut report, mut capacity, mut unaffordable, mut first) = (LatencyServerReport::default(), FIRST, None, true);
    let askers = Askers::new(Clock::system());
    let mut keys = config.output.trace_keys.as_deref().map(Trace::of_keys).transpose()?;
    loop {
        let session =
            Session { address, config, machine, asked, capacity, unaffordable, askers: askers.clone(), first };
        let wanted = match session.run(open()?, &mut report, &mut keys, say) {
            Ok(wanted) => wanted,
            // What one client asks for is too much here: the others get what there is.
            Err(error) if capacity != FIRST && error.is_for_lack_of_room() => {
                say(&format!("no room for what the client asks for: {error}"));
                unaffordable = Some(capacity);
                Some(FIRST)
            }
            Err(error) => return Err(error),
        };
        match wanted.filter(|_| !asked.to_stop()) {
            Some(wanted) => (capacity, first) = (wanted, false),
            None => {
                finish_traces(keys, say)?;
                return Ok(report);
            }
        }
    }
}

/// A time with the same room.
struct Session<'a> {
    address: SocketAddr,
    config: &'a LatencyConfig,
    machine: &'a Machine,
    asked: &'a dyn Asked,
    capacity: Parameters,
    /// What there cannot be room for.
    unaffordable: Option<Parameters>,
    askers: Askers,
    /// Nobody has been told that it listens.
    first: bool,
}

impl Session<'_> {
    /// Returns what there is to be room for next.
    fn run<D: Device<Port: Send + 'static>>(
        self,
        device: D,
        report: &mut LatencyServerReport,
        keys: &mut Option<Trace>,
        say: &mut dyn FnMut(&str),
    ) -> Result<Option<Parameters>, Error> {
        let Self { address, config, machine, asked, capacity, unaffordable, askers, first } = self;
        let placement = config.placement.clone().unwrap_or_else(|| for_target(&machine.topology));
        let cores = reactors(&placement);
        let capabilities = *device.capabilities();
        let plan = ServerPlan {
            capacity,
            // Bounded far below 2^16; one to spare for uneven placement.
            connections: capacity.connections.div_ceil(cores as u16) + 1,
            address,
            negotiated: config.negotiated,
            pages: config.memory.pages.policy(),
            capabilities,
            // A server that is alone on its cores polls all the time.
            moves_data_in_polls: false,
            silence: Some(config.client_silence),
        };
        let (mut sides, desk, board) = (Sides::new(), Desk::knowing(capacity, unaffordable, askers), Board::new(0));
        let mut control = Control::new(device);
        control.tell_when_crowded(crowded());
        for _ in 0..cores {
            sides.add_server(&mut control, plan.clone(), keys.as_mut())?;
        }
        let (watch, mut patrol) = (Watch::begin(), Patrol::default());
        let threads = match sides.launch(machine.topology.clone(), placement, (&board, &desk), config.idle, asked, say)
        {
            Ok(threads) => threads,
            Err(error) => return Err(leave(error, control)),
        };
        let cpus: Vec<_> = threads.cpus().collect();
        keys.iter_mut().for_each(|keys| keys.started(&cpus));
        let mut told = !first;
        let mut tell = |desk: &Desk, say: &mut dyn FnMut(&str)| {
            if !told && desk.listening() == Some(cores) {
                told = true;
                say(&format!("listening on {address} ({})", registration(&capabilities)));
                about_cores(machine, &cpus, config.rdma_device(), &watch)
                    .iter()
                    .for_each(|warning| say(&format!("warning: {}; {}", warning.text, warning.remedy)));
            }
            say_news(desk, say);
        };
        let driven =
            drive(vec![&mut control], &threads, &board, asked, Aside { patrol: &mut patrol, keys }, say, |say| {
                tell(&desk, say);
                asked.to_stop() || desk.wanted().is_some() || desk.listening().is_none()
            });
        let of_cores = match ended(threads, driven) {
            Ok(of_cores) => of_cores,
            Err(error) if error.leaves_a_core() => return Err(leave(error, control)),
            Err(error) => return Err(or_removed(error, &control)),
        };
        tell(&desk, say);
        let mut engines = Statistics::default();
        for ended in of_cores {
            let Finished { core, context, report: reactor } =
                ended.map_err(|error| or_removed(error.into(), &control))?;
            engines = engines + context.engine();
            report.commands += context.server.as_ref().map_or(0, ServerSide::served);
            report.undrained.extend(reactor.undrained.iter().map(|name| format!("reactor {core}: {name}")));
        }
        failures::lines(&engines).iter().for_each(|line| say(line));
        keys.iter_mut().try_for_each(|keys| keys.ended(engines.trace_records_dropped))?;
        report.clients += desk.clients();
        match desk.listening() {
            None => Err(or_removed(cannot_listen(address, desk.cannot_listen()), &control)),
            Some(_) => Ok(desk.wanted()),
        }
    }
}

/// What clients are told that ask for more connections at a time than a core is asked about.
pub(super) fn crowded() -> PrivateData {
    // Far below 2^16, and checked to fit a rejection.
    Refusal::Crowded(MAX_INCOMING as u16).encode().into_iter().collect()
}

fn say_news(desk: &Desk, say: &mut dyn FnMut(&str)) {
    let (news, unsaid) = desk.take_news();
    news.iter().for_each(|news| say(&line(news)));
    if unsaid > 0 {
        say(&format!("{unsaid} more connect requests were refused"));
    }
}

fn who(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "client".to_owned(), |peer| format!("client {peer}"))
}

fn line(news: &News) -> String {
    match news {
        News::Came { peer, parameters } => {
            let Parameters { operation, key, size, depth, connections, .. } = *parameters;
            format!(
                "{}: {}, key {}, {size} bytes, depth {depth}, {connections} connection(s)",
                who(*peer),
                operation.name(),
                key.name()
            )
        }
        News::Left { served } => format!("client has ended after {served} command(s)"),
        News::Died { served, cause } => format!("client is gone after {served} command(s): {cause}"),
        News::Refused { peer, refusal } => {
            let why = match refusal {
                Refusal::Version(_) => format!("it speaks another version of the protocol than {PROTOCOL_VERSION}"),
                Refusal::Excess(excess) => {
                    format!("{} is {}, at most {}", excess.what.name(), excess.value, excess.most)
                }
                Refusal::Busy => "another client is served".to_owned(),
                Refusal::Crowded(most) => format!("{most} others wait for an answer"),
                Refusal::NoRoom => "there is no room for what it asks for".to_owned(),
                Refusal::NoKeys => "this device opens no keys by work requests; with --key memory it can".to_owned(),
                Refusal::RemoteInvalidation => "this device cannot invalidate keys of peers".to_owned(),
                Refusal::Malformed | Refusal::Again => "its private data cannot be read".to_owned(),
            };
            format!("{} refused: {why}", who(*peer))
        }
    }
}
