//! A host that asks a discovery service on the main thread: once, or for as long as something runs beside it.

use super::{memory::map, refusals::Refusals, remedy::no_session, served::removed, start::open};
use crate::{Error, options::Pages, signals::Asked};
use core::time::Duration;
use frwr_engine::{
    Engine,
    control::Control,
    provider::{Device, Port},
};
use frwr_mempool::region::Region;
use frwr_nvmf::{
    authentication::Authenticator,
    host::{Discovered, Host, HostFailure, HostOptions},
    wire::Status,
};
use frwr_reactor::Clock;
use std::sync::Arc;

/// Attempts at the first session: a service that is there answers the first or second.
const ATTEMPTS: u64 = 3;
/// Pause between two looks at an idle device; nobody waits for microseconds here.
const PAUSE: Duration = Duration::from_millis(1);
/// Bytes beside what is computed: the alignment of what is carved.
const SLACK: usize = 64 << 10;

/// The host, and what it lives in.
pub(super) struct Inquiry<P: Port> {
    host: Host<P>,
    _memory: Region,
    clock: Clock,
    began: Duration,
}

impl<P: Port> Inquiry<P> {
    /// Begins to connect. Whatever the options say, it has no I/O, and goes on until it is ended: a session that is lost is followed by
    /// another one.
    ///
    /// # Errors
    /// [`Error`].
    pub(super) fn begin<D: Device<Port = P>>(
        control: &mut Control<D>,
        mut options: HostOptions,
        authenticator: Option<Arc<dyn Authenticator>>,
    ) -> Result<Self, Error> {
        let capabilities = *control.device().capabilities();
        let engine_options = options.engine();
        let (port, link) = open(control, &engine_options, &capabilities)?;
        let bytes =
            Engine::<P>::region_bytes(&engine_options, &capabilities).map_err(|error| Error::of_core(0, error))?;
        (options.bounce_buffers, options.max_attempts, options.controller_loss_timeout) = (0, u32::MAX, Duration::ZERO);
        let admin_bytes = options.memory_bytes();
        let mut region =
            map(bytes + admin_bytes + SLACK, Pages::Auto.policy(), None).map_err(|error| Error::of_core(0, error))?;
        let engine = Engine::new(port, link, &mut region, engine_options, &capabilities);
        let engine = engine.map_err(|error| Error::of_core(0, error))?;
        let admin = region.carve(admin_bytes, 4096).map_err(|error| Error::of_core(0, error))?.into_device_memory();
        let mut host = Host::new(engine, admin, options).map_err(|error| Error::of_core(0, error))?;
        if let Some(authenticator) = authenticator {
            host.authenticates(authenticator);
        }
        host.start();
        let clock = Clock::system();
        let began = clock.now();
        Ok(Self { host, _memory: region, clock, began })
    }

    /// What the service lists, when it has been read for the first time. Empty where that was ended early: `asked` may do so. `say` is told
    /// of a queue pair that the device refuses to destroy, which it waits for.
    ///
    /// # Errors
    /// [`Error`]: there is no session after some attempts, or after one that would fail again.
    pub(super) fn first<D: Device<Port = P>>(
        &mut self,
        control: &mut Control<D>,
        asked: &dyn Asked,
        say: &mut dyn FnMut(&str),
    ) -> Result<Vec<Discovered>, Error> {
        let (address, mut gave_up) = (self.host.address(), false);
        self.drive(control, say, |this, elapsed, say| {
            let attempts = this.host.statistics().failures;
            if asked.to_report() {
                say(&format!("{:>4} s  asking {address}, {attempts} attempt(s) failed", elapsed.as_secs()));
            }
            gave_up |= attempts > ATTEMPTS;
            if gave_up || asked.to_stop() {
                this.host.shut_down();
            }
            this.host.is_ready()
        });
        if !gave_up && self.host.failure().is_none() {
            return Ok(self.host.discovered().to_vec());
        }
        if let Some(gone) = removed(control) {
            return Err(gone);
        }
        let failure = self.host.last_failure().unwrap_or(HostFailure::TooManyAttempts);
        Err(no_session(address, self.host.statistics().failures, &failure, "try again later"))
    }

    /// Ends the session in order.
    pub(super) fn end<D: Device<Port = P>>(&mut self, control: &mut Control<D>, say: &mut dyn FnMut(&str)) {
        self.host.shut_down();
        self.drive(control, say, |_, _, _| false);
    }

    /// One iteration, where somebody else polls Control. Returns the work done.
    pub(super) fn poll(&mut self) -> u32 {
        let work = self.host.poll(self.elapsed());
        self.host.flush();
        // Whoever polls next may have slept until then.
        let _ = self.host.poll_at();
        work
    }

    /// Ends the session in order, and begins no other one until it is told to.
    pub(super) fn rest(&mut self) {
        self.host.shut_down();
    }

    /// Begins once more, where it rests.
    pub(super) fn go_on(&mut self) {
        self.host.start();
    }

    /// It was refused for what Connect asked of it, which is a persistent connection where it is nothing else.
    pub(super) fn refuses_to_stay(&self) -> bool {
        let invalid = Status::CONNECT_INVALID_PARAMETERS.code();
        matches!(self.host.last_failure(), Some(HostFailure::Command { status, .. }) if status.code() == invalid)
    }

    pub(super) fn host(&self) -> &Host<P> {
        &self.host
    }

    /// Since it began.
    pub(super) fn elapsed(&self) -> Duration {
        self.clock.now().saturating_sub(self.began)
    }

    /// Until `is_done`, or until all connections are gone behind a failure or the end.
    fn drive<D: Device<Port = P>>(
        &mut self,
        control: &mut Control<D>,
        say: &mut dyn FnMut(&str),
        mut is_done: impl FnMut(&mut Self, Duration, &mut dyn FnMut(&str)) -> bool,
    ) {
        let mut refusals = Refusals::default();
        while !self.host.is_stopped() {
            control.poll();
            let elapsed = self.elapsed();
            refusals.tell(control.statistics().queue_pairs_kept, elapsed, say);
            let work = self.host.poll(elapsed);
            let done = is_done(self, elapsed, say);
            self.host.flush();
            if done {
                return;
            }
            if work == 0 {
                pause();
            }
        }
    }
}

/// Nothing else runs on this thread meanwhile.
#[allow(clippy::disallowed_methods, reason = "a thread that is no reactor")]
fn pause() {
    std::thread::sleep(PAUSE);
}
