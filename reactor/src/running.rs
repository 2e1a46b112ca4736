//! Reactors that run on their threads.

use core::time::Duration;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::astray::{Astray, look};
use crate::clock::Clock;
use crate::core_set::CpuId;
use crate::cpu::ThreadId;
use crate::inbox::{CoreIndex, ForeignOutbox};
use crate::publish::Published;
use crate::shutdown::{Report, ShutdownHandle};
use crate::stall::Stall;
use crate::statistics::Statistics;
use crate::turn::Turn;

/// A reactor that ended: its context comes back.
#[derive(Debug)]
pub struct Finished<C> {
    /// Which reactor.
    pub core: CoreIndex,
    /// The context. The pollers were dropped on the reactor's thread.
    pub context: C,
    /// Who did not drain, and the final figures.
    pub report: Report,
}

/// What another thread sees of a reactor at a moment: whether it goes on, and where it is.
///
/// One that does not sleep and whose count is the same at two looks more than some ten milliseconds apart has not begun an iteration
/// between: its core stands still, in whosever turn it is. On a [`crate::VirtualClock`] that stands still all do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// Which reactor.
    pub core: CoreIndex,
    /// Its CPU; `None` is unpinned.
    pub cpu: Option<CpuId>,
    /// The number by which the system knows its thread (gettid(2)); 0 for one that has not begun.
    pub thread: i32,
    /// Iterations begun, some ten milliseconds ago at most.
    pub iterations: u64,
    /// Those that found work or messages, as of the same time.
    pub busy_iterations: u64,
    /// Whose turn it is now.
    pub turn: Turn,
    /// A [`Running::probe`] is not answered: no iteration has begun since.
    pub probed: bool,
    /// Its thread has ended.
    pub ended: bool,
}

/// A reactor ended without giving its context back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunningError {
    /// A poller, or the context's message handler, panicked.
    #[error("reactor {core} ({place}) panicked in {what}: {message}", place = place(*cpu), what = poller.unwrap_or("no poller (message handler, or what is dropped at the end)"))]
    Panicked {
        /// Which reactor.
        core: CoreIndex,
        /// Its CPU; `None` is unpinned.
        cpu: Option<CpuId>,
        /// The poller that was running.
        poller: Option<&'static str>,
        /// The text of the panic.
        message: String,
    },
}

fn place(cpu: Option<CpuId>) -> String {
    cpu.map_or_else(|| "unpinned".to_owned(), |cpu| format!("core {cpu}"))
}

/// How a reactor's thread ended.
pub(crate) type Ended<C> = Result<Finished<C>, RunningError>;

/// A reactor's thread; `None` if it was ended before it ran.
pub(crate) type Thread<C> = JoinHandle<Option<Ended<C>>>;

/// A reactor's thread as others see it.
pub(crate) struct ReactorThread {
    /// Where it was pinned.
    pub(crate) cpu: Option<CpuId>,
    pub(crate) thread: ThreadId,
    pub(crate) published: Arc<Published>,
}

/// Reactors that run. Dropping it ends them without grace and waits for their threads.
pub struct Running<M, C> {
    threads: Vec<Thread<C>>,
    members: Vec<ReactorThread>,
    foreign: Vec<ForeignOutbox<M>>,
    shutdown: ShutdownHandle,
    clock: Clock,
}

impl<M, C> Running<M, C> {
    pub(crate) fn new(
        threads: Vec<Thread<C>>,
        members: Vec<ReactorThread>,
        mut foreign: Vec<ForeignOutbox<M>>,
        shutdown: ShutdownHandle,
        clock: Clock,
    ) -> Self {
        // They are taken from the end: number 0 first.
        foreign.reverse();
        Self { threads, members, foreign, shutdown, clock }
    }

