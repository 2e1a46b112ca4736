//! `random-changes NAME VALUE...`: changes a `frwr serve` at random by `frwr ctl`, under the Linux kernel's host (`frwr_tests::kernel_host`),
//! while metrics are read as nobody should. `--device` is the one that it serves on, `--second` another one with an address of it
//! (`rxe1/10.9.1.1:4420`), which comes and goes. The target has one subsystem with one namespace, in `medium-0` of the folder. Exit code 1,
//! and what it was, where something is wrong.

use frwr_support::changes::{Ctl, HostileReader, Model, Plan, Second, run};
use frwr_tests::kernel_host::LinuxHost;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What has to be said, each with a value.
const NAMES: [&str; 11] = [
    "--program",
    "--control",
    "--metrics",
    "--device",
    "--connect",
    "--second",
    "--subsystem",
    "--host",
    "--folder",
    "--changes",
    "--seed",
];
/// Namespaces that may come (`serve --spare-namespaces`).
const SPARE: usize = 8;
/// Who else is named in lists of hosts.
const OTHERS: [&str; 2] = ["nqn.2026-11.invalid.frwr:b", "nqn.2026-11.invalid.frwr:c"];

fn main() -> ExitCode {
    match changed() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("FAILED: {error}");
            if let Err(error) = LinuxHost::leave() {
                println!("and: {error}");
            }
            ExitCode::from(1)
        }
    }
}

struct Arguments(HashMap<String, String>);

impl Arguments {
    fn read() -> Result<Self, String> {
        let words: Vec<_> = std::env::args().skip(1).collect();
        let said = words.chunks(2).filter_map(|pair| Some((pair.first()?.clone(), pair.get(1)?.clone()))).collect();
        let all = Self(said);
        NAMES.iter().try_for_each(|name| all.text(name).map(|_| ())).map(|()| all)
    }

    fn text(&self, name: &str) -> Result<&str, String> {
        self.0.get(name).map(String::as_str).ok_or_else(|| format!("{name} and a value are missing"))
    }

    fn number(&self, name: &str) -> Result<u64, String> {
        self.text(name)?.parse().map_err(|error| format!("{name}: {error}"))
    }

    fn address(&self, name: &str) -> Result<SocketAddr, String> {
        self.text(name)?.parse().map_err(|error| format!("{name}: {error}"))
    }
}

fn changed() -> Result<String, String> {
    let arguments = Arguments::read()?;
    let (folder, host) = (PathBuf::from(arguments.text("--folder")?), arguments.text("--host")?);
    let (seed, changes) = (arguments.number("--seed")?, arguments.number("--changes")? as u32);
    let socket = Path::new(arguments.text("--control")?);
    let bytes = std::fs::metadata(folder.join("medium-0")).map_err(|error| error.to_string())?.len();
    let mut ctl = Ctl::open(Path::new(arguments.text("--program")?), socket).map_err(|error| error.to_string())?;
    let hosts = [host, OTHERS[0], OTHERS[1]];
    let (address, subsystem) = (arguments.address("--connect")?, arguments.text("--subsystem")?);
    let mut model = Model::new(address, subsystem, bytes, bytes / 2, &hosts, true, 1 + SPARE);
    let (second, its_address) = arguments.text("--second")?.split_once('/').ok_or("--second has no address")?;
    let names = [arguments.text("--device")?.to_owned(), second.to_owned()];
    let its_address = its_address.parse().map_err(|error| format!("--second: {error}"))?;
    model.second = Some(Second { names, address: its_address, serves: false });
    let mut linux = LinuxHost::connect(address, host, &model)?;
    let reader = HostileReader::start(arguments.address("--metrics")?, socket, seed);
    let plan = Plan { seed, changes, folder, tell: |line| println!("{line}") };
    let done = run(&plan, &mut model, &mut ctl, &mut linux);
    let read = reader.end();
    let rescans = linux.rescans;
    // What the host has to say comes behind what was wrong first.
    let (summary, moved) = (done?, linux.end()?);
    let (attacks, _) = read?;
    Ok(format!("seed {seed}: {summary}; {moved} commands verified, {rescans} rescans, {attacks} attacks"))
}
