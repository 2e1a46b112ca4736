//! Functions that return at once.

use super::{Rewriter, visitor::is_conditional};
use quote::{ToTokens, quote};
use syn::visit_mut::visit_block_mut;
use syn::{Attribute, Block, Expr, ReturnType, Signature, Stmt, Type, parse_quote};

/// What prints, compares for a test or makes something new decides nothing.
const NEVER: &[&str] = &["fmt", "default"];

pub(super) fn visit(
    rewriter: &mut Rewriter<'_>,
    attributes: &[Attribute],
    signature: &mut Signature,
    block: &mut Block,
) {
    let name = signature.ident.to_string();
    let full = if rewriter.of.is_empty() { name.clone() } else { format!("{}::{name}", rewriter.of) };
    let stays_const = rewriter.left_out.constant.contains(&(rewriter.file.to_owned(), full.clone()));
    if is_conditional(attributes) || NEVER.contains(&name.as_str()) || stays_const {
        return;
    }
    signature.constness = None;
    // A function inside another one is a part of it.
    let outer = rewriter.function.take();
    rewriter.function = Some(outer.clone().unwrap_or(full));
    let returns = early_returns(&signature.output, block);
    let early: Vec<Stmt> = returns
        .into_iter()
        .filter_map(|value| {
            let what =
                format!("returns {} at once", if value.is_empty() { "".to_owned() } else { super::text(&value) });
            let switch = rewriter.switch(super::place(&signature.ident), what.replace("  ", " "))?;
            Some(parse_quote!(if #switch { return #value; }))
        })
        .collect();
    super::blocks::visit_body(rewriter, block);
    block.stmts.splice(0..0, early);
    rewriter.function = outer;
}

/// What a function of this type may return without having done anything.
fn early_returns(output: &ReturnType, block: &Block) -> Vec<proc_macro2::TokenStream> {
    if block.stmts.is_empty() {
        return Vec::new();
    }
    let ReturnType::Type(_, returned) = output else { return vec![quote!()] };
    let Type::Path(path) = &**returned else { return Vec::new() };
    let Some(last) = path.path.segments.last() else { return Vec::new() };
    let all = match last.ident.to_string().as_str() {
        "bool" => vec![quote!(true), quote!(false)],
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" => vec![quote!(0), quote!(1)],
        "Option" => vec![quote!(None)],
        "Duration" => vec![quote!(core::time::Duration::ZERO), quote!(core::time::Duration::MAX)],
        "Result" if last.arguments.to_token_stream().to_string().starts_with("< ()") => vec![quote!(Ok(()))],
        _ => Vec::new(),
    };
    let whole = match block.stmts.as_slice() {
        [Stmt::Expr(only, None)] => Some(only.to_token_stream().to_string()),
        _ => None,
    };
    all.into_iter().filter(|value| whole.as_ref() != Some(&value.to_string())).collect()
}

/// The statements of a block, one after the other.
pub(super) fn visit_children(rewriter: &mut Rewriter<'_>, block: &mut Block) {
    visit_block_mut(rewriter, block);
}

/// Whether a value comes of calling something.
pub(super) fn is_call(expr: &Expr) -> bool {
    match expr {
        Expr::Call(_) | Expr::MethodCall(_) => true,
        Expr::Try(tried) => is_call(&tried.expr),
        _ => false,
    }
}
