//! `frwr serve --config FILE`: everything that a target can be told, in TOML.

use super::{
    namespaces::{MediumConfig, NamespaceConfig, SubsystemConfig, served_twice},
    serve_command::{ServeArguments, ServeConfig, TargetArguments, check_subsystem},
};
use crate::{
    Error,
    options::{
        BlockArguments, ControlArguments, CoreArguments, DeviceArguments, InvalidationArguments, Limit,
        MemoryArguments, address, bytes_with_unit, names,
    },
};
use frwr_nvmf::{
    controller::{AllowedHosts, MAX_NAMESPACES, MAX_SUBSYSTEMS},
    storage::{Backing, MAX_BLOCK_BYTES, MediumKind},
    wire::{Nqn, SerialNumber},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use std::{
    io::{self, Read as _},
    net::SocketAddr,
    path::{Path, PathBuf},
};
use toml::{Spanned, de::DeTable};

/// What a person writes is far smaller.
const SIZE: Limit = Limit::new("the size of --config", 1, 1 << 20);
/// Largest namespace in memory: what no machine has, so that sizes can be added up.
const MAX_MEMORY_BYTES: u64 = 1 << 44;

/// What is in the file beside the groups of options of the command line.
#[derive(Debug, Deserialize)]
struct Tables {
    #[serde(default)]
    subsystem: Vec<Spanned<SubsystemTable>>,
}

/// All keys at its top.
fn keys() -> Vec<String> {
    // A target opens no memory to its hosts.
    let device = names::<DeviceArguments>().filter(|name| name.as_str() != "registration");
    let target = device.chain(names::<TargetArguments>()).chain(names::<CoreArguments>());
    let all = target.chain(names::<MemoryArguments>()).chain(names::<InvalidationArguments>());
    let all = all.chain(names::<ControlArguments>());
    all.map(|name| name.to_string()).chain(["subsystem".to_owned()]).collect()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SubsystemTable {
    nqn: String,
    allowed_hosts: Option<Vec<String>>,
    serial: Option<String>,
    #[serde(default)]
    namespace: Vec<Spanned<NamespaceTable>>,
}

/// A namespace, as this file and the control socket say it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamespaceTable {
    memory: Option<Size>,
    load: Option<PathBuf>,
    file: Option<PathBuf>,
    device: Option<PathBuf>,
    nbd: Option<String>,
    block_size: Option<u32>,
    read_only: Option<bool>,
    backing: Option<BackingName>,
    direct: Option<bool>,
}

impl NamespaceTable {
    /// What it says. Errors name keys as options: `--block-size`.
    pub(super) fn config(&self) -> Result<NamespaceConfig, Error> {
        let block_bytes = self.block_size.unwrap_or(BlockArguments::DEFAULT);
        BlockArguments::check(block_bytes, MAX_BLOCK_BYTES)?;
        let backing = match self.backing {
            None | Some(BackingName::Auto) => Backing::Auto,
            Some(BackingName::Ring) => Backing::Ring,
            Some(BackingName::Thread) => Backing::Thread,
        };
        let direct = self.direct.unwrap_or(true);
        let stored = |path: &PathBuf, kind| MediumConfig::Stored { path: path.clone(), kind, backing, direct };
        let medium = match (self.memory, &self.load, &self.file, &self.device, &self.nbd) {
            (Some(Size(bytes)), None, None, None, None) => {
                Limit::new("--memory", block_bytes.into(), MAX_MEMORY_BYTES).check(bytes)?;
                MediumConfig::Memory { bytes }
            }
            (None, Some(path), None, None, None) => MediumConfig::Loaded { path: path.clone() },
            (None, None, Some(path), None, None) => stored(path, MediumKind::File),
            (None, None, None, Some(path), None) => stored(path, MediumKind::Device),
            (None, None, None, None, Some(uri)) => MediumConfig::nbd("--nbd", uri)?,
            _ => {
                let text = "namespace: name exactly one of memory, load, file, device and nbd";
                return Err(Error::usage("config", text));
            }
        };
        if !matches!(medium, MediumConfig::Stored { .. }) && (self.backing.is_some() || self.direct.is_some()) {
            let flag = if self.backing.is_some() { "--backing" } else { "--direct" };
            return Err(Error::usage("config", format!("{flag}: is for file and device only; leave it out")));
        }
        Ok(NamespaceConfig { medium, block_bytes, read_only: self.read_only.unwrap_or(false) })
    }
}

impl NamespaceTable {
    /// The key of a medium that is served once.
    const fn medium_key(&self) -> &'static str {
        match (&self.device, &self.nbd) {
            (Some(_), _) => "device",
            (None, Some(_)) => "nbd",
            (None, None) => "file",
        }
    }
}

