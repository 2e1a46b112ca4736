//! One host on its core: from its first connection to its end, as its plan says.

use super::{
    audit,
    host::Side,
    ledger::{BLOCKS, Kind, Ledger},
    plan::{End, Plan},
    target::Order,
};
use core::time::Duration;
use frwr_engine::provider::{FailureStatus, Port as _};
use frwr_reactor::{Context, Now, Poller, ShutdownHandle, Sleep, Source};
use frwr_support::Random;
use std::sync::mpsc;

/// Keep alive of a host whose core is to stand still: a target rounds it up to whole seconds.
pub(super) const SHORT_KEEP_ALIVE: Duration = Duration::from_secs(1);
/// How long it does: the target notices behind one or two of these, and its own pauses count against nobody.
const STANDSTILL: Duration = Duration::from_secs(4);
/// For any step of a host: thousands of times what it takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests submitted in one poll.
const SUBMITTED_AT_ONCE: usize = 4;

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    /// Until its session ends.
    Before,
    /// Until there is another one than the one of this number.
    Returning(u64),
    Behind,
    /// Reads its blocks, from this one on.
    Reading(u64),
    Stopping,
    /// Control cleans up behind an engine that is no more.
    Cleaning,
    Over,
}

/// What its core has.
pub(super) struct HostCore {
    side: Option<Side>,
    pub(super) ledger: Ledger,
    plan: Plan,
    random: Random,
    stage: Stage,
    since: Duration,
    asleep_until: Duration,
    orders: mpsc::Sender<Order>,
    shutdown: ShutdownHandle,
    /// Sessions that it had.
    pub(super) sessions: u64,
    /// How it came out.
    pub(super) result: Result<(), String>,
}

impl Context for HostCore {
    type Message = ();

    fn message(&mut self, _from: Source, (): (), _now: &Now) {}
}

impl HostCore {
    pub(super) fn new(
        side: Side,
        ledger: Ledger,
        plan: Plan,
        orders: mpsc::Sender<Order>,
        shutdown: ShutdownHandle,
    ) -> Self {
        Self {
            side: Some(side),
            ledger,
            random: Random::new(plan.seed),
            plan,
            stage: Stage::Connecting,
            since: Duration::ZERO,
            asleep_until: Duration::ZERO,
            orders,
            shutdown,
            sessions: 0,
            result: Ok(()),
        }
    }

    fn over(&mut self, result: Result<(), String>) {
        let (side, stage) = (self.side.take(), self.stage);
        let described = side.as_ref().map(Side::describe).unwrap_or_default();
        self.result = result.map_err(|error| format!("{error}; {stage:?} of {:?}; {described}", self.plan));
        self.stage = Stage::Over;
        self.shutdown.request(Duration::ZERO);
    }

    fn enter(&mut self, stage: Stage, now: Duration) {
        (self.stage, self.since) = (stage, now);
    }

    fn step(&mut self, now: Duration) -> u32 {
        if now < self.asleep_until {
            return 0;
        }
        if self.since.is_zero() {
            self.since = now;
        }
        let Some(side) = &mut self.side else { return 0 };
        let is_stopping = self.stage == Stage::Stopping;
        let work = side.poll(now, &mut self.ledger, is_stopping).map(|work| (work, side.sessions().max(self.sessions)));
        let advanced = work.and_then(|(work, sessions)| {
            self.sessions = sessions;
            self.advance(now).map(|()| work)
        });
        if now > self.since + PATIENCE && self.stage != Stage::Over {
            self.over(Err("it never went on".to_owned()));
        }
        if let Some(host) = self.side.as_mut().and_then(|side| side.host.as_mut()) {
            host.flush();
        }
        advanced.unwrap_or_else(|error| {
            self.over(Err(error));
            1
        })
    }

    fn advance(&mut self, now: Duration) -> Result<(), String> {
        let ended = self.ledger.ended;
        let stage = self.stage;
        match stage {
            Stage::Connecting if self.is_ready()? => self.enter(Stage::Before, now),
            Stage::Before if ended >= self.plan.before => self.end(now)?,
            Stage::Returning(session) if self.sessions > session && self.is_ready()? => {
                self.side()?.faults.clear();
                self.plan.behind += ended;
                self.enter(Stage::Behind, now);
            }
            Stage::Behind if ended >= self.plan.behind => self.enter(Stage::Reading(0), now),
            Stage::Before | Stage::Behind | Stage::Returning(_) => self.submit()?,
            Stage::Reading(BLOCKS) if self.ledger.is_empty() => {
                self.nothing_open()?;
                self.shut_down(now)?;
            }
            Stage::Reading(next) => self.read(next)?,
            Stage::Stopping if self.is_stopped()? => {
                self.all_at_rest()?;
                self.over(Ok(()));
            }
            Stage::Cleaning if self.side()?.control.is_idle() => self.over(Ok(())),
            Stage::Connecting | Stage::Stopping | Stage::Cleaning | Stage::Over => {}
        }
        Ok(())
    }

