//! The file of `frwr serve --config`.

use clap::Parser as _;
use frwr::runner::{ServeArguments, ServeConfig};
use frwr::{CommandLine, Task};
use std::io::{Seek as _, SeekFrom, Write as _};
use tempfile::NamedTempFile;

/// The file, and the command line that names it: made once, because both take longer than reading.
struct Written {
    file: NamedTempFile,
    arguments: ServeArguments,
}

thread_local! {
    static WRITTEN: std::cell::RefCell<Written> = std::cell::RefCell::new(Written::new());
}

impl Written {
    fn new() -> Self {
        let file = NamedTempFile::new().expect("a temporary file");
        let path = file.path().to_str().expect("a path that is text");
        let line = CommandLine::try_parse_from(["frwr", "serve", "--config", path]).expect("a command line");
        let Some(Task::Serve(arguments)) = line.task else { unreachable!("it says serve") };
        Self { file, arguments }
    }

    fn read(&mut self, bytes: &[u8]) -> Result<ServeConfig, String> {
        let file = self.file.as_file_mut();
        file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).expect("a file of ours");
        file.write_all(bytes).expect("a file of ours");
        ServeConfig::new(self.arguments.clone()).map_err(|error| error.to_string())
    }
}

/// A file of any bytes: understood, or refused in one line.
pub(crate) fn serve_config(bytes: &[u8]) {
    match WRITTEN.with_borrow_mut(|written| written.read(bytes)) {
        Ok(config) => assert!(config.describe().is_object() && !config.subsystems.is_empty()),
        Err(error) => assert!(!error.is_empty() && !error.contains('\n'), "one line: {error:?}"),
    }
}
