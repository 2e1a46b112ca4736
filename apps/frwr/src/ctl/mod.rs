//! `frwr ctl`: asks and changes a `frwr serve` that runs, over its control socket.

mod client;
mod command_line;
mod files;

pub(crate) use client::Client;
pub use command_line::{CtlArguments, SocketArguments};

use crate::{
    Error,
    output::{Output, success},
    runner::{methods, text_of},
};
use command_line::Wanted;
use core::fmt::Write as _;
use serde_json::Value;

/// Does what the command line says; `say` is told what a file changes before it is changed.
///
/// # Errors
/// There is no target to ask, or it refuses.
pub fn ctl(arguments: &CtlArguments, say: &mut dyn FnMut(&str)) -> Result<Output, Error> {
    if arguments.list {
        return Ok(success(list()));
    }
    let wanted = arguments.wanted()?;
    let open = || Client::open(&arguments.socket);
    let result = match wanted {
        Wanted::Call(call) => {
            let mut client = open()?;
            if methods().any(|method| method.changes && method.name == call.method) {
                client.wait_for_changes(1)?;
            }
            client.call(&call.method, call.parameters)?
        }
        Wanted::Save(path) => files::save(&mut open()?, &path)?,
        Wanted::Apply(path) => {
            let text = text_of("apply", &path)?;
            files::apply(&mut open()?, &path, text, arguments.dry_run, say)?
        }
    };
    if let Some(changes) = result["changes"].as_array().filter(|_| arguments.dry_run && !arguments.json) {
        let lines: Vec<_> = changes.iter().filter_map(Value::as_str).collect();
        return Ok(success(if lines.is_empty() { "nothing differs".to_owned() } else { lines.join("\n") }));
    }
    Ok(success(match result {
        // Metrics and configurations, for a file that something else reads.
        Value::String(text) if !arguments.json => text,
        result if arguments.json => result.to_string(),
        result => format!("{result:#}"),
    }))
}

/// The methods, for people.
fn list() -> String {
    let mut text = String::new();
    for method in methods() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:<22}{}", method.name, method.about);
        for parameter in method.parameters {
            let optional = if parameter.required { "" } else { ", may be left out" };
            let said = format!("{}={}", parameter.name, parameter.kind);
            let _ = writeln!(text, "    {said:<40}{}{optional}", parameter.about);
        }
    }
    text
}
