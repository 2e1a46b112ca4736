//! `frwr --version`: which program this is, as whoever reads a report of a fault wants to know it.

use crate::check::library_file;
use serde::Serialize;
use std::{fmt, path::Path};

/// Loaded when a device is opened that needs them.
const LIBRARIES: [&str; 3] = ["libibverbs", "librdmacm", "libmlx5"];

/// What the program is made of, and what it would find here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct About {
    /// Of the package.
    pub version: &'static str,
    /// The first digits of the commit that it was built from, where that was known.
    pub commit: Option<&'static str>,
    /// What it was built with, beside the software NIC.
    pub features: Vec<&'static str>,
    /// Libraries of RDMA devices on this machine.
    pub libraries: Vec<Library>,
}

/// One of rdma-core's libraries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Library {
    /// As packages name it.
    pub name: &'static str,
    /// As its file says; `None` where there is none in the usual folders.
    pub version: Option<String>,
}

impl About {
    /// This program, on this machine.
    #[must_use]
    pub fn this() -> Self {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> Self {
        let features = [("verbs", cfg!(feature = "verbs")), ("mlx5", cfg!(feature = "mlx5"))];
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("FRWR_COMMIT"),
            features: features.into_iter().filter_map(|(name, is_built)| is_built.then_some(name)).collect(),
            libraries: LIBRARIES.into_iter().map(|name| Library { name, version: version_of(root, name) }).collect(),
        }
    }
}

/// What follows `.so.` in the name of the file.
fn version_of(root: &Path, name: &str) -> Option<String> {
    let file = library_file(root, &format!("{name}.so.1"))?;
    let (_, version) = file.file_name()?.to_str()?.split_once(".so.")?;
    Some(version.to_owned())
}

/// A line for each, the first as `-V` prints it.
impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "frwr {}", self.version)?;
        writeln!(f, "commit: {}", self.commit.unwrap_or("unknown"))?;
        let features = if self.features.is_empty() { "none".to_owned() } else { self.features.join(", ") };
        writeln!(f, "features: {features}")?;
        for Library { name, version } in &self.libraries {
            writeln!(f, "{name}: {}", version.as_deref().unwrap_or("not found"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::About;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn a_librarys_version_is_its_files() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("usr/lib64");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("libibverbs.so.1.14.44.0"), "").unwrap();
        symlink("libibverbs.so.1.14.44.0", folder.join("libibverbs.so.1")).unwrap();
        let about = About::below(root.path());
        let text = about.to_string();
        assert!(text.contains("\nlibibverbs: 1.14.44.0\n") && text.contains("\nlibmlx5: not found\n"), "{text}");
        assert!(text.starts_with(concat!("frwr ", env!("CARGO_PKG_VERSION"), "\ncommit: ")), "{text}");
        let json = serde_json::to_value(&about).unwrap();
        assert_eq!(json["libraries"][0]["version"], "1.14.44.0");
    }
}
