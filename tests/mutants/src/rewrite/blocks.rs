//! Statements that are left out.

use super::{Rewriter, functions, place, text};
use syn::{BinOp, Block, Expr, Pat, Stmt, parse_quote};

pub(super) fn visit(rewriter: &mut Rewriter<'_>, block: &mut Block) {
    visit_body(rewriter, block);
}

pub(super) fn visit_body(rewriter: &mut Rewriter<'_>, block: &mut Block) {
    let clean = block.stmts.clone();
    functions::visit_children(rewriter, block);
    for (statement, clean) in block.stmts.iter_mut().zip(&clean) {
        if !can_be_left_out(clean) {
            continue;
        }
        if let Some(switch) = rewriter.switch(place(clean), format!("leaves out `{}`", text(clean))) {
            *statement = parse_quote!(if !#switch { #statement });
        }
    }
}

/// Calls, and what is stored where it is seen from elsewhere.
fn can_be_left_out(statement: &Stmt) -> bool {
    match statement {
        Stmt::Expr(expr, Some(_)) => functions::is_call(expr) || is_store(expr),
        Stmt::Local(local) => {
            matches!(local.pat, Pat::Wild(_)) && local.init.as_ref().is_some_and(|init| init.diverge.is_none())
        }
        _ => false,
    }
}

/// What may be left out where a value of unit type stands.
pub(super) fn is_store(expr: &Expr) -> bool {
    match expr {
        Expr::Assign(assign) => {
            matches!(*assign.left, Expr::Field(_) | Expr::Index(_) | Expr::Unary(_) | Expr::Tuple(_))
        }
        Expr::Binary(binary) => matches!(
            binary.op,
            BinOp::AddAssign(_)
                | BinOp::SubAssign(_)
                | BinOp::BitOrAssign(_)
                | BinOp::BitAndAssign(_)
                | BinOp::ShrAssign(_)
        ),
        _ => false,
    }
}
