//! What keeps RDMA devices from being used, and what helps.

use super::{
    Machine, Shortcoming,
    rdma::{DeviceFile, FileAccess, FindingOutcome, RdmaDevice, SelfTest},
};

/// All that falls short, in the order in which it has to be mended.
pub(super) fn shortcomings(machine: &Machine) -> Vec<Shortcoming> {
    let devices = &machine.rdma_devices;
    if devices.is_empty() {
        let where_it_is = match machine.rdma.soft_roce_module {
            Some(true) => "",
            Some(false) => "install the kernel's module rdma_rxe (Ubuntu: `linux-modules-extra-$(uname -r)`), then ",
            None => "where the kernel has the module rdma_rxe, in a container on its host: ",
        };
        let command = "`sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev <interface>`";
        return vec![Shortcoming {
            name: "rdma_devices",
            text: "no RDMA device: only the software NIC can be used".to_owned(),
            remedy: format!("{where_it_is}{command}"),
        }];
    }
    let mut found = Vec::new();
    if devices.iter().all(|device| device.active_ports() == 0) {
        found.push(Shortcoming {
            name: "rdma_ports",
            text: "no port of any RDMA device is active".to_owned(),
            remedy: "`rdma link` shows their state; connect a cable, or bring the network interface up".to_owned(),
        });
    }
    found.extend(modules(machine));
    // A device that was opened proves that they are found, wherever they lie.
    if !devices.iter().any(was_opened) {
        found.extend(libraries(machine));
    }
    found.extend(file("rdma_cm_file", "the connection manager", &machine.rdma.connection_manager_file).filter(|_| {
        // Without the module there is no file, and that was said.
        machine.rdma.connection_manager_module
    }));
    found.extend(devices.iter().flat_map(of_device));
    found
}

fn modules(machine: &Machine) -> impl Iterator<Item = Shortcoming> {
    let system = &machine.rdma;
    let missing = |there: bool, name: &'static str, module: &str, what: &str| {
        (!there).then(|| Shortcoming {
            name,
            text: format!("the kernel module {module} is not loaded: no program can use {what}"),
            remedy: format!("`sudo modprobe {module}`"),
        })
    };
    let verbs = missing(system.verbs_module, "rdma_verbs_module", "ib_uverbs", "RDMA devices");
    let manager = missing(system.connection_manager_module, "rdma_cm_module", "rdma_ucm", "the connection manager");
    verbs.into_iter().chain(manager)
}

fn libraries(machine: &Machine) -> impl Iterator<Item = Shortcoming> {
    let system = &machine.rdma;
    let missing = |there: bool, name: &'static str, library: &str, packages: &str| {
        (!there).then(|| Shortcoming {
            name,
            text: format!("{library} was not found: frwr loads it when it opens an RDMA device"),
            remedy: format!("install it ({packages})"),
        })
    };
    let verbs = missing(
        system.verbs_library,
        "rdma_verbs_library",
        "libibverbs.so.1",
        "Debian: libibverbs1 ibverbs-providers; Fedora: libibverbs",
    );
    let manager = missing(
        system.connection_manager_library,
        "rdma_cm_library",
        "librdmacm.so.1",
        "Debian: librdmacm1; Fedora: librdmacm",
    );
    verbs.into_iter().chain(manager)
}

fn file(name: &'static str, what: &str, file: &DeviceFile) -> Option<Shortcoming> {
    let path = file.path.display();
    let (text, remedy) = match file.access {
        FileAccess::Granted => return None,
        FileAccess::Missing => (
            format!("{path} is missing: {what} cannot be used"),
            "let udev make it (`sudo udevadm trigger`); in a container: `docker run --device=/dev/infiniband`"
                .to_owned(),
        ),
        FileAccess::Denied => (
            format!("{path} may not be opened: {what} cannot be used"),
            format!("`sudo chmod 666 {path}`, or a udev rule; in a container: `docker run --device=/dev/infiniband`"),
        ),
    };
    Some(Shortcoming { name, text, remedy })
}

fn was_opened(device: &RdmaDevice) -> bool {
    matches!(device.self_test, SelfTest::Ran(_))
}

/// What one device lacks.
pub(super) fn of_device(device: &RdmaDevice) -> Vec<Shortcoming> {
    let name = &device.name;
    let mut found = Vec::new();
    found.extend(device.verbs_file.as_ref().and_then(|verbs| file("rdma_verbs_file", name, verbs)));
    let missing = device.provider_library.as_ref().filter(|provider| !provider.installed && !was_opened(device));
    if let Some(provider) = missing {
        found.push(Shortcoming {
            name: "rdma_provider",
            text: format!("{name}: libibverbs has no provider {} (/etc/libibverbs.d)", provider.name),
            remedy: "install it (Debian: ibverbs-providers; Fedora: libibverbs)".to_owned(),
        });
    }
    found.extend(gids(device));
    found.extend(self_test(device));
    found.extend(deviations(device));
    found
}

fn gids(device: &RdmaDevice) -> impl Iterator<Item = Shortcoming> {
    let lacking = |port: &&super::RdmaPort| {
        let usable = if port.is_ethernet() { port.routable_gid().is_some() } else { !port.gids.is_empty() };
        port.is_active() && !usable
    };
    device.ports.iter().filter(lacking).map(|port| {
        let (name, number) = (&device.name, port.number);
        let interface = port.interface().unwrap_or("<interface>");
        if port.is_ethernet() && !port.gids.is_empty() {
            Shortcoming {
                name: "rdma_gid",
                text: format!("{name} port {number}: no GID of RoCE v2 with an IPv4 address"),
                remedy: format!("`sudo ip address add <address>/<prefix> dev {interface}`, or give --gid-index"),
            }
        } else {
            Shortcoming {
                name: "rdma_gid",
                text: format!("{name} port {number}: no GID"),
                remedy: format!(
                    "`sudo ip link set {interface} up`, then give it an address; InfiniBand: start a subnet manager"
                ),
            }
        }
    })
}

fn self_test(device: &RdmaDevice) -> Option<Shortcoming> {
    let name = &device.name;
    match &device.self_test {
        SelfTest::NotOpened(reason) => Some(Shortcoming {
            name: "rdma_open",
            text: format!("{name} cannot be opened: {reason}"),
            remedy: format!("mend what is said above of {name}, if anything; else use another device"),
        }),
        SelfTest::Ran(findings) => {
            let failed = findings.iter().filter(|finding| finding.outcome == FindingOutcome::Failed);
            let failed: Vec<&str> = failed.map(|finding| finding.name.as_str()).collect();
            (!failed.is_empty()).then(|| Shortcoming {
                name: "rdma_self_test",
                text: format!("{name} failed the self-test: {}", failed.join(", ")),
                remedy: format!("`frwr check --device {name}` says what that means; use another device"),
            })
        }
        SelfTest::NotRun | SelfTest::NotBuilt => None,
    }
}

/// What a device does otherwise than specified, though it can be used.
fn deviations(device: &RdmaDevice) -> Option<Shortcoming> {
    let SelfTest::Ran(findings) = &device.self_test else { return None };
    let name = &device.name;
    let deviates = findings.iter().filter(|finding| finding.outcome == FindingOutcome::Deviates);
    let deviates: Vec<&str> = deviates.map(|finding| finding.name.as_str()).collect();
    (!deviates.is_empty()).then(|| Shortcoming {
        name: "rdma_deviates",
        text: format!("{name} deviates from the specification: {}", deviates.join(", ")),
        remedy: format!(
            "none is needed where `frwr check --device {name}` says of a point what is done instead; of others tell us \
             (docs/hardware.md)"
        ),
    })
}
