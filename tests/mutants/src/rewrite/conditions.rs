//! Conditions that always or never hold.

use super::{Rewriter, blocks, functions, handwritten, place, text};
use syn::visit_mut::VisitMut;
use syn::{Arm, BinOp, Expr, parse_quote};

/// Visits an `if` or a `while`.
pub(super) fn visit(rewriter: &mut Rewriter<'_>, expr: &mut Expr) {
    match expr {
        Expr::If(taken) => {
            if !handwritten::never_holds(&taken.cond) {
                condition(rewriter, &mut taken.cond, true);
                rewriter.visit_block_mut(&mut taken.then_branch);
            }
            if let Some((_, other)) = &mut taken.else_branch {
                rewriter.visit_expr_mut(other);
            }
        }
        Expr::While(repeated) => {
            // One that always holds only ends by a time-out.
            condition(rewriter, &mut repeated.cond, false);
            rewriter.visit_block_mut(&mut repeated.body);
        }
        _ => {}
    }
}

fn condition(rewriter: &mut Rewriter<'_>, held: &mut Expr, may_always_hold: bool) {
    let clean = held.clone();
    rewriter.visit_expr_mut(held);
    if binds(&clean) {
        if let Some(switch) = rewriter.switch(place(&clean), format!("`{}` never holds", text(&clean))) {
            *held = parse_quote!(!#switch && #held);
        }
        return;
    }
    let mut variants = vec![(parse_quote!(false), format!("`{}` never holds", text(&clean)))];
    if may_always_hold {
        variants.push((parse_quote!(true), format!("`{}` always holds", text(&clean))));
    }
    *held = rewriter.choose(place(&clean), held.clone(), variants);
}

/// Whether a condition binds names by `let`.
pub(super) fn binds(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => matches!(binary.op, BinOp::And(_)) && (binds(&binary.left) || binds(&binary.right)),
        _ => false,
    }
}

/// Visits a match's arm: its guard, and what it does where that is a call.
pub(super) fn visit_arm(rewriter: &mut Rewriter<'_>, arm: &mut Arm) {
    if super::visitor::is_conditional(&arm.attrs) {
        return;
    }
    if arm.guard.as_ref().is_some_and(|(_, guard)| handwritten::never_holds(guard)) {
        return;
    }
    if let Some((_, guard)) = &mut arm.guard {
        condition(rewriter, guard, true);
    }
    let clean = arm.body.clone();
    rewriter.visit_expr_mut(&mut arm.body);
    // Where the arm has a value this does not compile, and is left out.
    if (functions::is_call(&clean) || blocks::is_store(&clean))
        && let Some(switch) = rewriter.switch(place(&clean), format!("leaves out the arm `{}`", text(&clean)))
    {
        let body = &arm.body;
        arm.body = parse_quote!(if !#switch { #body });
    }
}
