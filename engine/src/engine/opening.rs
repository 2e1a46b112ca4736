//! Opening connections: from the caller's wish to a ready connection with its first MRs.

use super::Engine;
use crate::{
    chain::NO_OWNER,
    connection::{Opening, Phase},
    event::{ConnectionId, DisconnectCause, Event, OpenFailure},
    gather::MemoryId,
    link::{BaseKey, NotAsked, OpenOptions, OpenTarget, ToControl, ToCore},
    memories, mr,
    options::{ConnectionOptions, OnPostError},
    pad::PadFailure,
    provider::{
        CommandError, IncomingId, MAX_PRIVATE_DATA, Port, PostError, PrivateData, QueuePairId, QueueSizes, WorkRequest,
    },
    reach::Reach,
    shared_receives::SharedReceives,
    trace::TracePoint,
};
use frwr_mempool::mutant;
use std::net::SocketAddr;

/// Why opening could not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// All connections of the engine are in use, or have ended and the event that says so was not taken yet.
    #[error("all connections of this engine are in use; raise EngineOptions::connections, or take its events")]
    NoConnection,
    /// The shared receives are granted to others.
    #[error(
        "the connection needs {wanted} receives, {free} shared ones are not granted yet; raise ReceiveQueues::Shared, lower \
         receive_depth or ConnectionOptions::receives, or wait until another connection ends"
    )]
    Receives {
        /// Receives that the connection is to be granted.
        wanted: u32,
        /// Those that nobody was granted.
        free: u32,
    },
    /// Private data is longer than a connection manager message carries.
    #[error(
        "private data has {0} bytes, but a connection manager message carries {MAX_PRIVATE_DATA}; send the rest in a message"
    )]
    PrivateData(usize),
    /// Control has not taken earlier messages yet.
    #[error("control is busy; poll it and try again")]
    WouldBlock,
    /// The engine's Control was dropped.
    #[error("the engine's Control was dropped, so that no connection can open; keep it as long as its engines")]
    NoControl,
}

impl From<NotAsked> for OpenError {
    fn from(reason: NotAsked) -> Self {
        match reason {
            NotAsked::Busy => Self::WouldBlock,
            NotAsked::Gone => Self::NoControl,
        }
    }
}

impl<P: Port> Engine<P> {
    /// Listens at an address; [`Event::Listening`] says whether it worked, connect requests arrive as [`Event::Incoming`].
    /// Engines of one Control may listen at the same one: see `Control::place_connections`.
    ///
    /// # Errors
    /// [`OpenError::WouldBlock`], [`OpenError::NoControl`].
    pub fn listen(&mut self, address: SocketAddr) -> Result<(), OpenError> {
        Ok(self.link.ask(ToControl::Listen { address })?)
    }

    /// Stops listening at an address; connect requests that were not answered yet are rejected, and connections stay. Ends
    /// with [`Event::Listening`] and [`Listening::Stopped`](crate::Listening::Stopped), also where nobody listened. Where other cores go on listening there, requests
    /// that this one was told of still wait for its answer.
    ///
    /// # Errors
    /// [`OpenError::WouldBlock`], [`OpenError::NoControl`].
    pub fn stop_listening(&mut self, address: SocketAddr) -> Result<(), OpenError> {
        Ok(self.link.ask(ToControl::StopListening { address })?)
    }

    /// Connects to an address; ends with [`Event::Connected`] or [`Event::OpenFailed`], or with [`Event::Disconnected`]
    /// when it was given up meanwhile.
    ///
    /// # Errors
    /// [`OpenError`]; nothing is left behind.
    pub fn connect(
        &mut self,
        address: SocketAddr,
        private_data: &[u8],
        options: &ConnectionOptions,
    ) -> Result<ConnectionId, OpenError> {
        self.open(OpenTarget::Address(address), private_data, options)
    }

    /// Accepts a connect request; ends as [`Engine::connect`] does.
    ///
    /// # Errors
    /// [`OpenError`]; the request still waits for an answer.
    pub fn accept(
        &mut self,
        incoming: IncomingId,
        private_data: &[u8],
        options: &ConnectionOptions,
    ) -> Result<ConnectionId, OpenError> {
        self.open(OpenTarget::Incoming(incoming), private_data, options)
    }

