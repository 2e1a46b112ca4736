//! Operators, numbers and methods that become their neighbours.

use super::{Rewriter, conditions, place, text};
use syn::{BinOp, Expr, ExprBinary, ExprLit, ExprMethodCall, ExprUnary, Lit, LitInt, UnOp, parse_quote};

/// Methods, and what is easily written instead.
const METHODS: &[(&str, &str)] = &[
    ("min", "max"),
    ("max", "min"),
    ("any", "all"),
    ("all", "any"),
    ("wrapping_add", "wrapping_sub"),
    ("wrapping_sub", "wrapping_add"),
    ("saturating_add", "saturating_sub"),
    ("saturating_sub", "saturating_add"),
    ("push_back", "push_front"),
    ("pop_front", "pop_back"),
    ("is_some", "is_none"),
    ("is_none", "is_some"),
    ("is_ok", "is_err"),
    ("is_err", "is_ok"),
];

/// Puts the mutants of an expression behind their switches; `clean` is the expression without any.
pub(super) fn mutate(rewriter: &mut Rewriter<'_>, clean: &Expr, expr: &mut Expr) {
    let variants: Vec<Expr> = match clean {
        Expr::Binary(binary) if !conditions::binds(clean) => of_binary(binary),
        Expr::Unary(ExprUnary { op: UnOp::Not(_), expr: negated, .. }) => vec![(**negated).clone()],
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => of_number(number),
        Expr::MethodCall(call) => of_method(call),
        _ => return,
    };
    let described = variants
        .into_iter()
        .map(|variant| {
            let what = format!("`{}` becomes `{}`", text(clean), text(&variant));
            (variant, what)
        })
        .collect();
    *expr = rewriter.choose(place(clean), expr.clone(), described);
}

fn of_binary(binary: &ExprBinary) -> Vec<Expr> {
    let others: Vec<BinOp> = match binary.op {
        BinOp::Eq(_) => vec![parse_quote!(!=)],
        BinOp::Ne(_) => vec![parse_quote!(==)],
        BinOp::Lt(_) => vec![parse_quote!(<=), parse_quote!(>=)],
        BinOp::Le(_) => vec![parse_quote!(<), parse_quote!(>)],
        BinOp::Gt(_) => vec![parse_quote!(>=), parse_quote!(<=)],
        BinOp::Ge(_) => vec![parse_quote!(>), parse_quote!(<)],
        BinOp::And(_) => vec![parse_quote!(||)],
        BinOp::Or(_) => vec![parse_quote!(&&)],
        BinOp::Add(_) => vec![parse_quote!(-)],
        BinOp::Sub(_) => vec![parse_quote!(+)],
        BinOp::AddAssign(_) => vec![parse_quote!(-=)],
        BinOp::SubAssign(_) => vec![parse_quote!(+=)],
        _ => Vec::new(),
    };
    others.into_iter().map(|op| Expr::Binary(ExprBinary { op, ..binary.clone() })).collect()
}

fn of_number(number: &LitInt) -> Vec<Expr> {
    let Ok(value) = number.base10_parse::<u128>() else { return Vec::new() };
    let other = if value == 1 { 0 } else { value + 1 };
    let other = LitInt::new(&format!("{other}{}", number.suffix()), number.span());
    vec![parse_quote!(#other)]
}

fn of_method(call: &ExprMethodCall) -> Vec<Expr> {
    METHODS
        .iter()
        .filter(|(from, _)| call.method == from)
        .map(|(_, to)| {
            let method = syn::Ident::new(to, call.method.span());
            Expr::MethodCall(ExprMethodCall { method, ..call.clone() })
        })
        .collect()
}
