//! Arguments to output: a function, so that tests need no process.

use super::{Machine, SelfTest, SizingArguments, machine_json, machine_text, rdma_report, sizing_output};
use crate::{
    Error,
    output::{Output, success, usage_line},
};
use clap::{
    Args, Subcommand,
    error::{ContextKind, ContextValue},
};

/// What this machine offers to frwr, and what falls short.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// One line of JSON instead of a screen of text.
    #[arg(long, global = true)]
    json: bool,
    /// Only this RDMA device, such as rxe0 or mlx5_0, with all that is known of it.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    #[command(subcommand)]
    task: Option<Task>,
}

#[derive(Clone, Debug, Subcommand)]
enum Task {
    /// What the engine would ask of a device with the given attributes.
    Sizing(SizingArguments),
}

/// What `frwr check` prints. `machine` is asked only where the task needs it, `self_test` once for each RDMA device that is shown.
pub fn run(
    arguments: &Arguments,
    machine: impl FnOnce() -> Machine,
    self_test: impl FnMut(&str) -> SelfTest,
) -> Output {
    let json = arguments.json;
    match (&arguments.task, &arguments.device) {
        (None, Some(name)) if name == "soft" || name.starts_with("soft:") => {
            let message = format!(
                "--device is {name:?}: the software NIC is part of the program and needs no check; leave --device out for the machine \
                 that it runs on, or run `frwr latency --device {name}`"
            );
            Error::usage("soft_device", message).output(json)
        }
        (None, Some(name)) => one_device(machine(), name, json, self_test),
        (None, None) => whole_machine(machine(), json, self_test),
        (Some(Task::Sizing(_)), Some(_)) => {
            let message = "--device and sizing: sizing takes attributes, not a device; leave one of them out";
            Error::usage("usage", message).output(json)
        }
        (Some(Task::Sizing(device)), None) => match sizing_output(device, json) {
            Ok(text) => success(text),
            Err(error) => Error::failed(error.name(), error.to_string()).output(json),
        },
    }
}

/// What is said of a wrong command line of `frwr check`, or of its `sizing`.
#[must_use]
pub fn explained(error: &clap::Error, sizing: bool) -> String {
    let line = usage_line(if sizing { "frwr check sizing" } else { "frwr check" }, error);
    named(error).map_or_else(|| line.clone(), |device| format!("{line}; {device}"))
}

/// A device by its name alone: what other programs take as an argument.
fn named(error: &clap::Error) -> Option<String> {
    let ContextValue::String(name) = error.get(ContextKind::InvalidSubcommand)? else { return None };
    Some(format!("an RDMA device is named by `frwr check --device {name}`"))
}

fn whole_machine(mut machine: Machine, json: bool, mut self_test: impl FnMut(&str) -> SelfTest) -> Output {
    for device in &mut machine.rdma_devices {
        device.self_test = self_test(&device.name);
    }
    success(if json { machine_json(&machine).to_string() } else { machine_text(&machine) })
}

fn one_device(machine: Machine, name: &str, json: bool, mut self_test: impl FnMut(&str) -> SelfTest) -> Output {
    let Some(device) = machine.rdma_devices.iter().find(|device| device.name == name) else {
        let all: Vec<&str> = machine.rdma_devices.iter().map(|device| device.name.as_str()).collect();
        let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        let message = format!("--device is {name:?}: no such RDMA device; there is {all}; `rdma link` lists them");
        return Error::failed("unknown_device", message).output(json);
    };
    let mut device = device.clone();
    device.self_test = self_test(name);
    success(if json {
        rdma_report::details_json(&device).to_string()
    } else {
        rdma_report::details_text(&machine, &device)
    })
}
