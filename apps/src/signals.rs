//! How a program is told to stop: SIGINT and SIGTERM set a flag, which its main thread looks at.

use crate::runner::RunError;
use core::time::Duration;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::{
    io::{self, Read as _},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

/// Exit code where a later signal ended the process: that of shells for SIGINT.
const INTERRUPTED: i32 = 130;
/// Signals within this time are one: timeout(1) sends its own to the process and to its group, and a terminal's Ctrl-C may come once
/// more from a program between.
const ONE_SIGNAL: Duration = Duration::from_secs(1);

/// The flag. Further signals change nothing: for programs that end within a time of their own.
///
/// # Errors
/// [`RunError::Signal`].
pub fn stop() -> Result<Arc<AtomicBool>, RunError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(RunError::Signal)?;
    }
    Ok(stop)
}

/// As [`stop`], and a later signal ends the process at once: for programs that wait for a device without a limit.
///
/// # Errors
/// [`RunError::Signal`].
pub fn stop_or_end() -> Result<Arc<AtomicBool>, RunError> {
    let (stop, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let first = Arc::clone(&ends);
    let registered = || -> io::Result<()> {
        let (mut heard, tell) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&ends))?;
            signal_hook::low_level::pipe::register(signal, tell.try_clone()?)?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        // The main thread may wait for a device, or for the reader of a pipe, and tells nobody how much time has passed.
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            if heard.read_exact(&mut [0]).is_ok() {
                wait();
                first.store(true, Relaxed);
            }
        })?;
        Ok(())
    };
    registered().map_err(RunError::Signal)?;
    Ok(stop)
}

#[allow(clippy::disallowed_methods, reason = "a thread that has nothing else to do")]
fn wait() {
    thread::sleep(ONE_SIGNAL);
}
