//! What is visited: bodies of functions, but nothing that is tests, constant, a pattern, a type or a macro's argument.

use super::{Rewriter, blocks, conditions, functions, operators};
use quote::ToTokens;
use syn::visit_mut::{VisitMut, visit_expr_mut, visit_item_impl_mut, visit_item_mod_mut, visit_item_trait_mut};
use syn::{
    Arm, Attribute, Block, Expr, GenericArgument, ImplItemConst, ImplItemFn, ItemConst, ItemFn, ItemImpl, ItemMod,
    ItemStatic, ItemTrait, Macro, Pat, TraitItemFn, Type, Variant,
};

/// Whether something is built only in some builds, tests among them.
pub(super) fn is_conditional(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg") || attribute.path().is_ident("test"))
}

/// The last name of a type.
fn name_of(named: &Type) -> String {
    match named {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        other => super::text(&other.to_token_stream()),
    }
}

impl VisitMut for Rewriter<'_> {
    fn visit_item_mod_mut(&mut self, item: &mut ItemMod) {
        if !is_conditional(&item.attrs) {
            visit_item_mod_mut(self, item);
        }
    }

    fn visit_item_impl_mut(&mut self, item: &mut ItemImpl) {
        if is_conditional(&item.attrs) {
            return;
        }
        let outer = std::mem::replace(&mut self.of, name_of(&item.self_ty));
        visit_item_impl_mut(self, item);
        self.of = outer;
    }

    fn visit_item_trait_mut(&mut self, item: &mut ItemTrait) {
        let outer = std::mem::replace(&mut self.of, item.ident.to_string());
        visit_item_trait_mut(self, item);
        self.of = outer;
    }

    fn visit_item_fn_mut(&mut self, item: &mut ItemFn) {
        functions::visit(self, &item.attrs, &mut item.sig, &mut item.block);
    }

    fn visit_impl_item_fn_mut(&mut self, item: &mut ImplItemFn) {
        functions::visit(self, &item.attrs, &mut item.sig, &mut item.block);
    }

    fn visit_trait_item_fn_mut(&mut self, item: &mut TraitItemFn) {
        if let Some(block) = &mut item.default {
            functions::visit(self, &item.attrs, &mut item.sig, block);
        }
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        blocks::visit(self, block);
    }

    fn visit_arm_mut(&mut self, arm: &mut Arm) {
        conditions::visit_arm(self, arm);
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Macro(_) | Expr::Const(_) => {}
            Expr::Repeat(repeat) => self.visit_expr_mut(&mut repeat.expr),
            Expr::Let(bound) => self.visit_expr_mut(&mut bound.expr),
            Expr::If(_) | Expr::While(_) => conditions::visit(self, expr),
            _ => {
                let clean = expr.clone();
                visit_expr_mut(self, expr);
                operators::mutate(self, &clean, expr);
            }
        }
    }

    fn visit_item_const_mut(&mut self, _: &mut ItemConst) {}
    fn visit_impl_item_const_mut(&mut self, _: &mut ImplItemConst) {}
    fn visit_item_static_mut(&mut self, _: &mut ItemStatic) {}
    fn visit_variant_mut(&mut self, _: &mut Variant) {}
    fn visit_generic_argument_mut(&mut self, _: &mut GenericArgument) {}
    fn visit_type_mut(&mut self, _: &mut Type) {}
    fn visit_pat_mut(&mut self, _: &mut Pat) {}
    fn visit_macro_mut(&mut self, _: &mut Macro) {}
    fn visit_attribute_mut(&mut self, _: &mut Attribute) {}
}
