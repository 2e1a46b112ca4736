//! Where target and host meet: within this process.

pub(crate) type Network = frwr_engine::provider::soft::SoftFabric;
