//! The text of a file, to say where something in it is wrong.

use super::{
    super::{
        ana_name::{AnaName, AnaStates},
        key_files::KeyFiles,
        namespaces::{ListedNamespace, SubsystemConfig},
        serve_command::check_subsystem,
        whole_number,
    },
    as_key, keys,
    tables::{ANA_GROUP, HostTable, NSID, NamespaceTable, SubsystemTable},
};
use crate::Error;
use frwr_nvmf::{
    controller::{AllowedHosts, MAX_ANA_GROUPS, MAX_NAMESPACES},
    wire::{AnaState, Nqn, SerialNumber},
};
use serde::de::DeserializeOwned;
use std::{
    collections::BTreeMap,
    path::{self, Path, PathBuf},
};
use toml::{Spanned, de::DeTable};

/// Hosts that have keys: more than connect to one target, and a file of them is read in no time.
const MAX_HOST_KEYS: usize = 4096;

/// What the parser says in words of Rust, in those of the file, and where to read on.
pub(super) fn for_people(message: &str) -> String {
    let number = message
        .rsplit_once("expected ")
        .and_then(|(said, kind)| Some(format!("{said}expected {}", whole_number::in_words(kind)?)));
    let said = number.unwrap_or_else(|| message.to_owned());
    let said = said.replace(" as i128,", ",").replace(" as u128,", ",");
    format!("{said}; docs/config.md lists keys and values")
}