    /// The clock that they read: its times compare with those that they tell.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The CPU of each reactor; `None` is unpinned.
    pub fn cpus(&self) -> impl Iterator<Item = Option<CpuId>> + '_ {
        self.members.iter().map(|member| member.cpu)
    }

    /// Reactors that are not kept to their CPU any more, as after a write to the cpuset of their control group; each is pinned again
    /// where the kernel permits it. Two system calls for each reactor: for now and then, from a thread that is none of them.
    #[must_use]
    pub fn astray(&self) -> Vec<Astray> {
        // The number of a thread that has ended may be another one's by now.
        let running = |(thread, _): &(&Thread<C>, _)| !thread.is_finished();
        let members = self.threads.iter().zip(self.members.iter().zip((0..).map(CoreIndex))).filter(running);
        members.filter_map(|(_, (member, core))| look(core, member.thread, member.cpu?)).collect()
    }

    /// What each reactor has published last, at most some ten milliseconds old unless it sleeps. Does not disturb them.
    #[must_use]
    pub fn statistics(&self) -> Vec<Statistics> {
        self.members.iter().map(|member| member.published.read()).collect()
    }

    /// Whether each of them goes on, and whose turn it is: cheap, also where one of them has been stopped in the middle.
    pub fn pulses(&self) -> impl Iterator<Item = Pulse> + '_ {
        let of_members = self.threads.iter().zip(&self.members).zip((0..).map(CoreIndex));
        of_members.map(|((running, member), core)| {
            let &ReactorThread { cpu, thread, ref published } = member;
            let shared = self.shutdown.0.member(core.index());
            let turn = shared.map(|member| member.turn());
            Pulse {
                core,
                cpu,
                thread: thread.get(),
                iterations: published.iterations(),
                busy_iterations: published.busy_iterations(),
                turn: turn.map_or(Turn::Loop, |turn| turn.get(|poller| published.name(poller))),
                probed: shared.is_some_and(|member| member.is_probed()),
                ended: running.is_finished(),
            }
        })
    }

    /// Asks a reactor for a sign: [`Pulse::probed`] holds until it begins an iteration, which sees within itself that nothing else was
    /// asked of it. So whoever looks finds a core that stands still while it does, and an iteration that nobody asks about costs nothing.
    /// One that sleeps is not woken by it.
    pub fn probe(&self, core: CoreIndex) {
        if let Some(member) = self.shutdown.0.member(core.index()) {
            member.probe();
        }
    }

    /// The last iteration of a reactor beyond [`crate::Options::stall_threshold`] that is over; cheap. `None` if there was none.
    #[must_use]
    pub fn last_stall(&self, core: CoreIndex) -> Option<Stall> {
        let published = &self.members.get(core.index())?.published;
        published.stall().read(|poller| published.name(poller))
    }

    /// An outbox for one thread that is no reactor; as many as [`crate::Reactors::foreign`] asked for.
    #[must_use]
    pub fn take_foreign(&mut self) -> Option<ForeignOutbox<M>> {
        self.foreign.pop()
    }

    /// Shuts the reactors down from anywhere.
    #[must_use]
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }

    /// Whether all threads have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all reactors have ended, which somebody has to ask for: see [`Self::shutdown_handle`]. In the order
    /// of the reactors.
    ///
    /// The calling thread does nothing else meanwhile. Where pollers need something of it to drain, go on with that until
    /// [`Self::is_finished`], and call this then.
    #[must_use]
    pub fn join(mut self) -> Vec<Result<Finished<C>, RunningError>> {
        self.join_threads()
    }

    /// Asks all reactors to drain for at most `grace`, and waits for them: [`ShutdownHandle::request`], then [`Self::join`], and not
    /// for a thread that pollers need in order to drain.
    #[must_use]
    pub fn shutdown(self, grace: Duration) -> Vec<Result<Finished<C>, RunningError>> {
        self.shutdown.request(grace);
        self.join()
    }

    /// As [`Self::join`], and does not wait: `None` for a reactor whose thread has not ended. That goes on, or stands still, with
    /// all that it owns, as long as the process does, and nobody will hear of it: for a process that is about to end.
    #[must_use]
    pub fn abandon(mut self) -> Vec<Option<Result<Finished<C>, RunningError>>> {
        let threads = core::mem::take(&mut self.threads).into_iter();
        let ended = |(thread, core): (Thread<C>, CoreIndex)| thread.is_finished().then(|| self.join_one(thread, core));
        threads.zip((0..).map(CoreIndex)).map(ended).collect()
    }

    fn join_threads(&mut self) -> Vec<Result<Finished<C>, RunningError>> {
        let threads = core::mem::take(&mut self.threads).into_iter();
        threads.zip((0..).map(CoreIndex)).map(|(thread, core)| self.join_one(thread, core)).collect()
    }

    fn join_one(&self, thread: Thread<C>, core: CoreIndex) -> Ended<C> {
        let cpu = self.members.get(core.index()).and_then(|member| member.cpu);
        let lost = || RunningError::Panicked { core, cpu, poller: None, message: "its thread ended early".to_owned() };
        thread.join().ok().flatten().unwrap_or_else(|| Err(lost()))
    }
}

impl<M, C> Drop for Running<M, C> {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.shutdown.request(Duration::ZERO);
            drop(self.join_threads());
        }
    }
}

impl<M, C> core::fmt::Debug for Running<M, C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Running").field("reactors", &self.members.len()).finish_non_exhaustive()
    }
}
