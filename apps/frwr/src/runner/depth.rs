//! How many requests a device lets be in flight, where its send queues are too short for what was asked for.

use frwr_engine::{EngineOptions, EngineSizes, provider::Capabilities};

/// What a queue depth comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depth {
    /// As it was asked for.
    pub(crate) asked: u32,
    /// As it is.
    pub(crate) effective: u32,
    /// Entries of a send queue.
    send_entries: u32,
}

impl Depth {
    /// Of requests with a key. An engine that cannot be made says so itself.
    pub(crate) fn of_requests(asked: u32, options: &EngineOptions, capabilities: &Capabilities) -> Self {
        Self::of(asked, options, capabilities, |sizes| sizes.requests)
    }

    /// Of commands that are answered.
    pub(crate) fn of_transfers(asked: u32, options: &EngineOptions, capabilities: &Capabilities) -> Self {
        Self::of(asked, options, capabilities, |sizes| sizes.transfers)
    }

    /// As `most` has it.
    pub(crate) fn of(
        asked: u32,
        options: &EngineOptions,
        capabilities: &Capabilities,
        most: impl FnOnce(&EngineSizes) -> u32,
    ) -> Self {
        match EngineSizes::of(options, capabilities) {
            Ok(sizes) => Self { asked, effective: asked.min(most(&sizes)), send_entries: sizes.send_entries },
            Err(_) => Self { asked, effective: asked, send_entries: 0 },
        }
    }

    /// What is to be said of it: nothing where it is as asked for.
    pub(crate) fn line(&self, option: &str, what: &str) -> Option<String> {
        let Self { asked, effective, send_entries } = self;
        (effective < asked).then(|| {
            format!(
                "{option} {asked}: {effective} {what} are in flight at most, the others wait, since a send queue of this device has \
                 {send_entries} entries (max_qp_wr)"
            )
        })
    }
}
