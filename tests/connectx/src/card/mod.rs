//! The card: queues, work requests, keys, completions.
//!
//! Both ends of each connection are queue pairs of this card. A work request is executed as a whole when its turn comes; where it
//! cannot go on (no receive, nobody at the other end) it is tried again with each step.

mod completion;
pub(crate) mod context;
mod execute;
mod keys;
mod queue_pair;
mod shared_receives;
mod wqe;

use completion::{Completion, CompletionQueue, Syndrome};
use context::{
    AsyncEvent, CompletionQueueContext, MemoryKey, Modification, QueuePairContext, QueuePairState, Refusal,
    SharedReceiveContext,
};
use keys::{Accessor, Keys};
use queue_pair::QueuePair;
use shared_receives::SharedReceives;
use std::collections::{BTreeMap, VecDeque};

/// Numbers of queue pairs begin here: no program takes them for a place in a table.
const FIRST_QUEUE_PAIR: u32 = 0x100;

/// Numbers are given again only after so many: a queue pair's late packets are not another one's.
const QUEUE_PAIRS: u32 = 1 << 24;

/// All of it.
#[derive(Default)]
pub(crate) struct Card {
    completion_queues: BTreeMap<u32, CompletionQueue>,
    shared: BTreeMap<u32, SharedReceives>,
    queue_pairs: BTreeMap<u32, QueuePair>,
    keys: Keys,
    events: VecDeque<AsyncEvent>,
    violations: Vec<String>,
    numbers: u32,
}

impl Card {
    pub(crate) fn new() -> Self {
        Self { numbers: FIRST_QUEUE_PAIR, ..Self::default() }
    }

    /// The next number of anything.
    fn number(&mut self) -> u32 {
        self.numbers = (self.numbers + 1) % QUEUE_PAIRS;
        self.numbers
    }

    pub(crate) fn create_completion_queue(&mut self, context: CompletionQueueContext) -> u32 {
        let number = self.number();
        self.completion_queues.insert(number, CompletionQueue::new(context));
        number
    }

    pub(crate) fn destroy_completion_queue(&mut self, number: u32) -> Result<(), Refusal> {
        match self.completion_queues.get(&number) {
            None => Err(Refusal::Unknown),
            Some(queue) if queue.users > 0 => Err(Refusal::Busy),
            Some(_) => {
                self.completion_queues.remove(&number);
                Ok(())
            }
        }
    }

    pub(crate) fn create_shared_receives(&mut self, context: SharedReceiveContext) -> u32 {
        let number = self.number();
        self.shared.insert(number, SharedReceives::new(context));
        number
    }

    pub(crate) fn destroy_shared_receives(&mut self, number: u32) -> Result<(), Refusal> {
        match self.shared.get(&number) {
            None => Err(Refusal::Unknown),
            Some(queue) if queue.users > 0 => Err(Refusal::Busy),
            Some(_) => {
                self.shared.remove(&number);
                Ok(())
            }
        }
    }

    pub(crate) fn create_queue_pair(&mut self, context: QueuePairContext) -> Result<u32, Refusal> {
        if !context.send_blocks.is_power_of_two()
            || !(context.receive_entries == 0 || context.receive_entries.is_power_of_two())
        {
            return Err(Refusal::Invalid);
        }
        self.count_user(&context, 1)?;
        let number = self.number();
        self.queue_pairs.insert(number, QueuePair::new(context));
        Ok(number)
    }

    /// Counts a queue pair among the users of what it uses.
    fn count_user(&mut self, context: &QueuePairContext, by: i32) -> Result<(), Refusal> {
        for queue in [context.send_completions, context.receive_completions] {
            let queue = self.completion_queues.get_mut(&queue).ok_or(Refusal::Unknown)?;
            queue.users = queue.users.wrapping_add_signed(by);
        }
        if let Some(shared) = context.shared_receives {
            let shared = self.shared.get_mut(&shared).ok_or(Refusal::Unknown)?;
            shared.users = shared.users.wrapping_add_signed(by);
        }
        Ok(())
    }

    pub(crate) fn modify_queue_pair(&mut self, number: u32, change: &Modification) -> Result<(), Refusal> {
        let queue_pair = self.queue_pairs.get_mut(&number).ok_or(Refusal::Unknown)?;
        if let Some(destination) = change.destination {
            queue_pair.destination = destination;
        }
        if let Some(access) = change.remote_access {
            queue_pair.set_access(access);
        }
        if let Some(retries) = change.receiver_not_ready_retries {
            queue_pair.receiver_retries = retries;
        }
        match change.state {
            Some(QueuePairState::Error) => self.fail(number, None),
            Some(state) => {
                queue_pair.state = state;
                if state == QueuePairState::Reset {
                    queue_pair.reset();
                }
            }
            None => {}
        }
        Ok(())
    }