    /// Rejects a connect request.
    ///
    /// # Errors
    /// [`OpenError::PrivateData`], [`OpenError::WouldBlock`], [`OpenError::NoControl`].
    pub fn reject(&mut self, incoming: IncomingId, private_data: &[u8]) -> Result<(), OpenError> {
        let private_data = private(private_data)?;
        Ok(self.link.ask(ToControl::Reject { incoming, private_data })?)
    }

    fn open(
        &mut self,
        target: OpenTarget,
        private_data: &[u8],
        options: &ConnectionOptions,
    ) -> Result<ConnectionId, OpenError> {
        let private_data = private(private_data)?;
        let index = self.vacant().ok_or(OpenError::NoConnection)?;
        let granted = self.receives_to_grant(options)?;
        let connection = self.connections[index].key;
        let open = OpenOptions {
            sizes: self.plan.sizes,
            parameters: options.parameters,
            own_domain: self.plan.own_domain,
            shared_receives: self.plan.shares_receives.then_some(self.plan.receive_buffers),
        };
        let accepts = matches!(target, OpenTarget::Incoming(_));
        let message = ToControl::Open { connection, target, options: open, private_data };
        self.link.ask(message)?;
        let entry = &mut self.connections[index];
        entry.begin(options.peer_receives, options.granted_receives, granted, accepts);
        if let Some(shared) = &mut self.shared {
            shared.grant(granted);
        }
        self.chores.unsettle(index);
        Ok(connection)
    }

    /// The vacant slot of which the caller holds the fewest receive buffers: they are missing from the next connection. None of a
    /// connection whose end the caller has not been told of: what it keeps of that by index is not another one's.
    fn vacant(&self) -> Option<usize> {
        let mut fewest = None;
        for (index, connection) in self.connections.iter().enumerate().filter(|(_, entry)| entry.is_free()) {
            let held = if self.shared.is_some() { 0 } else { self.receives.held_of(connection.key.index) };
            if held == 0 {
                return Some(index);
            }
            if fewest.is_none_or(|(least, _)| held < least) {
                fewest = Some((held, index));
            }
        }
        fewest.map(|(_, index)| index)
    }

    /// Shared receives for a new connection; 0 where it has its own.
    fn receives_to_grant(&self, options: &ConnectionOptions) -> Result<u32, OpenError> {
        let Some(shared) = &self.shared else { return Ok(0) };
        let most = self.plan.receive_depth;
        let wanted = if options.receives == 0 { most } else { options.receives.min(most) };
        let free = shared.free();
        if wanted <= free { Ok(wanted) } else { Err(OpenError::Receives { wanted, free }) }
    }

    pub(super) fn control_message(&mut self, message: ToCore) {
        match message {
            ToCore::Listening { address, state } => self.events.push_back(Event::Listening { address, state }),
            ToCore::Incoming { incoming, peer, local, private_data } => {
                self.events.push_back(Event::Incoming { incoming, peer, local, private_data });
            }
            ToCore::SharedReceives { queue, lkey } => {
                if let Some(shared) = &mut self.shared {
                    shared.made(queue, lkey);
                    (0..self.plan.receive_buffers)
                        .for_each(|buffer| shared.post_next(self.receives.post(buffer, lkey)));
                }
                // They are posted before the first queue pair is there to use them.
                self.post_shared_receives();
            }
            ToCore::LastReceive { connection } => self.last_receive_reached(connection),
            ToCore::QueuePairCreated { connection, queue_pair, sizes } => {
                self.queue_pair_created(connection, queue_pair, sizes);
            }
            ToCore::Memory { connection, memory, made } => self.memory_registered(connection, memory, made),
            ToCore::MemoryRemoved { memory } => {
                if self.memories.removed(memory) {
                    self.events.push_back(Event::MemoryRemoved { memory });
                }
            }
            ToCore::Established { connection, private_data } => self.established(connection, private_data),
            ToCore::OpenFailed { connection, reason, private_data } => {
                self.open_failed(connection, reason, private_data);
            }
            ToCore::Allocated { connection, descriptor, object } => self.allocated(connection, descriptor, object),
            ToCore::NotFreed { descriptor, error } => self.object_not_destroyed(descriptor, error),
            ToCore::Ended { connection, by_device } => self.ended(connection, by_device),
            ToCore::Failed { connection, refused } => self.queue_pair_failed(connection, refused),
            ToCore::QueuePairKept { connection } => self.queue_pair_kept(connection),
            ToCore::Closed { connection } => self.closed(connection),
        }
    }

