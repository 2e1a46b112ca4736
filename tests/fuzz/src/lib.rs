//! Every decoder of what others wrote, as a function of any bytes. A function panics where frwr is wrong, and returns whatever the
//! bytes are. The fuzzer calls it with bytes that reach what none reached before; `cargo test -p frwr-fuzz` calls it with those that
//! were kept.

#![forbid(unsafe_code)]

mod arguments;
mod authentication;
mod captures;
mod commands;
mod config;
mod freelists;
mod hosts;
mod latency;
mod pages;
mod private_data;
mod script;
mod seeds;
mod slabs;
mod targets;

/// One decoder, or one part that decodes.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Its name, and that of its folder of the corpus.
    pub name: &'static str,
    /// Takes any bytes.
    pub run: fn(&[u8]),
    /// Inputs that lead somewhere, made by the encoders.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Its part of the time of a run, beside those of the others: parts that decode are slower, and have more to find.
    pub share: u32,
    /// Inputs of a run of everything, those of the corpus among them: some seconds below address sanitizer.
    pub inputs: u32,
}

/// All of them.
pub const TARGETS: &[FuzzTarget] = &[
    target("command_capsule", commands::command_capsule, seeds::command_capsules, 1, 20_000),
    target("response_capsule", commands::response_capsule, seeds::response_capsules, 1, 20_000),
    target("data_pointer", commands::data_pointer, seeds::data_pointers, 1, 20_000),
    target("connect_data", commands::connect_data, seeds::connect_data, 1, 20_000),
    target("authentication", authentication::messages, authentication::seeds, 1, 4000),
    target("private_data", private_data::nvmf, seeds::private_data, 1, 20_000),
    target("latency_private_data", private_data::latency, seeds::latency_private_data, 1, 20_000),
    target("latency_message", latency::message, seeds::latency_messages, 1, 20_000),
    target("identify", pages::identify, seeds::identify, 1, 20_000),
    target("log_pages", pages::log_pages, seeds::log_pages, 1, 20_000),
    target("properties", pages::properties, seeds::properties, 1, 20_000),
    target("nvmf_target", targets::target, seeds::of_target, 10, 400),
    target("nvmf_host", hosts::host, seeds::of_host, 10, 250),
    target("serve_config", config::serve_config, seeds::serve_configs, 4, 10_000),
    target("command_line", arguments::command_line, seeds::command_lines, 4, 4000),
    target("freelist", freelists::freelist, seeds::operations, 1, 20_000),
    target("slab", slabs::slab, seeds::operations, 1, 8000),
    target("capture", captures::capture, seeds::captures, 2, 4000),
];

const fn target(
    name: &'static str,
    run: fn(&[u8]),
    seeds: fn() -> Vec<Vec<u8>>,
    share: u32,
    inputs: u32,
) -> FuzzTarget {
    FuzzTarget { name, run, seeds, share, inputs }
}

/// The target of a name.
///
/// # Errors
/// There is none; says which there are.
pub fn named(name: &str) -> Result<FuzzTarget, String> {
    TARGETS.iter().find(|target| target.name == name).copied().ok_or_else(|| {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        format!("there is no target {name:?}; there are {}", names.join(", "))
    })
}
