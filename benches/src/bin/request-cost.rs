//! Instructions of one registered request on the engine's own code: map, chain, post, complete, fence, free.
//!
//! `request-cost MODE BATCH REQUESTS` runs that many requests, `BATCH` per iteration, on a device that completes at once.
//! Count it with callgrind at two numbers of requests and divide the difference. Modes:
//!
//! * `remote`: the peer invalidates the key (goal A7). `local`: the engine does.
//! * `static`: one key for the whole run, made by `register_now`; each message names it with an address of its own (goal A8:
//!   `remote` less `static`).
//! * `none`: a request that opens no memory.
//! * `inline`: 4 KiB behind the message, and no key: a write in the capsule, which is how our NVMe host sends small ones.
//! * `two-keys`: one to read and one to write, and the engine invalidates both.
//! * `shared`: as `remote`, by receives that connections share. `traced`: as `remote`, with each step of a key recorded, and taken.
//! * `bare`: the null port and this program's loop without an engine: what is part of `remote` and `local` and not the engine's.
//!   `bare-static`: the same of `static`, which posts no registrations.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use core::hint::black_box;
use frwr_benches::{
    null_device::{NullDevice, NullPort},
    requester::{self, InOrder, Load, MESSAGE_BYTES, PAGE, Requester, posted, prepared, usual_options, write_grant},
};
use frwr_engine::{
    Chunk, Engine, EngineOptions, Message, Protocol, ReceiveQueues, Submission,
    mr::{ConnectionKey, Grant},
    provider::{
        Access, Chain, CompletionBatch, CompletionQueue, Port, QueuePairId, ReceiveRequest, ScatterElement, Token,
        TokenKind, WorkRequest, soft::SoftProfile,
    },
};
use std::error::Error;

/// What a request is made of.
#[derive(Clone, Copy)]
struct Shape {
    /// What its chunks are opened for.
    chunks: &'static [Access],
    /// The peer is asked to invalidate the key.
    invited: bool,
    /// Its message names a key of the whole run.
    names_static_key: bool,
    /// A page is sent behind the message.
    inline: bool,
    /// Receives come from a queue that connections share.
    shares_receives: bool,
    /// The engine records what happens to keys.
    traced: bool,
}

/// A message alone.
const NONE: Shape = Shape {
    chunks: &[],
    invited: false,
    names_static_key: false,
    inline: false,
    shares_receives: false,
    traced: false,
};

const REMOTE: Shape = Shape { chunks: &[Access::RemoteWrite], invited: true, ..NONE };

type Run = fn(u64, u64) -> Result<(), Box<dyn Error>>;

/// By what they are asked for. A loop of its own for each, so that none asks in every request which it is: a program knows what it sends.
const SHAPES: [(&str, Shape, Run); 8] = [
    ("remote", REMOTE, engine::<0>),
    ("local", Shape { invited: false, ..REMOTE }, engine::<1>),
    ("static", Shape { names_static_key: true, ..NONE }, engine::<2>),
    ("none", NONE, engine::<3>),
    ("inline", Shape { inline: true, ..NONE }, engine::<4>),
    ("two-keys", Shape { chunks: &[Access::RemoteRead, Access::RemoteWrite], ..NONE }, engine::<5>),
    ("shared", Shape { shares_receives: true, ..REMOTE }, engine::<6>),
    ("traced", Shape { traced: true, ..REMOTE }, engine::<7>),
];

/// Records that the engine may be ahead of this program.
const TRACE_RECORDS: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let names = SHAPES.map(|(name, ..)| name).join("|");
    let [_, mode, batch, requests] = &arguments[..] else {
        return Err(format!("usage: request-cost {names}|bare|bare-static BATCH REQUESTS").into());
    };
    let (requests, batch): (u64, u64) = (requests.parse()?, batch.parse()?);
    match (mode.as_str(), SHAPES.iter().find(|(name, ..)| name == mode)) {
        (_, Some((.., run))) => run(requests, batch)?,
        ("bare", _) => bare::<true>(requests, batch),
        ("bare-static", _) => bare::<false>(requests, batch),
        (other, None) => return Err(format!("the mode is {other}, but must be {names}|bare|bare-static").into()),
    }
    Ok(())
}

fn options(shape: &Shape) -> EngineOptions {
    let usual = usual_options();
    let depth = usual.queue_depth;
    usual
        // The key for the whole run takes one slot and one MR more.
        .queue_depth(depth + u32::from(shape.names_static_key))
        .registrations(depth * shape.chunks.len().max(1) as u32 + u32::from(shape.names_static_key))
        .receive_queues(if shape.shares_receives {
            ReceiveQueues::Shared { entries: 0 }
        } else {
            ReceiveQueues::PerConnection
        })
        .message_bytes(MESSAGE_BYTES as u32 + PAGE)
        .trace_records(if shape.traced { TRACE_RECORDS } else { 0 })
}