    fn queue_pair_created(&mut self, connection: ConnectionId, queue_pair: QueuePairId, sizes: QueueSizes) {
        let Some(index) = self.index_of(connection) else { return };
        let entry = &mut self.connections[index];
        // The device may grant more than was asked for; the completion queues were sized for what was asked.
        let entries = sizes.send.min(self.plan.sizes.send);
        // S4: the queue is taken for longer than it is.
        let entries = if mutant!(S4_granted) { entries + entries / 2 } else { entries };
        entry.sending.open(entries, self.plan.signaller(&self.options, entries));
        if let Some(shared) = &mut self.shared {
            entry.receive_queue.open_shared();
            shared.opened(queue_pair, connection.index);
        } else {
            let lkey = entry.message_lkey;
            if !mutant!(held_over_forgotten) {
                self.receives.hold_over(connection.index);
            }
            for buffer in self.receives.of(connection.index) {
                if self.receives.is_idle(buffer) {
                    entry.receive_queue.post_next(self.receives.post(buffer, lkey));
                }
            }
        }
        let doomed = entry.queue_pair_made(queue_pair);
        self.post_receives(index);
        let entry = &mut self.connections[index];
        let posted = entry.receive_queue.count();
        let all = if self.shared.is_some() { entry.receive_queue.shared() } else { self.plan.receive_depth };
        entry.credits.part(posted, self.plan.reply_receives, all);
        if doomed {
            self.fail(index, DisconnectCause::Local);
        }
        self.tell_control_of_receives(index);
    }

    /// A memory is registered in the connection's domain: in front of its queue pair, or later where it was declared later.
    #[cold]
    fn memory_registered(&mut self, connection: ConnectionId, memory: MemoryId, made: Result<BaseKey, CommandError>) {
        let Some(index) = self.index_of(connection) else { return };
        let Some(declared) = self.memories.get(memory) else { return };
        let entry = &mut self.connections[index];
        if let Ok(key) = made {
            let reach = Reach::of(memory, declared, key, self.gather.anywhere());
            entry.reaches(memory, reach, (memory == memories::OWN).then_some(key.lkey));
        }
        if entry.is_ready() {
            self.events.push_back(Event::MemoryRegistered { connection, memory, result: made.map(drop) });
        }
    }

    /// Has Control go on to the connection manager; tried again by the next poll where its lane is full, or where shared receives
    /// that the device refused are not posted yet: the peer may use its grant at once.
    pub(super) fn tell_control_of_receives(&mut self, index: usize) -> bool {
        let entry = &mut self.connections[index];
        if !entry.is_to_be_handed_on() {
            return false;
        }
        if self.shared.as_ref().is_some_and(SharedReceives::is_short) {
            return false;
        }
        let told = self.link.tell(ToControl::ReceivesPosted { connection: entry.key });
        entry.handed_on(told);
        told
    }

    fn established(&mut self, connection: ConnectionId, private_data: PrivateData) {
        let Some(index) = self.index_of(connection) else { return };
        if self.connections[index].establish(private_data) {
            self.refill(index, self.plan.first_fill);
            self.filled(index);
        }
    }

    fn open_failed(&mut self, connection: ConnectionId, reason: OpenFailure, private_data: PrivateData) {
        let Some(index) = self.index_of(connection) else { return };
        self.forget_received(index);
        self.vacate(index);
        self.events.push_back(Event::OpenFailed { connection, reason, private_data });
    }

    /// The first fill ends when every object was made or refused; a device that made fewer serves fewer requests at
    /// once (S22).
    pub(super) fn filled(&mut self, index: usize) {
        let entry = &mut self.connections[index];
        let Phase::Opening(Opening::Filling { private_data }) = entry.phase() else { return };
        if entry.objects.are_awaited() {
            return;
        }
        let (connection, private_data) = (entry.key, private_data.clone());
        let (created, receives) = (entry.idle.len(), entry.credits.granted());
        entry.become_ready();
        self.chores.settle(index);
        self.counters.connected();
        self.record(TracePoint::MrsCreated, connection.index, None, created);
        if self.options.write_pad {
            self.make_pad(index);
        }
        self.events.push_back(Event::Connected { connection, private_data, receives });
    }

