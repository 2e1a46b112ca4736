//! Why the program could not do what it was asked for: the one error of all its parts.

use frwr_engine::{EngineError, provider::soft::runtime_directory};
use frwr_mempool::region::{CarveError, RegionError};
use frwr_nvmf::{
    controller::TargetError,
    host::{HostError, PathsError},
    storage::{FileError, NbdError, RbdError},
};
use frwr_reactor::{CoreIndex, LaunchError, PlacementError, RunningError};

/// Exit code of a run that failed, or found something wrong.
pub const FAILED: u8 = 1;
/// Exit code of wrong arguments.
pub const USAGE: u8 = 2;
/// Exit code where a core stood still and did not end: what it had in hand is not known.
pub const STANDING: u8 = 3;

/// What was wrong: a line that names the limit, the value and the remedy, a name for JSON, and an exit code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    name: &'static str,
    exit_code: u8,
    text: String,
    kind: Kind,
}

/// What the program itself asks of an error; all else is for who reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing.
    Told,
    /// An engine cannot be made: less of its options may do.
    Engine,
    /// Cores, ports or memory could not be had: who asks for less may find it.
    NoRoom,
    /// One key does not cover what was asked for: a smaller size may do.
    Key,
    /// Some core has not ended.
    Standing,
    /// A host has no session, since somebody is there who refuses it.
    Refused,
}

impl Error {
    /// Another command line would cure it.
    pub(crate) fn usage(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, exit_code: USAGE, text: text.into(), kind: Kind::Told }
    }

    /// The machine, a file, a device or a peer is in the way, or a defect of this program.
    pub(crate) fn failed(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, exit_code: FAILED, text: text.into(), kind: Kind::Told }
    }

    /// A core cannot be set up.
    pub(crate) fn setup(reason: impl ToString) -> Self {
        Self::failed("setup", reason.to_string())
    }

    /// The same, found before its reactor was started.
    pub(crate) fn of_core(core: u16, error: impl Into<Self>) -> Self {
        LaunchError::Init { core: CoreIndex(core), error: error.into() }.into()
    }

    /// Who asks for less may have it.
    pub(crate) fn no_room(name: &'static str, text: impl Into<String>) -> Self {
        Self { kind: Kind::NoRoom, ..Self::failed(name, text) }
    }

    /// A device's keys do not reach far enough.
    pub(crate) fn beyond_a_key(text: impl Into<String>) -> Self {
        Self { kind: Kind::Key, ..Self::failed("key", text) }
    }

    /// Cores have not ended.
    pub(crate) fn standing(text: impl Into<String>) -> Self {
        Self { name: "core_stands_still", exit_code: STANDING, text: text.into(), kind: Kind::Standing }
    }

    /// The reactor gave nothing back: a defect of this program.
    pub(crate) fn lost() -> Self {
        Self::failed("lost", "the host's core ended without a report")
    }

    /// Stable name for JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// 2 for what another command line would cure, 3 where a core did not end, 1 for the rest.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// Some core has not ended: nothing that it may use is to be taken down.
    pub(crate) fn leaves_a_core(&self) -> bool {
        self.kind == Kind::Standing
    }

    /// Less would do.
    pub(crate) fn is_for_lack_of_room(&self) -> bool {
        matches!(self.kind, Kind::Engine | Kind::NoRoom)
    }

    /// A smaller size may do.
    pub(crate) fn is_beyond_a_key(&self) -> bool {
        self.kind == Kind::Key
    }

    /// The engine names its own options where a device has too little for them: those of the command line that they come from are said
    /// too, and which of them to `lower`.
    pub(crate) fn of_options(self, device: &str, asked: &str, lower: &str) -> Self {
        if self.kind != Kind::Engine {
            return self;
        }
        let text =
            format!("{asked} are more than {device} can do: {}; of this program that is: lower {lower}", self.text);
        Self { text, kind: Kind::Told, ..self }
    }

    /// Somebody is there, and refuses.
    pub(crate) fn refused(name: &'static str, text: impl Into<String>) -> Self {
        Self { kind: Kind::Refused, ..Self::failed(name, text) }
    }

    /// Where nobody was found, or an address is taken: where software NICs of several processes look for each other.
    pub(crate) fn between_processes(self) -> Self {
        let what = match self.name {
            "no_session" | "unreachable" if self.kind != Kind::Refused => {
                "start the other program with --device soft, as the same user and with the same XDG_RUNTIME_DIR"
            }
            "listen" => "any address will do that no other program of this user listens at",
            _ => return self,
        };
        let directory = runtime_directory();
        Self { text: format!("{}; software NICs find each other in {directory:?}: {what}", self.text), ..self }
    }

    /// Whose it is, in front of it.
    pub(crate) fn of(self, whose: impl core::fmt::Display) -> Self {
        Self { text: format!("{whose}: {}", self.text), ..self }
    }
}

macro_rules! named {
    ($($source:ty => $name:literal, $kind:ident;)*) => {
        $(impl From<$source> for Error {
            fn from(source: $source) -> Self {
                Self { kind: Kind::$kind, ..Self::failed($name, source.to_string()) }
            }
        })*
    };
}

named!(
    RegionError => "memory", Told;
    CarveError => "setup", Told;
    EngineError => "engine", Engine;
    TargetError => "target", Told;
    HostError => "host", Told;
    PathsError => "paths", Told;
    FileError => "storage", Told;
    NbdError => "storage", Told;
    RbdError => "storage", Told;
    RunningError => "reactor_panicked", Told;
);

impl From<LaunchError<Error>> for Error {
    fn from(source: LaunchError<Error>) -> Self {
        let text = source.to_string();
        match source {
            LaunchError::Placement(error) => Self::usage(placement_name(&error), format!("--cores: {text}")),
            LaunchError::Init { error, .. } if error.kind == Kind::Engine => Self { text, ..error },
            LaunchError::Init { error, .. } => Self::no_room(error.name, text),
            LaunchError::Panicked { .. } => Self::no_room("reactor_panicked", text),
            _ => Self::no_room("launch", text),
        }
    }
}

fn placement_name(error: &PlacementError) -> &'static str {
    match error {
        PlacementError::Offline { .. } => "core_offline",
        PlacementError::NotAllowed { .. } => "core_not_allowed",
        PlacementError::Twice { .. } => "core_twice",
        PlacementError::Siblings { .. } => "core_siblings",
        _ => "placement",
    }
}
