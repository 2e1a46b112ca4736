//! The methods of the control socket: the one table that says which there are. docs/operating.md tells them to people.

use super::{
    super::{
        fleet::Wanted,
        key_files::KeyFiles,
        stock::{Reserved, Stock},
        survey::Findings,
    },
    Facts,
    answer::{Answer, Parameters},
    answers,
    device_changes::{self, Departs},
    files::{self, Looking},
    host_changes, hosts, key_trace_calls, listeners, locks, metrics, namespace_changes,
    parameters::{Parameter, none},
    planned::{Known, Plan},
    subsystem_changes,
};
use crate::control::{Failure, METHOD_NOT_FOUND};
use frwr_nvmf::wire::Nqn;
use serde_json::{Value, json};

/// A device that is wanted, and what people know it by.
type Coming = Result<(Wanted, String), Failure>;

/// What is to be looked at beside the main thread.
pub(super) type Look = fn(&Facts, &Stock, Parameters) -> Result<Looking, Failure>;

/// Whose keys are read, and where they are.
pub(super) type KeysOf = fn(Parameters) -> Result<(Nqn, KeyFiles), Failure>;

/// How a method is carried out.
#[derive(Clone, Copy)]
pub(super) enum Does {
    /// The main thread knows it, or does it, at once.
    Tell(fn(&mut Facts, Parameters) -> Result<Value, Failure>),
    /// The cores are asked.
    Ask(fn(&Facts, &Findings, Parameters) -> Result<Value, Failure>),
    /// The cores are asked, and so is what namespaces live in.
    Look(fn(&mut Known<'_>, Parameters) -> Result<Value, Failure>),
    /// Something is looked at beside the main thread first; by that and by what the cores say it is shown, or done as
    /// several changes.
    Apply(Look),
    /// The cores are asked what there is, and then told what to change.
    Change(fn(&mut Known<'_>, Parameters) -> Result<Plan, Failure>),
    /// The same, of a namespace whose medium is measured first.
    Measured(fn(&mut Known<'_>, Parameters) -> Result<Plan, Failure>),
    /// The keys of a host are read beside the main thread, and are its own then.
    Keys(KeysOf),
    /// The same, behind what has to be opened for it first.
    Open(fn(&mut Known<'_>, Parameters) -> Result<Reserved, Failure>),
    /// A device comes, for which a place is free.
    Arrive(fn(&mut Known<'_>, Parameters, Option<usize>) -> Coming),
    /// A device goes.
    Depart(fn(&mut Known<'_>, Parameters) -> Result<Departs, Failure>),
}

impl Does {
    /// It stands in the line of changes.
    pub(super) const fn is_change(self) -> bool {
        match self {
            Self::Change(_) | Self::Measured(_) | Self::Apply(_) | Self::Keys(_) | Self::Open(_) => true,
            Self::Arrive(_) | Self::Depart(_) => true,
            Self::Tell(_) | Self::Ask(_) | Self::Look(_) => false,
        }
    }
}

/// A method.
pub(super) struct Method {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) parameters: &'static [Parameter],
    pub(super) does: Does,
}

/// A method, as people are told it.
#[derive(Clone, Copy, Debug)]
pub struct MethodDescription {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// What it takes.
    pub parameters: &'static [Parameter],
    /// It changes the target.
    pub changes: bool,
}

const OF_SUBSYSTEM: Parameter =
    Parameter { name: "subsystem", kind: "NQN", required: false, about: "only what belongs to this subsystem" };
const OF_HOST: Parameter =
    Parameter { name: "host", kind: "NQN", required: false, about: "only what belongs to this host" };
const HOST: Parameter = Parameter { name: "host", kind: "NQN", required: true, about: "which host" };
const WITHIN: Parameter = Parameter {
    name: "within_seconds",
    kind: "NUMBER",
    required: false,
    about: "behind which it is told what holds it up; 5 where left out, 20 at most",
};
const ADDRESS: Parameter = Parameter {
    name: "address",
    kind: "[DEVICE/]ADDR:PORT",
    required: true,
    about: "an address of the device, and a port",
};
const SUBSYSTEM: Parameter = Parameter { name: "subsystem", kind: "NQN", required: true, about: "which subsystem" };
const NAMESPACE: Parameter =
    Parameter { name: "namespace", kind: "NSID", required: true, about: "which of its namespaces" };

const METHODS: &[Method] = &[
    Method { name: "methods", about: "these methods", parameters: &[], does: Does::Tell(all) },
    Method { name: "version", about: "what serves", parameters: &[], does: Does::Tell(answers::version) },
    Method {
        name: "options",
        about: "what it was asked for by command line or file",
        parameters: &[],
        does: Does::Tell(answers::options),
    },
    Method {
        name: "status",
        about: "all in one object: is it well, and what does it do",
        parameters: &[],
        does: Does::Look(answers::status),
    },
    Method { name: "cores", about: "its reactors and their pollers", parameters: &[], does: Does::Ask(answers::cores) },
    Method { name: "devices", about: "its RDMA devices", parameters: &[], does: Does::Ask(answers::devices) },
    Method { name: "listeners", about: "where hosts connect", parameters: &[], does: Does::Ask(listeners::listeners) },
    Method {
        name: "subsystems",
        about: "subsystems, with who may use them",
        parameters: &[],
        does: Does::Ask(answers::subsystems),
    },
    Method {
        name: "namespaces",
        about: "namespaces, with what was done in them",
        parameters: &[OF_SUBSYSTEM],
        does: Does::Look(answers::namespaces),
    },
    Method { name: "hosts", about: "hosts that are connected", parameters: &[], does: Does::Ask(hosts::hosts) },
    Method {
        name: "controllers",
        about: "controllers of hosts",
        parameters: &[OF_HOST],
        does: Does::Ask(hosts::controllers),
    },
    Method {
        name: "queue_pairs",
        about: "connections, and the queues that they are",
        parameters: &[OF_HOST],
        does: Does::Ask(hosts::queue_pairs),
    },
    Method { name: "keys", about: "keys to memory", parameters: &[], does: Does::Ask(answers::keys) },
    Method {
        name: "key_trace",
        about: "the trace of what becomes of each key, and what became of the last one",
        parameters: &[],
        does: Does::Ask(key_trace_calls::key_trace),
    },
    Method { name: "waits", about: "what waits, and for what", parameters: &[], does: Does::Ask(answers::waits) },
    Method {
        name: "incidents",
        about: "the last things that peers did wrong",
        parameters: &[],
        does: Does::Tell(answers::incidents),
    },
    Method {
        name: "metrics",
        about: "all figures as OpenMetrics text",
        parameters: &[
            OF_SUBSYSTEM,
            Parameter { name: "namespace", kind: "NSID", required: false, about: "of namespaces only this one" },
        ],
        does: Does::Look(metrics::metrics),
    },
    Method {
        name: "save",
        about: "what it is by now, as a file that `frwr serve --config` reads",
        parameters: &[],
        does: Does::Look(files::save),
    },
    Method {
        name: "apply",
        about: "makes it what a file says, without touching what is the same",
        parameters: &[
            Parameter { name: "config", kind: "TEXT", required: true, about: "the text of the file" },
            Parameter { name: "name", kind: "TEXT", required: false, about: "what errors call it" },
            Parameter { name: "dry_run", kind: "true|false", required: false, about: "only shows what would be done" },
        ],
        does: Does::Apply(files::look),
    },
    Method {
        name: "set_namespace_active",
        about: "lists a namespace, or takes it from hosts",
        parameters: &[
            SUBSYSTEM,
            NAMESPACE,
            Parameter { name: "active", kind: "true|false", required: true, about: "whether hosts may use it" },
        ],
        does: Does::Change(namespace_changes::set_namespace_active),
    },
    Method {
        name: "remove_namespace",
        about: "takes a namespace away for good; what it has in hand ends first",
        parameters: &[SUBSYSTEM, NAMESPACE, WITHIN],
        does: Does::Change(namespace_changes::remove_namespace),
    },
    Method {
        name: "add_namespace",
        about: "adds a namespace, of memory, in a file or block device, of an NBD server, or in a Ceph cluster",
        parameters: &[
            SUBSYSTEM,
            Parameter { name: "namespace", kind: "NSID", required: true, about: "its identifier" },
            Parameter { name: "memory", kind: "BYTES", required: false, about: "memory, zeros at first; or one of" },
            Parameter { name: "load", kind: "PATH", required: false, about: "memory with a file's bytes" },
            Parameter { name: "file", kind: "PATH", required: false, about: "a regular file" },
            Parameter { name: "device", kind: "PATH", required: false, about: "a block device" },
            Parameter { name: "nbd", kind: "URI", required: false, about: "an export of an NBD server" },
            Parameter {
                name: "rbd",
                kind: "NAME",
                required: false,
                about: "an image of a Ceph cluster, rbd:POOL/IMAGE",
            },
            Parameter { name: "backing", kind: "auto|ring|thread", required: false, about: "of file and device" },
            Parameter { name: "direct", kind: "true|false", required: false, about: "past the page cache" },
            Parameter { name: "read_only", kind: "true|false", required: false, about: "hosts cannot write" },
            Parameter { name: "block_size", kind: "BYTES", required: false, about: "4096 where left out" },
            Parameter { name: "bytes", kind: "BYTES", required: false, about: "how much of it; all where left out" },
            Parameter { name: "ana_group", kind: "NUMBER", required: false, about: "1 where left out" },
            Parameter { name: "nguid", kind: "HEX", required: false, about: "by which hosts know it again" },
            Parameter { name: "active", kind: "true|false", required: false, about: "false: hosts do not see it" },
        ],
        does: Does::Open(namespace_changes::add_namespace),
    },
    Method {
        name: "resize_namespace",
        about: "gives a namespace another size, within its medium",
        parameters: &[
            SUBSYSTEM,
            NAMESPACE,
            Parameter {
                name: "bytes",
                kind: "BYTES",
                required: false,
                about: "its new size; all that its file or device has where left out",
            },
            WITHIN,
        ],
        does: Does::Measured(namespace_changes::resize_namespace),
    },
    Method {
        name: "add_subsystem",
        about: "adds a subsystem without namespaces",
        parameters: &[
            Parameter { name: "subsystem", kind: "NQN", required: true, about: "its name" },
            Parameter { name: "hosts", kind: "[NQN...]", required: false, about: "who may use it; all where left out" },
            Parameter {
                name: "serial",
                kind: "TEXT",
                required: false,
                about: "its serial number; follows from the name",
            },
        ],
        does: Does::Change(subsystem_changes::add_subsystem),
    },
    Method {
        name: "remove_subsystem",
        about: "takes a subsystem away, with its namespaces; its hosts are told",
        parameters: &[SUBSYSTEM, WITHIN],
        does: Does::Change(subsystem_changes::remove_subsystem),
    },
    Method {
        name: "add_listener",
        about: "lets hosts connect at one more address; those that asked for it are told",
        parameters: &[ADDRESS],
        does: Does::Change(listeners::add_listener),
    },
    Method {
        name: "remove_listener",
        about: "lets hosts connect at an address no longer; who came by it stays, or is drained",
        parameters: &[
            ADDRESS,
            Parameter {
                name: "drain",
                kind: "true|false",
                required: false,
                about: "controllers that were connected by it end when what they have in hand is answered",
            },
            WITHIN,
        ],
        does: Does::Change(listeners::remove_listener),
    },
    Method {
        name: "add_device",
        about: "serves all by one more device",
        parameters: &[
            Parameter { name: "device", kind: "DEVICE", required: true, about: "as --device of serve takes it" },
            Parameter {
                name: "listen",
                kind: "ADDR:PORT|[ADDR:PORT...]",
                required: true,
                about: "addresses of the device, each with a port",
            },
        ],
        does: Does::Arrive(device_changes::add_device),
    },
    Method {
        name: "remove_device",
        about: "serves by a device no longer; its hosts are drained, and what they have left behind that time ends",
        parameters: &[Parameter { name: "device", kind: "DEVICE", required: true, about: "which of them" }, WITHIN],
        does: Does::Depart(device_changes::remove_device),
    },
    Method {
        name: "set_ana_state",
        about: "says how well a subsystem, or an ANA group of it, can be reached here",
        parameters: &[
            SUBSYSTEM,
            Parameter { name: "group", kind: "NUMBER", required: false, about: "which ANA group; all where left out" },
            Parameter {
                name: "state",
                kind: "optimized|non_optimized|inaccessible|persistent_loss|change",
                required: true,
                about: "the state of the group",
            },
        ],
        does: Does::Change(subsystem_changes::set_ana_state),
    },
    Method {
        name: "acquire_lock",
        about: "takes the lock of an image with exclusive=1, from whom it may be, who is blocklisted first",
        parameters: &[SUBSYSTEM, NAMESPACE],
        does: Does::Look(locks::acquire_lock),
    },
    Method {
        name: "release_lock",
        about: "gives the lock of an image with exclusive=1 back, behind what was begun",
        parameters: &[SUBSYSTEM, NAMESPACE],
        does: Does::Look(locks::release_lock),
    },
    Method {
        name: "set_allowed_hosts",
        about: "says who may use a subsystem; others end",
        parameters: &[
            SUBSYSTEM,
            Parameter { name: "hosts", kind: "[NQN...]|null", required: true, about: "these hosts; null: every host" },
            WITHIN,
        ],
        does: Does::Change(subsystem_changes::set_allowed_hosts),
    },
    Method {
        name: "drain",
        about: "keeps a host away, or all: what they have in hand ends first",
        parameters: &[
            Parameter { name: "host", kind: "NQN", required: false, about: "which; all where left out" },
            WITHIN,
        ],
        does: Does::Change(host_changes::drain),
    },
    Method {
        name: "resume",
        about: "lets a host come again, or all",
        parameters: &[Parameter { name: "host", kind: "NQN", required: false, about: "which; all where left out" }],
        does: Does::Change(host_changes::resume),
    },
    Method {
        name: "set_key_trace",
        about: "writes what becomes of each key into a file, from now on or no longer",
        parameters: &[Parameter {
            name: "file",
            kind: "PATH|null",
            required: true,
            about: "a file that is not there yet, for its owner alone; null: no longer",
        }],
        does: Does::Change(key_trace_calls::set_key_trace),
    },
    Method {
        name: "set_host_key",
        about: "gives a host the key that it proves itself with from now on; its sessions go on",
        parameters: &[
            HOST,
            Parameter {
                name: "dhchap_key",
                kind: "PATH",
                required: true,
                about: "a file of mode 0600 with the host's",
            },
            Parameter {
                name: "dhchap_ctrl_key",
                kind: "PATH",
                required: false,
                about: "one with the controller's, for hosts that ask it for a proof",
            },
        ],
        does: Does::Keys(host_changes::set_host_key),
    },
    Method {
        name: "clear_host_key",
        about: "takes the keys of a host; its sessions go on",
        parameters: &[HOST],
        does: Does::Tell(host_changes::clear_host_key),
    },
    Method {
        name: "set_log_level",
        about: "says what is told on standard error",
        parameters: &[Parameter {
            name: "level",
            kind: "error|warn|info|debug|trace|off",
            required: true,
            about: "as RUST_LOG has it",
        }],
        does: Does::Tell(answers::set_log_level),
    },
    Method {
        name: "stop",
        about: "tells hosts, drains and ends the program, as SIGTERM does",
        parameters: &[],
        does: Does::Tell(answers::stop),
    },
];

/// The method of that name.
pub(super) fn find(name: &str) -> Result<&'static Method, Failure> {
    METHODS.iter().find(|method| method.name == name).ok_or_else(|| {
        // What a person mistyped, or a flood of anything: the first of it is enough.
        let named: String = name.chars().take(64).collect();
        let text = format!("there is no method {named:?}; `methods` lists those that there are");
        Failure::new(METHOD_NOT_FOUND, text)
    })
}

/// What `methods` answers.
fn all(_: &mut Facts, parameters: Parameters) -> Answer {
    none(&parameters)?;
    let one = |method: MethodDescription| {
        let parameter = |parameter: &Parameter| {
            let Parameter { name, kind, required, about } = parameter;
            json!({ "name": name, "kind": kind, "required": required, "about": about })
        };
        let parameters: Vec<_> = method.parameters.iter().map(parameter).collect();
        json!({ "name": method.name, "about": method.about, "changes": method.changes, "parameters": parameters })
    };
    Ok(json!({ "methods": methods().map(one).collect::<Vec<_>>() }))
}

/// All methods that a target has, in the order in which they are told.
pub fn methods() -> impl Iterator<Item = MethodDescription> {
    METHODS.iter().map(|&Method { name, about, parameters, does }| {
        let changes = does.is_change() || name.starts_with("set_");
        let changes = changes || matches!(name, "acquire_lock" | "clear_host_key" | "release_lock" | "stop");
        MethodDescription { name, about, parameters, changes }
    })
}
