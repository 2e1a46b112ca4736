//! The two completion queues of a port, and the channel by which they wake a core that sleeps.

use super::sys::{completion_channel::CompletionChannel, completion_queue::CompletionQueue, context::Context};
use crate::provider::{CompletionQueue as Which, PortId};
use std::{io, os::fd::BorrowedFd, sync::Arc};

/// Queues of one port, which both are of its channel if it has one.
pub(super) struct CompletionQueues {
    send: Arc<CompletionQueue>,
    receive: Arc<CompletionQueue>,
    channel: Option<Arc<CompletionChannel>>,
}

impl CompletionQueues {
    /// Queues of at least so many entries, for sends and for receives; without a channel they are only polled.
    pub(super) fn new(
        context: &Arc<Context>,
        port: PortId,
        [send, receive]: [u32; 2],
        has_channel: bool,
    ) -> io::Result<Self> {
        let channel = has_channel.then(|| CompletionChannel::new(context).map(Arc::new)).transpose()?;
        let make = |entries| {
            let made = match &channel {
                None => CompletionQueue::new(context, entries),
                Some(channel) => {
                    let vector = context.completion_vector(port.0);
                    CompletionQueue::with_channel(context, entries, channel, vector)
                }
            };
            made.map(Arc::new)
        };
        Ok(Self { send: make(send)?, receive: make(receive)?, channel })
    }

    /// One of them.
    #[inline(always)]
    pub(super) fn of(&self, which: Which) -> &CompletionQueue {
        match which {
            Which::Send => &self.send,
            Which::Receive => &self.receive,
        }
    }

    /// That of sends and that of receives.
    pub(super) fn both(&self) -> [&Arc<CompletionQueue>; 2] {
        [&self.send, &self.receive]
    }

    /// Their names in asynchronous events.
    pub(super) fn addresses(&self) -> [usize; 2] {
        self.both().map(|queue| queue.address())
    }

    /// Readable when something has completed since they were armed.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(|channel| channel.descriptor())
    }

    /// From now on whatever completes makes the descriptor readable. False where it cannot.
    ///
    /// Events go first: of a queue whose event was not taken yet, libmlx5 asks for the notification that has been given already, and the
    /// device gives none. What completes between both is found by the polls behind this.
    pub(super) fn arm(&self) -> bool {
        let Some(channel) = &self.channel else { return false };
        let queues = [&*self.send, &*self.receive];
        CompletionQueue::take_events(channel, queues) && queues.iter().all(|queue| queue.request_notification().is_ok())
    }
}
