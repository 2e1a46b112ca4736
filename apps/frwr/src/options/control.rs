//! How a program that serves is asked and changed while it runs.

use crate::Error;
use clap::Args;
use core::{convert::Infallible, str::FromStr};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{net::SocketAddr, path::PathBuf};

/// The control socket and the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Deserialize, Serialize)]
#[serde(default)]
pub struct ControlArguments {
    /// Where `frwr ctl` asks and changes this process: a Unix socket for its owner alone, or none. Default: frwr-PID.sock in
    /// $XDG_RUNTIME_DIR, and where that is not set, for root, in /run; docs/operating.md says what can be asked.
    #[arg(long, value_name = "PATH|none")]
    pub control: Option<ControlSocket>,
    /// Where metrics are collected: http://ADDR:PORT/metrics, in OpenMetrics text; port 0 lets the system choose. Anybody who reaches it
    /// may read: an address of this machine's own (127.0.0.1, ::1), unless --metrics-anywhere.
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Metrics may be read from other machines.
    #[arg(long)]
    pub metrics_anywhere: bool,
}

impl ControlArguments {
    /// What is said beside a file holds, and what the file says where nothing is.
    pub(crate) fn beside(self, file: Self) -> Self {
        Self {
            control: self.control.or(file.control),
            metrics: self.metrics.or(file.metrics),
            metrics_anywhere: self.metrics_anywhere || file.metrics_anywhere,
        }
    }

    /// Refuses metrics for everybody where that was not asked for.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.metrics {
            Some(address) if !address.ip().to_canonical().is_loopback() && !self.metrics_anywhere => {
                let remedy = "name 127.0.0.1 or [::1], or say --metrics-anywhere";
                let text = format!(
                    "--metrics is {address}: other machines reach it, and nobody has to prove who he is; {remedy}"
                );
                Err(Error::usage("metrics", text))
            }
            _ => Ok(()),
        }
    }
}

/// The value of `--control`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlSocket {
    /// There is none.
    None,
    /// It is there.
    At(PathBuf),
}

impl ControlSocket {
    const NONE: &str = "none";
}

impl FromStr for ControlSocket {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        // A file of that name is given as ./none.
        Ok(if text == Self::NONE { Self::None } else { Self::At(text.into()) })
    }
}

impl<'de> Deserialize<'de> for ControlSocket {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let Ok(socket) = text.parse();
        Ok(socket)
    }
}

impl Serialize for ControlSocket {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str(Self::NONE),
            Self::At(path) => serializer.collect_str(&path.display()),
        }
    }
}
