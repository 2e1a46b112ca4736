//! How a program's cores are run and looked after.

use super::Limit;
use crate::Error;
use clap::Args;
use core::time::Duration;
use frwr_reactor::{Options, STALL_THRESHOLD};
use serde::{Deserialize, Serialize};

/// Beyond a second a core is told of anyway.
const STALLS: Limit = Limit::new("--stall-threshold", 0, 1000);

/// How cores are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args, Deserialize, Serialize)]
#[serde(default)]
pub struct CoreArguments {
    /// Tells of a core whose poll loop makes no iteration for so many milliseconds, while that lasts where it is seen then: where it is
    /// and what the kernel says of it, five times a minute at most. 0 tells of none.
    #[arg(
        long, value_name = "MILLISECONDS", default_value_t = Self::default().stall_threshold,
        value_parser = STALLS.parser::<u16>()
    )]
    pub stall_threshold: u16,
}

impl Default for CoreArguments {
    fn default() -> Self {
        // Some milliseconds.
        Self { stall_threshold: STALL_THRESHOLD.as_millis() as u16 }
    }
}

impl CoreArguments {
    /// Checks the numbers.
    pub(crate) fn check(&self) -> Result<(), Error> {
        STALLS.check(self.stall_threshold)
    }

    /// From when on an iteration is told of, if any is.
    pub(crate) fn stall_threshold(&self) -> Option<Duration> {
        (self.stall_threshold > 0).then(|| Duration::from_millis(self.stall_threshold.into()))
    }

    /// What reactors are told.
    pub(crate) fn reactor_options(&self) -> Options {
        Options::default().stall_threshold(self.stall_threshold().unwrap_or(Duration::MAX))
    }
}
