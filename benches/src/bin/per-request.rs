//! Doorbells, work requests and completions per request (goals A10 to A12), counted by the recorder on the null port.
//!
//! `per-request remote|local MRS DEPTH REQUESTS`: the peer or the engine invalidates, `MRS` registrations per request, `DEPTH` in
//! flight on one connection. With k registrations the floor is 2k+1 work requests, 2k where the peer invalidates one of them.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, mode, mrs, depth, requests] = &arguments[..] else {
        return Err("usage: per-request remote|local MRS DEPTH REQUESTS".into());
    };
    let remote = match mode.as_str() {
        "remote" => true,
        "local" => false,
        other => return Err(format!("the mode is {other}, but must be remote or local").into()),
    };
    let (mrs, depth, requests): (u32, u32, u64) = (mrs.parse()?, depth.parse()?, requests.parse()?);
    let counters = frwr_benches::per_request::run(remote, mrs, depth, requests)?;
    let work_requests = counters.registers + counters.invalidates + counters.sends;
    let each = |count: u64| count as f64 / requests as f64;
    println!(
        "{requests} iterations of 1 request: {:.4} doorbells, {:.4} work requests, {:.4} send completions, {:.4} receive doorbells each",
        each(counters.doorbells),
        each(work_requests),
        each(counters.send_completions),
        each(counters.receive_doorbells)
    );
    Ok(())
}
