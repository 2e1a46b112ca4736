//! `frwr latency`: how fast memory is opened to a peer, used, and closed again. docs/latency.md says what its figures mean.

mod askers;
mod board;
mod breach;
mod client;
mod client_open;
mod client_requests;
mod command_line;
mod cores;
mod counters;
mod desk;
mod doorbells;
mod failure;
mod files;
mod layout;
mod message;
mod operation;
mod pace;
mod parameters;
mod perftest;
mod plan;
mod plot;
mod program;
mod rally;
mod report;
mod run;
mod said;
mod serve;
mod server;
mod silence;
mod sleep;
mod slots;
mod start;
mod summary;
mod sweep;
mod warnings;

pub use command_line::{
    Address, Arguments, ClientArguments, DEFAULT_PORT, DeviceChoice, LatencyConfig, Role, Seconds, Sizes,
};
pub use doorbells::Doorbells;
pub use files::ResultFiles;
pub use operation::Operation;
pub use parameters::{
    ConnectData, DecodeError, Excess, Invalidation, KeyKind, MAX_ALL_CONNECTIONS, MAX_BATCH, MAX_BUFFER_BYTES,
    MAX_CONNECTIONS, MAX_DEPTH, MAX_SEGMENTS, MAX_SEND_BYTES, MAX_SIZE, PROTOCOL_VERSION, Parameters, PeerDoes,
    Quantity, Refusal, SIZE_GRAIN,
};
pub use perftest::{OfPerftest, explained};
pub use program::{LatencyOutcome, run};
pub use report::{LatencyCoreReport, LatencyReport};
pub use run::{measure, measure_both};
pub use said::SaidOfClient;

pub use serve::{LatencyServerReport, serve};
pub use summary::{Scale, Summary};
pub use sweep::LatencySweep;
