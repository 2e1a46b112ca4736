//! Text in columns, for a terminal and for Markdown.

/// A table: a heading, and rows of as many cells.
pub(super) struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty one.
    pub(super) fn new(heading: &[&str]) -> Self {
        Self { heading: heading.iter().map(|word| (*word).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row; cells that are missing are empty.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<_> = cells.into_iter().take(self.heading.len()).collect();
        cells.resize(self.heading.len(), String::new());
        self.rows.push(cells);
    }

    /// Padded to the widest cell of each column; numbers to the right.
    pub(super) fn text(&self) -> String {
        let widths: Vec<_> = (0..self.heading.len())
            .map(|at| self.all().map(|row| row[at].chars().count()).max().unwrap_or_default())
            .collect();
        self.all().map(|row| padded(row, &widths)).collect()
    }

    /// As Markdown.
    pub(super) fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule = format!("|{}\n", "---|".repeat(self.heading.len()));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        line(&self.heading) + &rule + &rows
    }

    fn all(&self) -> impl Iterator<Item = &Vec<String>> {
        core::iter::once(&self.heading).chain(&self.rows)
    }
}

fn padded(row: &[String], widths: &[usize]) -> String {
    let cells: Vec<_> = row
        .iter()
        .zip(widths)
        .map(|(cell, width)| if is_number(cell) { format!("{cell:>width$}") } else { format!("{cell:<width$}") })
        .collect();
    cells.join("  ").trim_end().to_owned() + "\n"
}

fn is_number(cell: &str) -> bool {
    cell.starts_with(|c: char| c.is_ascii_digit() || c == '-') && cell.chars().any(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["row", "what", "ours"]);
        table.row(["A1".to_owned(), "slot".to_owned(), "22".to_owned()]);
        table.row(["A12".to_owned(), "a|b".to_owned(), "1.5".to_owned(), "too many".to_owned()]);
        table.row(["A2".to_owned()]);
        table
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let expected = "row  what  ours\nA1   slot    22\nA12  a|b    1.5\nA2\n";
        assert_eq!(table().text(), expected);
    }

    #[test]
    fn markdown_has_a_rule_and_no_stray_bars() {
        let expected =
            "| row | what | ours |\n|---|---|---|\n| A1 | slot | 22 |\n| A12 | a\\|b | 1.5 |\n| A2 |  |  |\n";
        assert_eq!(table().markdown(), expected);
    }
}
