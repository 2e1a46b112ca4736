//! The main thread while the cores work: Control, signals, the trace, a line per second.

use super::{cores::Core, error::RunError, progress::Progress, trace::Trace};
use crate::job::Phase;
use core::{convert::Infallible, time::Duration};
use frwr_engine::{
    control::Control,
    provider::{
        Device,
        soft::{SoftDevice, SoftPort},
    },
};
use frwr_reactor::{Clock, Running};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// How long the cores may drain at the end: the host's own steps take at most as long.
const GRACE: Duration = Duration::from_secs(10);
/// Pause when Control has nothing to do. The main thread shares the machine with the pinned cores.
const PAUSE: Duration = Duration::from_micros(200);
/// Between two lines of progress.
const LINE_PERIOD: Duration = Duration::from_secs(1);

/// The reactors' threads.
pub(super) type Threads<H> = Running<Infallible, Core<SoftPort, <H as Device>::Port>>;

/// What the main thread serves.
pub(super) struct MainLoop<'a, H: Device> {
    pub(super) target_control: &'a mut Control<SoftDevice>,
    pub(super) host_control: &'a mut Control<H>,
    pub(super) threads: &'a Threads<H>,
    pub(super) progress: &'a Progress,
    pub(super) trace: Option<&'a mut Trace>,
    pub(super) block_bytes: u32,
}

impl<H: Device> MainLoop<'_, H>
where
    H::Port: Send + 'static,
{
    /// Serves until all reactors have ended.
    pub(super) fn drive(mut self, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<(), RunError> {
        let clock = Clock::system();
        let began = clock.now();
        let (mut next_line, mut said) = (LINE_PERIOD, 0);
        let mut asked = false;
        while !self.threads.is_finished() {
            let work = self.serve()?;
            if stop.load(Relaxed) {
                self.progress.stop();
            }
            if self.progress.is_finished() && !asked {
                asked = true;
                self.threads.shutdown_handle().request(GRACE);
            }
            let elapsed = clock.now().saturating_sub(began);
            if elapsed >= next_line {
                let requests = self.progress.requests();
                say(&self.line(elapsed, requests - said));
                (next_line, said) = (next_line + LINE_PERIOD, requests);
            }
            if work == 0 {
                pause();
            }
        }
        Ok(())
    }

    /// Returns the work done.
    fn serve(&mut self) -> Result<u32, RunError> {
        let work = self.target_control.poll() + self.host_control.poll();
        match &mut self.trace {
            // A drain is bounded far below 2^32 records.
            Some(trace) => Ok(work + trace.drain()? as u32),
            None => Ok(work),
        }
    }

    fn line(&self, elapsed: Duration, requests: u64) -> String {
        let busy: Vec<_> =
            self.threads.statistics().iter().map(|core| format!("{:.0}%", 100.0 * core.busy_share())).collect();
        format!(
            "{:>4} s  {:<13} {:>9} IOPS {:>9.1} MiB/s  busy {}",
            elapsed.as_secs(),
            phase_name(self.progress.phase()),
            requests,
            requests as f64 * f64::from(self.block_bytes) / f64::from(1 << 20),
            busy.join(" ")
        )
    }
}

/// The main thread is no reactor: it makes room for them.
#[allow(clippy::disallowed_methods, reason = "the one thread of this program that may sleep")]
fn pause() {
    std::thread::sleep(PAUSE);
}

fn phase_name(phase: u8) -> &'static str {
    const NAMES: [(Phase, &str); 7] = [
        (Phase::Write, "writing"),
        (Phase::Flush, "flushing"),
        (Phase::Read, "reading back"),
        (Phase::Digest, "hashing"),
        (Phase::Load, "mixed load"),
        (Phase::Drain, "draining"),
        (Phase::Done, "done"),
    ];
    NAMES.iter().find(|(known, _)| *known as u8 == phase).map_or("", |(_, name)| name)
}
