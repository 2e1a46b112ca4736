//! One connection: a state machine that is driven by whoever polls, and never waits.

use super::{
    bytes::Bytes,
    handshake::{Export, Handshake, NbdRefusal},
    replies::{Answer, Replies},
    socket::{End, Place, Socket},
    tasks::{Part, Tasks},
    wakeup::Wakeup,
    wire::{Command, MAX_REPLY_BYTES, REQUEST_BYTES, Request},
};
use frwr_mempool::DeviceMemory;
use rustix::io::Errno;

/// Bytes that are sent or received by one system call at most: several requests of a usual size, and what stays in a second level
/// cache on its way.
const BUFFER_BYTES: usize = 256 << 10;

#[derive(Debug)]
enum State {
    Down,
    Connecting(Socket),
    Negotiating { socket: Socket, handshake: Handshake, to_send: Vec<u8> },
    Open { socket: Socket, replies: Replies, longest: u32 },
}

/// The data of a write that is not in the buffer yet.
#[derive(Clone, Copy, Debug)]
struct Sending {
    buffer: usize,
    left: usize,
}

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(super) enum NoConnection {
    /// No server there, or it went away.
    Unreachable(Errno),
    /// It does not let us.
    Refused(NbdRefusal),
}

/// To one server.
#[derive(Debug)]
pub(super) struct Connection {
    state: State,
    received: Bytes,
    to_send: Bytes,
    sending: Option<Sending>,
    in_flight: usize,
    /// The server wants to go: it gets no more requests.
    leaves: bool,
    /// The kernel had bytes when it was asked last: there may be more.
    heard: bool,
    /// It took bytes when it was asked last: it may take more.
    took: bool,
    /// What a core that sleeps is told of the socket: nothing, what comes, or that it takes bytes as well.
    told: Option<bool>,
}

impl Connection {
    pub(super) fn new() -> Self {
        Self {
            state: State::Down,
            received: Bytes::new(BUFFER_BYTES),
            to_send: Bytes::new(BUFFER_BYTES),
            sending: None,
            in_flight: 0,
            leaves: false,
            heard: false,
            took: false,
            told: None,
        }
    }

    /// Begins to connect.
    pub(super) fn connect(&mut self, place: &Place) -> Result<(), NoConnection> {
        let (socket, connected) = place.connect().map_err(NoConnection::Unreachable)?;
        self.close();
        self.state = if connected { State::negotiating(socket) } else { State::Connecting(socket) };
        Ok(())
    }

    /// Ends it, whatever it does.
    pub(super) fn close(&mut self) {
        self.state = State::Down;
        self.received.clear();
        self.to_send.clear();
        (self.sending, self.in_flight, self.leaves) = (None, 0, false);
        (self.heard, self.took, self.told) = (false, false, None);
    }

    /// Says good bye where nothing is under way.
    pub(super) fn leave(&mut self) {
        if let State::Open { socket, .. } = &self.state
            && self.in_flight == 0
            && self.to_send.is_empty()
        {
            let request = Request { command: Command::Disconnect, flags: 0, cookie: 0, offset: 0, length: 0 };
            // The server sees the end as well if it does not hear this.
            let _ = socket.send(&request.encode());
        }
        self.close();
    }

    /// Goes on with the handshake; the export once it is open.
    pub(super) fn negotiate(&mut self, export: &str) -> Result<Option<Export>, NoConnection> {
        if let State::Connecting(socket) = &self.state {
            if !socket.is_connected().map_err(NoConnection::Unreachable)? {
                return Ok(None);
            }
            if let State::Connecting(socket) = core::mem::replace(&mut self.state, State::Down) {
                self.state = State::negotiating(socket);
            }
        }
        let State::Negotiating { socket, handshake, to_send } = &mut self.state else { return Ok(None) };
        let over = |end| match end {
            End::Given(errno) => NoConnection::Unreachable(errno),
            End::ByServer => NoConnection::Unreachable(Errno::CONNRESET),
            End::Breach(breach) => NoConnection::Refused(breach.into()),
        };
        let count = socket.receive(self.received.space()).map_err(over)?;
        self.received.filled_by(count);
        self.heard = count > 0;
        let found = loop {
            let step = handshake.advance(self.received.filled(), export, to_send);
            let (taken, found) = step.map_err(NoConnection::Refused)?;
            self.received.consume(taken);
            if taken == 0 || found.is_some() {
                break found;
            }
        };
        if !to_send.is_empty() {
            let count = socket.send(to_send).map_err(over)?;
            self.took = count > 0;
            to_send.drain(..count);
        }
        if let Some(export) = &found
            && let State::Negotiating { socket, .. } = core::mem::replace(&mut self.state, State::Down)
        {
            let replies = Replies::new(export.structured);
            self.state = State::Open { socket, replies, longest: export.blocks.maximum };
        }
        Ok(found)
    }

    /// Blocks until there is something to negotiate; false where that takes too long.
    pub(super) fn wait(&self, limit: core::time::Duration) -> Result<bool, Errno> {
        let awaited = self.awaited().filter(|_| !self.is_open());
        awaited.map_or(Ok(true), |(socket, sends)| socket.wait(limit, sends))
    }

