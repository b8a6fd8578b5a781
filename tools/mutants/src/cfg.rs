//! Which code is compiled into the addon of this machine: a mistake elsewhere would change nothing.

use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

/// Whether all `#[cfg(…)]` of an item hold.
pub(crate) fn is_compiled(attributes: &[Attribute]) -> bool {
    let tests = attributes.iter().any(|it| it.path().is_ident("test"));
    !tests
        && attributes
            .iter()
            .filter(|it| it.path().is_ident("cfg"))
            .all(|it| it.parse_args::<Meta>().is_ok_and(|meta| holds(&meta)))
}

fn holds(meta: &Meta) -> bool {
    match meta {
        Meta::Path(path) => path.is_ident("unix") || path.is_ident("debug_assertions"),
        Meta::NameValue(pair) => {
            let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(value), .. }) = &pair.value else {
                return false;
            };
            let value = value.value();
            let is = |name, values: &[&str]| pair.path.is_ident(name) && values.contains(&&*value);
            is("feature", &["core", "node"])
                || is("target_os", &["linux"])
                || is("target_family", &["unix"])
                || is("target_env", &["gnu"])
        }
        Meta::List(list) => {
            let parser = Punctuated::<Meta, Token![,]>::parse_terminated;
            let Ok(parts) = list.parse_args_with(parser) else { return false };
            if list.path.is_ident("not") {
                !parts.iter().any(holds)
            } else if list.path.is_ident("any") {
                parts.iter().any(holds)
            } else {
                parts.iter().all(holds)
            }
        }
    }
}
