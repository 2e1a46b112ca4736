//! Instructions that the verbs provider's port has for each work request and completion, over a library that does nothing.
//!
//! `verbs-cost INTERFACE MODE COUNT` posts that many, 32 at a time, or polls for them. Count it with callgrind at two numbers and divide the
//! difference. Interfaces: `list` (ibv_post_send) and `builder` (`ibv_wr_*`). Modes:
//!
//! * `write`: RDMA WRITEs of one element.
//! * `request`: a window that is bound, and the message that names it: two work requests, counted as one.
//! * `invalidate`: the same with a LOCAL_INV of the window's last key in front.
//! * `receive`: receives.
//! * `reply`: completions of replies that invalidated a key, with what the library has to write of them.
//!
//! The device is a ConnectX as far as its driver's name goes: what is short goes inline, and nothing is guarded. In `reply` its keys are
//! guarded, as those of its lists are, and of rxe's windows.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use core::hint::black_box;
use frwr_engine::provider::{
    Access, Answer, Chain, Command, CompletionBatch, CompletionQueue, Device, DeviceEvent, ElementRange, Operation,
    Port, QueuePairId, QueueSizes, ReceiveRequest, RegistrationFields, RegistrationId, RemoteRange, ScatterElement,
    Ticket, Token, TokenKind, WorkRequest,
    verbs::{PostInterface, VerbsDevice, VerbsOptions, VerbsPort},
};
use frwr_fake::{FakeDevice, FakeOptions};
use frwr_mempool::{
    Region,
    region::{PagePolicy, RegionOptions},
};
use std::error::Error;

/// Requests at a time, as many as goal A7 has.
const BATCH: u32 = 32;

/// Bytes that are registered.
const MEMORY_BYTES: usize = 1 << 20;

/// Bytes of a message: an NVMe command, and short enough to go inline on a device that has room for it.
const MESSAGE_BYTES: u32 = 64;

/// Bytes that a window covers.
const PAGE: u32 = 4096;

/// Entries of the completion queues.
const COMPLETIONS: u32 = 1024;

/// Polls of the device until an answer is there.
const PATIENCE: usize = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, interface, mode, count] = &arguments[..] else {
        return Err("usage: verbs-cost list|builder write|request|invalidate|receive|reply COUNT".into());
    };
    let post = match interface.as_str() {
        "list" => PostInterface::List,
        "builder" => PostInterface::Builder,
        other => return Err(format!("the interface is {other}, but must be list or builder").into()),
    };
    // Of the first the provider knows a device without deviations, of the second one that has to be guarded.
    let driver = if mode == "reply" { "rxe" } else { "mlx5" };
    let mut bench = Bench::open(FakeOptions::windows(driver), post)?;
    let rounds = count.parse::<u64>()?.div_ceil(BATCH.into());
    match mode.as_str() {
        "write" => bench.post(rounds, &bench.writes())?,
        "request" => bench.post(rounds, &bench.requests(false))?,
        "invalidate" => bench.post(rounds, &bench.requests(true))?,
        "receive" => bench.receive(rounds)?,
        "reply" => bench.replies(rounds),
        other => {
            return Err(format!("the mode is {other}, but must be write, request, invalidate, receive or reply").into());
        }
    }
    println!("{} iterations", rounds * u64::from(BATCH));
    Ok(())
}

/// A queue pair with windows, over memory that is registered.
struct Bench {
    _device: VerbsDevice,
    port: VerbsPort,
    queue_pair: QueuePairId,
    windows: Vec<(RegistrationId, u32)>,
    base: frwr_engine::provider::BaseId,
    elements: Vec<ScatterElement>,
    // In this order: what is registered is mapped as long as the device lives.
    _region: Region,
    _fake: FakeDevice,
}

