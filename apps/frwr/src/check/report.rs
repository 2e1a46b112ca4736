//! One screen, or one line of JSON.

use super::{Machine, Mlx5Lists, TimeStampCounter, rdma_report, shortcomings};
use frwr_mempool::limits::{CpuQuota, MemoryBound, MemoryRoom};
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
    line("SMT", machine.has_smt().map_or("unknown", |on| if on { "on" } else { "off" }));
    line("NUMA nodes", &join(machine.nodes.iter().map(u32::to_string)));
    let pools = machine.hugepages.iter();
    line(
        "hugepages",
        &join(pools.map(|pool| {
            let more = if pool.may_come > 0 { format!(", {} more may come", pool.may_come) } else { String::new() };
            format!("{}: {} of {} free{more}", size(pool.size_kib), pool.free, pool.total)
        })),
    );
    let more = if machine.may_lock_more { ", and more by CAP_IPC_LOCK" } else { "" };
    line("locked memory", &format!("{}{more}", locked(machine.locked_memory)));
    line("memory", &machine.memory.as_ref().map_or_else(|| "unknown".to_owned(), ToString::to_string));
    line("CPU quota", &machine.cpu_quota.as_ref().map_or_else(|| "none".to_owned(), quota));
    let devices = machine.rdma_devices.iter();
    line(
        "RDMA devices",
        &join(devices.map(|device| {
            format!("{} ({} of {} ports active)", device.name, device.active_ports(), device.ports.len())
        })),
    );
    line("mlx5 lists", Mlx5Lists::of(&machine.rdma, &machine.rdma_devices).text());
    let tsc = match machine.clock.counter {
        TimeStampCounter::Invariant => "invariant TSC",
        TimeStampCounter::Varying => "TSC not invariant",
        TimeStampCounter::Absent => "no TSC",
        TimeStampCounter::Unknown => "TSC unknown (/proc/cpuinfo cannot be read)",
    };
    line("clock", &format!("{}, {tsc}", machine.clock.source.as_deref().unwrap_or("unknown")));
    line("governor", &join(machine.clock.governors.keys().cloned()));
    let servers = join(machine.nbd_servers.iter().map(ToString::to_string));
    line("NBD", &format!("built in, needs nothing; servers here: {servers}"));
    let missing = machine.missing_ceph.join(" ");
    line(
        "Ceph RBD",
        &if missing.is_empty() {
            "librados.so.2 and librbd.so.1 are here".to_owned()
        } else {
            format!("its libraries are not here; to serve images: apt-get install {missing}")
        },
    );
    for device in &machine.rdma_devices {
        screen.push_str(&rdma_report::summary(device));
    }
    let short = shortcomings(machine);
    screen.push_str(if short.is_empty() { "\nNothing falls short.\n" } else { "\nWhat falls short:\n" });
    rdma_report::write_shortcomings(&mut screen, &short);
    screen
}

/// The same for programs.
#[must_use]
pub fn machine_json(machine: &Machine) -> Value {
    let topology = &machine.topology;
    let hugepages: Vec<Value> = machine
        .hugepages
        .iter()
        .map(|pool| {
            json!({ "size_kib": pool.size_kib, "total": pool.total, "free": pool.free, "may_come": pool.may_come })
        })
        .collect();
    let devices: Vec<Value> = machine.rdma_devices.iter().map(rdma_report::details_json).collect();
    let rdma = &machine.rdma;
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
        "may_lock_more": machine.may_lock_more,
        // Null where nobody says.
        "memory": machine.memory.as_ref().map(memory_json),
        // Null where there is none.
        "cpu_quota": machine.cpu_quota.as_ref().map(quota_json),
        "rdma_devices": devices,
        "rdma": {
            "ib_uverbs": rdma.verbs_module,
            "rdma_ucm": rdma.connection_manager_module,
            "rdma_cm": rdma_report::file_json(&rdma.connection_manager_file),
            "libibverbs": rdma.verbs_library,
            "librdmacm": rdma.connection_manager_library,
            "libmlx5": rdma.mlx5_library,
            "mlx5_lists": Mlx5Lists::of(rdma, &machine.rdma_devices).name(),
        },
        "clock_source": machine.clock.source,
        // Null where there is no such counter, or nothing is known of it.
        "invariant_tsc": match machine.clock.counter {
            TimeStampCounter::Invariant => Some(true),
            TimeStampCounter::Varying => Some(false),
            TimeStampCounter::Absent | TimeStampCounter::Unknown => None,
        },
        "governors": machine.clock.governors.keys().collect::<Vec<_>>(),
        "nbd_servers": machine.nbd_servers,
        // Debian's packages of libraries that are not here.
        "missing_ceph": machine.missing_ceph,
        "shortcomings": shortcomings(machine),
    })
}

fn memory_json(room: &MemoryRoom) -> Value {
    match &room.bound {
        MemoryBound::Machine => json!({ "bytes": room.bytes, "cgroup": null, "limit": null }),
        MemoryBound::Group { limit, folder } => json!({ "bytes": room.bytes, "cgroup": folder, "limit": limit }),
    }
}

/// A quota in words.
fn quota(quota: &CpuQuota) -> String {
    let CpuQuota { quota: time, period, folder } = quota;
    format!("{:.2} cores: {time:?} of every {period:?}, by cgroup {}", quota.cores(), folder.display())
}

fn quota_json(quota: &CpuQuota) -> Value {
    json!({
        "cores": quota.cores(), "quota_us": quota.quota.as_micros() as u64, "period_us": quota.period.as_micros() as u64,
        "cgroup": quota.folder,
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
