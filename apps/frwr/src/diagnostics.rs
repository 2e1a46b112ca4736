//! What the program says while it runs: events of `tracing`, which a subscriber of the main thread writes to standard error,
//! a line each. Reactor threads have no subscriber and say nothing: what happens on them comes to the main thread as values.

use crate::Error;
use clap::ValueEnum;
use std::{cell::RefCell, io};
use tracing::{Level, subscriber::DefaultGuard};
use tracing_subscriber::{
    Registry,
    filter::{LevelFilter, Targets},
    fmt,
    layer::{Layer as _, SubscriberExt as _},
    reload,
};

thread_local! {
    /// What changes the levels of this thread's subscriber.
    static CHANGED_BY: RefCell<Option<reload::Handle<Targets, Registry>>> = const { RefCell::new(None) };
}

/// The variable that says which levels are told, as programs with `tracing` or `log` have it.
pub const LEVELS: &str = "RUST_LOG";

/// How a line of what falls short begins.
const WARNING: &str = "warning: ";

/// What a line looks like. Each is one, whatever is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// What is said, and nothing else.
    Plain,
    /// With its time (UTC) and level in front of it.
    Full,
    /// The same as an object of JSON.
    Json,
}

/// From here on, and as long as the result lives, this thread's events go to standard error: plain lines from INFO on, or what `levels`
/// says; when `verbose`, from DEBUG on, each with its time and level unless a `format` is asked for.
///
/// # Errors
/// `levels` is nothing that it can be.
pub fn subscribe(verbose: bool, format: Option<LogFormat>, levels: Option<&str>) -> Result<DefaultGuard, Error> {
    let told = match levels.filter(|levels| !verbose && !levels.is_empty()) {
        None if verbose => Targets::new().with_default(LevelFilter::DEBUG),
        None => Targets::new().with_default(LevelFilter::INFO),
        Some(levels) => levels.parse().map_err(|_| wrong(levels))?,
    };
    // Whoever closed standard error wants no lines, and no complaint about them.
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(false).with_target(false).log_internal_errors(false);
    let lines = match format.unwrap_or(if verbose { LogFormat::Full } else { LogFormat::Plain }) {
        LogFormat::Plain => lines.with_level(false).without_time().boxed(),
        LogFormat::Full => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    };
    let (told, handle) = reload::Layer::new(told);
    CHANGED_BY.set(Some(handle));
    Ok(tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.with_filter(told))))
}

/// From here on this thread's events of these levels are told. False where it has no subscriber of [`subscribe`].
///
/// # Errors
/// As there, and where a word is no level: in [`LEVELS`] it would be whose events are told, and so nobody's here.
pub fn set_levels(levels: &str) -> Result<bool, Error> {
    if levels.split(',').any(|word| !word.contains('=') && word.trim().parse::<LevelFilter>().is_err()) {
        return Err(wrong(levels));
    }
    let told: Targets = levels.parse().map_err(|_| wrong(levels))?;
    Ok(CHANGED_BY.with_borrow(|handle| handle.as_ref().is_some_and(|handle| handle.reload(told).is_ok())))
}

fn wrong(levels: &str) -> Error {
    let remedy = "name error, warn, info, debug, trace or off, or leave it out";
    Error::usage("levels", format!("{LEVELS} is {levels:?}: no level has this name; {remedy}"))
}

/// Says a line: a warning where it begins as one, and progress or news otherwise.
pub fn say(line: &str) {
    match level(line) {
        Level::WARN => tracing::warn!("{line}"),
        _ => tracing::info!("{line}"),
    }
}

fn level(line: &str) -> Level {
    if line.starts_with(WARNING) { Level::WARN } else { Level::INFO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_falls_short_is_a_warning() {
        assert_eq!((level("warning: few pages; reserve more"), level("  12 s  ...")), (Level::WARN, Level::INFO));
    }

    #[test]
    fn levels_that_there_are_not_are_told_with_those_that_there_are() {
        for levels in ["warn", "frwr=debug", "info,other=trace", "off", ""] {
            assert!(subscribe(false, None, Some(levels)).is_ok(), "{levels:?}");
        }
        let error = subscribe(false, None, Some("frwr=loud")).err().map(|error| (error.to_string(), error.exit_code()));
        let said = "RUST_LOG is \"frwr=loud\": no level has this name; \
                    name error, warn, info, debug, trace or off, or leave it out";
        assert_eq!(error, Some((said.to_owned(), 2)));
        assert!(subscribe(true, None, Some("frwr=loud")).is_ok(), "the command line wins");
    }

    #[test]
    fn levels_can_be_changed_while_a_subscriber_is_there() {
        assert_eq!(set_levels("off").ok(), Some(false), "there is none yet");
        let _subscribed = subscribe(false, None, None).unwrap();
        let told = || [tracing::enabled!(Level::DEBUG), tracing::enabled!(Level::WARN)];
        assert_eq!(told(), [false, true]);
        assert_eq!(set_levels("debug").ok(), Some(true));
        assert_eq!(told(), [true, true]);
        assert_eq!(set_levels("off").ok(), Some(true));
        assert_eq!(told(), [false, false]);
        assert!(["frwr=loud", "loud", "info,loud"].iter().all(|levels| set_levels(levels).is_err()));
        assert_eq!(told(), [false, false], "what cannot be is not taken");
    }
}