/// The text, to say where something is wrong.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// A group of options, which takes its own keys and leaves the others alone.
    pub(super) fn group<T: DeserializeOwned>(&self) -> Result<T, Error> {
        toml::from_str(self.text).map_err(|error| self.wrong(&error))
    }

    /// Every key belongs to some group.
    pub(super) fn check_keys(&self) -> Result<(), Error> {
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

    pub(super) fn subsystem(&self, table: &Spanned<SubsystemTable>) -> Result<SubsystemConfig, Error> {
        let line = self.line(table.span().start);
        let SubsystemTable { nqn, allowed_hosts, serial, ana_state, ana_states, namespace } = table.as_ref();
        let name = |key: &str, text: &str| {
            let reason = |error| format!("{key}: {text:?}: {error}");
            Nqn::new(text).map_err(|error| self.error(self.find(line, key), &reason(error)))
        };
        let hosts = allowed_hosts.as_ref().map(|hosts| hosts.iter().map(|host| name("allowed_hosts", host)).collect());
        let serial = serial.as_deref().map(|serial| {
            let reason = |error| format!("serial: {serial:?}: {error}");
            SerialNumber::new(serial).map_err(|error| self.error(self.find(line, "serial"), &reason(error)))
        });
        self.counted_at(line, "namespace", 0, namespace.len(), MAX_NAMESPACES)?;
        let nqn = name("nqn", nqn)?;
        check_subsystem(&nqn).map_err(|error| {
            let text = error.to_string().replacen("--subsystem is", "nqn is", 1);
            self.error(self.find(line, "nqn"), &text)
        })?;
        let ana = AnaStates {
            all: ana_state.map_or_else(AnaState::default, AnaName::state),
            but: self.ana_states(line, ana_states)?,
        };
        let namespaces = self.namespaces(&nqn, namespace)?;
        self.check_locked_groups(line, &ana, &namespaces)?;
        Ok(SubsystemConfig {
            nqn,
            allowed_hosts: hosts.transpose()?.map_or(AllowedHosts::Any, AllowedHosts::Listed),
            serial: serial.transpose()?,
            ana,
            namespaces,
        })
    }

    /// States of groups that follow locks are nobody's to say.
    fn check_locked_groups(&self, line: usize, ana: &AnaStates, namespaces: &[ListedNamespace]) -> Result<(), Error> {
        let locked = namespaces.iter().filter(|one| one.config.is_exclusive()).map(|one| one.config.ana_group);
        let Some(group) = locked.into_iter().find(|group| ana.of(*group) != AnaState::default()) else { return Ok(()) };
        let (key, remedy) = if ana.but.contains_key(&group) {
            ("ana_states", "leave it out")
        } else {
            ("ana_state", "leave it out, or say the states of others in ana_states")
        };
        let text =
            format!("{key}: the state of ANA group {group} follows the lock of an image with exclusive=1; {remedy}");
        Err(self.error(self.find(line, key), &text))
    }

    /// Where the keys of hosts are, by their names. They are read later.
    pub(super) fn host_keys(&self, tables: &[Spanned<HostTable>]) -> Result<BTreeMap<String, KeyFiles>, Error> {
        self.counted("host", 0, tables.len(), MAX_HOST_KEYS)?;
        let mut hosts = BTreeMap::new();
        for table in tables {
            let line = self.find(self.line(table.span().start), "nqn");
            let HostTable { nqn, dhchap_key, dhchap_ctrl_key } = table.as_ref();
            let name = Nqn::new(nqn).map_err(|error| self.error(line, &format!("nqn: {nqn:?}: {error}")))?;
            // What is saved of it is for a process in any folder.
            let whole = |path: &PathBuf| path::absolute(path).unwrap_or_else(|_| path.clone());
            let (dhchap_key, dhchap_ctrl_key) = (whole(dhchap_key), dhchap_ctrl_key.as_ref().map(whole));
            let files = KeyFiles { dhchap_key, dhchap_ctrl_key };
            if hosts.insert(name.as_str().to_owned(), files).is_some() {
                return Err(self.error(line, "nqn: another host has the same name; give each its keys once"));
            }
        }
        Ok(hosts)
    }

    /// States of ANA groups, by their identifiers.
    fn ana_states(&self, line: usize, states: &BTreeMap<String, AnaName>) -> Result<BTreeMap<u32, AnaState>, Error> {
        let one = |(group, name): (&String, &AnaName)| {
            let parsed = group.parse().ok().filter(|group| ANA_GROUP.check(*group).is_ok());
            let reason = format!("ana_states: group {group:?}: must be from 1 to {MAX_ANA_GROUPS}; choose one");
            let found = parsed.map(|group| (group, name.state()));
            found.ok_or_else(|| self.error(self.find(line, "ana_states"), &reason))
        };
        states.iter().map(one).collect()
    }

    /// The namespaces of a subsystem: one that says no identifier has the next one.
    fn namespaces(&self, of: &Nqn, tables: &[Spanned<NamespaceTable>]) -> Result<Vec<ListedNamespace>, Error> {
        let mut all: Vec<ListedNamespace> = Vec::with_capacity(tables.len());
        for table in tables {
            let line = self.line(table.span().start);
            let next = all.last().map_or(1, |last| last.identifier + 1);
            let one = table.as_ref().listed(next).and_then(|one| NSID.check(one.identifier).map(|()| one));
            let one = one.map_err(|error| self.of_key(line, error))?;
            if all.iter().any(|other| other.identifier == one.identifier) {
                let text = format!(
                    "nsid: is {}, which another namespace of the subsystem has; choose another",
                    one.identifier
                );
                return Err(self.error(self.find(line, "nsid"), &text));
            }
            if all.iter().any(|other| other.nguid(of) == one.nguid(of)) {
                let text = "nguid: another namespace of the subsystem has the same, and hosts take both for one; choose another";
                return Err(self.error(self.find(line, "nguid"), text));
            }
            if all.iter().any(|other| other.config.shares_locked_group(&one.config)) {
                return Err(self.error(self.find(line, "ana_group"), &one.config.locked_group_text()));
            }
            all.push(one);
        }
        Ok(all)
    }

    pub(super) fn counted(&self, key: &str, least: usize, count: usize, most: usize) -> Result<(), Error> {
        self.counted_at(1, key, least, count, most)
    }

    fn counted_at(&self, line: usize, key: &str, least: usize, count: usize, most: usize) -> Result<(), Error> {
        if (least..=most).contains(&count) {
            return Ok(());
        }
        Err(self.error(line, &format!("{key}: there are {count}: must be from {least} to {most}; add or remove some")))
    }

    pub(super) fn error(&self, line: usize, reason: &str) -> Error {
        Error::usage("config", format!("{}:{line}: {reason}", self.path.display()))
    }

    /// An error of the command line, in the words of the file: `--queue-depth` is `queue_depth` here.
    pub(super) fn of_key(&self, from: usize, error: Error) -> Error {
        let (key, text) = as_key(&error);
        self.error(key.map_or(from, |key| self.find(from, &key)), &text)
    }

    /// Line of a byte, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }

    /// The key that a line sets.
    fn key_in(&self, line: usize) -> Option<&str> {
        let (key, _) = self.text.lines().nth(line - 1)?.split_once('=')?;
        let key = key.trim();
        (!key.is_empty() && !key.starts_with('#')).then_some(key)
    }

    /// The line of a key of the table that begins at a line; that line where it is not there.
    pub(super) fn find(&self, table: usize, key: &str) -> usize {
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
