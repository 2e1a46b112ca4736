//! `frwr ctl`: asks and changes a `frwr serve` that runs, over its control socket.

mod client;
mod command_line;

pub(crate) use client::Client;
pub use command_line::{CtlArguments, SocketArguments};

use crate::{
    Error,
    output::{Output, success},
    runner::methods,
};
use core::fmt::Write as _;
use serde_json::Value;

/// Does what the command line says.
///
/// # Errors
/// There is no target to ask, or it refuses.
pub fn ctl(arguments: &CtlArguments) -> Result<Output, Error> {
    if arguments.list {
        return Ok(success(list()));
    }
    let call = arguments.call()?;
    let result = Client::open(&arguments.socket)?.call(&call.method, call.parameters)?;
    Ok(success(match result {
        // Metrics, for a file that something else collects.
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
