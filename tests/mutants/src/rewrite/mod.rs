//! Puts every mutant of a file behind its switch.

mod blocks;
mod conditions;
mod functions;
mod handwritten;
mod operators;
mod visitor;

use crate::mutant::{Identity, Mutant};
use crate::switch::MODULE;
use proc_macro2::{Ident, Span};
use quote::ToTokens;
use std::collections::{BTreeSet, HashMap, HashSet};
use syn::spanned::Spanned;
use syn::{Expr, parse_quote};

/// Most characters of source text in a mutant's description.
const TEXT_CHARACTERS: usize = 90;

/// What is left out of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut {
    /// Mutants that do not compile. Not by their numbers, which change with what is left out.
    pub(crate) mutants: HashSet<Identity>,
    /// `const` functions that something calls where only those may be called: file, and name with type.
    pub(crate) constant: HashSet<(String, String)>,
}

/// A file's mutants, and its text with all of them.
pub(crate) struct Rewritten {
    pub(crate) text: String,
    pub(crate) mutants: Vec<Mutant>,
    /// The number of the next file's first.
    pub(crate) next: u32,
}

/// Rewrites one file, whose mutants are numbered from `first` on, without those that are left out, or not on wanted lines.
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
        handwritten: handwritten::lines(source),
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
    /// Lines of mutants that somebody wrote by hand: those have their own program.
    handwritten: BTreeSet<usize>,
}

impl Rewriter<'_> {
    /// A new mutant's switch; `None` where there is to be none.
    fn switch(&mut self, span: Span, what: String) -> Option<Expr> {
        let function = self.function.clone()?;
        let times = self.texts.entry((function.clone(), what.clone())).or_default();
        *times += 1;
        let what = if *times == 1 { what } else { format!("{what} ({times})") };
        let (number, line, last_line) = (self.next, span.start().line, span.end().line);
        let mutant = Mutant { number, file: self.file.to_owned(), line, last_line, function, what };
        let is_handwritten = self.handwritten.range(line..=last_line).next().is_some();
        if is_handwritten || self.left_out.mutants.contains(&mutant.identity()) || !(self.wanted)(line, last_line) {
            return None;
        }
        self.next += 1;
        self.mutants.push(mutant);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants(source: &str, left_out: &LeftOut) -> Vec<Mutant> {
        rewrite("a.rs", source, 1, left_out, &|_, _| true).unwrap().mutants
    }

    fn changes(source: &str) -> Vec<String> {
        mutants(source, &LeftOut::default()).into_iter().map(|mutant| mutant.what).collect()
    }

    #[test]
    fn every_condition_has_its_mutants() {
        let changes = changes("fn f(a: u8) { if a < 1 { g(); } }");
        for expected in ["`a < 1` never holds", "`a < 1` becomes `a <= 1`", "leaves out `g();`", "returns at once"] {
            assert!(changes.iter().any(|change| change == expected), "{expected}: {changes:?}");
        }
    }

    #[test]
    fn a_line_of_a_mutant_that_was_written_by_hand_has_no_others() {
        let source = "fn f(a: bool) -> P {\n    if a && !mutant!(M) { g(); }\n    h(mutant!(N));\n}";
        assert_eq!(changes(source), Vec::<String>::new());
    }

    #[test]
    fn what_only_such_a_mutant_reaches_has_none() {
        let source =
            "fn f(a: u8) -> P {\n    if a < 2 && mutant!(M) {\n        g();\n    } else {\n        h();\n    }\n}";
        assert_eq!(changes(source), ["leaves out `h();`"]);
        let source = "fn f(a: u8) -> P {\n    match a {\n        3 if mutant!(M) => {\n            g();\n        }\n        _ => {\n            h();\n        }\n    }\n}";
        assert_eq!(changes(source), ["leaves out `h();`"]);
    }

    /// What stays `const` has no mutants at all, so that the numbers of those behind it change.
    #[test]
    fn what_is_left_out_is_so_whatever_its_number_is() {
        let source = "const fn a() -> bool { 1 < 2 }\nfn b(x: u8) -> P { if x > 4 { g(); } }";
        let all = mutants(source, &LeftOut::default());
        let broken = all.iter().find(|mutant| mutant.what == "`x > 4` becomes `x >= 4`").unwrap();
        let left_out = LeftOut {
            mutants: HashSet::from([broken.identity()]),
            constant: HashSet::from([("a.rs".to_owned(), "a".to_owned())]),
        };
        let left = mutants(source, &left_out);
        assert!(left.iter().all(|mutant| mutant.function == "b" && mutant.what != broken.what));
        let of_b = |mutants: &[Mutant]| mutants.iter().filter(|mutant| mutant.function == "b").count();
        assert_eq!(of_b(&left), of_b(&all) - 1);
    }
}
