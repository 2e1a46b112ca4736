//! One screen, or one line of JSON.

use super::{Machine, shortcomings};
use frwr_reactor::CpuSet;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What the machine offers, for people.
#[must_use]
pub fn machine_text(machine: &Machine) -> String {
    let mut screen = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(screen, "{name:<15}{value}");
    };
    let topology = &machine.topology;
    let cores = format!(
        "{} online{}, {} allowed{}, {} isolated{}",
        topology.online().len(),
        in_brackets(topology.online()),
        topology.allowed().len(),
        in_brackets(topology.allowed()),
        topology.isolated().len(),
        in_brackets(topology.isolated()),
    );
    line("cores", &cores);
    line("SMT", if machine.has_smt() { "on" } else { "off" });
    line("NUMA nodes", &join(machine.nodes.iter().map(u32::to_string)));
    let pools = machine.hugepages.iter();
    line(
        "hugepages",
        &join(pools.map(|pool| format!("{}: {} of {} free", size(pool.size_kib), pool.free, pool.total))),
    );
    line("locked memory", &locked(machine.locked_memory));
    let devices = machine.rdma_devices.iter();
    line(
        "RDMA devices",
        &join(
            devices.map(|device| format!("{} ({} of {} ports active)", device.name, device.active_ports, device.ports)),
        ),
    );
    let tsc = match machine.clock.invariant_tsc {
        Some(true) => "invariant TSC",
        Some(false) => "TSC not invariant",
        None => "no TSC",
    };
    line("clock", &format!("{}, {tsc}", machine.clock.source.as_deref().unwrap_or("unknown")));
    line("governor", &join(machine.clock.governors.iter().cloned()));
    let short = shortcomings(machine);
    screen.push_str(if short.is_empty() { "\nNothing falls short.\n" } else { "\nWhat falls short:\n" });
    for shortcoming in short {
        let _ = writeln!(screen, "* {}\n    remedy: {}", shortcoming.text, shortcoming.remedy);
    }
    screen
}

/// The same for programs.
#[must_use]
pub fn machine_json(machine: &Machine) -> Value {
    let topology = &machine.topology;
    let hugepages: Vec<Value> = machine
        .hugepages
        .iter()
        .map(|pool| json!({ "size_kib": pool.size_kib, "total": pool.total, "free": pool.free }))
        .collect();
    let devices: Vec<Value> = machine
        .rdma_devices
        .iter()
        .map(|device| {
            json!({
                "name": device.name,
                "node": device.node,
                "ports": device.ports,
                "active_ports": device.active_ports,
            })
        })
        .collect();
    let short: Vec<Value> = shortcomings(machine)
        .iter()
        .map(|short| json!({ "name": short.name, "text": short.text, "remedy": short.remedy }))
        .collect();
    json!({
        "cores": {
            "online": numbers(topology.online()),
            "allowed": numbers(topology.allowed()),
            "isolated": numbers(topology.isolated()),
        },
        "smt": machine.has_smt(),
        "numa_nodes": machine.nodes,
        "hugepages": hugepages,
        // Null where there is no limit, or it cannot be read.
        "locked_memory_bytes": machine.locked_memory.filter(|limit| *limit != u64::MAX),
        "locked_memory_unlimited": machine.locked_memory == Some(u64::MAX),
        "rdma_devices": devices,
        "clock_source": machine.clock.source,
        "invariant_tsc": machine.clock.invariant_tsc,
        "governors": machine.clock.governors,
        "shortcomings": short,
    })
}

fn numbers(set: &CpuSet) -> Vec<usize> {
    set.iter().map(|cpu| cpu.get()).collect()
}

fn in_brackets(set: &CpuSet) -> String {
    if set.is_empty() { String::new() } else { format!(" ({set})") }
}

fn join(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

fn size(kib: u64) -> String {
    match kib {
        kib if kib >= 1 << 20 => format!("{} GiB", kib >> 20),
        kib if kib >= 1 << 10 => format!("{} MiB", kib >> 10),
        kib => format!("{kib} KiB"),
    }
}

fn locked(limit: Option<u64>) -> String {
    match limit {
        None => "unknown".to_owned(),
        Some(u64::MAX) => "unlimited".to_owned(),
        Some(bytes) => size(bytes >> 10),
    }
}