#[inline(never)]
fn engine<const AT: usize>(requests: u64, batch: u64) -> Result<(), Box<dyn Error>> {
    let shape = const { SHAPES[AT].1 };
    let device = NullDevice::new(SoftProfile::RegMr.capabilities(), NullPort::new(shape.invited));
    let mut requester = Requester::open(device, &options(&shape))?;
    let segments = requester.pages(32 * shape.chunks.len().max(1) as u64, 1);
    let mut message = [0u8; MESSAGE_BYTES];
    let whole_run = if shape.names_static_key { Some(requester.register(&segments[..1])?) } else { None };
    let (connection, engine, protocol) = (requester.connection, &mut requester.engine, &mut requester.protocol);
    let mut traces = engine.trace();
    let before = engine.statistics();
    let submit = |engine: &mut Engine<NullPort>, protocol: &mut InOrder, of_all: u64| {
        let at = of_all as usize % 32;
        if let Some(grant) = &whole_run {
            write_grant(&mut message, &Grant { address: grant.address + of_all, ..*grant });
        }
        let chunk = |which: usize| Chunk {
            access: shape.chunks[which],
            segments: &segments[at + 32 * which..=at + 32 * which],
        };
        let (one, two);
        let submission = Submission {
            message: &message,
            inline: if shape.inline { &segments[at..=at] } else { &[] },
            chunks: match shape.chunks.len() {
                0 => &[],
                1 => {
                    one = [chunk(0)];
                    &one
                }
                _ => {
                    two = [chunk(0), chunk(1)];
                    &two
                }
            },
            invite_invalidation: shape.invited,
            iova_cookie: 0,
            cookie: of_all,
        };
        let handle = engine.submit(connection, &submission, protocol)?;
        protocol.sent(handle);
        Ok(())
    };
    let polled = || {
        if let Some(traces) = traces.as_mut().filter(|_| shape.traced) {
            traces.pop_batch(TRACE_RECORDS, |record| {
                black_box(record.handle);
            });
        }
    };
    let done = requester::run(engine, protocol, Load { requests, batch }, submit, polled)?;
    println!("{done} iterations of 1 request, {}", posted(&before, &engine.statistics()));
    Ok(())
}

/// The same loop, with what the engine would post prepared in advance; one message in a chain asks for a completion. With
/// `REGISTERS` a registration stands in front of each message.
#[inline(never)]
fn bare<const REGISTERS: bool>(requests: u64, batch: u64) {
    let per_request = 1 + usize::from(REGISTERS);
    let mut port = NullPort::new(REGISTERS);
    let mut protocol = InOrder::default();
    let handle = frwr_engine::RequestHandle::from_parts(1, 1);
    let key = ConnectionKey::default();
    let work: Vec<WorkRequest> =
        (0..batch as u32).flat_map(|at| prepared(at, at == 31).into_iter().skip(usize::from(!REGISTERS))).collect();
    let receives: Vec<_> = (0..batch as u32)
        .map(|at| ReceiveRequest { token: Token::new(TokenKind::Receive, at, 1), element: ScatterElement::default() })
        .collect();
    let mut message = [0u8; MESSAGE_BYTES];
    let (mut done, mut submitted) = (0, 0);
    while done < requests {
        for queue in [CompletionQueue::Receive, CompletionQueue::Send] {
            let mut completions = CompletionBatch::new();
            port.poll(queue, &mut completions);
            for completion in black_box(&completions) {
                if completion.token.kind() == TokenKind::Receive
                    && matches!(protocol.classify(key, &message, 16), Message::Reply(_))
                {
                    done += 1;
                }
            }
        }
        let first = submitted;
        while submitted < requests && submitted - done < batch {
            let grant = Grant { key: submitted as u32, address: submitted, length: 4096 };
            write_grant(black_box(&mut message), &grant);
            protocol.sent(handle);
            submitted += 1;
        }
        let count = (submitted - first) as usize;
        if count > 0 {
            let _ = port.post_receives(QueuePairId(1), black_box(&receives[..count]));
            let _ =
                port.post(QueuePairId(1), Chain { requests: black_box(&work[..per_request * count]), elements: &[] });
        }
    }
    println!("{done} iterations of 1 request without an engine");
}
