//! RDMA devices on the screen and in JSON.

use super::{
    Machine, Shortcoming,
    rdma::{DeviceFile, FileAccess, FindingOutcome, Gid, RdmaDevice, RdmaPort, SelfTest},
    rdma_advice,
};
use serde_json::{Value, json};
use std::fmt::Write as _;

fn unknown(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or("unknown")
}

/// Two or three lines for the machine's screen.
pub(super) fn summary(device: &RdmaDevice) -> String {
    let mut lines = format!("  {:<13}{}\n", device.name, what(device));
    for port in &device.ports {
        let _ = writeln!(lines, "    {:<11}{}", format!("port {}", port.number), port_line(port));
    }
    let _ = writeln!(lines, "    {:<11}{}", "self-test", self_test_line(&device.self_test));
    lines
}

fn what(device: &RdmaDevice) -> String {
    let node = device.node.map_or_else(|| "no NUMA node".to_owned(), |node| format!("NUMA node {node}"));
    let function = if device.is_virtual_function { ", a virtual function" } else { "" };
    format!("driver {}{function}, firmware {}, {node}", unknown(&device.driver), unknown(&device.firmware))
}

fn port_line(port: &RdmaPort) -> String {
    let mut line = format!("{}, {}", unknown(&port.state), unknown(&port.link_layer));
    if let Some(interface) = port.interface() {
        let _ = write!(line, ", {interface}");
    }
    let _ = write!(line, ", {} GID(s)", port.gids.len());
    if let Some((gid, address)) = port.routable_gid().and_then(|gid| Some((gid, gid.ipv4()?))) {
        let _ = write!(line, ", RoCE v2 with {address} at index {}", gid.index);
    }
    line
}

fn self_test_line(self_test: &SelfTest) -> String {
    match self_test {
        SelfTest::NotRun => "not run".to_owned(),
        SelfTest::NotBuilt => "needs the feature: `cargo build --release --features verbs`".to_owned(),
        SelfTest::NotOpened(reason) => format!("not run: {reason}"),
        SelfTest::Ran(findings) => {
            let count = |outcome| findings.iter().filter(|finding| finding.outcome == outcome).count();
            let all = [FindingOutcome::Passed, FindingOutcome::Deviates, FindingOutcome::Failed];
            all.map(|outcome| format!("{} {}", count(outcome), outcome.name())).join(", ")
        }
    }
}

/// All that is known of one device, for people.
pub(super) fn details_text(machine: &Machine, device: &RdmaDevice) -> String {
    let mut screen = format!("{:<15}{}\n", device.name, what(device));
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(screen, "{name:<15}{value}");
    };
    line("device file", &device.verbs_file.as_ref().map_or_else(|| "none".to_owned(), file_line));
    line("rdma_cm", &file_line(&machine.rdma.connection_manager_file));
    for port in &device.ports {
        line(&format!("port {}", port.number), &port_line(port));
        for gid in &port.gids {
            line(&format!("  GID {}", gid.index), &gid_line(gid));
        }
    }
    line("self-test", &self_test_line(&device.self_test));
    if let SelfTest::Ran(findings) = &device.self_test {
        for finding in findings {
            line(&format!("  {}", finding.outcome.name()), &format!("{}: {}", finding.name, finding.text));
        }
    }
    let short = rdma_advice::of_device(device);
    screen.push_str(if short.is_empty() { "\nNothing falls short.\n" } else { "\nWhat falls short:\n" });
    write_shortcomings(&mut screen, &short);
    screen
}

/// A list of shortcomings with their remedies.
pub(super) fn write_shortcomings(screen: &mut String, short: &[Shortcoming]) {
    for shortcoming in short {
        let _ = writeln!(screen, "* {}\n    remedy: {}", shortcoming.text, shortcoming.remedy);
    }
}

fn file_line(file: &DeviceFile) -> String {
    format!("{} ({})", file.path.display(), access(file.access))
}

fn access(access: FileAccess) -> &'static str {
    match access {
        FileAccess::Granted => "can be opened",
        FileAccess::Missing => "missing",
        FileAccess::Denied => "permission denied",
    }
}

fn gid_line(gid: &Gid) -> String {
    let mut line = format!("{}, {}", unknown(&gid.kind), gid.address);
    if let Some(interface) = &gid.interface {
        let _ = write!(line, ", {interface}");
    }
    line
}

/// The same for programs.
pub(super) fn details_json(device: &RdmaDevice) -> Value {
    json!({
        "name": device.name,
        "driver": device.driver,
        "virtual_function": device.is_virtual_function,
        "firmware": device.firmware,
        "node": device.node,
        "ports": device.ports.len(),
        "active_ports": device.active_ports(),
        "port_list": device.ports.iter().map(port_json).collect::<Vec<_>>(),
        "device_file": device.verbs_file.as_ref().map(file_json),
        "provider_library": device.provider_library.as_ref().map(|library| {
            json!({ "name": library.name, "installed": library.installed })
        }),
        "self_test": self_test_json(&device.self_test),
        "shortcomings": rdma_advice::of_device(device),
    })
}

fn port_json(port: &RdmaPort) -> Value {
    let gid = |gid: &Gid| {
        json!({
            "index": gid.index,
            "gid": gid.address.to_string(),
            "type": gid.kind,
            "interface": gid.interface,
            "ipv4": gid.ipv4().map(|address| address.to_string()),
        })
    };
    json!({
        "port": port.number,
        "state": port.state,
        "link_layer": port.link_layer,
        "interface": port.interface(),
        "gids": port.gids.iter().map(gid).collect::<Vec<_>>(),
    })
}

pub(super) fn file_json(file: &DeviceFile) -> Value {
    let access = match file.access {
        FileAccess::Granted => "granted",
        FileAccess::Missing => "missing",
        FileAccess::Denied => "denied",
    };
    json!({ "path": file.path.display().to_string(), "access": access })
}

fn self_test_json(self_test: &SelfTest) -> Value {
    match self_test {
        SelfTest::NotRun => json!({ "state": "not_run" }),
        SelfTest::NotBuilt => json!({ "state": "not_built" }),
        SelfTest::NotOpened(reason) => json!({ "state": "not_opened", "reason": reason }),
        SelfTest::Ran(findings) => {
            let finding = |finding: &super::Finding| json!({ "name": finding.name, "outcome": finding.outcome.name(), "text": finding.text });
            json!({ "state": "ran", "findings": findings.iter().map(finding).collect::<Vec<_>>() })
        }
    }
}
