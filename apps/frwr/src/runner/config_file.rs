//! `frwr serve --config FILE`: everything that a target can be told, in TOML.

mod source;
mod tables;

use super::{
    clash::served_twice,
    gateway::GatewayArguments,
    namespaces::SubsystemConfig,
    serve_command::{ServeArguments, ServeConfig, TargetArguments},
};
use crate::{
    Error,
    options::{ControlArguments, CoreArguments, DeviceArguments, InvalidationArguments, Limit, MemoryArguments, names},
};
use frwr_nvmf::controller::MAX_SUBSYSTEMS;
use serde::{Deserialize as _, Deserializer};
use source::{Source, for_people};
use std::{
    io::{self, Read as _},
    path::Path,
};
use tables::Tables;
pub(super) use tables::{NamespaceTable, Size};

/// What a person writes is far smaller.
const SIZE: Limit = Limit::new("the size of --config", 1, 1 << 20);

/// All keys at its top.
fn keys() -> Vec<String> {
    // A target opens no memory to its hosts.
    let device = names::<DeviceArguments>().filter(|name| name.as_str() != "registration");
    let target = device.chain(names::<TargetArguments>()).chain(names::<CoreArguments>());
    let all = target.chain(names::<MemoryArguments>()).chain(names::<InvalidationArguments>());
    let all = all.chain(names::<ControlArguments>()).chain(names::<GatewayArguments>());
    all.map(|name| name.to_string()).chain(["host".to_owned(), "subsystem".to_owned()]).collect()
}

/// The first option that an error names, as a key, and the error with that in its place.
pub(super) fn as_key(error: &Error) -> (Option<String>, String) {
    let text = error.to_string();
    let Some(flag) = text.split([' ', ':']).find_map(|word| word.strip_prefix("--")) else { return (None, text) };
    let key = flag.replace('-', "_");
    let text = text.replacen(&format!("--{flag}"), &key, 1);
    (Some(key), text)
}

/// Bytes, as a number or as text with a unit.
pub(super) fn bytes_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Size::deserialize(deserializer).map(|Size(bytes)| bytes)
}

impl ServeConfig {
    /// Checks arguments, and reads and checks the file that they name.
    ///
    /// # Errors
    /// [`Error`] names limit, value and remedy.
    pub fn new(arguments: ServeArguments) -> Result<Self, Error> {
        Self::check_command_line(&arguments)?;
        let config = match &arguments.config {
            Some(path) => read(path, arguments.clone())?,
            None => Self::checked(arguments.clone(), vec![arguments.subsystem.config()?])?,
        };
        Ok(config.beside(&arguments))
    }

    /// What a file says that is read beside the same command line.
    pub(super) fn of_text(&self, path: &Path, text: &str) -> Result<Self, Error> {
        parse(path, text, self.command_line())
    }
}

/// Reads and checks a file; the command line says what it does not.
///
/// # Errors
/// It cannot be read, or says something that cannot be, which is told with its line.
fn read(path: &Path, arguments: ServeArguments) -> Result<ServeConfig, Error> {
    parse(path, &text_of("--config", path)?, arguments)
}

/// What a file holds that somebody named so.
///
/// # Errors
/// It cannot be read, is too large, or is no text.
pub(crate) fn text_of(named: &str, path: &Path) -> Result<String, Error> {
    let unreadable = |source: io::Error| {
        let text = format!("{named}: {path:?} cannot be read ({source}); name a readable file in TOML");
        Error::failed("config_file", text)
    };
    // A pipe has no size before it was read, and what writes to it may never end.
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(SIZE.most() + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > SIZE.most() {
        let remedy = "name a file in TOML, as docs/config.md says";
        let text = format!("{named}: {path:?} has more than {} bytes; {remedy}", SIZE.most());
        return Err(Error::usage("config_file", text));
    }
    SIZE.check(bytes.len() as u64)?;
    String::from_utf8(bytes).map_err(|error| unreadable(io::Error::new(io::ErrorKind::InvalidData, error)))
}

/// What the text of a file says, which is told by that path; the command line says what it does not.
///
/// # Errors
/// It says something that cannot be, which is told with its line.
fn parse(path: &Path, text: &str, arguments: ServeArguments) -> Result<ServeConfig, Error> {
    let source = Source { path, text };
    source.check_keys()?;
    let target: TargetArguments = source.group()?;
    let control: ControlArguments = source.group()?;
    let arguments = ServeArguments {
        device: source.group()?,
        target: TargetArguments { runtime: arguments.target.runtime.or(target.runtime), ..target },
        core: source.group()?,
        gateway: source.group()?,
        memory: source.group()?,
        invalidation: source.group()?,
        control: arguments.control.clone().beside(control),
        ..arguments
    };
    for (key, is_there) in
        [("device", !arguments.device.device.is_empty()), ("listen", !arguments.target.listen.is_empty())]
    {
        if !is_there {
            return Err(source.error(1, &for_people(&format!("missing field `{key}`"))));
        }
    }
    let tables: Tables = source.group()?;
    let mut subsystems = Vec::new();
    source.counted("subsystem", 1, tables.subsystem.len(), MAX_SUBSYSTEMS)?;
    for table in &tables.subsystem {
        subsystems.push(source.subsystem(table)?);
    }
    for (index, (subsystem, table)) in subsystems.iter().zip(&tables.subsystem).enumerate() {
        let mut others = subsystems.iter().take(index);
        let line = source.line(table.span().start);
        if others.clone().any(|other| other.nqn == subsystem.nqn) {
            return Err(source.error(line, "nqn: another subsystem has the same name; give each its own"));
        }
        if subsystem.serial.is_some() && others.any(|other| other.serial == subsystem.serial) {
            let reason = "serial: another subsystem has the same, and hosts take both for one disk; give each its own";
            return Err(source.error(source.find(line, "serial"), reason));
        }
    }
    if let Some((place, reason)) = served_twice(subsystems.iter().flat_map(SubsystemConfig::configs)) {
        let table = tables.subsystem.iter().flat_map(|subsystem| &subsystem.as_ref().namespace).nth(place);
        let line = table.map_or(1, |table| source.line(table.span().start));
        let key = table.map_or("file", |table| table.as_ref().medium_key());
        return Err(source.error(source.find(line, key), &format!("{key}: {reason}")));
    }
    let host_keys = source.host_keys(&tables.host)?;
    let mut config = ServeConfig::checked(arguments, subsystems).map_err(|error| source.of_key(1, error))?;
    config.host_keys = host_keys;
    Ok(config)
}