/// The first option that an error names, as a key, and the error with that in its place.
pub(super) fn as_key(error: &Error) -> (Option<String>, String) {
    let text = error.to_string();
    let Some(flag) = text.split([' ', ':']).find_map(|word| word.strip_prefix("--")) else { return (None, text) };
    let key = flag.replace('-', "_");
    let text = text.replacen(&format!("--{flag}"), &key, 1);
    (Some(key), text)
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BackingName {
    Auto,
    Ring,
    Thread,
}

/// An address as the command line takes it, or a list of them.
pub(super) fn addresses_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        One(String),
        Several(Vec<String>),
    }
    let wrong = |_| D::Error::custom("must be an IP address and a port such as \"10.0.0.1:4420\", or a list of such");
    let texts = match Written::deserialize(deserializer).map_err(wrong)? {
        Written::One(text) => vec![text],
        Written::Several(texts) => texts,
    };
    texts.iter().map(|text| address(text).map_err(D::Error::custom)).collect()
}

/// Bytes, as a number or as text with a unit.
pub(super) fn bytes_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Size::deserialize(deserializer).map(|Size(bytes)| bytes)
}

/// Bytes, as a number or as text with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        let bytes = match Written::deserialize(deserializer).map_err(|_| D::Error::custom(SIZE_HELP))? {
            Written::Number(bytes) => Some(bytes),
            Written::Text(text) => bytes_with_unit(&text),
        };
        bytes.map(Self).ok_or_else(|| D::Error::custom(SIZE_HELP))
    }
}

const SIZE_HELP: &str = "must be a number of bytes, or one with K, M, G or T behind it, such as \"64M\"";