    pub(crate) fn queue_pair_state(&self, number: u32) -> Option<QueuePairState> {
        self.queue_pairs.get(&number).map(|queue_pair| queue_pair.state)
    }

    pub(crate) fn destroy_queue_pair(&mut self, number: u32) -> Result<(), Refusal> {
        let queue_pair = self.queue_pairs.remove(&number).ok_or(Refusal::Unknown)?;
        let _ = self.count_user(&queue_pair.context, -1);
        Ok(())
    }

    /// Makes a key; it has 32 bits with its low byte.
    pub(crate) fn create_key(&mut self, wanted: MemoryKey, low_byte: u8) -> u32 {
        self.keys.create(wanted, low_byte)
    }

    /// Destroys a key, whatever refers to it.
    pub(crate) fn destroy_key(&mut self, key: u32) -> Result<(), Refusal> {
        self.keys.destroy(key)
    }

    pub(crate) fn next_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }

    /// What no card could have understood, since it was asked last.
    pub(crate) fn take_violations(&mut self) -> Vec<String> {
        core::mem::take(&mut self.violations)
    }

    /// One work request of each queue pair at most. Whether anything was done.
    pub(crate) fn step(&mut self) -> bool {
        let numbers: Vec<u32> = self.queue_pairs.keys().copied().collect();
        let mut worked = false;
        for number in numbers {
            worked |= match self.queue_pair_state(number) {
                Some(QueuePairState::ReadyToSend) => self.execute_next(number),
                Some(QueuePairState::Error) => self.flush_one(number),
                _ => false,
            };
        }
        worked
    }

    fn accessor(queue_pair: &QueuePair, number: u32) -> Accessor {
        Accessor { domain: queue_pair.context.domain, queue_pair: number }
    }

    /// Notes what a card would not have understood. It ends the queue pair.
    fn violated(&mut self, number: u32, what: &str) {
        self.violations.push(format!("queue pair {number:#x}: {what}"));
        if let Some(queue_pair) = self.queue_pairs.get_mut(&number) {
            queue_pair.skip_all();
        }
        self.fail(number, Some(AsyncEvent::QueuePairFatal(number)));
    }

    /// Moves a queue pair into the error state.
    fn fail(&mut self, number: u32, event: Option<AsyncEvent>) {
        let Some(queue_pair) = self.queue_pairs.get_mut(&number) else { return };
        if queue_pair.state == QueuePairState::Error {
            return;
        }
        queue_pair.state = QueuePairState::Error;
        self.events.extend(event);
        if queue_pair.context.shared_receives.is_some() {
            // All that it took of the shared ones it has told already.
            self.events.push_back(AsyncEvent::LastReceive(number));
        }
    }

    /// Tells the program of one completion.
    fn complete(&mut self, number: u32, completion: &Completion) {
        let Some(queue_pair) = self.queue_pairs.get(&number) else { return };
        let (user, queue) = match completion {
            Completion::Sent { .. } => (queue_pair.context.user_index, queue_pair.context.send_completions),
            Completion::Received { .. } => (queue_pair.context.user_index, queue_pair.context.receive_completions),
        };
        let told = self.completion_queues.get_mut(&queue).is_some_and(|queue| queue.push(number, user, completion));
        if !told {
            self.violations.push(format!("completion queue {queue:#x}: more completions than it has entries"));
        }
    }

    /// One of what is posted to a queue pair in the error state comes back.
    fn flush_one(&mut self, number: u32) -> bool {
        let Some(queue_pair) = self.queue_pairs.get_mut(&number) else { return false };
        if queue_pair.has_receive() {
            queue_pair.take_receive();
            self.complete(number, &Completion::Received { position: 0, result: Err(Syndrome::Flushed) });
            return true;
        }
        match queue_pair.next_control(number) {
            None => false,
            Some(Ok(control)) => {
                queue_pair.advance(&control);
                let (opcode, position) = (control.opcode, control.position);
                self.complete(
                    number,
                    &Completion::Sent { opcode, position, bytes: 0, failed: Some(Syndrome::Flushed) },
                );
                true
            }
            Some(Err(what)) => {
                self.violated(number, what);
                true
            }
        }
    }
}
