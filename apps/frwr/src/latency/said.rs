//! What stands on a command line, and not merely holds by default.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, parser::ValueSource};

/// Options by which the client says what is measured and where the results go: by their names in [`super::Arguments`].
const OF_CLIENT: [&str; 20] = [
    "op",
    "key",
    "invalidate",
    "peer",
    "size",
    "all",
    "depth",
    "segments",
    "ranges",
    "batch",
    "connections",
    "runtime",
    "run_infinitely",
    "iterations",
    "warm_up",
    "rate",
    "rounds",
    "csv",
    "hgrm",
    "svg",
];

/// The first option that stands on the command line and is for a client alone.
///
/// No argument itself: it looks at those beside it, so that it is the first field of what is parsed; each field takes its values away.
#[derive(Clone, Copy, Debug, Default)]
pub struct SaidOfClient(Option<&'static str>);

impl SaidOfClient {
    /// As people write it.
    pub(super) fn option(self) -> Option<String> {
        self.0.map(|name| format!("--{}", name.replace('_', "-")))
    }
}

impl FromArgMatches for SaidOfClient {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let is_said = |name: &&str| matches.value_source(name) == Some(ValueSource::CommandLine);
        Ok(Self(OF_CLIENT.into_iter().find(is_said)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SaidOfClient {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}
