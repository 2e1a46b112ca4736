//! What can be measured, and of which program.

use super::figure::{Best, Measured, quotient, readable, weighted};

/// Where a program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A program of the crate frwr-benches.
    Ours(&'static str),
    /// `benches/peers/NAME.c`, and what pkg-config is asked for.
    Peer(&'static str, &'static [&'static str]),
}

impl Source {
    /// The program's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours(name) | Self::Peer(name, _) => name,
        }
    }
}

/// The programs of ours that are built with the feature `verbs`, in `benches/run` and `tests/run`: the port alone, and below an engine.
pub(super) const VERBS_PROGRAM: &str = "verbs-cost";
pub(super) const VERBS_WRITE_PROGRAM: &str = "verbs-write-cost";

/// A program and what it is told; the number of iterations is one more argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Which.
    pub(super) source: Source,
    /// Its arguments, without the number of iterations.
    pub(super) arguments: &'static [&'static str],
    /// Iterations of the shorter and the longer run of a counting program; a timing program has the longer one only.
    pub(super) iterations: (u64, u64),
}

/// Iterations where nothing else is said: enough that what happens once in a while is in the average, and few enough for
/// valgrind, under which a program takes some fifty times as long.
pub(super) const ITERATIONS: (u64, u64) = (2_000, 12_000);

impl Program {
    /// The same with other numbers of iterations.
    pub(super) const fn iterations(self, few: u64, many: u64) -> Self {
        Self { iterations: (few, many), ..self }
    }

    /// As a person would type it.
    pub(super) fn text(&self) -> String {
        let mut words = vec![self.source.name()];
        words.extend(self.arguments);
        words.join(" ")
    }
}

/// A number that a run can find out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Quantity {
    /// Instructions per object of a counting program, by callgrind at two numbers of iterations.
    Instructions(Program),
    /// Instructions that lock a line (locked ones, and exchanges with memory) per object of a counting program, by callgrind's count
    /// of bus events at two numbers of iterations.
    Locked(Program),
    /// Allocations on the heap per object of a counting program, by memcheck at two numbers of iterations.
    Allocations(Program),
    /// A number that a counting program prints behind this name, at the larger number of iterations.
    Printed(Program, &'static str),
    /// A number that it prints in front of these words.
    Told(Program, &'static str),
    /// A time, rate or ratio of a timing program: the one of several runs that counts.
    Timed(Program, Best),
    /// A figure of the jobs in the virtual machine.
    Guest(&'static str, Best),
    /// Not measured: what the peer's source or documentation says. Shown with a star.
    Stated(f64),
    /// A sum with weights.
    Sum(&'static [(f64, Quantity)]),
    /// One divided by another.
    Quotient(&'static Quantity, &'static Quantity),
}

/// Rows are asked for by these as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// Exact numbers on this machine.
    Count,
    /// Times on two cores of this machine.
    Cores,
    /// The virtual machine.
    Guest,
}

impl Group {
    /// All of them by name.
    pub(super) const ALL: [(&'static str, Self); 3] =
        [("count", Self::Count), ("cores", Self::Cores), ("guest", Self::Guest)];

    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, group)| *group == self).map_or("", |(name, _)| name)
    }
}

impl Quantity {
    /// Where it is measured.
    pub(super) fn group(&self) -> Group {
        match self {
            Self::Timed(..) => Group::Cores,
            Self::Guest(..) => Group::Guest,
            Self::Sum(parts) => parts.first().map_or(Group::Count, |(_, part)| part.group()),
            Self::Quotient(part, _) => part.group(),
            Self::Instructions(_)
            | Self::Locked(_)
            | Self::Allocations(_)
            | Self::Printed(..)
            | Self::Told(..)
            | Self::Stated(_) => Group::Count,
        }
    }

    /// Adds what has to be measured for it, each quantity once.
    pub(super) fn leaves(&self, leaves: &mut Vec<Self>) {
        match self {
            Self::Sum(parts) => parts.iter().for_each(|(_, part)| part.leaves(leaves)),
            Self::Quotient(part, whole) => [part, whole].into_iter().for_each(|one| one.leaves(leaves)),
            Self::Stated(_) => {}
            leaf if !leaves.contains(leaf) => leaves.push(*leaf),
            _ => {}
        }
    }

    /// The program on this machine that a leaf is of.
    #[cfg(test)]
    pub(super) fn program(&self) -> Option<Program> {
        match self {
            Self::Instructions(program)
            | Self::Locked(program)
            | Self::Allocations(program)
            | Self::Printed(program, _)
            | Self::Told(program, _)
            | Self::Timed(program, _) => Some(*program),
            Self::Guest(..) | Self::Stated(_) | Self::Sum(_) | Self::Quotient(..) => None,
        }
    }

    /// Its value, from what was measured of its leaves.
    pub(super) fn value(&self, measured: &impl Fn(&Self) -> Measured) -> Measured {
        match self {
            Self::Sum(parts) => weighted(parts.iter().map(|(weight, part)| (*weight, part.value(measured)))),
            Self::Stated(value) => Ok(super::figure::Figure::exact(*value)),
            Self::Quotient(part, whole) => quotient(part.value(measured)?, whole.value(measured)?),
            leaf => measured(leaf),
        }
    }

    /// How a person would get it.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Instructions(program) => format!("instructions of {}", program.text()),
            Self::Locked(program) => format!("locked operations of {}", program.text()),
            Self::Allocations(program) => format!("allocations of {}", program.text()),
            Self::Printed(program, name) | Self::Told(program, name) => format!("{name} of {}", program.text()),
            Self::Timed(program, _) => format!("time of {}", program.text()),
            Self::Guest(key, _) => format!("{key} in the guest"),
            Self::Stated(_) => "stated".to_owned(),
            Self::Sum(parts) => {
                let parts: Vec<_> = parts.iter().map(|(weight, part)| weighed(*weight, &part.text())).collect();
                let text = parts.concat();
                text.strip_prefix(" + ").unwrap_or(&text).to_owned()
            }
            Self::Quotient(part, whole) => format!("({}) / ({})", part.text(), whole.text()),
        }
    }
}

