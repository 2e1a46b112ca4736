//! The file of a target that serves, read again where a signal asks for that.

use super::super::config_file::text_of;
use crate::{Error, control::Failure};
use serde_json::Value;
use std::{fs, path::Path};

/// What was asked for.
#[derive(Debug, Default)]
pub(super) struct Reload {
    wanted: bool,
    /// That there is no file was said.
    said: bool,
}

impl Reload {
    /// Somebody asked.
    pub(super) fn ask(&mut self) {
        self.wanted = true;
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// It is done now, if there is a file.
    ///
    /// # Errors
    /// What is to be said instead.
    pub(super) fn begin(&mut self, has_file: bool) -> Result<(), Option<String>> {
        self.wanted = false;
        if has_file {
            return Ok(());
        }
        let is_news = !std::mem::replace(&mut self.said, true);
        let text =
            "there is no file to read again: serve was started without --config; `frwr ctl apply FILE` applies one";
        Err(is_news.then(|| text.to_owned()))
    }
}

/// How it ended.
pub(super) fn told(result: Result<Value, Failure>) -> String {
    match result {
        Err(failure) => format!("warning: the file was to be read again: {}", failure.message),
        Ok(answer) if answer["complete"] == false => {
            format!("the file is applied, and some of it goes on: held up by {}", answer["held_up_by"])
        }
        Ok(_) => "the target is as the file says".to_owned(),
    }
}

/// What is in it by now, on a thread that a file system may keep waiting; nobody waits for who would write to a pipe.
///
/// # Errors
/// It cannot be read, or is no file.
pub(super) fn text_again(path: &Path) -> Result<String, Error> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let text = format!("--config: {path:?} is no regular file, and what came from it is not there again");
        return Err(Error::failed("config_file", text));
    }
    text_of("--config", path)
}
