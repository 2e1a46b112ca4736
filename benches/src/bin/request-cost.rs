//! Instructions of one registered request on the engine's own code: map, chain, post, complete, fence, free.
//!
//! `request-cost MODE BATCH REQUESTS` runs that many requests, `BATCH` per iteration, on a device that completes at once.
//! Count it with callgrind at two numbers of requests and divide the difference. Modes:
//!
//! * `remote`: the peer invalidates the key (goal A7). `local`: the engine does.
//! * `static`: one key for the whole run, made by `register_now`; each message names it with an address of its own (goal A8:
//!   `remote` less `static`).
//! * `none`: a request that opens no memory.
//! * `bare`: the null port and this program's loop without an engine: what is part of `remote` and `local` and not the engine's.
//!   `bare-static`: the same of `static`, which posts no registrations.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use core::hint::black_box;
use core::time::Duration;
use frwr_benches::{
    null_device::{NullDevice, NullPort},
    requester::{MESSAGE_BYTES, Requester, posted, prepared, usual_options, write_grant},
};
use frwr_engine::{
    Chunk, EngineOptions, Event, Message, Protocol, RequestStatus, Submission,
    mr::{ConnectionKey, Grant},
    provider::{
        Access, Chain, CompletionBatch, CompletionQueue, Port, QueuePairId, ReceiveRequest, ScatterElement, Token,
        TokenKind, WorkRequest, soft::SoftProfile,
    },
};
use std::error::Error;

/// A loop of its own for each, so that none asks in every request which it is: a program knows what it sends.
enum Mode {
    Remote,
    Local,
    Static,
    None,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, mode, batch, requests] = &arguments[..] else {
        return Err("usage: request-cost remote|local|static|none|bare|bare-static BATCH REQUESTS".into());
    };
    let (requests, batch): (u64, u64) = (requests.parse()?, batch.parse()?);
    match mode.as_str() {
        "remote" => engine::<{ Mode::Remote as u8 }>(requests, batch)?,
        "local" => engine::<{ Mode::Local as u8 }>(requests, batch)?,
        "static" => engine::<{ Mode::Static as u8 }>(requests, batch)?,
        "none" => engine::<{ Mode::None as u8 }>(requests, batch)?,
        "bare" => bare::<true>(requests, batch),
        "bare-static" => bare::<false>(requests, batch),
        other => {
            return Err(
                format!("the mode is {other}, but must be remote, local, static, none, bare or bare-static").into()
            );
        }
    }
    Ok(())
}

#[inline(never)]
fn engine<const MODE: u8>(requests: u64, batch: u64) -> Result<(), Box<dyn Error>> {
    let (is_static, invited) = (MODE == Mode::Static as u8, MODE == Mode::Remote as u8);
    let registers = invited || MODE == Mode::Local as u8;
    // The key for the whole run takes one slot and one MR more.
    let options = EngineOptions { queue_depth: 32 + u32::from(is_static), ..usual_options() };
    let mut requester =
        Requester::open(NullDevice::new(SoftProfile::RegMr.capabilities(), NullPort::new(invited)), &options)?;
    let segments = requester.pages(32, 1);
    let mut message = [0u8; MESSAGE_BYTES];
    let whole_run = if is_static { Some(requester.register(&segments[..1])?) } else { None };
    let (connection, engine, protocol) = (requester.connection, &mut requester.engine, &mut requester.protocol);
    let before = engine.statistics();
    let (mut done, mut submitted) = (0, 0);
    while done < requests {
        engine.poll(Duration::from_nanos(done), protocol);
        // Anything else than a reply ends the run: `done` would never get there.
        while let Some(Event::Completed { status: RequestStatus::Replied(received), .. }) = engine.next_event() {
            engine.release(received);
            done += 1;
        }
        while submitted < requests && submitted - done < batch {
            let at = submitted as usize % 32;
            if let Some(grant) = &whole_run {
                write_grant(&mut message, &Grant { address: grant.address + submitted, ..*grant });
            }
            let chunk = [Chunk { access: Access::RemoteWrite, segments: &segments[at..=at] }];
            let submission = Submission {
                message: &message,
                inline: &[],
                chunks: if registers { &chunk } else { &[] },
                invite_invalidation: invited,
                iova_cookie: 0,
                cookie: submitted,
            };
            let handle = engine.submit(connection, &submission, protocol)?;
            protocol.sent(handle);
            submitted += 1;
        }
        engine.flush();
    }
    println!("{done} iterations of 1 request, {}", posted(&before, &engine.statistics()));
    Ok(())
}

/// The same loop, with what the engine would post prepared in advance; one message in a chain asks for a completion. With
/// `REGISTERS` a registration stands in front of each message.
#[inline(never)]
fn bare<const REGISTERS: bool>(requests: u64, batch: u64) {
    let per_request = 1 + usize::from(REGISTERS);
    let mut port = NullPort::new(REGISTERS);
    let mut protocol = frwr_benches::requester::InOrder::default();
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
