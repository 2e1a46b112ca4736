//! How a program is told to stop: SIGINT and SIGTERM set a flag, which its main thread looks at.

use crate::runner::RunError;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::{Arc, atomic::AtomicBool};

/// Exit code where a second signal ended the process: that of shells for SIGINT.
const INTERRUPTED: i32 = 130;

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

/// As [`stop`], and the second signal ends the process at once: for programs that wait for a device without a limit.
///
/// # Errors
/// [`RunError::Signal`].
pub fn stop_or_end() -> Result<Arc<AtomicBool>, RunError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In front of what sets the flag, so that the first signal finds it clear.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop))
            .map_err(RunError::Signal)?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(RunError::Signal)?;
    }
    Ok(stop)
}
