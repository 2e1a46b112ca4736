//! `frwr check`: what this machine offers and what falls short, and what the engine would ask of a device.

mod advice;
mod command_line;
mod machine;
mod rdma;
mod rdma_advice;
mod rdma_report;
mod report;
mod self_test;
mod sizing;

pub use crate::output::Output;
pub(crate) use advice::quota_below;
pub use advice::{Shortcoming, shortcomings};
pub use command_line::{Arguments, explained, run};
pub use machine::{Clock, HugePages, Machine, TimeStampCounter};
pub(crate) use machine::{names, text};
pub(crate) use rdma::library_file;
pub use rdma::{
    DeviceFile, FileAccess, Finding, FindingOutcome, Gid, Mlx5Lists, ProviderLibrary, RdmaDevice, RdmaPort, RdmaSystem,
    SelfTest,
};
pub use report::{machine_json, machine_text};
pub use self_test::self_test;
pub use sizing::{SizingArguments, sizing_output};
