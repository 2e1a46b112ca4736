//! How a program's cores are run and looked after.

use super::Limit;
use crate::Error;
use clap::Args;
use core::{fmt, str::FromStr, time::Duration};
use frwr_reactor::{CoreList, CpuId, CpuSet, Idle, Options, Placement, STALL_THRESHOLD};
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
    /// polls for so long; and with `@CORES` behind it (`sleep@3`, `sleep:100@2-3`) only these of --cores sleep.
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
    /// The same on these cores; others poll on.
    SleepOn(u32, CpuSet),
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
            Self::Sleep(time) | Self::SleepOn(time, _) => SPINS.check(time),
        }
    }

    /// Checks that cores that are to sleep are among those that it runs on.
    pub(crate) fn check_cores(self, placement: Option<&Placement>) -> Result<(), Error> {
        let Self::SleepOn(_, sleeping) = self else { return Ok(()) };
        let wrong = |why: String| Error::usage("idle_cores", format!("--idle sleep@{sleeping} {why}"));
        let Some(Placement::Cores(cores)) = placement else {
            return Err(wrong("names cores, and --cores does not: name all of them there, or leave @ out".to_owned()));
        };
        match sleeping.iter().find(|core| !cores.contains(core)) {
            None => Ok(()),
            Some(stranger) => {
                let all = cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
                Err(wrong(format!("names core {stranger}, which is none of --cores {all}; name some of these")))
            }
        }
    }

    /// What reactors are told, those too that do not sleep on their core ([`Self::sleeps_on`]).
    pub(crate) fn of_reactors(self) -> Idle {
        match self {
            Self::Spin => Idle::Spin,
            Self::Sleep(time) | Self::SleepOn(time, _) => Idle::SleepAfter(Duration::from_micros(time.into())),
        }
    }

    /// The core may sleep; `None` is one that is not pinned.
    pub(crate) fn sleeps_on(self, core: Option<CpuId>) -> bool {
        match self {
            Self::Spin => false,
            Self::Sleep(_) => true,
            Self::SleepOn(_, sleeping) => core.is_some_and(|core| sleeping.contains(core)),
        }
    }
}

impl FromStr for IdleArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "must be spin, sleep, or sleep:MICROSECONDS with a whole number from 0 to {}, such as sleep:50; and \
                 @CORES behind sleep where not all do, such as sleep@2-3",
                SPINS.most()
            )
        };
        let (how, cores) = text.split_once('@').map_or((text, None), |(how, cores)| (how, Some(cores)));
        let time = match how.split_once(':') {
            None if text == "spin" => return Ok(Self::Spin),
            None if how == "sleep" => SPIN,
            Some(("sleep", time)) => time.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        };
        let Some(cores) = cores else { return Ok(Self::Sleep(time)) };
        let cores = cores.parse::<CoreList>().map_err(|error| format!("the cores behind @: {error}"))?;
        let mut sleeping = CpuSet::new();
        for core in cores.cores() {
            sleeping.insert(*core);
        }
        Ok(Self::SleepOn(time, sleeping))
    }
}

impl fmt::Display for IdleArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spin => f.write_str("spin"),
            Self::Sleep(SPIN) => f.write_str("sleep"),
            Self::Sleep(time) => write!(f, "sleep:{time}"),
            Self::SleepOn(time, cores) => write!(f, "{}@{cores}", Self::Sleep(*time)),
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
    use super::{CoreArguments, CoreList, IdleArgument, Placement, SPIN, SPINS};

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
        for text in
            ["", "Sleep", "sleep:", "sleep:-1", "sleep:1us", "sleep:4294967296", "spin:5", "park", "spin@1", "@1"]
        {
            let wrong = text.parse::<IdleArgument>().unwrap_err();
            assert!(wrong.contains("sleep:MICROSECONDS") && wrong.contains("1000000"), "{text:?}: {wrong}");
        }
        let on = |cores: &str| cores.parse::<CoreList>().unwrap().cores().to_vec();
        for (text, said, sleeping, awake) in
            [("sleep@3", "sleep@3", "3", "0-2,4"), ("sleep:7@2,3,5", "sleep:7@2-3,5", "2-3,5", "1,4,6")]
        {
            let idle: IdleArgument = text.parse().unwrap();
            assert_eq!(idle.to_string(), said);
            assert!(on(sleeping).iter().all(|core| idle.sleeps_on(Some(*core))) && !idle.sleeps_on(None));
            assert!(!on(awake).iter().any(|core| idle.sleeps_on(Some(*core))));
        }
        for text in ["sleep@", "sleep@3-2", "sleep@a", "sleep@1,1", "sleep@9999", "sleep@1@2"] {
            let wrong = text.parse::<IdleArgument>().unwrap_err();
            assert!(wrong.starts_with("the cores behind @: "), "{text:?}: {wrong}");
        }
        let too_long = CoreArguments { idle: IdleArgument::Sleep(1_000_001), ..CoreArguments::default() };
        let error = too_long.check().unwrap_err().to_string();
        assert!(error.contains("1000001") && error.contains(&SPINS.most().to_string()), "{error}");
    }

    #[test]
    fn cores_that_sleep_are_some_of_those_that_are_named() {
        let cores = |list: &str| Placement::Cores(list.parse::<CoreList>().unwrap().cores().to_vec());
        let check = |idle: &str, placement: Option<Placement>| {
            let checked = idle.parse::<IdleArgument>().unwrap().check_cores(placement.as_ref());
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(check("sleep@3", Some(cores("2-3"))), Ok(()));
        assert_eq!(check("sleep@2-3", Some(cores("2-3"))), Ok(()));
        for idle in ["spin", "sleep"] {
            assert_eq!(check(idle, Some(Placement::Unpinned { reactors: 2 })), Ok(()));
        }
        let error = check("sleep:9@1-3", Some(cores("2-3"))).unwrap_err();
        assert!(["--idle sleep@1-3", "core 1", "--cores 2,3"].iter().all(|part| error.contains(part)), "{error}");
        for placement in [None, Some(Placement::Unpinned { reactors: 2 })] {
            let error = check("sleep@3", placement).unwrap_err();
            assert!(error.contains("--cores does not"), "{error}");
        }
    }
}
