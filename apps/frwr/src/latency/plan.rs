//! What the parameters mean for the engine of each side.

use super::{
    layout::Layout,
    message::{MAX_COMMAND_BYTES, command_bytes},
    parameters::{KeyKind, Parameters},
};
use crate::runner::Depth;
use core::time::Duration;
use frwr_engine::{
    ConnectionOptions, EngineOptions, EngineSizes,
    provider::{Capabilities, ConnectionParameters, Contiguity},
    sizing::Wishes,
};

/// Messages beside replies that the client takes: the server's word that it is ready, and that a sign of life has come. And of the server: what the
/// client has open, signs of life, and its last.
const OTHER_MESSAGES: u32 = 4;
/// How long a connection may drain whose peer is gone.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of the messages that are sent or received.
fn message_bytes(parameters: &Parameters) -> u32 {
    if parameters.operation.is_message_alone() {
        return parameters.size.max(MAX_COMMAND_BYTES as u32);
    }
    // Bounded by MAX_COMMAND_BYTES.
    command_bytes(usize::from(parameters.segments)) as u32
}

/// Receives that either side posts for a connection.
fn receives(parameters: &Parameters) -> u32 {
    if parameters.operation.sends_messages() { parameters.depth + OTHER_MESSAGES } else { OTHER_MESSAGES }
}

/// What sizing is to count with: the bytes of the largest key. An entry of a list may have any length, so that its pieces count there, as
/// a page each.
fn wishes(parameters: &Parameters, capabilities: &Capabilities) -> Wishes {
    let (layout, wishes) = (Layout::new(parameters), Wishes::default());
    let long_lived = parameters.key == KeyKind::Static || parameters.operation.is_transfer();
    let (bytes, pieces) =
        if long_lived { (layout.connection_bytes(), 1) } else { (layout.slot_bytes(), u32::from(layout.segments)) };
    let payload_bytes = match capabilities.contiguity {
        Contiguity::Gaps { page_size: 0 } => pieces.saturating_mul(wishes.page_size),
        _ => u32::try_from(bytes).unwrap_or(u32::MAX),
    };
    wishes.payload_bytes(payload_bytes)
}

/// Requests of a connection of the client at a time.
fn client_requests(parameters: &Parameters) -> u32 {
    let Parameters { operation, depth, batch, .. } = *parameters;
    if operation.makes_keys_alone() {
        return if parameters.registers_by_call() { 1 } else { depth * u32::from(batch) };
    }
    if !operation.sends_messages() {
        return 1;
    }
    // One more for the key for the run.
    depth + u32::from(operation.asks_for_rdma() && !parameters.has_key_per_request())
}

/// Keys of them.
fn client_registrations(parameters: &Parameters, capabilities: &Capabilities) -> u32 {
    if !parameters.has_key_per_request() {
        return if parameters.operation.makes_keys_alone() { client_requests(parameters) } else { 1 };
    }
    // A window covers one piece; of lists pages decide, and pieces are in pages of their own.
    let of_a_request =
        if matches!(capabilities.contiguity, Contiguity::Gaps { .. }) { 1 } else { u32::from(parameters.segments) };
    parameters.depth * of_a_request
}

/// The client's engine, with so many connections.
pub(super) fn client(parameters: &Parameters, connections: u16, capabilities: &Capabilities) -> EngineOptions {
    let Parameters { operation, depth, segments, .. } = *parameters;
    EngineOptions::default()
        .connections(connections)
        .queue_depth(client_requests(parameters))
        .transfer_depth(if operation.is_transfer() { depth } else { 1 })
        .transfer_operations(if operation.is_transfer() { parameters.elements() } else { 1 })
        .receive_depth(receives(parameters))
        .message_bytes(message_bytes(parameters))
        .max_segments(u32::from(segments))
        .opens_keys(parameters.client_opens_keys())
        .registrations(client_registrations(parameters, capabilities))
        .wishes(wishes(parameters, capabilities))
        .drain_timeout(DRAIN_TIMEOUT)
}

/// Requests of a connection of the client, as the device's queues leave them.
pub(super) fn depth(parameters: &Parameters, connections: u16, capabilities: &Capabilities) -> Depth {
    let Parameters { operation, depth, batch, .. } = *parameters;
    let options = client(parameters, connections, capabilities);
    let most = |sizes: &EngineSizes| match () {
        () if parameters.registers_by_call() => depth,
        () if operation.makes_keys_alone() => sizes.registrations / u32::from(batch),
        // Each has as many keys as it was given registrations.
        () if parameters.has_key_per_request() => sizes.registrations / (options.registrations / depth),
        () if operation.is_transfer() => sizes.usable_entries / options.transfer_operations,
        () => depth,
    };
    Depth::of(depth, &options, capabilities, most)
}

/// What the server does for a connection at a time, its replies included.
fn server_transfers(parameters: &Parameters) -> u32 {
    let Parameters { operation, depth, .. } = *parameters;
    match () {
        () if operation.sends_messages() => depth,
        // And one for its messages.
        () if operation.rallies() => depth + 1,
        () => 1,
    }
}

/// The server's engine, with so many connections.
pub(super) fn server(parameters: &Parameters, connections: u16, capabilities: &Capabilities) -> EngineOptions {
    EngineOptions::default()
        .connections(connections)
        // The key that it opens.
        .queue_depth(1)
        .transfer_depth(server_transfers(parameters))
        .receive_depth(receives(parameters))
        .message_bytes(message_bytes(parameters))
        .max_segments(1)
        // Clients that want one are refused where there are none.
        .opens_keys(capabilities.attributes.memory_management_extensions)
        .registrations(1)
        .wishes(wishes(parameters, capabilities))
        .drain_timeout(DRAIN_TIMEOUT)
}

/// Of either side: the other one has posted as many receives.
pub(super) fn connection(parameters: &Parameters, negotiated: ConnectionParameters) -> ConnectionOptions {
    ConnectionOptions::default().peer_receives(receives(parameters)).parameters(negotiated)
}

/// Bytes of the memory that requests are about, on a core with so many connections.
pub(super) fn data_bytes(parameters: &Parameters, connections: u16) -> usize {
    Layout::new(parameters).connection_bytes() * usize::from(connections)
}
