//! What somebody outside asks of a program while it runs, and which signal asks for what: the one place that says so.
//!
//! | signals | what they do |
//! |---|---|
//! | SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGVTALRM, SIGPROF, SIGPWR | the first ends the program in order, with its report; a later one at once, with exit code 128 and its number |
//! | SIGXCPU | as the first of them, however often it comes: the kernel sends it each second |
//! | SIGHUP of `serve` | its file is read again, and what differs is changed |
//! | SIGUSR1, SIGUSR2 | the report of the present state on standard error; the program goes on |
//! | SIGXFSZ, SIGIO, SIGSTKFLT | nothing: a write behind the limit of file sizes fails with EFBIG, which its caller tells of |
//! | SIGPIPE | nothing, by Rust's own start-up: the write fails |
//!
//! Of these, what was ignored when the program was started stays so (nohup's SIGHUP), but for SIGINT and SIGTERM: shells
//! ignore the first for what scripts start in the background, which are to be stopped all the same.

use crate::Error;
use core::{ffi::c_int, time::Duration};
use libc::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGPWR, SIGQUIT, SIGSTKFLT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
    SIGXFSZ,
};
use signal_hook::{flag, low_level::pipe};
use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

/// End the program, the timers of `alarm` and `setitimer` among them, which are inherited by exec. SIGTERM comes last: who sees it
/// caught may send any.
const ENDING: [c_int; 8] = [SIGHUP, SIGINT, SIGQUIT, SIGALRM, SIGVTALRM, SIGPROF, SIGPWR, SIGTERM];
/// Ask for a report.
const REPORTING: [c_int; 2] = [SIGUSR1, SIGUSR2];
/// Would end the program, and shall do nothing.
const HARMLESS: [c_int; 3] = [SIGXFSZ, SIGIO, SIGSTKFLT];
/// Are caught also where they were ignored at the start.
const ALWAYS: [c_int; 2] = [SIGINT, SIGTERM];

/// Of the exit code of a program that a signal ended, as shells tell it.
const EXIT_CODE: c_int = 128;

/// Signals within this time are one: timeout(1) sends its own to the process and to its group, and a terminal's Ctrl-C may come once
/// more from a program between. Shorter than a person's second thought.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

/// What is asked of a program that runs.
pub trait Asked {
    /// It shall end in order.
    fn to_stop(&self) -> bool;

    /// It shall tell how far it is: true once for each time that somebody asks.
    fn to_report(&self) -> bool {
        false
    }

    /// It shall read its file again: true once for each time that somebody asks.
    fn to_reload(&self) -> bool {
        false
    }

    /// What becomes readable when somebody asks for something, to be emptied before it is looked for what that is.
    /// Without, it has to be looked for from time to time.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Asks for nothing but an end, once it is set.
impl Asked for AtomicBool {
    fn to_stop(&self) -> bool {
        self.load(Relaxed)
    }
}

impl<T: Asked + ?Sized> Asked for Arc<T> {
    fn to_stop(&self) -> bool {
        T::to_stop(self)
    }

    fn to_report(&self) -> bool {
        T::to_report(self)
    }

    fn to_reload(&self) -> bool {
        T::to_reload(self)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        T::descriptor(self)
    }
}

/// What signals have asked for.
#[derive(Debug)]
pub struct Signals {
    stop: Arc<AtomicBool>,
    report: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    /// Has a byte for each signal that came since it was emptied.
    told: UnixStream,
}

impl Signals {
    /// Catches them from now on. To be called once, before there are reactors.
    ///
    /// # Errors
    /// The system does not let it.
    pub fn catch() -> Result<Self, Error> {
        Self::catch_all(&[])
    }

    /// The same of a program that reads its file again at SIGHUP.
    ///
    /// # Errors
    /// As [`Signals::catch`].
    pub fn catch_reloading() -> Result<Self, Error> {
        Self::catch_all(&[SIGHUP])
    }

    fn catch_all(reloading: &[c_int]) -> Result<Self, Error> {
        Self::register(reloading).map_err(uncaught)
    }

    fn register(reloading: &[c_int]) -> io::Result<Self> {
        let (told, tell) = UnixStream::pair()?;
        told.set_nonblocking(true)?;
        let signals = Self { stop: Arc::default(), report: Arc::default(), reload: Arc::default(), told };
        signals.register_all(reloading, &tell)?;
        Ok(signals)
    }

