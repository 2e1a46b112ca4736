//! `files.toml`: which files are mutated, and which test binaries judge each.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Files {
    /// Names of lists of judges.
    judges: BTreeMap<String, Vec<Judge>>,
    /// In the order in which their mutants are numbered and judged.
    pub(crate) files: Vec<File>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// Path in the repository.
    pub(crate) path: String,
    /// Judges that are asked first.
    #[serde(default)]
    first: Vec<Judge>,
    /// The list of those that are asked then.
    then: String,
}

/// A test binary, as "package:name"; the unit tests of a library are named "lib".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Judge {
    pub(crate) package: String,
    pub(crate) name: String,
}

impl TryFrom<String> for Judge {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (package, name) = text.split_once(':').ok_or_else(|| format!("\"{text}\": a judge is \"package:name\""))?;
        Ok(Self { package: package.to_owned(), name: name.to_owned() })
    }
}

impl std::fmt::Display for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.package, self.name)
    }
}

impl Files {
    pub(crate) fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let files: Self = toml::from_str(&std::fs::read_to_string(path)?)?;
        match files.files.iter().find(|file| !files.judges.contains_key(&file.then)) {
            Some(file) => Err(format!("{}: there is no list of judges \"{}\"", file.path, file.then).into()),
            None => Ok(files),
        }
    }

    /// Keeps the files whose path contains one of these texts; all where there is none.
    pub(crate) fn keep(&mut self, only: &[String]) -> Result<(), Box<dyn Error>> {
        if let Some(text) = only.iter().find(|text| !self.files.iter().any(|file| file.path.contains(*text))) {
            return Err(format!("--only {text}: no path in files.toml contains it").into());
        }
        self.files.retain(|file| only.is_empty() || only.iter().any(|text| file.path.contains(text)));
        Ok(())
    }

    /// Keeps the judges whose name contains one of these texts; all where there is none.
    pub(crate) fn keep_judges(&mut self, only: &[String]) -> Result<(), Box<dyn Error>> {
        let is_kept = |judge: &Judge| only.is_empty() || only.iter().any(|text| judge.to_string().contains(text));
        self.judges.values_mut().for_each(|judges| judges.retain(is_kept));
        self.files.iter_mut().for_each(|file| file.first.retain(is_kept));
        match self.files.iter().find(|file| self.judges_of(&file.path).is_empty()) {
            Some(file) => {
                Err(format!("--judge {}: no judge of {} in files.toml is called so", only.join(" "), file.path).into())
            }
            None => Ok(()),
        }
    }

    /// The judges of a file, in order.
    pub(crate) fn judges_of(&self, path: &str) -> Vec<&Judge> {
        let Some(file) = self.files.iter().find(|file| file.path == path) else { return Vec::new() };
        let mut judges: Vec<&Judge> = Vec::new();
        for judge in file.first.iter().chain(self.judges.get(&file.then).into_iter().flatten()) {
            if !judges.contains(&judge) {
                judges.push(judge);
            }
        }
        judges
    }

    /// All judges of these files.
    pub(crate) fn all_judges(&self, paths: &BTreeSet<&str>) -> BTreeSet<&Judge> {
        paths.iter().flat_map(|path| self.judges_of(path)).collect()
    }
}

/// The folder of the package that a file is of.
pub(crate) fn folder_of(path: &str) -> &str {
    path.split_once("/src/").map_or("", |(folder, _)| folder)
}

/// The package that a file is of: `frwr-` and its folder's name, but for the programs', which is `frwr` itself.
pub(crate) fn package_of(path: &str) -> String {
    match folder_of(path).rsplit('/').next() {
        Some("frwr") => "frwr".to_owned(),
        folder => format!("frwr-{}", folder.unwrap_or_default()),
    }
}