    /// The write pad: one MR for four bytes that all requests of the connection share, registered alone and never
    /// invalidated (S90 to S92). Remembered only if the device took it (S93, F8). Without one the upper layer falls back on
    /// memory of the request.
    fn make_pad(&mut self, index: usize) {
        match self.try_pad(index) {
            Ok(descriptor) => {
                self.connections[index].set_pad(descriptor);
                // Whoever asks may tell the peer from here on ([`Engine::write_pad`]).
                self.record_pad(descriptor);
            }
            Err(failure) => {
                self.counters.pad_failed(failure);
                self.record(TracePoint::PadFailed(failure), index as u16, None, PAD_BYTES);
            }
        }
    }

    /// Opens its key and posts that. Returns its descriptor.
    fn try_pad(&mut self, index: usize) -> Result<u32, PadFailure> {
        let connection = self.connections[index].key;
        let own = self.connections[index].reach.first().filter(|own| own.bytes > 0).ok_or(PadFailure::NoMemory)?;
        let (base, lkey) = (own.base, own.lkey);
        let descriptor = self.connections[index].idle.pop().ok_or(PadFailure::NoMr)?;
        let address = self.messages.address() + self.plan.pad_offset(connection.index) as u64;
        let element = crate::provider::ScatterElement { address, length: PAD_BYTES, lkey };
        let opening = mr::Opening {
            owner: NO_OWNER,
            bytes: PAD_BYTES,
            base,
            elements: 1,
            access: crate::provider::Access::RemoteWrite,
            iova: self.iova.apply(address, 0),
            key_mask: self.making.key_mask,
        };
        let mr = self.pool.get_mut(descriptor).ok_or(PadFailure::NoMr)?;
        let mut registration = WorkRequest::VACANT;
        let opened = mr.open_as_pad(connection, &opening, &mut registration);
        if opened.is_err() {
            debug_assert!(false, "an idle MR becomes a pad: {opened:?}");
            self.quarantine(index, descriptor);
            return Err(PadFailure::NoMr);
        }
        if let Some(place) = self.elements.of_mr(descriptor) {
            *place = element;
        }
        // Its entry is one of those that no request can reserve.
        registration.signalled = self.connections[index].sending.count_pad();
        let posted = self.post_pad(index, registration);
        posted.map(|()| descriptor).map_err(|error| {
            self.pad_refused(index, descriptor, error);
            PadFailure::PostRefused(error)
        })
    }

    /// Its MR is destroyed: a pad is not given back (I26).
    fn pad_refused(&mut self, index: usize, descriptor: u32, error: PostError) {
        // F8: a pad is remembered that the device refused.
        if mutant!(F8_pad) {
            self.connections[index].set_pad(descriptor);
        }
        if let Some(mr) = self.pool.get_mut(descriptor) {
            // Its key never reached the device, and is not counted among those that died with their object.
            let _ = mr.register_refused();
        }
        if self.options.on_post_error == OnPostError::Disconnect {
            self.fail(index, DisconnectCause::PostRefused(error));
        } else {
            self.quarantine(index, descriptor);
        }
    }

    /// Takes a vacated connection's slot out of service and gives it a new name (I24).
    pub(super) fn vacate(&mut self, index: usize) {
        let entry = &mut self.connections[index];
        entry.vacate();
        self.chores.settle(index);
        if let Some(shared) = &mut self.shared {
            let lost = entry.receive_queue.close_shared();
            let held = self.receives.taker_ended(index as u16);
            shared.closed(entry.queue_pair, index as u16, entry.receive_queue.shared(), held, lost);
        }
    }
}

/// Bytes of the write pad: one XDR unit (S90).
const PAD_BYTES: u32 = 4;

fn private(bytes: &[u8]) -> Result<PrivateData, OpenError> {
    PrivateData::try_from(bytes).map_err(|_| OpenError::PrivateData(bytes.len()))
}
