//! Instructions of one NVMe-oF command on the target's own code, and on the host's (goal A24).
//!
//! `nvmf-cost MODE BATCH COMMANDS` connects a host and a target over the software NIC, detaches one of them from it,
//! and runs that many commands of 4 KiB of it, `BATCH` per iteration, with a far end that answers at once. Count it
//! with callgrind at two numbers of commands and divide the difference. Modes:
//!
//! * `target-read`: from a namespace in memory, by a key that the response kills. `target-write`: with the data in the
//!   capsule.
//! * `host-read`, `host-write`: the same commands, as the host sends them and takes their answers.
//! * `medium-read`, `medium-write`: what the namespace has of it, which copies every word of a block.
//! * `bare-` in front of the first four: their port and far end without an engine, which are part of them, and neither
//!   the target's nor the host's.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use core::{hint::black_box, time::Duration};
use frwr_benches::{
    detached::{Detachable, DetachablePort, FarEnd, Memory},
    nvmf::{Answers, BLOCK, BLOCKS, Commands, HostSide, QUEUE_DEPTH, TargetSide, connect, nic, region},
    requester::{posted, prepared},
};
use frwr_engine::provider::{
    Chain, CompletionBatch, CompletionQueue, ElementRange, Operation, Port, QueuePairId, ReceiveRequest, RemoteRange,
    ScatterElement, Token, TokenKind, WorkRequest,
    soft::{SoftFabric, SoftPort},
};
use frwr_nvmf::storage::{CompletionBatch as Stored, Cookie, MemoryStorage, Operation as OfMedium, Storage};
use std::error::Error;

/// Bytes of a receive: a command, and its data.
const RECEIVE_BYTES: u32 = 64 + BLOCK;
/// Commands per iteration at most: what a host has in flight here.
const MOST: u16 = 32;

/// What it can be asked for.
const MODES: &str =
    "[bare-]target-read|[bare-]target-write|[bare-]host-read|[bare-]host-write|medium-read|medium-write";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, mode, batch, commands] = &arguments[..] else {
        return Err(format!("usage: nvmf-cost {MODES} BATCH COMMANDS").into());
    };
    let (batch, count): (u16, u64) = (batch.parse()?, commands.parse()?);
    if batch == 0 || batch > MOST {
        return Err(format!("BATCH is {batch}, but must be 1 to {MOST}").into());
    }
    match mode.as_str() {
        "target-read" => target(false, batch, count),
        "target-write" => target(true, batch, count),
        "host-read" => host::<false>(batch, count),
        "host-write" => host::<true>(batch, count),
        "bare-target-read" => bare(Commands::new(false, batch, count)?, &[write, send], batch, count),
        "bare-target-write" => bare(Commands::new(true, batch, count)?, &[send], batch, count),
        "bare-host-read" => bare(Answers::default(), &[register, send], batch, count),
        "bare-host-write" => bare(Answers::default(), &[send], batch, count),
        "medium-read" => medium(false, batch, count),
        "medium-write" => medium(true, batch, count),
        other => Err(format!("the mode is {other}, but must be {MODES}").into()),
    }
}

fn target(writes: bool, batch: u16, count: u64) -> Result<(), Box<dyn Error>> {
    let fabric = SoftFabric::new();
    let (device, detacher) = Detachable::new(nic(&fabric), Commands::new(writes, batch, count)?);
    let (mut host, mut side) = (HostSide::new(nic(&fabric))?, TargetSide::new(device)?);
    let began = connect(&mut host, &mut side)?;
    detacher.detach();
    let (before, posted_before) = (side.target.statistics(), side.target.engine().statistics());
    // One more, for what the device has to say of the last ones.
    for at in 0..=count.div_ceil(batch.into()) {
        side.target.poll(began + Duration::from_nanos(at));
        side.target.flush();
    }
    let (after, done) = (side.target.statistics(), side.target.engine().statistics());
    let succeeded = after.reads + after.writes - before.reads - before.writes;
    if succeeded != count || after.failed_commands != before.failed_commands {
        return Err(format!("{succeeded} of {count} commands succeeded: {after:?}").into());
    }
    println!("{succeeded} iterations of 1 command, {}", posted(&posted_before, &done));
    Ok(())
}

