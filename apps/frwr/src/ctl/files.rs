//! Files of a running target: what it is, and what it is to be. The process that types is the one that reads and writes them.

use super::Client;
use crate::Error;
use serde_json::{Map, Value, json};
use std::{
    fs::{self, Permissions},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

/// What new files may be, as far as the umask lets them.
const MODE: u32 = 0o666;

/// Writes what the target is by now.
pub(super) fn save(client: &mut Client, path: &Path) -> Result<Value, Error> {
    let answer = client.call("save", Map::new())?;
    // What an embedder of another kind may answer.
    let text = answer.as_str().ok_or_else(|| Error::failed("save", "the answer is no text"))?;
    write(path, text).map_err(|error| {
        let remedy = "name a file in a folder that you may write to, or leave it out to have it on standard output";
        Error::failed("save", format!("save: {path:?} cannot be written ({error}); {remedy}"))
    })?;
    Ok(json!({ "saved": path.display().to_string() }))
}

/// All of it or nothing: who reads the file meanwhile finds the former one or this one.
fn write(path: &Path, text: &str) -> io::Result<()> {
    // Where a link leads to.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().permissions(Permissions::from_mode(MODE)).tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(&path).map(drop).map_err(|error| error.error)
}

/// Makes the target what a file says; `say` is told what that changes before it does.
pub(super) fn apply(
    client: &mut Client,
    path: &Path,
    text: String,
    dry_run: bool,
    say: &mut dyn FnMut(&str),
) -> Result<Value, Error> {
    let parameters = |dry_run: bool| {
        let mut all = Map::new();
        all.insert("config".to_owned(), text.as_str().into());
        all.insert("name".to_owned(), path.display().to_string().into());
        all.insert("dry_run".to_owned(), dry_run.into());
        all
    };
    client.wait_for_changes(1)?;
    let shown = client.call("apply", parameters(true))?;
    if dry_run {
        return Ok(shown);
    }
    let lines: Vec<_> = shown["changes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    lines.iter().for_each(|line| say(line));
    // Each change has its own time. There are far fewer than 2^32.
    client.wait_for_changes(lines.len() as u32 + 1)?;
    client.call("apply", parameters(false))
}
