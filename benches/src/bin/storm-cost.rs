//! The worst iterations of an engine (goal A22): what one does is bounded by its budgets, whatever the device says.
//!
//! `storm-cost MODE ITERATIONS` sets up, runs that many of the iterations in question, and prints the most that one did. Modes:
//!
//! * `good`: a full budget of good completions on both queues, with the 64 requests that follow them.
//! * `failed`: all that a connection has posted fails at once, with a full budget on both queues; another connection each time, at
//!   most 64. Set-up is the same for any number of iterations.
//! * `stale`: a full budget on both queues of completions that name nothing any more.
//!
//! Counted by callgrind at two numbers of iterations, the difference is what one costs.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use core::time::Duration;
use frwr_benches::{
    null_device::NullDevice,
    requester::{MESSAGE_BYTES, Requester},
    storm::StormPort,
};
use frwr_engine::{
    Chunk, ConnectionId, EngineOptions, Event, RequestStatus, Statistics, Submission,
    gather::Segment,
    provider::{Access, MAX_COMPLETIONS_PER_POLL, QueuePairId, soft::SoftProfile},
    signal::SignalPolicy,
};
use std::error::Error;

/// Connections of the mode `failed`.
const CONNECTIONS: u16 = 64;

/// Requests of a connection in `failed`: each has two work requests posted.
const FAILING: u32 = MAX_COMPLETIONS_PER_POLL as u32 / 2;

type Stormy = Requester<NullDevice<StormPort>>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, mode, iterations] = &arguments[..] else {
        return Err("usage: storm-cost good|failed|stale ITERATIONS".into());
    };
    let iterations: u64 = iterations.parse()?;
    if mode == "failed" && iterations > u64::from(CONNECTIONS) {
        return Err(format!("ITERATIONS is {iterations}, but failed has at most {CONNECTIONS}").into());
    }
    let budget = MAX_COMPLETIONS_PER_POLL as u32;
    let options = match mode.as_str() {
        "failed" => EngineOptions {
            connections: CONNECTIONS,
            queue_depth: FAILING,
            receive_depth: budget,
            ..EngineOptions::default()
        },
        // Every message asks for a completion, so that both queues bring a full budget.
        "good" | "stale" => EngineOptions {
            connections: 1,
            queue_depth: budget,
            receive_depth: budget,
            signal: SignalPolicy::KernelBudget { batch: 0 },
            ..EngineOptions::default()
        },
        other => return Err(format!("the mode is {other}, but must be good, failed or stale").into()),
    };
    let port = StormPort::new(usize::from(options.connections));
    let mut requester = Requester::open(NullDevice::new(SoftProfile::RegMr.capabilities(), port), &options)?;
    let mut connections = vec![requester.connection];
    while connections.len() < usize::from(options.connections) {
        connections.push(requester.connect(&options)?);
    }
    let segments = requester.pages(budget.into(), 1);
    for &connection in &connections {
        submit(&mut requester, connection, &segments, options.queue_depth)?;
    }
    requester.engine.flush();
    let mut worst = Worst::default();
    for at in 0..iterations {
        let connection = connections[at as usize % connections.len()];
        let queue_pair = requester.engine.queue_pair(connection).ok_or("a connection is gone")?;
        tell(&mut requester, mode, queue_pair);
        let before = requester.engine.statistics();
        let ended = iteration(&mut requester, at);
        if mode == "good" {
            submit(&mut requester, connection, &segments, ended)?;
        }
        requester.engine.flush();
        worst.note(&before, &requester.engine.statistics(), ended);
    }
    println!("{iterations} iterations of {budget} completions on either queue; the most that one did: {worst:?}");
    Ok(())
}

fn tell(requester: &mut Stormy, mode: &str, queue_pair: QueuePairId) {
    let port = requester.engine.port_mut();
    match mode {
        "good" => port.answer(queue_pair),
        "failed" => port.fail(queue_pair),
        _ => port.stale(queue_pair, MAX_COMPLETIONS_PER_POLL as u32),
    }
}

/// Returns how many requests ended.
fn iteration(requester: &mut Stormy, at: u64) -> u32 {
    let mut ended = 0;
    requester.engine.poll(Duration::from_nanos(at), &mut requester.protocol);
    while let Some(event) = requester.engine.next_event() {
        if let Event::Completed { status: RequestStatus::Replied(received), .. } = event {
            requester.engine.release(received);
            ended += 1;
        }
    }
    ended
}

fn submit(
    requester: &mut Stormy,
    connection: ConnectionId,
    segments: &[Segment],
    count: u32,
) -> Result<(), Box<dyn Error>> {
    let message = [0u8; MESSAGE_BYTES];
    for at in 0..count as usize {
        let chunk = [Chunk { access: Access::RemoteWrite, segments: &segments[at..=at] }];
        let submission = Submission {
            message: &message,
            inline: &[],
            chunks: &chunk,
            invite_invalidation: true,
            iova_cookie: 0,
            cookie: 0,
        };
        let handle = requester.engine.submit(connection, &submission, &mut requester.protocol)?;
        requester.protocol.sent(handle);
    }
    Ok(())
}

/// The most that one iteration did.
#[derive(Debug, Default)]
struct Worst {
    receive_completions: u64,
    send_completions: u64,
    stale_completions: u64,
    doorbells: u64,
    work_requests: u64,
    disconnects: u64,
    ended: u32,
}

impl Worst {
    fn note(&mut self, before: &Statistics, after: &Statistics, ended: u32) {
        let most = |worst: &mut u64, before: u64, after: u64| *worst = (*worst).max(after - before);
        most(&mut self.receive_completions, before.receive_completions, after.receive_completions);
        most(&mut self.send_completions, before.send_completions, after.send_completions);
        most(&mut self.stale_completions, before.stale_completions, after.stale_completions);
        most(&mut self.doorbells, before.doorbells, after.doorbells);
        most(&mut self.work_requests, before.work_requests, after.work_requests);
        most(&mut self.disconnects, before.disconnects, after.disconnects);
        self.ended = self.ended.max(ended);
    }
}
