//! Instructions of one registered request on the engine's own code: map, chain, post, complete, fence, free.
//!
//! `request-cost REQUESTS BATCH remote|local|none` runs that many requests, `BATCH` per iteration, on a device that completes
//! at once; `none` opens no memory. Count it with callgrind at two numbers of requests and divide the difference.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use core::time::Duration;
use frwr_benches::null_device::NullDevice;
use frwr_engine::{
    AnnounceError, Chunk, ConnectionId, ConnectionOptions, Engine, EngineOptions, Event, Message, Protocol,
    RequestHandle, RequestStatus, Submission, control::Control, gather::Segment, mr::Grant, provider::Access,
    provider::Device, provider::soft::SoftProfile,
};
use frwr_mempool::{
    Region,
    region::{PagePolicy, RegionOptions},
};
use std::{collections::VecDeque, error::Error};

/// Replies come in order: the oldest request is meant.
struct InOrder(VecDeque<RequestHandle>);

impl Protocol for InOrder {
    fn announce(&mut self, message: &mut [u8], grants: &[Grant]) -> Result<(), AnnounceError> {
        let grant = grants.first().ok_or(AnnounceError)?;
        let place = message.get_mut(24..36).ok_or(AnnounceError)?;
        place[..8].copy_from_slice(&grant.address.to_le_bytes());
        place[8..].copy_from_slice(&grant.key.to_le_bytes());
        Ok(())
    }

    fn classify(&mut self, _: ConnectionId, _: &[u8], _: u32) -> Message {
        self.0.pop_front().map_or(Message::Malformed, Message::Reply)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, requests, batch, mode] = &arguments[..] else { return Err("REQUESTS BATCH remote|local|none".into()) };
    let (requests, batch): (u64, u64) = (requests.parse()?, batch.parse()?);
    let mut control = Control::new(NullDevice::new(SoftProfile::RegMr, mode == "remote"));
    let capabilities = *control.device().capabilities();
    let options = EngineOptions { connections: 1, queue_depth: 32, ..EngineOptions::default() };
    let bytes = Engine::<<NullDevice as Device>::Port>::region_bytes(&options, &capabilities)? + (1 << 20);
    let mut region = Region::map(&RegionOptions::new(bytes).pages(PagePolicy::Ladder { allow_plain: true }))?;
    let (port, link) = control.open_core(0, 0)?;
    let mut engine = Engine::new(port, link, &mut region, options, &capabilities)?;
    let memory = engine.add_memory(region.carve(1 << 18, 4096)?.into_device_memory())?;
    let connect = ConnectionOptions { peer_receives: 32, ..ConnectionOptions::default() };
    let connection = engine.connect("127.0.0.1:1".parse()?, b"", &connect)?;
    let mut protocol = InOrder(VecDeque::with_capacity(64));
    while !engine.is_ready(connection) {
        control.poll();
        engine.poll(Duration::ZERO, &mut protocol);
        while engine.next_event().is_some() {}
        engine.flush();
    }
    let segments: Vec<_> = (0..32).map(|at| [Segment { memory, offset: at * 4096, length: 4096 }]).collect();
    let (message, mut done, mut submitted) = ([0u8; 64], 0, 0);
    while done < requests {
        engine.poll(Duration::from_nanos(done), &mut protocol);
        while let Some(event) = engine.next_event() {
            if let Event::Completed { status: RequestStatus::Replied(received), .. } = event {
                engine.release(received);
                done += 1;
            }
        }
        while submitted < requests && submitted - done < batch {
            let chunk = [Chunk { access: Access::RemoteWrite, segments: &segments[submitted as usize % 32] }];
            let submission = Submission {
                message: &message,
                inline: &[],
                chunks: if mode == "none" { &[] } else { &chunk },
                invite_invalidation: mode == "remote",
                iova_cookie: 0,
                cookie: submitted,
            };
            let handle = engine.submit(connection, &submission, &mut protocol)?;
            protocol.0.push_back(handle);
            submitted += 1;
        }
        engine.flush();
    }
    println!("{done} requests, {} doorbells", engine.statistics().doorbells);
    Ok(())
}