    fn side(&mut self) -> Result<&mut Side, String> {
        self.side.as_mut().ok_or_else(|| "the host is gone".to_owned())
    }

    fn is_ready(&mut self) -> Result<bool, String> {
        Ok(self.side()?.host()?.is_ready())
    }

    fn is_stopped(&mut self) -> Result<bool, String> {
        Ok(self.side()?.host()?.is_stopped())
    }

    /// The session ends now.
    fn end(&mut self, now: Duration) -> Result<(), String> {
        let returning = Stage::Returning(self.sessions);
        match self.plan.end {
            End::ShutDown => return self.shut_down(now),
            End::CoreDied => {
                self.side()?.host = None;
                self.enter(Stage::Cleaning, now);
                return Ok(());
            }
            End::ProcessDied => {
                self.over(Ok(()));
                return Ok(());
            }
            End::TargetDrops => {
                self.orders.send(Order::Drop).map_err(|_| "the target's thread has ended".to_owned())?;
            }
            End::QueuePairFailed => self.fail_a_queue_pair()?,
            End::StoodStill => self.asleep_until = now + STANDSTILL,
        }
        self.enter(returning, now);
        Ok(())
    }

    fn shut_down(&mut self, now: Duration) -> Result<(), String> {
        self.side()?.host()?.shut_down();
        self.enter(Stage::Stopping, now);
        Ok(())
    }

    fn fail_a_queue_pair(&mut self) -> Result<(), String> {
        let side = self.side()?;
        let host = side.host()?;
        // Of I/O: on the admin queue nothing completes before the next keep alive.
        let [_, io] = host.connections();
        match io.and_then(|io| host.engine().queue_pair(io)) {
            Some(queue_pair) => side.faults.fail_from_now(queue_pair, FailureStatus::RetryExceeded),
            // The session ends by itself at this moment, as another host has had the target drop everything.
            None => host.drop_connections(),
        }
        Ok(())
    }

    fn submit(&mut self) -> Result<(), String> {
        for _ in 0..SUBMITTED_AT_ONCE {
            let Some(side) = &mut self.side else { return Ok(()) };
            let Some(pending) = self.ledger.draw(&mut self.random, &self.plan, &side.data) else { return Ok(()) };
            if !side.submit(&mut self.ledger, pending)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn read(&mut self, next: u64) -> Result<(), String> {
        let Some(side) = &mut self.side else { return Ok(()) };
        if next < BLOCKS
            && let Some(pending) = self.ledger.read_of(next, &side.data)
            && side.submit(&mut self.ledger, pending)?
        {
            self.stage = Stage::Reading(next + 1);
        }
        Ok(())
    }

    /// No request is in flight, and nothing but what the host reads for itself is open.
    fn nothing_open(&mut self) -> Result<(), String> {
        let host = self.side()?.host()?;
        let (open, own) = (host.engine().port().remote_bytes_open().unwrap_or(0), host.admin_bytes_open());
        if host.is_ready() && open > own {
            return Err(format!("{open} bytes are open with no request in flight; the host reads {own} for itself"));
        }
        Ok(())
    }

    fn all_at_rest(&mut self) -> Result<(), String> {
        if !self.ledger.is_empty() {
            return Err("the host stopped, and requests have not ended".to_owned());
        }
        let side = self.side()?;
        let monitor = &side.monitor;
        if monitor.crashed() || monitor.stalled_destroys() > 0 || monitor.messages_without_receive() > 0 {
            return Err("the host's device was misused".to_owned());
        }
        audit::at_rest("a host", side.host()?.engine())
    }
}

impl Side {
    /// Whether the host took it.
    fn submit(&mut self, ledger: &mut Ledger, pending: super::ledger::Pending) -> Result<bool, String> {
        let (lba, cookie, segments) = (ledger.lba(&pending), ledger.cookie(), pending.segments(self.data_id));
        let host = self.host()?;
        if host.free_requests() == 0 {
            return Ok(false);
        }
        let taken = match pending.kind {
            Kind::Read => host.read(lba, &segments, cookie),
            Kind::Write => host.write(lba, &segments, cookie),
            Kind::Flush => host.flush_namespace(cookie),
        };
        taken.map_err(|error| format!("{pending:?} was not taken: {error}"))?;
        ledger.submitted(pending);
        Ok(true)
    }
}

/// Polls all of it.
pub(super) struct Drive;

impl Poller<HostCore> for Drive {
    fn poll(&mut self, core: &mut HostCore, now: &Now) -> u32 {
        let work = core.step(now.time());
        if work == 0 {
            std::thread::yield_now();
        }
        work
    }

    fn flushes(&self) -> bool {
        false
    }

    fn sleep_until(&self, _core: &HostCore) -> Sleep {
        Sleep::Busy
    }
}
