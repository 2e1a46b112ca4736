//! The copy of the workspace in which the mutants are.

use crate::files::{File, folder_of};
use crate::mutant::Mutant;
use crate::results::Sources;
use crate::rewrite::{LeftOut, Rewritten, rewrite};
use crate::switch::{self, MODULE};
use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Of what git knows of, what no judge has in it: this program.
const NOT_BUILT: &str = "tests/mutants/";

/// Which lines of which file have mutants.
pub(crate) type Wanted<'a> = &'a dyn Fn(&str, usize, usize) -> bool;

pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    /// Of the repository.
    source: PathBuf,
}

impl Tree {
    /// Copies what git knows of, as it is in the work tree, but for what is rewritten.
    pub(crate) fn copy(source: &Path, root: PathBuf, files: &[File]) -> Result<Self, Box<dyn Error>> {
        let listed = listed(source)?;
        let rewritten: BTreeSet<String> = files
            .iter()
            .flat_map(|file| [file.path.clone(), format!("{}/src/lib.rs", folder_of(&file.path))])
            .collect();
        let known: BTreeSet<PathBuf> = listed.split('\0').map(|path| root.join(path)).collect();
        remove_all_but(&root, &known)?;
        let is_copied = |path: &&str| source.join(path).is_file() && !rewritten.contains(*path);
        for path in listed.split('\0').filter(is_copied) {
            write_changed(&root.join(path), &std::fs::read(source.join(path))?)?;
        }
        Ok(Self { root, source: source.to_owned() })
    }

    /// Puts the mutants into the copy.
    pub(crate) fn mutate(
        &self,
        files: &[File],
        left_out: &LeftOut,
        wanted: Wanted<'_>,
    ) -> Result<Vec<Mutant>, Box<dyn Error>> {
        let mut first = 1;
        let mutants = rewritten(&self.source, files, left_out, wanted, |file, rewritten| {
            first = rewritten.next;
            write_changed(&self.root.join(&file.path), rewritten.text.as_bytes())
        })?;
        let folders: BTreeSet<&str> = files.iter().map(|file| folder_of(&file.path)).collect();
        for folder in folders {
            self.add_switch(folder, first)?;
        }
        Ok(mutants)
    }

    fn add_switch(&self, folder: &str, count: u32) -> Result<(), Box<dyn Error>> {
        let sources = self.root.join(folder).join("src");
        write_changed(&sources.join(format!("{MODULE}.rs")), switch::source(count).as_bytes())?;
        let library = std::fs::read_to_string(self.source.join(folder).join("src/lib.rs"))?;
        Ok(write_changed(&sources.join("lib.rs"), format!("{library}\nmod {MODULE};\n").as_bytes())?)
    }
}

/// The mutants of files as they are in `source`, whose texts with them `write` takes.
fn rewritten(
    source: &Path,
    files: &[File],
    left_out: &LeftOut,
    wanted: Wanted<'_>,
    mut write: impl FnMut(&File, &Rewritten) -> std::io::Result<()>,
) -> Result<Vec<Mutant>, Box<dyn Error>> {
    let mut mutants: Vec<Mutant> = Vec::new();
    let mut first = 1;
    for file in files {
        let text =
            std::fs::read_to_string(source.join(&file.path)).map_err(|error| format!("{}: {error}", file.path))?;
        let on_lines = |line, last_line| wanted(&file.path, line, last_line);
        let mut rewritten = rewrite(&file.path, &text, first, left_out, &on_lines)
            .map_err(|error| format!("{}: {error}", file.path))?;
        write(file, &rewritten)?;
        first = rewritten.next;
        mutants.append(&mut rewritten.mutants);
    }
    Ok(mutants)
}

/// The mutants of files, without a copy and a build, so that those which do not compile are among them.
pub(crate) fn mutants(source: &Path, files: &[File], wanted: Wanted<'_>) -> Result<Vec<Mutant>, Box<dyn Error>> {
    rewritten(source, files, &LeftOut::default(), wanted, |_, _| Ok(()))
}

/// What git knows of, each path with a zero behind it.
fn listed(source: &Path) -> Result<String, Box<dyn Error>> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(source).output()?;
    if !listed.status.success() {
        return Err(format!("git ls-files fails in {}: mutants are made of what git knows of", source.display()).into());
    }
    Ok(String::from_utf8(listed.stdout)?)
}

/// Hashes what is mutated and, in one number, all other source text that is built.
pub(crate) fn sources(source: &Path, mutated: &[File]) -> Result<Sources, Box<dyn Error>> {
    let hash_of = |path: &str| -> Result<u64, Box<dyn Error>> {
        let mut hasher = DefaultHasher::new();
        std::fs::read(source.join(path))?.hash(&mut hasher);
        Ok(hasher.finish())
    };
    let of: HashMap<String, u64> = mutated
        .iter()
        .map(|file| Ok((file.path.clone(), hash_of(&file.path)?)))
        .collect::<Result<_, Box<dyn Error>>>()?;
    let mut beside = DefaultHasher::new();
    let is_built = |path: &&str| {
        (path.ends_with(".rs") || path.ends_with("Cargo.toml") || path.ends_with("Cargo.lock"))
            && !path.starts_with(NOT_BUILT)
            && source.join(path).is_file()
    };
    for path in listed(source)?.split('\0').filter(is_built) {
        (path, hash_of(path)?).hash(&mut beside);
    }
    Ok(Sources { of, beside: beside.finish() })
}

/// Takes away what an earlier copy had and this one has not: cargo finds tests by their files.
fn remove_all_but(folder: &Path, known: &BTreeSet<PathBuf>) -> std::io::Result<()> {
    let Ok(found) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in found {
        let path = entry?.path();
        if path.is_dir() {
            remove_all_but(&path, known)?;
        } else if !known.contains(&path) && path.file_stem().is_none_or(|stem| stem != MODULE) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Leaves a file alone that is as it is to be: cargo goes by times.
fn write_changed(path: &Path, content: &[u8]) -> std::io::Result<()> {
    if std::fs::read(path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, content)?;
    let executable = content.starts_with(b"#!");
    if executable {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}