impl Bench {
    fn open(device: FakeOptions, post: PostInterface) -> Result<Self, Box<dyn Error>> {
        let fake = FakeDevice::new(device);
        let options = VerbsOptions::new(fake.name()).post(post).self_test(false);
        let mut device = VerbsDevice::open_with(frwr_fake::discarding_library(), &options)?;
        let port = device.open_port(COMPLETIONS, COMPLETIONS)?;
        let mut region =
            Region::map(&RegionOptions::new(MEMORY_BYTES).pages(PagePolicy::Ladder { allow_plain: true }))?;
        let memory = region.carve(MEMORY_BYTES, PAGE as usize)?.into_device_memory();
        let start = memory.address();
        let mut tickets = 0;
        let mut ask = |command| answer(&mut device, &mut tickets, command);
        let Answer::Domain(domain) = ask(Command::AllocateDomain)? else { return Err(unexpected()) };
        let register = Command::RegisterMemory { domain, memory, local_write: true };
        let Answer::Base { base, lkey } = ask(register)? else { return Err(unexpected()) };
        let sizes = QueueSizes { send: 4 * BATCH, receive: BATCH, max_send_sge: 2 };
        let create = Command::CreateQueuePair { port: port.id(), domain, sizes, shared_receives: None };
        let Answer::QueuePair { queue_pair, .. } = ask(create)? else { return Err(unexpected()) };
        let mut windows = Vec::new();
        for _ in 0..BATCH {
            let allocate = Command::AllocateRegistration { port: port.id(), domain, queue_pair, depth: 1 };
            let Answer::Registration { object, key } = ask(allocate)? else { return Err(unexpected()) };
            windows.push((object, key));
        }
        // Pages that windows cover, and messages behind them.
        let pages = (0..BATCH).map(|at| ScatterElement { address: start + u64::from(at * PAGE), length: PAGE, lkey });
        let messages = (0..BATCH).map(|at| ScatterElement {
            address: start + u64::from(BATCH * PAGE + at * MESSAGE_BYTES),
            length: MESSAGE_BYTES,
            lkey,
        });
        let elements = pages.chain(messages).collect();
        Ok(Self { _device: device, port, queue_pair, windows, base, elements, _region: region, _fake: fake })
    }

    /// One for each page; the last asks for a completion.
    fn writes(&self) -> Vec<WorkRequest> {
        let write = |at| {
            let remote = RemoteRange { address: u64::from(at * PAGE), key: 77 };
            Operation::Write { local: ElementRange { first: at, count: 1 }, remote }
        };
        (0..BATCH).map(|at| work_request(TokenKind::Message, at, write(at))).collect()
    }

    /// Of each window one, and a message; the last message asks for a completion. A window's keys alternate.
    fn requests(&self, invalidates: bool) -> Vec<WorkRequest> {
        let request = |(at, (object, key)): (u32, &(RegistrationId, u32))| {
            let invalidate = Operation::Invalidate { object: *object, key: *key };
            let fields = RegistrationFields {
                object: *object,
                base: self.base,
                old_key: *key,
                key: key ^ 1,
                access: Access::RemoteWrite,
                iova: self.elements[at as usize].address,
                length: PAGE,
                elements: ElementRange { first: at, count: 1 },
            };
            let message = Operation::Send { local: ElementRange { first: BATCH + at, count: 1 }, invalidate: None };
            let invalidation = invalidates.then(|| work_request(TokenKind::Invalidate, at, invalidate));
            let register = work_request(TokenKind::Register, at, Operation::Register(fields));
            invalidation.into_iter().chain([register, work_request(TokenKind::Message, at, message)])
        };
        (0..BATCH).zip(&self.windows).flat_map(request).collect()
    }

    fn post(&mut self, rounds: u64, requests: &[WorkRequest]) -> Result<(), Box<dyn Error>> {
        for _ in 0..rounds {
            let chain = Chain { requests: black_box(requests), elements: black_box(&self.elements) };
            self.port.post(self.queue_pair, chain)?;
        }
        Ok(())
    }

    fn receive(&mut self, rounds: u64) -> Result<(), Box<dyn Error>> {
        let receive = |(at, element): (u32, &ScatterElement)| ReceiveRequest {
            token: Token::new(TokenKind::Receive, at, 1),
            element: *element,
        };
        let receives: Vec<_> = (0..BATCH).zip(&self.elements[BATCH as usize..]).map(receive).collect();
        for _ in 0..rounds {
            self.port.post_receives(self.queue_pair, black_box(&receives))?;
        }
        Ok(())
    }

    fn replies(&mut self, rounds: u64) {
        let mut polled = 0;
        while polled < rounds * u64::from(BATCH) {
            let mut completions = CompletionBatch::new();
            polled += self.port.poll(CompletionQueue::Receive, &mut completions) as u64;
            black_box(&completions);
        }
    }
}

fn work_request(kind: TokenKind, at: u32, operation: Operation) -> WorkRequest {
    let signalled = kind == TokenKind::Message && at + 1 == BATCH;
    WorkRequest { token: Token::new(kind, at, 1), signalled, fence: false, operation }
}

/// Runs a command to its answer.
fn answer(device: &mut VerbsDevice, tickets: &mut u64, command: Command) -> Result<Answer, Box<dyn Error>> {
    *tickets += 1;
    device.submit(Ticket(*tickets), command).map_err(|refused| format!("the device has no room for {refused:?}"))?;
    for _ in 0..PATIENCE {
        if let Some(DeviceEvent::Answered { result, .. }) = device.poll() {
            return Ok(result?);
        }
    }
    Err("the device does not answer".into())
}

fn unexpected() -> Box<dyn Error> {
    "the device answered something else than was asked".into()
}
