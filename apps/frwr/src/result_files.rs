//! Several files of results of one run, each asked for by an option of its own.

use crate::{Error, result_file::ResultFile};
use std::path::Path;

/// Files of results: looked at before the run, so that a wrong path costs none.
pub(crate) struct NamedFiles<'a> {
    files: Vec<(&'static str, &'a Path, ResultFile)>,
}

impl<'a> NamedFiles<'a> {
    /// Opens what was asked for; what is there stays until there is something to write.
    ///
    /// # Errors
    /// One cannot be written, or is another one as well.
    pub(crate) fn open(wanted: impl IntoIterator<Item = (&'static str, Option<&'a Path>)>) -> Result<Self, Error> {
        let mut files: Vec<(&'static str, &Path, ResultFile)> = Vec::new();
        for (flag, path) in wanted {
            let Some(path) = path else { continue };
            let file = ResultFile::open(path).map_err(|source| wrong(flag, path, &source))?;
            if let Some((other, ..)) = files.iter().find(|(.., there)| there.is_same(&file)) {
                let why = format!("names the file that {other} writes: {}; name another one", path.display());
                return Err(Error::usage("combination", format!("{flag} {why}")));
            }
            files.push((flag, path, file));
        }
        Ok(Self { files })
    }

    /// Somebody else writes that one.
    pub(crate) fn leave(&mut self, flag: &str) {
        self.files.retain(|(named, ..)| *named != flag);
    }

    /// Writes the results, each file whether or not another can be written. `text` is asked by the option.
    ///
    /// # Errors
    /// The first that cannot be written, or that there is no text for.
    pub(crate) fn write(self, text: impl Fn(&str) -> Result<String, Error>) -> Result<(), Error> {
        let mut all = Ok(());
        for (flag, path, file) in self.files {
            let written =
                text(flag).and_then(|text| file.replace(text.as_bytes()).map_err(|source| wrong(flag, path, &source)));
            all = all.and(written);
        }
        all
    }
}

fn wrong(flag: &str, path: &Path, source: &std::io::Error) -> Error {
    let text = format!("{flag}: {} cannot be written ({source}); name a file in a writable folder", path.display());
    Error::failed("file", text)
}
