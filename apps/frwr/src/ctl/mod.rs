//! `frwr ctl`: asks and changes a `frwr serve` that runs, over its control socket.

mod client;
mod command_line;
mod files;

pub(crate) use client::Client;
pub use command_line::{CtlArguments, SocketArguments};

use crate::{
    Error,
    output::{Output, success},
    runner::{MethodDescription, methods, text_of},
};
use command_line::Wanted;
use core::fmt::Write as _;
use serde_json::Value;
use std::ffi::OsString;

/// Does what the command line says; `say` is told what a file changes before it is changed.
///
/// # Errors
/// There is no target to ask, or it refuses.
pub fn ctl(arguments: &CtlArguments, say: &mut dyn FnMut(&str)) -> Result<Output, Error> {
    if arguments.list {
        return list(arguments.method.as_deref()).map(success);
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

/// The methods, or one of them, for people.
fn list(only: Option<&str>) -> Result<String, Error> {
    let named = methods().filter(|method| only.is_none_or(|only| only == method.name));
    let text: String = named.map(described).collect();
    match only {
        Some(only) if text.is_empty() => {
            let text = format!("there is no method {only:?}; `frwr ctl --list` lists those that there are");
            Err(Error::usage("method", text))
        }
        _ => Ok(text),
    }
}

/// What a person is told who typed a method and asks for help: what that takes. `None` where none is among the words.
pub(crate) fn help(words: &[OsString]) -> Option<String> {
    let named = |word: &OsString| methods().find(|method| word == method.name);
    let method = words.iter().find_map(named)?;
    Some(format!("{}\n`frwr ctl --help` tells what else can be said.\n", described(method)))
}

fn described(method: MethodDescription) -> String {
    let mut text = format!("{:<22}{}\n", method.name, method.about);
    for parameter in method.parameters {
        let optional = if parameter.required { "" } else { ", may be left out" };
        let said = format!("{}={}", parameter.name, parameter.kind);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    {said:<38}  {}{optional}", parameter.about);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{OsString, help, list, methods};

    #[test]
    fn what_a_parameter_takes_stands_apart_from_what_it_is() {
        let told = list(None).unwrap();
        for parameter in methods().flat_map(|method| method.parameters) {
            let said = format!(" {}={}  {}", parameter.name, parameter.kind, parameter.about);
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words(&told).contains(&words(&said)), "{said}");
        }
    }

    #[test]
    fn one_method_is_told_by_itself() {
        let told = list(Some("resize_namespace")).unwrap();
        assert!(told.starts_with("resize_namespace ") && told.contains("within_seconds=NUMBER"), "{told}");
        assert!(!told.contains("remove_namespace") && list(None).unwrap().contains(&told), "{told}");
        let refused = list(Some("resize")).unwrap_err().to_string();
        assert!(refused.contains("\"resize\"") && refused.contains("--list"), "{refused}");
    }

    #[test]
    fn who_asks_for_help_with_a_method_has_what_it_takes() {
        let of = |words: &[&str]| help(&words.iter().map(OsString::from).collect::<Vec<_>>());
        for words in [&["frwr", "ctl", "save", "--help"][..], &["frwr", "ctl", "--control", "/x", "-h", "save"]] {
            let told = of(words).unwrap();
            assert!(told.starts_with("save ") && told.contains("`frwr ctl --help`"), "{told}");
        }
        assert_eq!((of(&["frwr", "ctl", "--help"]), of(&["frwr", "ctl", "saves", "--help"])), (None, None));
    }
}
