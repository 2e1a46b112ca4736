//! What the main thread itself knows of its target.

use super::{
    super::{media_watch::Identity, progress::Progress, serve_command::ServeConfig, serve_report::ServedTarget},
    key_trace::KeyTrace,
    recent::Recent,
};
use crate::{About, report::value};
use core::time::Duration;
use serde_json::Value;

/// All that is known without asking a core.
pub(in super::super) struct Facts {
    pub(super) served: ServedTarget,
    /// Namespaces of the start.
    started: usize,
    /// What `--version` says.
    pub(super) about: Value,
    /// What was asked for by command line or file.
    pub(super) config: ServeConfig,
    pub(super) recent: Recent,
    pub(super) key_trace: KeyTrace,
    pub(super) progress: Progress,
    /// Since the cores began.
    pub(super) now: Duration,
}

impl Facts {
    pub(in super::super) fn new(
        served: ServedTarget,
        config: ServeConfig,
        progress: Progress,
        key_trace: KeyTrace,
    ) -> Self {
        let (about, started) = (value(About::this()), served.namespaces.len());
        Self { served, started, about, config, recent: Recent::default(), key_trace, progress, now: Duration::ZERO }
    }

    /// A namespace is gone. What it was started with is told all the same.
    pub(super) fn forget(&mut self, namespace: Identity) {
        self.served.forget(namespace, self.started);
    }
}
