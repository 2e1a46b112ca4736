//! The copy of the workspace in which the mutants are.

use crate::files::{File, folder_of};
use crate::mutant::Mutant;
use crate::rewrite::{LeftOut, rewrite};
use crate::switch::{self, MODULE};
use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

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
        let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(source).output()?;
        if !listed.status.success() {
            return Err("git ls-files failed: the mutants are made of what git knows of".into());
        }
        let listed = String::from_utf8(listed.stdout)?;
        let rewritten: BTreeSet<String> = files
            .iter()
            .flat_map(|file| [file.path.clone(), format!("{}/src/lib.rs", folder_of(&file.path))])
            .collect();
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
        let mut mutants: Vec<Mutant> = Vec::new();
        let mut first = 1;
        for file in files {
            let source = std::fs::read_to_string(self.source.join(&file.path))?;
            let on_lines = |line, last_line| wanted(&file.path, line, last_line);
            let rewritten = rewrite(&file.path, &source, first, left_out, &on_lines)
                .map_err(|error| format!("{}: {error}", file.path))?;
            write_changed(&self.root.join(&file.path), rewritten.text.as_bytes())?;
            first = rewritten.next;
            mutants.extend(rewritten.mutants);
        }
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