fn host<const WRITES: bool>(batch: u16, count: u64) -> Result<(), Box<dyn Error>> {
    let fabric = SoftFabric::new();
    let (device, detacher) = Detachable::new(nic(&fabric), Answers::default());
    let (mut side, mut target) = (HostSide::new(device)?, TargetSide::new(nic(&fabric))?);
    let began = connect(&mut side, &mut target)?;
    detacher.detach();
    let (host, batch) = (&mut side.host, u64::from(batch));
    let before = host.engine().statistics();
    let (mut done, mut submitted) = (0, 0);
    while done < count {
        host.poll(began + Duration::from_nanos(done));
        while let Some(completion) = host.next_completion() {
            completion.result?;
            done += 1;
        }
        while submitted < count && submitted - done < batch {
            let block = submitted % BLOCKS;
            let segments = &side.segments[block as usize..=block as usize];
            if WRITES {
                host.write(block, segments, submitted)?;
            } else {
                host.read(block, segments, submitted)?;
            }
            submitted += 1;
        }
        host.flush();
    }
    println!("{done} iterations of 1 command, {}", posted(&before, &host.engine().statistics()));
    Ok(())
}

/// The namespace alone.
#[inline(never)]
fn medium(writes: bool, batch: u16, count: u64) -> Result<(), Box<dyn Error>> {
    let (mut region, page) = (region()?, BLOCK as usize);
    let blocks = region.carve(BLOCKS as usize * page, page)?.into_device_memory();
    let buffers = region.carve(usize::from(batch) * page, page)?.into_device_memory();
    let mut storage = MemoryStorage::new(blocks, BLOCK, QUEUE_DEPTH.into())?;
    storage.attach(buffers)?;
    let mut completions = Stored::new();
    let (mut done, mut submitted) = (0, 0);
    while done < count {
        while submitted < count && submitted - done < batch.into() {
            let (lba, buffer) = (submitted % BLOCKS, (submitted - done) as usize * page);
            let operation = match writes {
                true => OfMedium::Write { lba, blocks: 1, buffer },
                false => OfMedium::Read { lba, blocks: 1, buffer },
            };
            storage.submit(Cookie(submitted), black_box(operation))?;
            submitted += 1;
        }
        storage.flush();
        completions.clear();
        storage.poll(Duration::from_nanos(done), &mut completions);
        for completion in black_box(&completions) {
            completion.result?;
            done += 1;
        }
    }
    println!("{done} iterations of 1 operation of the medium");
    Ok(())
}

/// A work request of a command, of so many bytes behind its message.
type Work = fn(u32) -> WorkRequest;

fn register(at: u32) -> WorkRequest {
    prepared(at, false)[0]
}

fn send(at: u32) -> WorkRequest {
    prepared(at, at + 1 == u32::from(MOST))[1]
}

fn write(at: u32) -> WorkRequest {
    let local = ElementRange { first: at, count: 1 };
    let operation = Operation::Write { local, remote: RemoteRange { address: 0, key: 1 } };
    WorkRequest { token: Token::new(TokenKind::Transfer, at, 1), signalled: false, fence: false, operation }
}

/// What an engine would post for commands, prepared in advance, and what comes of it.
#[inline(never)]
fn bare<F: FarEnd>(far: F, work: &[Work], batch: u16, count: u64) -> Result<(), Box<dyn Error>> {
    let mut region = region()?;
    let memory = region.carve(usize::from(2 * MOST) * RECEIVE_BYTES as usize, BLOCK as usize)?.into_device_memory();
    let element = |at: u32| ScatterElement {
        address: memory.address() + u64::from(at * RECEIVE_BYTES),
        length: RECEIVE_BYTES,
        lkey: 1,
    };
    let receives: Vec<_> = (0..batch.into())
        .map(|at| ReceiveRequest { token: Token::new(TokenKind::Receive, at, 1), element: element(at) })
        .collect();
    let elements: Vec<_> = (0..batch.into()).map(|at| element(u32::from(MOST) + at)).collect();
    let chain: Vec<_> = (0..batch.into()).flat_map(|at| work.iter().map(move |work| work(at))).collect();
    let mut port = DetachablePort::<SoftPort, F>::detached(far, Memory::new(vec![memory.clone()]));
    let queue_pair = QueuePairId(1);
    let (mut done, mut first) = (0, 0);
    // The first messages of a controller are answers.
    let _ = port.post_receives(queue_pair, &receives);
    while done < count {
        for queue in [CompletionQueue::Receive, CompletionQueue::Send] {
            let mut completions = CompletionBatch::new();
            if port.may_have_completions(queue) {
                port.poll(queue, &mut completions);
            }
            for completion in black_box(&completions) {
                done += u64::from(completion.token.kind() == TokenKind::Receive);
            }
        }
        let due = (count - first).min(batch.into());
        let many = due as usize;
        let _ = port.post_receives(queue_pair, black_box(&receives[..many]));
        let requests = black_box(&chain[..many * work.len()]);
        let _ = port.post(queue_pair, Chain { requests, elements: black_box(&elements) });
        first += due;
    }
    println!("{done} iterations of 1 command without an engine");
    Ok(())
}
