//! What goes wrong inside a software NIC, for tests: at the places where devices go wrong, and not behind them.

use super::nic::SoftMonitor;
use crate::provider::{CompletionQueue, Failure, PortId, QueuePairId, WorkRequest};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Something that goes wrong inside one port of a software NIC. The port asks it at every place where a device can go wrong; each answer
/// that is not the default one counts as a fault that struck ([`SoftMonitor::struck`]). It lasts until [`Interference::is_over`] or
/// [`SoftMonitor::calm`].
///
/// The port's core calls it, with the port borrowed: it can ask nothing of the device.
pub trait Interference: Send {
    /// The turn of a work request has come. `Some`: it is not executed, fails like this, and its queue pair with it.
    fn fails(&mut self, queue_pair: QueuePairId, request: &WorkRequest) -> Option<Failure> {
        let _ = (queue_pair, request);
        None
    }

    /// What the peer answered stays on the wire in this progress step: messages that it has executed, and has replied to, are read again
    /// if the device sends them again.
    fn holds_answers(&mut self, queue_pair: QueuePairId) -> bool {
        let _ = queue_pair;
        false
    }

    /// A message that has arrived finds no receive, though there is one: its sender tries again.
    fn hides_receives(&mut self, queue_pair: QueuePairId) -> bool {
        let _ = queue_pair;
        false
    }

    /// What completes from this poll on is late: not there until the first poll that is told no. Nor is it said before that a queue pair
    /// takes no more shared receives, which devices say behind its last completion.
    fn holds_completions(&mut self, queue: CompletionQueue) -> bool {
        let _ = queue;
        false
    }

    /// The next completion finds the queue full: it is lost, and all queue pairs of the port fail (IBV_EVENT_CQ_ERR).
    fn overruns(&mut self, queue: CompletionQueue) -> bool {
        let _ = queue;
        false
    }

    /// Nothing crosses the wire in this progress step; steps in which something waits count as retries.
    fn cuts_wire(&mut self, queue_pair: QueuePairId) -> bool {
        let _ = queue_pair;
        false
    }

    /// Commands stay in the port's lane in this poll.
    fn holds_commands(&mut self) -> bool {
        false
    }

    /// It will do nothing more, and is forgotten.
    fn is_over(&self) -> bool;
}

impl core::fmt::Debug for dyn Interference {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Interference")
    }
}

/// What was handed in and no port has taken yet, and what came of it.
#[derive(Debug, Default)]
pub(super) struct Tampering {
    /// There is something to take, or to forget.
    news: AtomicBool,
    waiting: Mutex<Vec<(PortId, Box<dyn Interference>)>>,
    /// How often all that goes wrong was ended.
    calms: AtomicU64,
    struck: AtomicU64,
    violations: Mutex<Vec<String>>,
}

/// Violations kept: the first one says what is wrong.
const VIOLATIONS: usize = 16;

impl SoftMonitor {
    /// From its next poll or post on something goes wrong inside a port.
    pub fn interfere(&self, port: PortId, interference: Box<dyn Interference>) {
        let tampering = self.tampering();
        tampering.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((port, interference));
        tampering.news.store(true, Ordering::Release);
    }

    /// Nothing goes wrong inside any port from its next poll or post on.
    pub fn calm(&self) {
        let tampering = self.tampering();
        tampering.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
        tampering.calms.fetch_add(1, Ordering::AcqRel);
        tampering.news.store(true, Ordering::Release);
    }

    /// How often something went wrong inside the NIC since it was made.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.tampering().struck.load(Ordering::Acquire)
    }

    /// What a program did that no program may do, where [`SoftOptions::watches_buffers`](super::SoftOptions::watches_buffers) is set: the
    /// first few, oldest first.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.tampering().violations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn violated(&self, what: String) {
        let mut violations = self.tampering().violations.lock().unwrap_or_else(PoisonError::into_inner);
        if violations.len() < VIOLATIONS {
            violations.push(what);
        }
    }
}

/// What goes wrong inside one port now.
#[derive(Debug, Default)]
pub(super) struct Interferences {
    active: Vec<Box<dyn Interference>>,
    calms: u64,
}

impl Interferences {
    /// Takes what was handed in, and forgets what is over.
    #[inline]
    pub(super) fn refresh(&mut self, port: PortId, monitor: &SoftMonitor) {
        if self.active.is_empty() && !monitor.tampering().news.load(Ordering::Acquire) {
            return;
        }
        self.take(port, monitor.tampering());
    }

    #[cold]
    fn take(&mut self, port: PortId, tampering: &Tampering) {
        let calms = tampering.calms.load(Ordering::Acquire);
        if calms != self.calms {
            self.calms = calms;
            self.active.clear();
        }
        self.active.retain(|one| !one.is_over());
        let mut waiting = tampering.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.active.extend(waiting.extract_if(.., |(of, _)| *of == port).map(|(_, interference)| interference));
    }

    /// All is well.
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// The first answer that is none of "all is well".
    #[inline]
    pub(super) fn ask<T>(
        &mut self,
        monitor: &SoftMonitor,
        question: impl FnMut(&mut Box<dyn Interference>) -> Option<T>,
    ) -> Option<T> {
        if self.active.is_empty() {
            return None;
        }
        let answer = self.active.iter_mut().find_map(question);
        if answer.is_some() {
            monitor.tampering().struck.fetch_add(1, Ordering::AcqRel);
        }
        answer
    }

    /// Whether something says yes.
    #[inline]
    pub(super) fn any(
        &mut self,
        monitor: &SoftMonitor,
        mut question: impl FnMut(&mut Box<dyn Interference>) -> bool,
    ) -> bool {
        self.ask(monitor, |one| question(one).then_some(())).is_some()
    }
}
