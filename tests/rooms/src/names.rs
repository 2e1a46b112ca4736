//! Which file names what of which other one.

use crate::modules::{Module, Modules};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// From a file to another one: the names.
pub(crate) type Arrows = BTreeMap<(usize, usize), BTreeSet<String>>;

/// How many modules a name may be handed on by: more than any is, and an end for two that hand on to each other.
const MOST_HANDS: usize = 16;

/// Of a crate.
pub(crate) fn arrows(modules: &Modules) -> Arrows {
    let mut arrows = Arrows::new();
    for (at, module) in modules.all.iter().enumerate() {
        let mut paths = Paths(module.takes.clone());
        module.items.iter().for_each(|item| paths.visit_item(item));
        for path in paths.0 {
            if let Some((file, name)) = modules.defines(at, &path, MOST_HANDS)
                && !modules.is_around(file, at)
            {
                arrows.entry((module.file, file)).or_default().insert(name);
            }
        }
    }
    arrows
}

impl Modules {
    /// Whether a file is that of a module, or of one that it is in.
    fn is_around(&self, file: usize, at: usize) -> bool {
        let module = &self.all[at];
        file == module.file || (module.parent != at && self.is_around(file, module.parent))
    }

    /// The file in which that is defined to which a path in a module leads, and the name there; `None` of what is not of this crate.
    fn defines(&self, at: usize, path: &[String], hands: usize) -> Option<(usize, String)> {
        let (mut at, mut rest, mut is_first) = (at, path, true);
        if hands == 0 {
            return None;
        }
        while let Some((name, further)) = rest.split_first() {
            let module = &self.all[at];
            match name.as_str() {
                "crate" => at = 0,
                "self" => {}
                "super" => at = module.parent,
                _ => {
                    if let Some(child) = module.children.get(name) {
                        at = *child;
                    } else if module.defined.contains(name) {
                        return Some((module.file, name.clone()));
                    } else {
                        return self.handed_on(at, name, further, hands, is_first);
                    }
                }
            }
            (rest, is_first) = (further, false);
        }
        // A module itself: what is taken of it is named where it is used.
        None
    }

    /// What a module has by `use`.
    fn handed_on(
        &self,
        at: usize,
        name: &str,
        further: &[String],
        hands: usize,
        is_first: bool,
    ) -> Option<(usize, String)> {
        let module = &self.all[at];
        if let Some(path) = module.used.get(name) {
            // That of a `use` which names what it is called by would lead to itself.
            if is_first && path.first().is_some_and(|first| first == name) && !self.is_inside(module, name) {
                return None;
            }
            return self.defines(at, &[path, further].concat(), hands - 1);
        }
        let of_glob = |path: &Vec<String>| {
            let is_of_crate = path.first().is_some_and(|first| matches!(first.as_str(), "crate" | "self" | "super"))
                || path.first().is_some_and(|first| self.is_inside(module, first));
            let whole = [&path[..], &[name.to_owned()], further].concat();
            is_of_crate.then(|| self.defines(at, &whole, hands - 1)).flatten()
        };
        module.globs.iter().find_map(of_glob)
    }

    fn is_inside(&self, module: &Module, name: &str) -> bool {
        module.children.contains_key(name)
    }
}

/// Paths of code, and what may be some within macros.
struct Paths(Vec<Vec<String>>);

impl Paths {
    fn visit_tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut follows) = (Vec::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if follows < 2 && !path.is_empty() {
                        self.0.push(core::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    follows = 0;
                    continue;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => follows += 1,
                TokenTree::Group(group) => {
                    self.visit_tokens(group.stream());
                    follows = 0;
                }
                _ => follows = 0,
            }
            if follows == 0 && !path.is_empty() {
                self.0.push(core::mem::take(&mut path));
            }
        }
        if !path.is_empty() {
            self.0.push(path);
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.visit_tokens(called.tokens.clone());
        visit::visit_macro(self, called);
    }
}
