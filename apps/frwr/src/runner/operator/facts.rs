//! What the main thread itself knows of its target.

use super::{
    super::{
        host_keys::HostKeyring, namespaces::Identity, progress::Progress, serve_command::ServeConfig,
        serve_report::ServedTarget,
    },
    aside::Awaited,
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
    /// By which hosts prove themselves.
    pub(super) host_keys: HostKeyring,
    pub(super) recent: Recent,
    pub(super) key_trace: KeyTrace,
    pub(super) progress: Progress,
    /// The medium that a change waits for.
    pub(super) awaited: Option<Awaited>,
    /// Since the cores began.
    pub(super) now: Duration,
}

impl Facts {
    pub(in super::super) fn new(
        served: ServedTarget,
        config: ServeConfig,
        host_keys: HostKeyring,
        progress: Progress,
        key_trace: KeyTrace,
    ) -> Self {
        let (about, started) = (value(About::this()), served.namespaces.len());
        let (recent, now) = (Recent::default(), Duration::ZERO);
        Self { served, started, about, config, host_keys, recent, key_trace, progress, awaited: None, now }
    }

    /// A namespace is gone. What it was started with is told all the same.
    pub(super) fn forget(&mut self, namespace: Identity) {
        self.served.forget(namespace, self.started);
    }
}
