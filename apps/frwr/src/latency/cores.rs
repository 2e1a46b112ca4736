//! What one core carries: a server, a client, or both.

use super::{client::ClientSide, server::ServerSide};
use frwr_engine::{Statistics, provider::Port};
use frwr_reactor::{Context, Now, Poller, Sleep, Source};

/// The context of a reactor. Cores tell each other nothing but by the board.
pub(super) struct LatencyCore<P: Port> {
    pub(super) server: Option<ServerSide<P>>,
    pub(super) client: Option<ClientSide<P>>,
}

impl<P: Port> LatencyCore<P> {
    /// The figures of its engines.
    pub(super) fn engine(&self) -> Statistics {
        let [server, client] =
            [self.server.as_ref().map(ServerSide::engine), self.client.as_ref().map(ClientSide::engine)];
        server.unwrap_or_default() + client.unwrap_or_default()
    }
}

impl<P: Port> Context for LatencyCore<P> {
    type Message = core::convert::Infallible;

    fn message(&mut self, _: Source, message: Self::Message, _: &Now) {
        match message {}
    }
}

/// Runs a server.
pub(super) struct ServerPoller;

impl<P: Port> Poller<LatencyCore<P>> for ServerPoller {
    fn poll(&mut self, core: &mut LatencyCore<P>, now: &Now) -> u32 {
        let Some(server) = &mut core.server else { return 0 };
        let work = server.poll(now);
        // A client on the same core polls next: what it waits for goes out first. `flush` finds nothing left to do.
        server.flush();
        work
    }

    fn flush(&mut self, core: &mut LatencyCore<P>, _: &Now) {
        if let Some(server) = &mut core.server {
            server.flush();
        }
    }

    fn sleep_until(&self, core: &LatencyCore<P>) -> Sleep {
        core.server.as_ref().map_or(Sleep::Forever, |server| server.sleeps_until().map_or(Sleep::Busy, Sleep::Until))
    }

    fn arm(&mut self, core: &mut LatencyCore<P>) -> bool {
        core.server.as_mut().is_none_or(ServerSide::arm)
    }

    fn begin_shutdown(&mut self, core: &mut LatencyCore<P>, _: &Now) {
        if let Some(server) = &mut core.server {
            server.shut_down();
        }
    }

    fn drained(&self, core: &LatencyCore<P>) -> bool {
        core.server.as_ref().is_none_or(ServerSide::is_drained)
    }
}

/// Runs a client.
pub(super) struct ClientPoller;

impl<P: Port> Poller<LatencyCore<P>> for ClientPoller {
    fn poll(&mut self, core: &mut LatencyCore<P>, now: &Now) -> u32 {
        core.client.as_mut().map_or(0, |client| client.poll(now))
    }

    fn flush(&mut self, core: &mut LatencyCore<P>, _: &Now) {
        if let Some(client) = &mut core.client {
            client.flush();
        }
    }

    fn sleep_until(&self, core: &LatencyCore<P>) -> Sleep {
        core.client.as_ref().map_or(Sleep::Forever, |client| client.sleeps_until().map_or(Sleep::Busy, Sleep::Until))
    }

    fn arm(&mut self, core: &mut LatencyCore<P>) -> bool {
        core.client.as_mut().is_none_or(ClientSide::arm)
    }

    fn begin_shutdown(&mut self, core: &mut LatencyCore<P>, _: &Now) {
        if let Some(client) = &mut core.client {
            client.shut_down();
        }
    }

    fn drained(&self, core: &LatencyCore<P>) -> bool {
        core.client.as_ref().is_none_or(ClientSide::is_drained)
    }
}
