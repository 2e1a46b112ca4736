//! What goes wrong while a simulation is in its first phase.

use super::{party::Watch, random::Random, world::World};
use core::time::Duration;
use frwr_apps::nvmf::{AnaState, RESPONSE_CAPSULE_BYTES};
use frwr_engine::provider::{
    AsyncEvent, CommandError, Completion, CompletionQueue, DeviceEvent, FailureStatus, PostRefusal, QueuePairId,
    Success, Token, TokenKind,
    fault::{CommandKind, CompletionFault, CompletionFilter, FaultHandle},
};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A post is accepted up to somewhere (faults 3, 4, 14).
    PartialPost,
    /// A post of receives is refused.
    RefusedReceives,
    /// Completions of a kind are kept back (faults 9, 11).
    Hold,
    /// What is kept back comes.
    Release,
    /// Completions come twice (fault 10).
    Duplicate,
    /// A completion fails, and all later ones of its queue pair are flushed (faults 1, 2, 5 to 8).
    Failed,
    /// A completion of something that was never posted (faults 12, 17).
    Garbage,
    /// A reply says that it invalidated a key that is not the request's (fault 17).
    ForeignKey,
    /// A slow command fails (faults 21, 33).
    Command,
    /// The host drops its connections (fault 31).
    HostKill,
    /// The target drops its connections (fault 31).
    TargetKill,
    /// An asynchronous event out of nowhere (fault 34).
    Event,
    /// A party does nothing for a while (fault 28).
    Stall,
    /// The clock jumps forward (fault 40).
    ClockJump,
    /// The path to the namespace goes or comes back (ANA).
    Path,
}

impl Fault {
    /// All of them.
    pub(super) const ALL: [Self; KINDS] = [
        Self::PartialPost,
        Self::RefusedReceives,
        Self::Hold,
        Self::Release,
        Self::Duplicate,
        Self::Failed,
        Self::Garbage,
        Self::ForeignKey,
        Self::Command,
        Self::HostKill,
        Self::TargetKill,
        Self::Event,
        Self::Stall,
        Self::ClockJump,
        Self::Path,
    ];
}

impl Fault {
    /// It happens by itself, without a script of the device's.
    pub(super) const fn is_direct(self) -> bool {
        let peer = matches!(self, Self::HostKill | Self::TargetKill | Self::Path);
        peer || matches!(self, Self::Stall | Self::ClockJump | Self::Event | Self::Garbage)
    }
}

/// Kinds of faults.
pub(super) const KINDS: usize = 15;

/// Commands that may fail. Where a device refuses to destroy an MR it keeps its key until its domain goes, so that one
/// is left out; listening is not a matter of the datapath.
const COMMANDS: [CommandKind; 9] = [
    CommandKind::AllocateDomain,
    CommandKind::RegisterMemory,
    CommandKind::CreateQueuePair,
    CommandKind::FailQueuePair,
    CommandKind::DestroyQueuePair,
    CommandKind::AllocateRegistration,
    CommandKind::Connect,
    CommandKind::Accept,
    CommandKind::Disconnect,
];

const KEPT: [TokenKind; 4] = [TokenKind::Register, TokenKind::Invalidate, TokenKind::Message, TokenKind::Receive];

/// Makes one fault happen.
pub(super) fn strike(world: &mut World, fault: Fault) {
    let on_host = world.random.below(3) > 0;
    let random = &mut world.random;
    let watch = if on_host { &world.host_watch } else { &world.target_watch };
    match fault {
        Fault::ForeignKey => {
            let success = Success { bytes: RESPONSE_CAPSULE_BYTES as u32, invalidated: Some(random.bits() as u32) };
            let filter = CompletionFilter::kind(TokenKind::Receive);
            world.host_watch.faults.on_completions(filter, CompletionFault::Succeed(success), 1);
        }
        Fault::HostKill => world.host.drop_connections(),
        Fault::TargetKill => world.target.shut_down(),
        Fault::Stall => {
            let party = random.below(4) as usize;
            world.stalled[party] = 1 + random.below(200);
        }
        Fault::Path => {
            let states = [AnaState::Optimized, AnaState::NonOptimized, AnaState::Inaccessible, AnaState::Change];
            let state = random.of(&states);
            world.set_path(state);
        }
        Fault::ClockJump => world.now += Duration::from_micros(1 << random.below(24)),
        _ => on_device(random, watch, fault),
    }
}

fn on_device(random: &mut Random, watch: &Watch, fault: Fault) {
    let faults = &watch.faults;
    match fault {
        Fault::Hold => faults.on_all_completions(CompletionFilter::kind(random.of(&KEPT)), CompletionFault::Hold),
        Fault::Release => faults.release(),
        Fault::Duplicate => {
            faults.on_completions(CompletionFilter::default(), CompletionFault::Duplicate, 1 + random.below(3) as u32);
        }
        Fault::Command => {
            let error = random.of(&[CommandError::EXHAUSTED, CommandError::BUSY, CommandError::INVALID]);
            faults.fail_command(random.of(&COMMANDS), error, 1 + random.below(4) as u32);
        }
        _ => {
            if let Some(queue_pair) = watch.some_queue_pair(random) {
                on_queue_pair(random, watch, faults, queue_pair, fault);
            }
        }
    }
}

fn on_queue_pair(random: &mut Random, watch: &Watch, faults: &FaultHandle, queue_pair: QueuePairId, fault: Fault) {
    match fault {
        Fault::PartialPost => {
            let reason = random.of(&[PostRefusal::QueueFull, PostRefusal::NotReady, PostRefusal::Invalid]);
            faults.refuse_post(queue_pair, random.below(7) as usize, reason);
        }
        Fault::RefusedReceives => {
            let accepted = random.below(3) as usize;
            match watch.shared_receives {
                Some(queue) => faults.refuse_shared_receives(queue, accepted, PostRefusal::QueueFull),
                None => faults.refuse_receives(queue_pair, accepted, PostRefusal::QueueFull),
            }
        }
        Fault::Failed => {
            let statuses = [FailureStatus::Bind, FailureStatus::Flushed, FailureStatus::RemoteAccess];
            faults.fail_from_now(queue_pair, random.of(&statuses));
        }
        Fault::Garbage => {
            let queue = random.of(&[CompletionQueue::Send, CompletionQueue::Receive]);
            faults.inject(watch.port, queue, garbage(random, queue_pair));
        }
        _ => {
            let events = [
                AsyncEvent::QueuePairFatal(queue_pair),
                AsyncEvent::QueuePairAccessError(queue_pair),
                AsyncEvent::LastReceiveReached(queue_pair),
            ];
            let event = random.of(&events);
            // Of a queue pair with shared receives it is the device's word that it took its last one: nothing can tell a lie.
            if watch.shared_receives.is_none() || event != events[2] {
                faults.inject_event(DeviceEvent::Async(event));
            }
        }
    }
}

/// A completion of nothing that was posted.
fn garbage(random: &mut Random, queue_pair: QueuePairId) -> Completion {
    let kinds = [TokenKind::Receive, TokenKind::Register, TokenKind::Invalidate, TokenKind::Message, TokenKind::Drain];
    let queue_pair = if random.one_in(2) { queue_pair } else { QueuePairId(0xDEAD) };
    let token = Token::new(random.of(&kinds), random.below(1 << 28) as u32, 0xFFFF_0000);
    let success = Success { bytes: random.bits() as u32, invalidated: Some(random.bits() as u32) };
    let result = if random.one_in(2) { Ok(success) } else { Err(FailureStatus::Flushed.into()) };
    Completion { token, queue_pair, result }
}
