//! What a person types behind `frwr ctl`.

use crate::{Error, runner::methods};
use clap::{
    Arg, Args, Command, ValueHint,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};
use serde_json::{Map, Value};
use std::{ffi::OsStr, path::PathBuf};

/// Which target is asked.
#[derive(Clone, Debug, Args)]
pub struct SocketArguments {
    /// The control socket of the target. Default: the one of the `frwr serve` of this user that runs, if there is one only.
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// Arguments of `frwr ctl`.
#[derive(Clone, Debug, Args)]
pub struct CtlArguments {
    /// The socket.
    #[command(flatten)]
    pub socket: SocketArguments,
    /// Lists the methods, or METHOD alone, with what they take. So does METHOD --help.
    #[arg(long)]
    pub list: bool,
    /// The answer on one line.
    #[arg(long)]
    pub json: bool,
    /// What to ask or to do, such as status; --list says what there is.
    #[arg(value_name = "METHOD", required_unless_present = "list", value_parser = MethodName, hide_possible_values = true)]
    pub method: Option<String>,
    /// What the method takes: NAME=VALUE for each, a value being JSON, or else text; or one JSON object. Behind save and apply a file,
    /// `-` for standard output and input.
    #[arg(value_name = "NAME=VALUE", value_hint = ValueHint::FilePath)]
    pub parameters: Vec<String>,
    /// Of apply: shows what differs, and changes nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// A method's name. Shells complete those that there are; the target says of another one that there is none, and may have more.
#[derive(Clone)]
struct MethodName;

impl TypedValueParser for MethodName {
    type Value = String;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(methods().map(|method| PossibleValue::new(method.name).help(method.about))))
    }
}

/// What is wanted.
pub(super) enum Wanted {
    /// A call.
    Call(Call),
    /// What the target is, in a file.
    Save(PathBuf),
    /// The target as a file says.
    Apply(PathBuf),
}

/// What is called.
pub(super) struct Call {
    pub(super) method: String,
    pub(super) parameters: Map<String, Value>,
}

impl CtlArguments {
    pub(super) fn wanted(&self) -> Result<Wanted, Error> {
        // The command line requires it.
        let method = self.method.clone().ok_or_else(Error::lost)?;
        if self.dry_run && method != "apply" {
            return Err(Error::usage("parameters", format!("--dry-run is for apply, not for {method}; leave it out")));
        }
        match (method.as_str(), &self.parameters[..]) {
            // As without a file, and as everywhere.
            ("save", [output]) if output == "-" => Ok(Wanted::Call(Call { method, parameters: Map::new() })),
            ("apply", [input]) if input == "-" => Ok(Wanted::Apply("/dev/stdin".into())),
            ("save", [file]) => Ok(Wanted::Save(file.into())),
            ("apply", [file]) => Ok(Wanted::Apply(file.into())),
            ("apply", _) => Err(Error::usage("parameters", "apply takes one file; name it: `frwr ctl apply FILE`")),
            ("save", [_, _, ..]) => Err(Error::usage("parameters", "save takes one file at most; name one")),
            _ => Ok(Wanted::Call(Call { method, parameters: parameters(&self.parameters)? })),
        }
    }
}

fn parameters(said: &[String]) -> Result<Map<String, Value>, Error> {
    if let [object] = said
        && object.trim_start().starts_with('{')
    {
        return serde_json::from_str(object).map_err(|error| wrong(object, &error.to_string()));
    }
    let mut parameters = Map::new();
    for one in said {
        let Some((name, value)) = one.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(wrong(one, "there is no NAME= in front"));
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        if parameters.insert(name.to_owned(), value).is_some() {
            return Err(wrong(one, "the name is there twice"));
        }
    }
    Ok(parameters)
}

fn wrong(said: &str, reason: &str) -> Error {
    let remedy = "write NAME=VALUE, or one JSON object; `frwr ctl --list` says what methods take";
    Error::usage("parameters", format!("{said:?} is no parameter: {reason}; {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::parameters;
    use serde_json::{Value, json};

    fn read(said: &[&str]) -> Result<Value, String> {
        let said: Vec<_> = said.iter().map(|&said| said.to_owned()).collect();
        parameters(&said).map(Value::Object).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_json_or_text() {
        assert_eq!(
            read(&["subsystem=nqn.2026-11.x:a=b", "namespace=3", "active=false", "hosts=[\"a\"]"]),
            Ok(json!({"subsystem": "nqn.2026-11.x:a=b", "namespace": 3, "active": false, "hosts": ["a"]}))
        );
        assert_eq!(read(&[r#"{"a": null}"#]), Ok(json!({"a": null})));
        assert_eq!(read(&[]), Ok(json!({})));
    }

    #[test]
    fn what_is_no_parameter_is_told() {
        for said in [&["active"][..], &["=1"], &["a=1", "a=2"], &["{\"a\":"]] {
            let told = read(said).unwrap_err();
            assert!(told.contains("is no parameter") && told.contains("--list"), "{told}");
        }
    }
}
