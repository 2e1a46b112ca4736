//! The worst iterations of an engine (goal A22): what one does is bounded by its budgets, whatever the device says.
//!
//! `storm-cost [bare] MODE ITERATIONS` sets up, runs that many of the iterations in question, and prints the most that one did. Modes:
//!
//! * `good`: a full budget of good completions on both queues, with the 64 requests that follow them.
//! * `failed`: all that a connection has posted fails at once, with a full budget on both queues; another connection each time, at
//!   most 64. Set-up is the same for any number of iterations.
//! * `stale`: a full budget on both queues of completions that name nothing any more.
//!
//! With `bare` it is the port and the program's loop without an engine, and what the engine would post is prepared in advance:
//! part of the same mode without it, and not the engine's.
//!
//! Counted by callgrind at two numbers of iterations, the difference is what one costs.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use core::{hint::black_box, time::Duration};
use frwr_benches::{
    null_device::NullDevice,
    requester::{InOrder, MESSAGE_BYTES, PAGE, Requester, prepared, write_grant},
    storm::StormPort,
};
use frwr_engine::{
    Chunk, ConnectionId, EngineOptions, Event, Message, Protocol, RequestHandle, RequestStatus, Statistics, Submission,
    gather::Segment,
    mr::{ConnectionKey, Grant},
    provider::{
        Access, Chain, CompletionBatch, CompletionQueue, MAX_COMPLETIONS_PER_POLL, Port, QueuePairId, ReceiveRequest,
        ScatterElement, Token, TokenKind, WorkRequest, soft::SoftProfile,
    },
    signal::SignalPolicy,
};
use std::error::Error;

/// Connections of the mode `failed`.
const CONNECTIONS: u16 = 64;

/// Completions of a full budget.
const BUDGET: u32 = MAX_COMPLETIONS_PER_POLL as u32;

/// Requests of a connection in `failed`: each has two work requests posted.
const FAILING: u32 = BUDGET / 2;

type Stormy = Requester<NullDevice<StormPort>>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let (bare, mode, iterations) = match &arguments[1..] {
        [mode, iterations] => (false, mode, iterations),
        [bare, mode, iterations] if bare == "bare" => (true, mode, iterations),
        _ => return Err("usage: storm-cost [bare] good|failed|stale ITERATIONS".into()),
    };
    let iterations: u64 = iterations.parse()?;
    if mode == "failed" && iterations > u64::from(CONNECTIONS) {
        return Err(format!("ITERATIONS is {iterations}, but failed has at most {CONNECTIONS}").into());
    }
    let options = match mode.as_str() {
        "failed" => EngineOptions::default().connections(CONNECTIONS).queue_depth(FAILING).receive_depth(BUDGET),
        // Every message asks for a completion, so that both queues bring a full budget.
        "good" | "stale" => EngineOptions::default()
            .connections(1)
            .queue_depth(BUDGET)
            .receive_depth(BUDGET)
            .signal(SignalPolicy::KernelBudget { batch: 0 }),
        other => return Err(format!("the mode is {other}, but must be good, failed or stale").into()),
    };
    let port = StormPort::new(usize::from(options.connections));
    if bare {
        without_engine(port, mode, iterations, &options);
        return Ok(());
    }
    with_engine(port, mode, iterations, &options)
}

fn with_engine(port: StormPort, mode: &str, iterations: u64, options: &EngineOptions) -> Result<(), Box<dyn Error>> {
    let mut requester = Requester::open(NullDevice::new(SoftProfile::RegMr.capabilities(), port), options)?;
    let mut connections = vec![requester.connection];
    while connections.len() < usize::from(options.connections) {
        connections.push(requester.connect(options)?);
    }
    let segments = requester.pages(BUDGET.into(), 1);
    for &connection in &connections {
        submit(&mut requester, connection, &segments, options.queue_depth)?;
    }
    requester.engine.flush();
    let mut worst = Worst::default();
    for at in 0..iterations {
        let connection = connections[at as usize % connections.len()];
        let queue_pair = requester.engine.queue_pair(connection).ok_or("a connection is gone")?;
        tell(requester.engine.port_mut(), mode, queue_pair);
        let before = requester.engine.statistics();
        let ended = iteration(&mut requester, at);
        if mode == "good" {
            submit(&mut requester, connection, &segments, ended)?;
        }
        requester.engine.flush();
        worst.note(&before, &requester.engine.statistics(), ended);
    }
    println!("{iterations} iterations of {BUDGET} completions on either queue; the most that one did: {worst:?}");
    Ok(())
}

fn tell(port: &mut StormPort, mode: &str, queue_pair: QueuePairId) {
    match mode {
        "good" => port.answer(queue_pair),
        "failed" => port.fail(queue_pair),
        _ => port.stale(queue_pair, BUDGET),
    }
}

/// The same port and loop, with what the engine would post prepared in advance.
fn without_engine(mut port: StormPort, mode: &str, iterations: u64, options: &EngineOptions) {
    let mut protocol = InOrder::default();
    let work: Vec<WorkRequest> = (0..options.queue_depth).flat_map(|at| prepared(at, true)).collect();
    let receives: Vec<_> = (0..options.receive_depth)
        .map(|at| ReceiveRequest { token: Token::new(TokenKind::Receive, at, 1), element: ScatterElement::default() })
        .collect();
    // The port numbers its queue pairs from 1.
    let queue_pairs: Vec<_> = (1..=u32::from(options.connections)).map(QueuePairId).collect();
    for &queue_pair in &queue_pairs {
        post(&mut port, queue_pair, &work, &receives);
        (0..options.queue_depth).for_each(|_| write_and_send(&mut protocol));
    }
    let mut most = 0;
    for at in 0..iterations {
        let queue_pair = queue_pairs[at as usize % queue_pairs.len()];
        tell(&mut port, mode, queue_pair);
        let ended = replies(&mut port, &mut protocol);
        if mode == "good" {
            (0..ended).for_each(|_| write_and_send(&mut protocol));
            post(&mut port, queue_pair, &work[..2 * ended], &receives[..ended]);
        }
        most = most.max(ended);
    }
    println!(
        "{iterations} iterations of {BUDGET} completions on either queue without an engine; {most} replies at most"
    );
}

fn post(port: &mut StormPort, queue_pair: QueuePairId, work: &[WorkRequest], receives: &[ReceiveRequest]) {
    let _ = port.post_receives(queue_pair, black_box(receives));
    let _ = port.post(queue_pair, Chain { requests: black_box(work), elements: &[] });
}

fn write_and_send(protocol: &mut InOrder) {
    let mut message = [0u8; MESSAGE_BYTES];
    write_grant(black_box(&mut message), &Grant { key: 1, address: 0, length: PAGE });
    protocol.sent(RequestHandle::from_parts(1, 1));
}

/// Returns how many replies both queues brought.
fn replies(port: &mut StormPort, protocol: &mut InOrder) -> usize {
    let message = [0u8; MESSAGE_BYTES];
    let mut ended = 0;
    for queue in [CompletionQueue::Receive, CompletionQueue::Send] {
        let mut completions = CompletionBatch::new();
        port.poll(queue, &mut completions);
        for completion in black_box(&completions) {
            if completion.token.kind() == TokenKind::Receive
                && completion.result.is_ok_and(|success| success.invalidated.is_some())
                && matches!(protocol.classify(ConnectionKey::default(), &message, 16), Message::Reply(_))
            {
                ended += 1;
            }
        }
    }
    ended
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
