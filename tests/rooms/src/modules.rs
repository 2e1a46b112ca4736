//! The modules of a crate: their files, what each defines, and what each names or hands on.

use proc_macro2::{TokenStream, TokenTree};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
};
use syn::{Attribute, Item, UseTree, Visibility};

/// A module.
#[derive(Default)]
pub(crate) struct Module {
    /// The one that it is in; of the crate, itself.
    pub(crate) parent: usize,
    /// Its file.
    pub(crate) file: usize,
    /// Modules in it.
    pub(crate) children: BTreeMap<String, usize>,
    /// What it defines itself.
    pub(crate) defined: BTreeSet<String>,
    /// Names that `use` gives to paths, by whichever name.
    pub(crate) used: BTreeMap<String, Vec<String>>,
    /// Paths of which it takes all.
    pub(crate) globs: Vec<Vec<String>>,
    /// Its code but for modules in it, and paths of `use` that it keeps to itself.
    pub(crate) items: Vec<Item>,
    /// Likewise.
    pub(crate) takes: Vec<Vec<String>>,
}

/// All modules of a crate, of which the first is the crate.
pub(crate) struct Modules {
    files: Vec<PathBuf>,
    pub(crate) all: Vec<Module>,
}

/// A file could not be read.
pub(crate) struct Unreadable {
    file: PathBuf,
    why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be read: {}", self.file.display(), self.why)
    }
}

impl Modules {
    /// Of the crate with this root, which is told from the repository on.
    pub(crate) fn read(repository: &Path, root: &Path) -> Result<Self, Unreadable> {
        let mut modules = Self { files: Vec::new(), all: Vec::new() };
        let folder = root.parent().unwrap_or(root).to_owned();
        modules.read_file(repository, root.to_owned(), folder, 0)?;
        Ok(modules)
    }

    /// Where a file is, from the repository on.
    pub(crate) fn file(&self, at: usize) -> std::path::Display<'_> {
        self.files[at].display()
    }

    /// `folder`: where the modules in it have their files.
    fn read_file(
        &mut self,
        repository: &Path,
        file: PathBuf,
        folder: PathBuf,
        parent: usize,
    ) -> Result<usize, Unreadable> {
        let unreadable = |why: String| Unreadable { file: file.clone(), why };
        let text = fs::read_to_string(repository.join(&file)).map_err(|error| unreadable(error.to_string()))?;
        let parsed = syn::parse_file(&text).map_err(|error| unreadable(error.to_string()))?;
        self.files.push(file);
        self.take(repository, parsed.items, (self.files.len() - 1, folder), parent)
    }

    /// A module with these items.
    fn take(
        &mut self,
        repository: &Path,
        items: Vec<Item>,
        (file, folder): (usize, PathBuf),
        parent: usize,
    ) -> Result<usize, Unreadable> {
        let at = self.all.len();
        self.all.push(Module { parent, file, ..Module::default() });
        for item in items.into_iter().filter(|item| !is_of_tests(attributes(item))) {
            self.all[at].defined.extend(defined_name(&item));
            if let Item::Macro(called) = &item {
                self.all[at].defined.extend(defined_by(called.mac.tokens.clone()));
            }
            match item {
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let inside = folder.join(&name);
                    let child = match module.content {
                        Some((_, items)) => self.take(repository, items, (file, inside), at)?,
                        None => {
                            let places = [folder.join(format!("{name}.rs")), inside.join("mod.rs")];
                            let is_there = |place: &PathBuf| repository.join(place).is_file();
                            // What a `path` names elsewhere is for tests.
                            let Some(place) = places.into_iter().find(is_there) else { continue };
                            self.read_file(repository, place, inside, at)?
                        }
                    };
                    self.all[at].children.insert(name, child);
                }
                Item::Use(taken) => {
                    let hands_on = !matches!(taken.vis, Visibility::Inherited);
                    self.all[at].take_use(&taken.tree, &mut Vec::new(), hands_on);
                }
                item => self.all[at].items.push(item),
            }
        }
        Ok(at)
    }
}

impl Module {
    fn take_use(&mut self, tree: &UseTree, before: &mut Vec<String>, hands_on: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.take_use(&path.tree, before, hands_on);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.take_use(tree, before, hands_on)),
            UseTree::Name(name) => self.take_name(&name.ident.to_string(), None, before, hands_on),
            UseTree::Rename(name) => {
                self.take_name(&name.ident.to_string(), Some(name.rename.to_string()), before, hands_on);
            }
            UseTree::Glob(_) => self.globs.push(before.clone()),
        }
    }

    fn take_name(&mut self, name: &str, renamed: Option<String>, before: &[String], hands_on: bool) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name.to_owned());
        }
        let Some(last) = path.last() else { return };
        self.used.insert(renamed.unwrap_or_else(|| last.clone()), path.clone());
        if !hands_on {
            self.takes.push(path);
        }
    }
}

/// `#[cfg(test)]`, or a part of it, and what loom checks.
fn is_of_tests(attributes: &[Attribute]) -> bool {
    let is_of_tests = |attribute: &Attribute| {
        let Ok(list) = attribute.meta.require_list() else { return false };
        let text = list.tokens.to_string();
        list.path.is_ident("cfg") && (text == "test" || text.starts_with("all (test") || text.starts_with("all(test"))
    };
    attributes.iter().any(is_of_tests)
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// What a macro is given to define, as `options!` a struct.
fn defined_by(tokens: TokenStream) -> Vec<String> {
    let mut names: Vec<_> = tokens.into_iter().collect();
    names.retain(|token| !matches!(token, TokenTree::Group(_)));
    let defines = |pair: &[TokenTree]| match pair {
        [TokenTree::Ident(kind), TokenTree::Ident(name)] => {
            let is_type = ["struct", "enum", "union"].iter().any(|word| kind == word);
            is_type.then(|| name.to_string())
        }
        _ => None,
    };
    names.windows(2).filter_map(defines).collect()
}

fn defined_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}