/// One part of a sum, with its sign in front.
fn weighed(weight: f64, part: &str) -> String {
    let sign = if weight < 0.0 { '-' } else { '+' };
    if weight.abs() == 1.0 { format!(" {sign} {part}") } else { format!(" {sign} {} x {part}", readable(weight.abs())) }
}

#[cfg(test)]
mod tests {
    use super::super::figure::Figure;
    use super::*;

    const PROGRAM: Program =
        Program { source: Source::Ours("request-cost"), arguments: &["remote", "32"], iterations: ITERATIONS };
    const PRICE: Quantity = Quantity::Sum(&[
        (1.0, Quantity::Instructions(PROGRAM)),
        (-1.0, Quantity::Stated(5.0)),
        (0.5, Quantity::Instructions(PROGRAM)),
    ]);

    #[test]
    fn a_sum_is_measured_by_its_parts_once_each() {
        let mut leaves = Vec::new();
        PRICE.leaves(&mut leaves);
        PRICE.leaves(&mut leaves);
        assert_eq!(leaves, [Quantity::Instructions(PROGRAM)]);
        assert_eq!(PRICE.value(&|_| Ok(Figure::exact(100.0))), Ok(Figure::exact(145.0)));
        let text = "instructions of request-cost remote 32";
        assert_eq!(PRICE.text(), format!("{text} - stated + 0.5 x {text}"));
        assert_eq!(PRICE.value(&|leaf| Err(leaf.text())), Err("instructions of request-cost remote 32".to_owned()));
    }

    #[test]
    fn quantities_belong_to_where_they_are_measured() {
        for (quantity, group) in [
            (PRICE, "count"),
            (Quantity::Timed(PROGRAM, Best::Least), "cores"),
            (Quantity::Sum(&[(1.0, Quantity::Guest("key", Best::Least))]), "guest"),
        ] {
            assert_eq!(quantity.group().name(), group);
        }
    }
}
