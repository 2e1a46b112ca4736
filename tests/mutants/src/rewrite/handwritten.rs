//! Places of `mutant!(NAME)`, the mutants that were written by hand: their conditions are not changed, nor what only they reach.

use std::collections::BTreeSet;
use syn::{BinOp, Expr};

/// What they are called in the source.
const MACRO: &str = "mutant";

/// Lines that have one.
pub(super) fn lines(source: &str) -> BTreeSet<usize> {
    let call = format!("{MACRO}!(");
    (1..).zip(source.lines()).filter(|(_, line)| line.contains(&call)).map(|(number, _)| number).collect()
}

/// Whether a condition holds in no build of ours, because one of them would have to be on.
pub(super) fn never_holds(condition: &Expr) -> bool {
    match condition {
        Expr::Macro(called) => called.mac.path.segments.last().is_some_and(|last| last.ident == MACRO),
        Expr::Paren(inner) => never_holds(&inner.expr),
        Expr::Binary(both) if matches!(both.op, BinOp::And(_)) => never_holds(&both.left) || never_holds(&both.right),
        Expr::Binary(either) if matches!(either.op, BinOp::Or(_)) => {
            never_holds(&either.left) && never_holds(&either.right)
        }
        _ => false,
    }
}
