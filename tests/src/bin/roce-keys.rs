//! `roce-keys CAPTURE HOST [INDICES]`: what a capture of RoCE v2 traffic (pcap) says of the keys of the host with that IPv4
//! address. Exit code 1 where a key was seen that should not have been, where one was alive at the end, where there were none
//! at all, or where fewer than INDICES key indices (0 unless given) came round, to a key that they had been announced with
//! before: else a key that comes again too early had no chance to.

use frwr_tests::capture::{Keys, frames};
use std::{fs::File, io::BufReader, net::Ipv4Addr, process::ExitCode};

/// Violations that are shown one by one.
const SHOWN: usize = 20;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, String> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(host)) = (arguments.next(), arguments.next()) else {
        return Err("two arguments are needed: the capture and the host's IPv4 address".to_owned());
    };
    let indices = arguments.next().unwrap_or_else(|| "0".to_owned());
    let indices: usize = indices.parse().map_err(|_| format!("{indices} is no number of key indices"))?;
    let host: Ipv4Addr = host.parse().map_err(|_| format!("{host} is no IPv4 address"))?;
    let file = File::open(&path).map_err(|error| format!("{path}: {error}"))?;
    let mut keys = Keys::of(host.octets());
    for frame in frames(BufReader::new(file))? {
        keys.frame(&frame);
    }
    println!(
        "keys announced {}, RDMA operations {}, invalidated by the target {}, answered by a plain SEND {}, alive at the end {}, \
         packets sent again {}, violations {}",
        keys.announced,
        keys.operations,
        keys.invalidated,
        keys.answered,
        keys.alive(),
        keys.repeated,
        keys.violations.len()
    );
    let fewest = keys.fewest_between.map_or_else(|| "never".to_owned(), |uses| format!("after {uses} others at least"));
    println!("key indices that came round {}; a key came again {fewest}", keys.came_round());
    for violation in keys.violations.iter().take(SHOWN) {
        println!("{violation:?}");
    }
    let some = keys.announced > 0 && keys.operations > 0;
    Ok(keys.violations.is_empty() && some && keys.alive() == 0 && keys.came_round() >= indices)
}
