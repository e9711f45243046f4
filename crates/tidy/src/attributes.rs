//! Attributes that mark tests and code of test builds.
//!
//! Used to remove test code from shipped code.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{Attribute, Item, Meta};

/// Returns whether an attribute is `#[test]` or ends in `test`, such as `#[tokio::test]`.
#[must_use]
pub fn is_test(attribute: &Attribute) -> bool {
    let last = attribute.path().segments.last();
    last.is_some_and(|segment| segment.ident == "test")
}

/// Returns whether code with these attributes is compiled only for tests.
#[must_use]
pub fn are_test_only(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|attribute| is_test(attribute) || is_cfg_test(attribute))
}

fn is_cfg_test(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => requires_test(list.tokens.clone()),
        _ => false,
    }
}

/// Returns whether a `cfg` predicate can only hold in a test build: `test`, `all(…)` with
/// one such part, `any(…)` with only such parts. `not(…)` never does.
fn requires_test(predicate: TokenStream) -> bool {
    let tokens: Vec<_> = predicate.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(name)] => name == "test",
        [TokenTree::Ident(name), TokenTree::Group(group)]
            if group.delimiter() == Delimiter::Parenthesis =>
        {
            let parts = split_at_commas(group.stream());
            match name.to_string().as_str() {
                "all" => parts.into_iter().any(requires_test),
                "any" => !parts.is_empty() && parts.into_iter().all(requires_test),
                _ => false,
            }
        }
        _ => false,
    }
}

fn split_at_commas(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts = vec![Vec::new()];
    for token in tokens {
        match (&token, parts.last_mut()) {
            (TokenTree::Punct(punct), _) if punct.as_char() == ',' => parts.push(Vec::new()),
            (_, Some(part)) => part.push(token),
            (_, None) => {}
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.into_iter().map(TokenStream::from_iter).collect()
}

/// Returns the attributes of any item.
#[must_use]
pub fn of_item(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_only(attributes: &str) -> bool {
        let file = syn::parse_file(&format!("{attributes} fn f() {{}}")).unwrap();
        are_test_only(of_item(&file.items[0]))
    }

    #[test]
    fn tests_and_test_configurations_are_test_only() {
        for attributes in [
            "#[test]",
            "#[tokio::test(flavor = \"current_thread\")]",
            "#[cfg(test)]",
            "#[cfg(all(test, unix))]",
            "#[cfg(any(test, all(unix, test)))]",
            "#[inline] #[cfg(test)]",
        ] {
            assert!(test_only(attributes), "{attributes}");
        }
    }

    #[test]
    fn code_that_is_also_shipped_is_not_test_only() {
        for attributes in [
            "",
            "#[inline]",
            "#[cfg(not(test))]",
            "#[cfg(any(test, feature = \"sim\"))]",
            "#[cfg(feature = \"test\")]",
            "#[cfg_attr(test, inline)]",
        ] {
            assert!(!test_only(attributes), "{attributes}");
        }
    }
}
