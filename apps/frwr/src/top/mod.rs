//! `frwr top`: what a target does, live in a terminal, or as text or JSON for whoever has none.

mod figures;
mod latency;
mod reading;
mod screen;

use crate::{
    Error,
    ctl::{Client, SocketArguments},
    options::Limit,
    output::{Output, success},
    signals::Asked,
};
use clap::Args;
use core::time::Duration;
use figures::Figures;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
};
use reading::Reading;
use std::io::{self, IsTerminal as _, Write as _};

/// Seconds between two readings.
const INTERVAL: Limit = Limit::new("--interval", 1, 3600);
/// How long a key, or a signal, may wait.
const KEY_TIME: Duration = Duration::from_millis(200);

/// Arguments of `frwr top`.
#[derive(Clone, Debug, Args)]
pub struct TopArguments {
    /// The socket.
    #[command(flatten)]
    pub socket: SocketArguments,
    /// Tells one interval, and ends.
    #[arg(long)]
    pub once: bool,
    /// A line of JSON for each interval, on standard output.
    #[arg(long)]
    pub json: bool,
    /// Seconds of an interval.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = INTERVAL.parser::<u32>())]
    pub interval: u32,
}

/// Shows what the target does until it is `asked` to stop, or somebody presses q.
///
/// # Errors
/// There is no target to ask, or it has gone.
pub fn top(arguments: &TopArguments, asked: &dyn Asked) -> Result<Output, Error> {
    INTERVAL.check(arguments.interval)?;
    let mut client = Client::open(&arguments.socket)?;
    let first = Reading::take(&mut client)?;
    let mut watch = Watch { client, last: first, interval: Duration::from_secs(arguments.interval.into()), asked };
    if arguments.once {
        let Some(figures) = watch.next(&mut |pause| rest(pause))? else { return Ok(success(String::new())) };
        return Ok(success(told(&figures, arguments.json)));
    }
    if arguments.json || !io::stdout().is_terminal() {
        return watch.lines(arguments.json);
    }
    let mut terminal = ratatui::try_init().map_err(|error| unusable(&error))?;
    let shown = watch.show(&mut terminal);
    // What was shown goes with its screen; where that fails nobody sees it.
    let _ = ratatui::try_restore();
    shown.map(|()| success(String::new()))
}

fn told(figures: &Figures, json: bool) -> String {
    if json { figures.json().to_string() } else { figures.table() }
}

fn unusable(error: &io::Error) -> Error {
    let remedy = "use --once, or --json";
    Error::failed("terminal", format!("this terminal cannot be drawn on ({error}); {remedy}"))
}

/// Somebody who looks at a target.
struct Watch<'a> {
    client: Client,
    last: Reading,
    interval: Duration,
    asked: &'a dyn Asked,
}

impl Watch<'_> {
    /// The next interval; `None` where it shall end before that is over.
    fn next(&mut self, rest: &mut dyn FnMut(Duration) -> bool) -> Result<Option<Figures>, Error> {
        let mut left = self.interval;
        while !left.is_zero() {
            let pause = left.min(KEY_TIME);
            left -= pause;
            if self.asked.to_stop() || !rest(pause) {
                return Ok(None);
            }
        }
        let last = core::mem::replace(&mut self.last, Reading::take(&mut self.client)?);
        Ok(Some(Figures::between(&last, &self.last)))
    }

    /// A text or a line of JSON for each interval.
    fn lines(mut self, json: bool) -> Result<Output, Error> {
        let mut out = io::stdout();
        while let Some(figures) = self.next(&mut |pause| rest(pause))? {
            let text = told(&figures, json);
            if writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()).is_err() {
                // Who reads no further has what was wanted.
                break;
            }
        }
        Ok(success(String::new()))
    }

    /// The screen, until somebody has seen enough.
    fn show(mut self, terminal: &mut DefaultTerminal) -> Result<(), Error> {
        let mut figures = Figures::between(&self.last, &self.last);
        loop {
            draw(terminal, &figures).map_err(|error| unusable(&error))?;
            let mut failed = None;
            let mut wait = |pause| {
                keys(pause, || draw(terminal, &figures)).unwrap_or_else(|error| {
                    failed = Some(error);
                    false
                })
            };
            let next = self.next(&mut wait)?;
            if let Some(error) = failed {
                return Err(unusable(&error));
            }
            match next {
                Some(next) => figures = next,
                None => return Ok(()),
            }
        }
    }
}

fn draw(terminal: &mut DefaultTerminal, figures: &Figures) -> io::Result<()> {
    terminal.draw(|frame| screen::paint(frame, figures)).map(drop)
}

/// Waits for so long; false where a key says that it is enough. Draws again where the terminal has another size.
fn keys(pause: Duration, mut draw: impl FnMut() -> io::Result<()>) -> io::Result<bool> {
    if !event::poll(pause)? {
        return Ok(true);
    }
    match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release && ends(key) => return Ok(false),
        Event::Resize(..) => draw()?,
        _ => {}
    }
    Ok(true)
}

fn ends(key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

#[allow(clippy::disallowed_methods, reason = "nothing is polled in this process")]
fn rest(pause: Duration) -> bool {
    std::thread::sleep(pause);
    true
}
