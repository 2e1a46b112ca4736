//! What stands on a command line, and not merely holds by default.

use super::command_line::ClientArguments;
use crate::options::names;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Id, parser::ValueSource};

/// The first option that stands on the command line and is for a client alone.
///
/// No argument itself: it looks at those beside it, so that it is the first field of what is parsed; each field takes its values away.
#[derive(Clone, Debug, Default)]
pub struct SaidOfClient(Option<Id>);

impl SaidOfClient {
    /// As people write it.
    pub(super) fn option(&self) -> Option<String> {
        self.0.as_ref().map(|name| format!("--{}", name.as_str().replace('_', "-")))
    }
}

impl FromArgMatches for SaidOfClient {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let is_said = |name: &Id| matches.value_source(name.as_str()) == Some(ValueSource::CommandLine);
        Ok(Self(names::<ClientArguments>().find(is_said)))
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