/// Reads and checks a file; the command line says what it does not.
///
/// # Errors
/// It cannot be read, or says something that cannot be, which is told with its line.
pub(super) fn read(path: &Path, arguments: ServeArguments) -> Result<ServeConfig, Error> {
    let unreadable = |source: io::Error| {
        let text = format!("--config: {path:?} cannot be read ({source}); name a readable file in TOML");
        Error::failed("config_file", text)
    };
    // A pipe has no size before it was read, and what writes to it may never end.
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(SIZE.most() + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > SIZE.most() {
        let remedy = "name a file in TOML, as docs/config.md says";
        let text = format!("--config: {path:?} has more than {} bytes; {remedy}", SIZE.most());
        return Err(Error::usage("config_file", text));
    }
    SIZE.check(bytes.len() as u64)?;
    let text =
        String::from_utf8(bytes).map_err(|error| unreadable(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    parse(path, &text, arguments)
}

fn parse(path: &Path, text: &str, arguments: ServeArguments) -> Result<ServeConfig, Error> {
    let source = Source { path, text };
    source.check_keys()?;
    let target: TargetArguments = source.group()?;
    let control: ControlArguments = source.group()?;
    let arguments = ServeArguments {
        device: source.group()?,
        target: TargetArguments { runtime: arguments.target.runtime.or(target.runtime), ..target },
        core: source.group()?,
        memory: source.group()?,
        invalidation: source.group()?,
        control: arguments.control.clone().beside(control),
        ..arguments
    };
    for (key, is_there) in
        [("device", arguments.device.device.is_some()), ("listen", !arguments.target.listen.is_empty())]
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
    if let Some((place, reason)) = served_twice(subsystems.iter().flat_map(|subsystem| &subsystem.namespaces)) {
        let table = tables.subsystem.iter().flat_map(|subsystem| &subsystem.as_ref().namespace).nth(place);
        let line = table.map_or(1, |table| source.line(table.span().start));
        let key = table.map_or("file", |table| table.as_ref().medium_key());
        return Err(source.error(source.find(line, key), &format!("{key}: {reason}")));
    }
    ServeConfig::checked(arguments, subsystems).map_err(|error| source.of_key(1, error))
}

/// What the parser says in words of Rust, in those of the file, and where to read on.
fn for_people(message: &str) -> String {
    let numbers = [("u8", u64::from(u8::MAX)), ("u16", u16::MAX.into()), ("u32", u32::MAX.into()), ("u64", u64::MAX)];
    let number = numbers.into_iter().find_map(|(name, most)| {
        let said = message.strip_suffix(name)?.strip_suffix("expected ")?;
        Some(format!("{said}expected a whole number from 0 to {most} at most"))
    });
    let said = number.unwrap_or_else(|| message.to_owned());
    let said = said.replace(" as i128,", ",").replace(" as u128,", ",");
    format!("{said}; docs/config.md lists keys and values")
}

/// The text, to say where something is wrong.
#[derive(Clone, Copy)]
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    /// A group of options, which takes its own keys and leaves the others alone.
    fn group<T: DeserializeOwned>(&self) -> Result<T, Error> {
        toml::from_str(self.text).map_err(|error| self.wrong(&error))
    }

    /// Every key belongs to some group.
    fn check_keys(&self) -> Result<(), Error> {
        let (known, table) = (keys(), DeTable::parse(self.text).map_err(|error| self.wrong(&error))?);
        let unknown = table.get_ref().keys().find(|key| !known.iter().any(|known| known == key.get_ref()));
        let Some(unknown) = unknown else { return Ok(()) };
        let line = self.line(unknown.span().start);
        // A dotted key as it stands there; of a table its name.
        let dotted = self.key_in(line).filter(|key| key.contains('.') && !key.contains(['"', '\'']));
        let name = dotted.unwrap_or(unknown.get_ref());
        let text = format!("{name}: unknown field `{name}`, expected one of `{}`", known.join("`, `"));
        Err(self.error(line, &for_people(&text)))
    }

    /// What the parser says, in one line, with the key.
    fn wrong(&self, error: &toml::de::Error) -> Error {
        let line = error.span().map_or(1, |span| self.line(span.start));
        let message = for_people(&error.message().split_whitespace().collect::<Vec<_>>().join(" "));
        // What is missing has no line of its own.
        let key = self.key_in(line).filter(|_| !message.starts_with("missing field"));
        let text = match key {
            Some(key) if message.starts_with("is ") => format!("{key} {message}"),
            Some(key) => format!("{key}: {message}"),
            None => message,
        };
        self.error(line, &text)
    }

    fn subsystem(&self, table: &Spanned<SubsystemTable>) -> Result<SubsystemConfig, Error> {
        let line = self.line(table.span().start);
        let SubsystemTable { nqn, allowed_hosts, serial, namespace } = table.as_ref();
        let name = |key: &str, text: &str| {
            let reason = |error| format!("{key}: {text:?}: {error}");
            Nqn::new(text).map_err(|error| self.error(self.find(line, key), &reason(error)))
        };
        let hosts = allowed_hosts.as_ref().map(|hosts| hosts.iter().map(|host| name("allowed_hosts", host)).collect());
        let serial = serial.as_deref().map(|serial| {
            let reason = |error| format!("serial: {serial:?}: {error}");
            SerialNumber::new(serial).map_err(|error| self.error(self.find(line, "serial"), &reason(error)))
        });
        self.counted_at(line, "namespace", 1, namespace.len(), MAX_NAMESPACES)?;
        let nqn = name("nqn", nqn)?;
        check_subsystem(&nqn).map_err(|error| {
            let text = error.to_string().replacen("--subsystem is", "nqn is", 1);
            self.error(self.find(line, "nqn"), &text)
        })?;
        Ok(SubsystemConfig {
            nqn,
            allowed_hosts: hosts.transpose()?.map_or(AllowedHosts::Any, AllowedHosts::Listed),
            serial: serial.transpose()?,
            namespaces: namespace.iter().map(|table| self.namespace(table)).collect::<Result<_, _>>()?,
        })
    }

    fn namespace(&self, table: &Spanned<NamespaceTable>) -> Result<NamespaceConfig, Error> {
        let line = self.line(table.span().start);
        table.as_ref().config().map_err(|error| self.of_key(line, error))
    }

    fn counted(&self, key: &str, least: usize, count: usize, most: usize) -> Result<(), Error> {
        self.counted_at(1, key, least, count, most)
    }

    fn counted_at(&self, line: usize, key: &str, least: usize, count: usize, most: usize) -> Result<(), Error> {
        if (least..=most).contains(&count) {
            return Ok(());
        }
        Err(self.error(line, &format!("{key}: there are {count}: must be from {least} to {most}; add or remove some")))
    }

    fn error(&self, line: usize, reason: &str) -> Error {
        Error::usage("config", format!("{}:{line}: {reason}", self.path.display()))
    }

    /// An error of the command line, in the words of the file: `--queue-depth` is `queue_depth` here.
    fn of_key(&self, from: usize, error: Error) -> Error {
        let (key, text) = as_key(&error);
        self.error(key.map_or(from, |key| self.find(from, &key)), &text)
    }

    /// Line of a byte, from 1.
    fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }

    /// The key that a line sets.
    fn key_in(&self, line: usize) -> Option<&str> {
        let (key, _) = self.text.lines().nth(line - 1)?.split_once('=')?;
        let key = key.trim();
        (!key.is_empty() && !key.starts_with('#')).then_some(key)
    }

    /// The line of a key of the table that begins at a line; that line where it is not there.
    fn find(&self, table: usize, key: &str) -> usize {
        let is_header = |line: &str| line.trim_start().starts_with('[');
        for (index, line) in self.text.lines().enumerate().skip(table - 1) {
            if index >= table && is_header(line) {
                break;
            }
            if self.key_in(index + 1) == Some(key) {
                return index + 1;
            }
        }
        table
    }
}
