//! Which mutants an error of the compiler is due to.

use crate::mutant::Mutant;
use crate::rewrite::LeftOut;
use crate::switch::MODULE;
use proc_macro2::{LineColumn, Span};
use quote::ToTokens;
use serde_json::Value;
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{Visit, visit_expr_if};
use syn::{Expr, ExprIf, Lit};

/// The compiler's code for a call of what is not `const` where only that may be called.
const NOT_CONST: &str = "E0015";

type Range = (LineColumn, LineColumn);

/// Adds to `left_out` what has to go for this error to go; whether there was anything.
pub(crate) fn blame(message: &Value, root: &Path, mutants: &[Mutant], left_out: &mut LeftOut) -> bool {
    let before = (left_out.mutants.len(), left_out.constant.len());
    if message["code"]["code"] == NOT_CONST {
        keep_const(message, mutants, left_out);
    } else {
        for span in message["spans"].as_array().into_iter().flatten().filter(|span| span["is_primary"] == true) {
            blame_span(span, root, mutants, left_out);
        }
    }
    before != (left_out.mutants.len(), left_out.constant.len())
}

/// The message names the function, of which there may be several: all of that name stay `const`.
fn keep_const(message: &Value, mutants: &[Mutant], left_out: &mut LeftOut) {
    let text = message["message"].as_str().unwrap_or_default();
    let Some(path) = text.split('`').nth(1) else { return };
    let name = path.rsplit("::").next().unwrap_or(path);
    let name = name.split(['<', '(']).next().unwrap_or(name);
    for mutant in mutants {
        if mutant.function.rsplit("::").next() == Some(name) {
            left_out.constant.insert((mutant.file.clone(), mutant.function.clone()));
        }
    }
}

fn blame_span(span: &Value, root: &Path, mutants: &[Mutant], left_out: &mut LeftOut) {
    let file = span["file_name"].as_str().unwrap_or_default();
    let Some(text) =
        mutants.iter().find(|mutant| mutant.file == file).and_then(|_| std::fs::read_to_string(root.join(file)).ok())
    else {
        // A macro of elsewhere: what called it is at fault.
        if span["expansion"]["span"].is_object() {
            blame_span(&span["expansion"]["span"], root, mutants, left_out);
        }
        return;
    };
    let Ok(parsed) = syn::parse_file(&text) else { return };
    let mut found = Regions { of: range(span), regions: Vec::new(), function: None };
    found.visit_file(&parsed);
    match found
        .regions
        .iter()
        .min_by_key(|(_, (begin, end))| (end.line - begin.line, end.column.wrapping_sub(begin.column)))
    {
        Some(&(innermost, _)) => {
            let lines = |number| {
                mutants.iter().find(|mutant| mutant.number == number).map(|mutant| (mutant.line, mutant.last_line))
            };
            let same = found.regions.iter().filter(|(number, _)| lines(*number) == lines(innermost));
            leave_out(same.map(|(number, _)| *number), mutants, left_out);
        }
        None => {
            let Some((begin, end)) = found.function else { return };
            let mut within = Regions { of: (begin, begin), regions: Vec::new(), function: None };
            within.of = (end, begin);
            within.visit_file(&parsed);
            let within = within.regions.iter().filter(|(_, (from, to))| begin <= *from && *to <= end);
            leave_out(within.map(|(number, _)| *number), mutants, left_out);
        }
    }
}

fn leave_out(numbers: impl Iterator<Item = u32>, mutants: &[Mutant], left_out: &mut LeftOut) {
    let named = |number| mutants.iter().find(|mutant| mutant.number == number).map(Mutant::identity);
    left_out.mutants.extend(numbers.filter_map(named));
}

fn range(span: &Value) -> Range {
    let at = |line: &str, column: &str| LineColumn {
        line: span[line].as_u64().unwrap_or(0) as usize,
        column: span[column].as_u64().unwrap_or(1).saturating_sub(1) as usize,
    };
    (at("line_start", "column_start"), at("line_end", "column_end"))
}

/// The parts of a rewritten file that mutants are, around a place; with an end in front of its begin: all of them.
struct Regions {
    of: Range,
    regions: Vec<(u32, Range)>,
    /// The innermost function around the place.
    function: Option<Range>,
}

impl Regions {
    fn is_in(&self, region: Range) -> bool {
        self.of.1 < self.of.0 || region.0 <= self.of.0 && self.of.1 <= region.1
    }

    fn note_function(&mut self, span: Span) {
        let region = (span.start(), span.end());
        if self.is_in(region) {
            self.function = Some(region);
        }
    }
}

impl Visit<'_> for Regions {
    fn visit_item_fn(&mut self, item: &syn::ItemFn) {
        self.note_function(item.span());
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        self.note_function(item.span());
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_expr_if(&mut self, taken: &ExprIf) {
        if let Some(number) = switched(&taken.cond) {
            let parts = [taken.then_branch.span(), taken.span()];
            for part in parts.map(|span| (span.start(), span.end())) {
                if self.is_in(part) {
                    self.regions.push((number, part));
                    break;
                }
            }
        }
        visit_expr_if(self, taken);
    }
}

/// The number of the mutant that a condition switches on or off.
fn switched(condition: &Expr) -> Option<u32> {
    match condition {
        Expr::Unary(negated) => switched(&negated.expr),
        Expr::Binary(binary) => switched(&binary.left),
        Expr::Call(call) if call.func.to_token_stream().to_string().contains(MODULE) => match call.args.first()? {
            Expr::Lit(number) => match &number.lit {
                Lit::Int(number) => number.base10_parse().ok(),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}
