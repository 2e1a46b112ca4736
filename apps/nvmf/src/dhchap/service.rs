//! Who has the keys, and does what takes milliseconds on a thread of its own: cores hand messages over, and look for what came of them.

use super::controller_side::ControllerSide;
use super::host_side::HostSide;
use super::random::SystemRandom;
use super::sides::{HostKeys, Permitted};
use crate::authentication::{AuthenticationFailure, Authenticator, Demand, Exchange, Parties, Turn, Verdict};
use crate::wire::Nqn;
use core::task::Waker;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::{io, thread};

/// Keys by the name of their host, and whether hosts without one are let in.
#[derive(Debug, Default)]
struct Keys {
    hosts: BTreeMap<String, HostKeys>,
    required: bool,
}

/// The keys of hosts, which may be replaced at any time, and the thread that proves by them. What was proven stays proven: keys are
/// looked at when a host connects, and when it proves itself.
#[derive(Debug)]
pub struct DhChap {
    keys: Arc<Mutex<Keys>>,
    jobs: Sender<Job>,
}

impl DhChap {
    /// Without keys. Its thread ends when it and all exchanges are gone.
    ///
    /// # Errors
    /// The process can have no other thread.
    pub fn new(permitted: Permitted) -> io::Result<Self> {
        let ((jobs, queue), keys) = (channel(), Arc::default());
        let shared = Arc::clone(&keys);
        thread::Builder::new().name("frwr-dhchap".to_owned()).spawn(move || serve(&queue, &shared, &permitted))?;
        Ok(Self { keys, jobs })
    }

    /// Sets the keys of a host, or takes them. Its sessions go on; it needs the new ones the next time that it proves itself.
    pub fn set(&self, host: &Nqn, keys: Option<HostKeys>) {
        let hosts = &mut locked(&self.keys).hosts;
        match keys {
            Some(keys) => hosts.insert(host.as_str().to_owned(), keys),
            None => hosts.remove(host.as_str()),
        };
    }

    /// Whether hosts without a key are refused.
    pub fn require(&self, required: bool) {
        locked(&self.keys).required = required;
    }

    fn exchange(&self, machine: Machine) -> Box<dyn Exchange> {
        Box::new(Queued { machine: Some(machine), jobs: self.jobs.clone(), result: Arc::default() })
    }

    /// What the keys say now, unless somebody else changes them at this moment.
    fn look<T>(&self, look: impl FnOnce(&Keys) -> T) -> Option<T> {
        match self.keys.try_lock() {
            Ok(keys) => Some(look(&keys)),
            Err(TryLockError::Poisoned(keys)) => Some(look(&keys.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Authenticator for DhChap {
    fn demand(&self, host: Option<&Nqn>, _: &Nqn) -> Option<Demand> {
        self.look(|keys| match host {
            Some(host) if keys.hosts.contains_key(host.as_str()) => Demand::Proof,
            _ if keys.required => Demand::Unknown,
            _ => Demand::None,
        })
    }

    fn insists(&self, host: &Nqn) -> Option<bool> {
        self.look(|keys| keys.hosts.get(host.as_str()).is_some_and(|keys| keys.controller.is_some()))
    }

    fn controller_side(&self, parties: Parties) -> Box<dyn Exchange> {
        self.exchange(Machine::Controller(parties.host, ControllerSide::new(parties)))
    }

    fn host_side(&self, parties: Parties) -> Box<dyn Exchange> {
        self.exchange(Machine::Host(parties.host, HostSide::new(parties)))
    }
}

/// Nobody panics with the keys in hand; if somebody did, they would be whole all the same.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A side, and the host that it is of or about.
#[derive(Debug)]
enum Machine {
    Controller(Nqn, ControllerSide),
    Host(Nqn, HostSide),
}

/// A message to be judged.
#[derive(Debug)]
struct Job {
    machine: Machine,
    message: Vec<u8>,
    result: Arc<Mutex<Option<(Machine, Turn)>>>,
    waker: Option<Waker>,
}

/// What the thread does.
fn serve(jobs: &Receiver<Job>, keys: &Mutex<Keys>, permitted: &Permitted) {
    for Job { mut machine, message, result, waker } in jobs {
        // Whoever waited for it is gone.
        if Arc::strong_count(&result) == 1 {
            continue;
        }
        let (Machine::Controller(host, _) | Machine::Host(host, _)) = &machine;
        let of_host = locked(keys).hosts.get(host.as_str()).cloned();
        let turn = match &mut machine {
            Machine::Controller(_, side) => side.take(&message, of_host.as_ref(), permitted, &mut SystemRandom),
            Machine::Host(_, side) => side.take(&message, of_host.as_ref(), permitted, &mut SystemRandom),
        };
        *locked(&result) = Some((machine, turn));
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// An exchange whose messages the thread judges.
#[derive(Debug)]
struct Queued {
    /// `None` while the thread has it.
    machine: Option<Machine>,
    jobs: Sender<Job>,
    result: Arc<Mutex<Option<(Machine, Turn)>>>,
}

impl Exchange for Queued {
    fn tell(&mut self, message: &[u8], waker: Option<&Waker>) {
        let Some(machine) = self.machine.take() else { return };
        let (message, result, waker) = (message.to_vec(), Arc::clone(&self.result), waker.cloned());
        // The thread lives as long as there is a sender.
        let sent = self.jobs.send(Job { machine, message, result, waker });
        if let Err(unsent) = sent {
            let turn = Turn { say: None, verdict: Verdict::Failed(AuthenticationFailure::Late) };
            *locked(&self.result) = Some((unsent.0.machine, turn));
        }
    }

    fn poll(&mut self) -> Option<Turn> {
        // Held by the thread for a moment, while it puts the result down.
        let (machine, turn) = match self.result.try_lock() {
            Ok(mut result) => result.take(),
            Err(TryLockError::Poisoned(result)) => result.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        }?;
        self.machine = Some(machine);
        Some(turn)
    }
}