    /// `news` is told behind each that asks for something.
    fn register_all(&self, reloading: &[c_int], news: &UnixStream) -> io::Result<()> {
        let ask = |signal, flag: &Arc<AtomicBool>| {
            flag::register(signal, Arc::clone(flag))?;
            pipe::register(signal, news.try_clone()?).map(drop)
        };
        let ignored = Ignored::at_start();
        for signal in ignored.leave(reloading) {
            ask(signal, &self.reload)?;
        }
        catch_nothing(&HARMLESS, &ignored)?;
        for signal in ignored.leave(&REPORTING) {
            ask(signal, &self.report)?;
        }
        for signal in ignored.leave(&[SIGXCPU]) {
            ask(signal, &self.stop)?;
        }
        let (ends, (mut heard, mut tell)) = (Arc::new(AtomicBool::new(false)), UnixStream::pair()?);
        for signal in ignored.leave(&ENDING).filter(|signal| !reloading.contains(signal)) {
            // What comes between these is not lost.
            ask(signal, &self.stop)?;
            flag::register_conditional_shutdown(signal, EXIT_CODE + signal, Arc::clone(&ends))?;
            pipe::register(signal, tell.try_clone()?)?;
        }
        if self.to_stop() {
            tell.write_all(&[0])?;
        }
        // The main thread may wait for a device, or for the reader of a pipe, and tells nobody how much time has passed.
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            if heard.read_exact(&mut [0]).is_ok() {
                wait();
                ends.store(true, Relaxed);
            }
        })?;
        Ok(())
    }
}

impl Asked for Signals {
    fn to_stop(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn to_report(&self) -> bool {
        self.report.load(Relaxed) && self.report.swap(false, Relaxed)
    }

    fn to_reload(&self) -> bool {
        self.reload.load(Relaxed) && self.reload.swap(false, Relaxed)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.told.as_fd())
    }
}

/// For a program that is over soon and has nothing to tell before: those that ask for something else than its end do nothing,
/// and the others end it as they end every program.
///
/// # Errors
/// The system does not let it.
pub fn catch_harmless() -> Result<(), Error> {
    let ignored = Ignored::at_start();
    catch_nothing(&HARMLESS, &ignored).and_then(|()| catch_nothing(&REPORTING, &ignored)).map_err(uncaught)
}

fn uncaught(error: io::Error) -> Error {
    Error::failed("signal", format!("signals cannot be caught: {error}"))
}

/// Nobody looks at the flag.
fn catch_nothing(signals: &[c_int], ignored: &Ignored) -> io::Result<()> {
    ignored.leave(signals).try_for_each(|signal| flag::register(signal, Arc::default()).map(drop))
}

#[allow(clippy::disallowed_methods, reason = "a thread that has nothing else to do")]
fn wait() {
    thread::sleep(ONE_SIGNAL);
}

/// Signals that were ignored when the program was started: a bit each, from 1 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ignored(u64);

impl Ignored {
    /// None where that cannot be read.
    fn at_start() -> Self {
        fs::read_to_string("/proc/self/status").map(|status| Self::of_status(&status)).unwrap_or_default()
    }

    /// By /proc/PID/status, see proc_pid_status(5).
    fn of_status(status: &str) -> Self {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        Self(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default())
    }

    /// Those that may be caught.
    fn leave(self, signals: &[c_int]) -> impl Iterator<Item = c_int> + '_ {
        signals.iter().copied().filter(move |&signal| ALWAYS.contains(&signal) || self.0 >> (signal - 1) & 1 == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{ALWAYS, ENDING, Ignored, REPORTING, SIGHUP, SIGTERM};

    #[test]
    fn what_was_ignored_stays_so_but_for_what_scripts_send() {
        let all: Vec<_> = Ignored::default().leave(&ENDING).collect();
        assert_eq!((all.len(), all.last()), (ENDING.len(), Some(&SIGTERM)), "the last, as tests wait for it");
        let nohup = Ignored::of_status("Name:\tfrwr\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n");
        assert_eq!(nohup, Ignored(0x1001), "SIGHUP, and SIGPIPE by Rust");
        assert!(!nohup.leave(&ENDING).any(|signal| signal == SIGHUP));
        assert_eq!(nohup.leave(&ENDING).count(), ENDING.len() - 1);
        let deaf = Ignored::of_status("SigIgn:\tffffffffffffffff\n");
        assert_eq!(deaf.leave(&ENDING).collect::<Vec<_>>(), ALWAYS);
        assert_eq!(deaf.leave(&REPORTING).count(), 0);
        for unreadable in ["", "SigIgn:", "SigIgn:\tx\n"] {
            assert_eq!(Ignored::of_status(unreadable), Ignored::default());
        }
    }
}
