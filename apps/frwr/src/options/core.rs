//! How a program's cores are run and looked after.

use super::Limit;
use crate::Error;
use clap::Args;
use core::{fmt, str::FromStr, time::Duration};
use frwr_reactor::{Idle, Options, STALL_THRESHOLD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

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
    /// What a core does that has nothing to do: `spin` polls on; `sleep` polls on for 50 microseconds and then sleeps until something
    /// arrives, so that the first request after that is some microseconds later and the core is free meanwhile; `sleep:MICROSECONDS`
    /// polls for so long.
    #[arg(long, value_name = "HOW", default_value_t = IdleArgument::Spin, value_parser = IdleArgument::from_str)]
    pub idle: IdleArgument,
}

/// What a core does that has nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleArgument {
    /// It polls on.
    #[default]
    Spin,
    /// It sleeps when nothing was to do for so many microseconds.
    Sleep(u32),
}

/// Polling in microseconds before a core sleeps: about what it takes to wake it, so that a wake-up costs twice of what is waited for
/// at most.
const SPIN: u32 = 50;
/// In microseconds: who polls for a second does not want to sleep.
const SPINS: Limit = Limit::new("--idle sleep", 0, 1_000_000);

impl IdleArgument {
    /// Checks the number.
    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Self::Spin => Ok(()),
            Self::Sleep(time) => SPINS.check(time),
        }
    }

    /// What reactors are told.
    pub(crate) fn of_reactors(self) -> Idle {
        match self {
            Self::Spin => Idle::Spin,
            Self::Sleep(time) => Idle::SleepAfter(Duration::from_micros(time.into())),
        }
    }

    /// Cores may sleep: their devices have to wake them.
    pub(crate) fn sleeps(self) -> bool {
        self != Self::Spin
    }
}

impl FromStr for IdleArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "must be spin, sleep, or sleep:MICROSECONDS with a whole number from 0 to {}, such as sleep:50",
                SPINS.most()
            )
        };
        match text.split_once(':') {
            None if text == "spin" => Ok(Self::Spin),
            None if text == "sleep" => Ok(Self::Sleep(SPIN)),
            Some(("sleep", time)) => time.parse().map(Self::Sleep).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for IdleArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spin => f.write_str("spin"),
            Self::Sleep(SPIN) => f.write_str("sleep"),
            Self::Sleep(time) => write!(f, "sleep:{time}"),
        }
    }
}

impl<'de> Deserialize<'de> for IdleArgument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|wrong| D::Error::custom(format!("is {text:?}: {wrong}")))
    }
}

impl Serialize for IdleArgument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Default for CoreArguments {
    fn default() -> Self {
        // Some milliseconds.
        Self { stall_threshold: STALL_THRESHOLD.as_millis() as u16, idle: IdleArgument::Spin }
    }
}

impl CoreArguments {
    /// Checks the numbers.
    pub(crate) fn check(&self) -> Result<(), Error> {
        STALLS.check(self.stall_threshold)?;
        self.idle.check()
    }

    /// From when on an iteration is told of, if any is.
    pub(crate) fn stall_threshold(&self) -> Option<Duration> {
        (self.stall_threshold > 0).then(|| Duration::from_millis(self.stall_threshold.into()))
    }

    /// What reactors are told.
    pub(crate) fn reactor_options(&self) -> Options {
        Options::default()
            .stall_threshold(self.stall_threshold().unwrap_or(Duration::MAX))
            .idle(self.idle.of_reactors())
    }
}

#[cfg(test)]
mod tests {
    use super::{CoreArguments, IdleArgument, SPIN, SPINS};

    #[test]
    fn ways_to_be_idle_are_said_as_they_are_read() {
        for (text, idle) in [
            ("spin", IdleArgument::Spin),
            ("sleep", IdleArgument::Sleep(SPIN)),
            ("sleep:0", IdleArgument::Sleep(0)),
            ("sleep:1000000", IdleArgument::Sleep(1_000_000)),
        ] {
            assert_eq!(text.parse(), Ok(idle));
            assert_eq!(idle.to_string(), text);
        }
        for text in ["", "Sleep", "sleep:", "sleep:-1", "sleep:1us", "sleep:4294967296", "spin:5", "park"] {
            let wrong = text.parse::<IdleArgument>().unwrap_err();
            assert!(wrong.contains("sleep:MICROSECONDS") && wrong.contains("1000000"), "{text:?}: {wrong}");
        }
        let too_long = CoreArguments { idle: IdleArgument::Sleep(1_000_001), ..CoreArguments::default() };
        let error = too_long.check().unwrap_err().to_string();
        assert!(error.contains("1000001") && error.contains(&SPINS.most().to_string()), "{error}");
    }
}
