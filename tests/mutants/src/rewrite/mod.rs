//! Puts every mutant of a file behind its switch.

mod blocks;
mod conditions;
mod functions;
mod operators;
mod visitor;

use crate::mutant::Mutant;
use crate::switch::MODULE;
use proc_macro2::{Ident, Span};
use quote::ToTokens;
use std::collections::{HashMap, HashSet};
use syn::spanned::Spanned;
use syn::{Expr, parse_quote};

/// Most characters of source text in a mutant's description.
const TEXT_CHARACTERS: usize = 90;

/// What is left out of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut {
    /// Numbers of mutants that do not compile.
    pub(crate) mutants: HashSet<u32>,
    /// `const` functions that something calls where only those may be called, with their types.
    pub(crate) constant: HashSet<String>,
}

/// A file's mutants, and its text with all of them.
pub(crate) struct Rewritten {
    pub(crate) text: String,
    pub(crate) mutants: Vec<Mutant>,
    /// The number of the next file's first.
    pub(crate) next: u32,
}

/// Rewrites one file, whose mutants are numbered from `first` on. Those that are left out, or not on wanted lines, keep their numbers.
pub(crate) fn rewrite(
    file: &str,
    source: &str,
    first: u32,
    left_out: &LeftOut,
    wanted: &dyn Fn(usize, usize) -> bool,
) -> Result<Rewritten, syn::Error> {
    let mut parsed = syn::parse_file(source)?;
    let mut rewriter = Rewriter {
        file,
        next: first,
        left_out,
        wanted,
        mutants: Vec::new(),
        of: String::new(),
        function: None,
        texts: HashMap::new(),
    };
    syn::visit_mut::VisitMut::visit_file_mut(&mut rewriter, &mut parsed);
    Ok(Rewritten { text: prettyplease::unparse(&parsed), mutants: rewriter.mutants, next: rewriter.next })
}

struct Rewriter<'a> {
    file: &'a str,
    next: u32,
    left_out: &'a LeftOut,
    wanted: &'a dyn Fn(usize, usize) -> bool,
    mutants: Vec<Mutant>,
    /// The type whose methods are visited.
    of: String,
    /// The function that is visited; `None` where there is none, or it stays `const`.
    function: Option<String>,
    /// How often a function has a description already.
    texts: HashMap<(String, String), u32>,
}

impl Rewriter<'_> {
    /// A new mutant's switch; `None` where there is to be none.
    fn switch(&mut self, span: Span, what: String) -> Option<Expr> {
        let function = self.function.clone()?;
        let number = self.next;
        self.next += 1;
        let times = self.texts.entry((function.clone(), what.clone())).or_default();
        *times += 1;
        let what = if *times == 1 { what } else { format!("{what} ({times})") };
        let (line, last_line) = (span.start().line, span.end().line);
        if self.left_out.mutants.contains(&number) || !(self.wanted)(line, last_line) {
            return None;
        }
        self.mutants.push(Mutant { number, file: self.file.to_owned(), line, last_line, function, what });
        let module = Ident::new(MODULE, Span::call_site());
        Some(parse_quote!(crate::#module::is(#number)))
    }

    /// An expression that is one of these where its switch is on, and the original otherwise.
    fn choose(&mut self, span: Span, original: Expr, variants: Vec<(Expr, String)>) -> Expr {
        let mut chosen = original;
        for (variant, what) in variants {
            if let Some(switch) = self.switch(span, what) {
                chosen = parse_quote!((if #switch { #variant } else { #chosen }));
            }
        }
        chosen
    }
}

/// Source text in one line, not too long.
fn text(tokens: &impl ToTokens) -> String {
    let text = tokens.to_token_stream().to_string();
    let text = tidy(&text);
    if text.chars().count() <= TEXT_CHARACTERS {
        text
    } else {
        text.chars().take(TEXT_CHARACTERS).chain("...".chars()).collect()
    }
}

/// Token streams print with a blank between any two tokens.
fn tidy(text: &str) -> String {
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (from, to) in [
        (" . ", "."),
        (" :: ", "::"),
        (" ( ", "("),
        ("( ", "("),
        (" )", ")"),
        (" ,", ","),
        ("& ", "&"),
        (" (", "("),
        (" ?", "?"),
        ("! ", "!"),
        (" [", "["),
        (" ;", ";"),
    ] {
        text = text.replace(from, to);
    }
    text
}

/// The place of a node in its file.
fn place(node: &impl Spanned) -> Span {
    node.span()
}
