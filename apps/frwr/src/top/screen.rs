//! The screen of `frwr top`.

use super::figures::{Core, Figures};
use ratatui::{
    Frame,
    layout::{Constraint, Layout},
    style::{Modifier, Style},
    widgets::{Block, Borders, Paragraph, Row, Table, Wrap},
};
/// Letters of a full bar.
const BAR: usize = 20;

/// Draws all of it.
pub(super) fn paint(frame: &mut Frame<'_>, figures: &Figures) {
    // A title and a heading for each table.
    let rows = |count: usize| Constraint::Max(u16::try_from(count).unwrap_or(u16::MAX).saturating_add(2));
    let parts = Layout::vertical([
        Constraint::Length(2),
        rows(figures.cores.len()),
        rows(figures.namespaces.len()),
        rows(figures.hosts.len()),
        Constraint::Length(2),
        Constraint::Min(0),
    ]);
    let [head, cores, namespaces, hosts, waits, _] = parts.areas(frame.area());
    let wrapped = |text: String| Paragraph::new(text).wrap(Wrap { trim: true });
    frame.render_widget(wrapped(figures.head()), head);
    frame.render_widget(of_cores(figures), cores);
    frame.render_widget(of_namespaces(figures), namespaces);
    frame.render_widget(of_hosts(figures), hosts);
    frame.render_widget(wrapped(format!("{}; q ends", figures.waiting())), waits);
}

fn table<'a>(title: &'a str, names: Vec<&'a str>, rows: Vec<Row<'a>>, widths: Vec<Constraint>) -> Table<'a> {
    let heading = Row::new(names).style(Style::new().add_modifier(Modifier::DIM));
    Table::new(rows, widths).header(heading).block(Block::new().borders(Borders::TOP).title(title))
}

/// The busy share as a bar: without colours, it is the same on every terminal.
fn bar(core: &Core) -> String {
    // From 0 to 1.
    let filled = (core.busy_share.unwrap_or_default() * BAR as f64).round() as usize;
    format!("{}{}", "|".repeat(filled.min(BAR)), ".".repeat(BAR - filled.min(BAR)))
}

fn of_cores(figures: &Figures) -> Table<'_> {
    let row = |core: &Core| {
        Row::new([
            core.name(),
            core.busy(),
            bar(core),
            core.sleeps(),
            format!("{:.0}", core.iops),
            format!("{:.1}", core.mib_per_second),
            core.stalls(),
        ])
    };
    let widths = [8, 5, BAR as u16, 8, 10, 9, 10].map(Constraint::Length).into();
    table(
        "cores",
        vec!["core", "busy", "", "sleeps/s", "IOPS", "MiB/s", "stalls"],
        figures.cores.iter().map(row).collect(),
        widths,
    )
}

fn of_namespaces(figures: &Figures) -> Table<'_> {
    let row = |one: &super::figures::Namespace| {
        let (p50, p99) = one.percentiles();
        Row::new([
            one.namespace.to_string(),
            format!("{:.0}", one.iops),
            format!("{:.1}", one.mib_per_second),
            p50,
            p99,
            format!("{:.0}", one.errors_per_second),
            one.state.clone(),
            one.subsystem.clone(),
        ])
    };
    let mut widths: Vec<_> = [5, 10, 9, 6, 6, 8, 12].map(Constraint::Length).into();
    widths.push(Constraint::Fill(1));
    let names = vec!["NSID", "IOPS", "MiB/s", "p50<=", "p99<=", "errors/s", "state", "subsystem"];
    table("namespaces", names, figures.namespaces.iter().map(row).collect(), widths)
}

fn of_hosts(figures: &Figures) -> Table<'_> {
    let row = |host: &super::figures::Host| {
        Row::new([
            host.queues.to_string(),
            host.commands_in_flight.to_string(),
            format!("{:.0}", host.iops),
            host.host.clone(),
        ])
    };
    let mut widths: Vec<_> = [6, 9, 10].map(Constraint::Length).into();
    widths.push(Constraint::Fill(1));
    table("hosts", vec!["queues", "in flight", "IOPS", "host"], figures.hosts.iter().map(row).collect(), widths)
}

#[cfg(test)]
mod tests {
    use super::{
        super::figures::{Figures, tests::reading},
        *,
    };
    use ratatui::{Terminal, backend::TestBackend};

    /// What stands on a screen of this size.
    fn shown(width: u16, height: u16) -> String {
        let figures = Figures::between(&reading(1), &reading(5));
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| paint(frame, &figures)).unwrap();
        let rows = terminal.backend().buffer().content.chunks(width.into());
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_usual_terminal_has_all_of_it() {
        let screen = shown(100, 24);
        for part in [
            "rxe0 at 10.0.0.1:4420",
            "0@2",
            "25%",
            "|||||...............",
            "5 +4",
            "NSID",
            "64us",
            "2ms",
            "frwr:file",
            "q ends",
        ] {
            assert!(screen.contains(part), "{part}:\n{screen}");
        }
        assert!(screen.contains("buffers 2 (10/s)"), "{screen}");
    }

    #[test]
    fn no_size_of_a_terminal_is_too_odd() {
        for (width, height) in [(1, 1), (10, 3), (40, 10), (80, 24), (300, 100)] {
            let screen = shown(width, height);
            assert_eq!(screen.lines().count(), usize::from(height));
            assert!(!screen.contains('\u{1b}'));
        }
    }
}
