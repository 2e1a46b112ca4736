//! The file of a target that serves, read again where a signal asks for that.

use super::super::config_file::text_of;
use crate::{
    Error,
    control::{Call, Failure},
};
use serde_json::{Map, Value};
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

    /// What is to be called for it, or what is to be said instead.
    pub(super) fn begin(&mut self, file: Option<&Path>) -> Result<Call, Option<String>> {
        self.wanted = false;
        let Some(path) = file else {
            let is_news = !std::mem::replace(&mut self.said, true);
            let text =
                "there is no file to read again: serve was started without --config; `frwr ctl apply FILE` applies one";
            return Err(is_news.then(|| text.to_owned()));
        };
        let text = text_again(path).map_err(|error| Some(format!("{error}; nothing was changed")))?;
        let members = [("config", text), ("name", path.display().to_string())];
        let parameters: Map<_, _> =
            members.map(|(key, value)| (key.to_owned(), Value::String(value))).into_iter().collect();
        Ok(Call { id: None, method: "apply".to_owned(), parameters })
    }
}

/// How it ended.
pub(super) fn told(result: Result<Value, Failure>) -> String {
    match result {
        Err(failure) => format!("warning: the file was read again, and {}", failure.message),
        Ok(answer) if answer["complete"] == false => {
            format!("the file is applied, and some of it goes on: held up by {}", answer["held_up_by"])
        }
        Ok(_) => "the target is as the file says".to_owned(),
    }
}

/// The main thread waits for nobody who would write to a pipe.
fn text_again(path: &Path) -> Result<String, Error> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let text = format!("--config: {path:?} is no regular file, and what came from it is not there again");
        return Err(Error::failed("config_file", text));
    }
    text_of("--config", path)
}
