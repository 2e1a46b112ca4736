//! Instructions of a registered request by the length of its scatter list (goal A9).
//!
//! `segments-cost LIST SEGMENTS REQUESTS` runs that many requests, 32 per iteration, whose one chunk has `SEGMENTS` segments of
//! 4 KiB; the peer invalidates. Count it at two numbers of requests for the cost of one, and at two numbers of segments for the
//! cost of a further page. Lists:
//!
//! * `adjacent`: each segment follows the one before; a device that registers one range gets them merged.
//! * `pages`: every second page, on a device with page lists: an element each.
//! * `gaps`: the same on a device whose lists have gaps.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use frwr_benches::{
    null_device::{NullDevice, NullPort},
    requester::{self, InOrder, Load, MESSAGE_BYTES, PAGE, Requester, usual_options},
};
use frwr_engine::{
    Chunk, Engine, Submission,
    gather::Segment,
    provider::{Access, Capabilities, Contiguity, soft::SoftProfile},
};
use std::error::Error;

/// Segments of the longest list: 1 MiB.
const MOST: u32 = 256;

/// Requests in flight.
const BATCH: u64 = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, list, count, requests] = &arguments[..] else {
        return Err("usage: segments-cost adjacent|pages|gaps SEGMENTS REQUESTS".into());
    };
    let (count, requests): (u32, u64) = (count.parse()?, requests.parse()?);
    if count == 0 || count > MOST {
        return Err(format!("SEGMENTS is {count}, but must be 1 to {MOST}").into());
    }
    let mut capabilities = match list.as_str() {
        "adjacent" => SoftProfile::Window.capabilities(),
        "pages" => SoftProfile::RegMr.capabilities(),
        "gaps" => Capabilities { contiguity: Contiguity::Gaps { page_size: 0 }, ..SoftProfile::RegMr.capabilities() },
        other => return Err(format!("the list is {other}, but must be adjacent, pages or gaps").into()),
    };
    if list != "adjacent" {
        capabilities.attributes.max_fast_reg_page_list_len = MOST;
    }
    let stride = if list == "adjacent" { 1 } else { 2 };
    let options = usual_options().max_segments(MOST);
    let requester = Requester::open(NullDevice::new(capabilities, NullPort::new(true)), &options)?;
    let lists: Vec<Vec<Segment>> = (0..BATCH)
        .map(|first| {
            let mut pages = requester.pages(count.into(), stride);
            pages.iter_mut().for_each(|page| page.offset += first * u64::from(PAGE));
            pages
        })
        .collect();
    run(requester, &lists, requests)
}

fn run(
    mut requester: Requester<NullDevice<NullPort>>,
    lists: &[Vec<Segment>],
    requests: u64,
) -> Result<(), Box<dyn Error>> {
    let (connection, engine, protocol) = (requester.connection, &mut requester.engine, &mut requester.protocol);
    let before = engine.statistics();
    let message = [0u8; MESSAGE_BYTES];
    let submit = |engine: &mut Engine<NullPort>, protocol: &mut InOrder, at: u64| {
        let chunk = [Chunk { access: Access::RemoteWrite, segments: &lists[at as usize % lists.len()] }];
        let submission = Submission {
            message: &message,
            inline: &[],
            chunks: &chunk,
            invite_invalidation: true,
            iova_cookie: 0,
            cookie: at,
        };
        let handle = engine.submit(connection, &submission, protocol)?;
        protocol.sent(handle);
        Ok(())
    };
    let done = requester::run(engine, protocol, Load { requests, batch: BATCH }, submit, || {})?;
    let registrations = engine.statistics().registrations - before.registrations;
    println!("{done} iterations of 1 request of {} segments, {registrations} registrations", lists[0].len());
    Ok(())
}
