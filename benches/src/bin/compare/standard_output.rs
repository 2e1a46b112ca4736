//! What a run prints, where nobody may be left to read it.

use std::io::{self, ErrorKind, Write as _};

/// Prints a line. A reader that has gone (`| head -1`) wants no more: that is no failure, and no reason to stop measuring.
pub(super) fn line(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("standard output cannot be written ({error}); make room, or send it to another file"))
        }
        _ => Ok(()),
    }
}
