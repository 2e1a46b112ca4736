//! Namespaces that cannot be served at a time, since they are one medium.

use super::namespaces::{MediumConfig, NamespaceConfig};
use frwr_nvmf::storage::{Below, NbdOptions, RbdOptions};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// Why two namespaces cannot have one medium.
const SERVED_ONCE: &str = "what is written is served once; name another one, or set read_only for both";

/// The first namespace whose medium another one in front of it has as well, or has a part of, where one of them is written: by its
/// place among all, and why that cannot be. Looks at each path, which takes as long as file systems do.
pub(super) fn served_twice<'a>(namespaces: impl Iterator<Item = &'a NamespaceConfig>) -> Option<(usize, String)> {
    served_twice_of(namespaces.map(|namespace| (namespace, None)))
}

/// The same where of some paths it is known already what lies below them: those are not looked at.
pub(super) fn served_twice_of<'a>(
    namespaces: impl Iterator<Item = (&'a NamespaceConfig, Option<&'a Below>)>,
) -> Option<(usize, String)> {
    let mut before: Vec<(&Path, Below, bool)> = Vec::new();
    let mut exports: Vec<(NbdOptions, bool)> = Vec::new();
    let mut images: Vec<(&RbdOptions, bool)> = Vec::new();
    for (place, (namespace, known)) in namespaces.enumerate() {
        if let MediumConfig::Rbd { options } = &namespace.medium {
            let read_only = namespace.read_only;
            if images.iter().any(|(other, both)| !(read_only && *both) && other.is_same_image(options)) {
                return Some((place, format!("\"{options}\" is the medium of another namespace: {SERVED_ONCE}")));
            }
            images.push((options, read_only));
        }
        if let Some(options) = export(namespace) {
            let read_only = namespace.read_only;
            let clashes = |(other, both): &(NbdOptions, bool)| !(read_only && *both) && other.is_same_export(&options);
            if exports.iter().any(clashes) {
                return Some((place, format!("\"{options}\" is the medium of another namespace: {SERVED_ONCE}")));
            }
            exports.push((options, read_only));
        }
        let MediumConfig::Stored { path, .. } = &namespace.medium else { continue };
        let (below, read_only) = (known.cloned().unwrap_or_else(|| Below::of(path)), namespace.read_only);
        // One path is one medium also where another file lies there by now, since a file of both could not be read again.
        let is_one = |at: &Path, other: &Below| at == path || below.shares_with(other);
        let clash = before.iter().find(|(at, other, both)| !(read_only && *both) && is_one(at, other));
        if let Some((other, ..)) = clash {
            let clash = if other == path {
                format!("{path:?} is the medium of another namespace")
            } else {
                format!("{path:?} and {other:?}, of another namespace, are one medium, or one lies in the other")
            };
            return Some((place, format!("{clash}: {SERVED_ONCE}")));
        }
        before.push((path, below, read_only));
    }
    None
}

/// The export that it lives in, by whatever folder its socket is named from.
fn export(namespace: &NamespaceConfig) -> Option<NbdOptions> {
    match namespace.medium.whole() {
        MediumConfig::Nbd { options } => Some(options),
        _ => None,
    }
}

/// What lies below the paths of namespaces.
#[derive(Debug)]
pub(super) struct Media(HashMap<PathBuf, Below>);

impl Media {
    /// Looks at each path once, which takes as long as file systems do.
    pub(super) fn of<'a>(namespaces: impl Iterator<Item = &'a NamespaceConfig>) -> Self {
        let mut found = HashMap::new();
        for namespace in namespaces {
            if let MediumConfig::Stored { path, .. } = &namespace.medium {
                found.entry(path.clone()).or_insert_with(|| Below::of(path));
            }
        }
        Self(found)
    }

    /// Whether two of the namespaces cannot be served at a time: one is written, and both are one medium, or one lies
    /// in the other.
    pub(super) fn clash(&self, one: &NamespaceConfig, other: &NamespaceConfig) -> bool {
        if one.read_only && other.read_only {
            return false;
        }
        let (first, second) = match (&one.medium, &other.medium) {
            (MediumConfig::Stored { path: first, .. }, MediumConfig::Stored { path: second, .. }) => (first, second),
            (MediumConfig::Nbd { .. }, MediumConfig::Nbd { .. }) => {
                return export(one).zip(export(other)).is_some_and(|(first, second)| first.is_same_export(&second));
            }
            (MediumConfig::Rbd { options: first }, MediumConfig::Rbd { options: second }) => {
                return first.is_same_image(second);
            }
            _ => return false,
        };
        self.0.get(first).zip(self.0.get(second)).is_some_and(|(first, second)| first.shares_with(second))
    }
}