    /// Its socket, and whether it waits for that to take bytes, beside what comes.
    fn awaited(&self) -> Option<(&Socket, bool)> {
        match &self.state {
            State::Down => None,
            State::Connecting(socket) => Some((socket, true)),
            State::Negotiating { socket, to_send, .. } => Some((socket, !to_send.is_empty())),
            State::Open { socket, .. } => Some((socket, self.is_sending())),
        }
    }

    /// A core that sleeps is told of whatever it waits for.
    fn is_told(&self) -> bool {
        self.awaited().is_none_or(|(_, sends)| self.told >= Some(sends))
    }

    /// Has whoever waits for `wakeup` told of what it waits for; nothing to do where that is so.
    pub(super) fn tell(&mut self, wakeup: &Wakeup) {
        if !self.is_told() {
            self.tell_just(wakeup);
        }
    }

    /// The same, and of nothing else. Where the kernel does not, it does not rest.
    pub(super) fn tell_just(&mut self, wakeup: &Wakeup) {
        let Some((socket, sends)) = self.awaited().filter(|(_, sends)| self.told != Some(*sends)) else { return };
        let told = if self.told.is_none() { wakeup.add(socket, sends) } else { wakeup.change(socket, sends) };
        if told.is_ok() {
            self.told = Some(sends);
        }
    }

    /// Nothing of it is left for another poll before a core that sleeps is told of its socket.
    pub(super) fn rests(&self) -> bool {
        let may_hear = self.heard && (self.in_flight > 0 || !self.is_open());
        let may_send = self.took && self.awaited().is_some_and(|(_, sends)| sends);
        self.is_told() && !may_hear && !may_send
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    pub(super) const fn is_down(&self) -> bool {
        matches!(self.state, State::Down)
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The longest request that the server takes, in bytes; `None` where it takes none now.
    pub(super) const fn takes(&self) -> Option<u32> {
        match self.state {
            State::Open { longest, .. }
                if !self.leaves && self.sending.is_none() && self.to_send.room() >= REQUEST_BYTES =>
            {
                Some(longest)
            }
            _ => None,
        }
    }

    /// The server wants to go.
    pub(super) const fn let_go(&mut self) {
        self.leaves = true;
    }

    /// It wants to, and has answered everything.
    pub(super) const fn is_left(&self) -> bool {
        self.leaves && self.in_flight == 0
    }

    /// Something waits for the socket.
    pub(super) const fn is_sending(&self) -> bool {
        !self.to_send.is_empty() || self.sending.is_some()
    }

    /// Adds a request where [`Self::takes`] said that there is room; a write's data is `part` of the buffers.
    pub(super) fn put(&mut self, request: Request, part: Part, buffers: &DeviceMemory) {
        if !self.to_send.put(&request.encode()) {
            return;
        }
        self.in_flight += 1;
        if request.command == Command::Write {
            self.sending = Some(Sending { buffer: part.buffer, left: part.length as usize });
            self.fill(buffers);
        }
    }

    fn fill(&mut self, buffers: &DeviceMemory) {
        let Some(Sending { buffer, left }) = self.sending else { return };
        let space = self.to_send.space();
        let step = left.min(space.len());
        // The part was checked to lie in them.
        let _ = buffers.read(buffer, &mut space[..step]);
        self.to_send.filled_by(step);
        let left = left - step;
        self.sending = (left > 0).then_some(Sending { buffer: buffer + step, left });
    }

    /// Hands to the kernel what it takes; whether it took something. One system call.
    pub(super) fn send(&mut self, buffers: &DeviceMemory) -> Result<bool, End> {
        let State::Open { socket, .. } = &self.state else { return Ok(false) };
        let count = socket.send(self.to_send.filled())?;
        self.took = count > 0;
        self.to_send.consume(count);
        self.fill(buffers);
        Ok(count > 0)
    }

    /// Takes from the kernel what there is, where there is room for it. One system call.
    pub(super) fn receive(&mut self) -> Result<usize, End> {
        let State::Open { socket, .. } = &self.state else { return Ok(0) };
        if self.received.room() < MAX_REPLY_BYTES {
            return Ok(0);
        }
        let count = socket.receive(self.received.space())?;
        self.received.filled_by(count);
        self.heard = count > 0;
        Ok(count)
    }

    /// The next request that is answered, of what was received.
    pub(super) fn answer(
        &mut self,
        connection: usize,
        tasks: &mut Tasks,
        buffers: &DeviceMemory,
    ) -> Result<Option<Answer>, End> {
        let State::Open { replies, .. } = &mut self.state else { return Ok(None) };
        loop {
            let step = replies.take(self.received.filled(), connection, tasks, buffers);
            let (taken, answer) = step.map_err(End::Breach)?;
            self.received.consume(taken);
            if answer.is_some() {
                self.in_flight = self.in_flight.saturating_sub(1);
                return Ok(answer);
            }
            if taken == 0 {
                return Ok(None);
            }
        }
    }
}

impl State {
    const fn negotiating(socket: Socket) -> Self {
        Self::Negotiating { socket, handshake: Handshake::new(), to_send: Vec::new() }
    }
}
