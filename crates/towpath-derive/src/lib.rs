//! `#[derive(Job)]` of the crate `towpath`. An internal part: depend on `towpath`, which exports it.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{DeriveInput, Error, Expr, Lit, LitStr, parse_macro_input, spanned::Spanned};

/// Makes a type a job: `#[job(kind = "resize")]`, and optionally the defaults `max_attempts`, `priority`, `executor`,
/// `domain` and `actor` of its enqueue.
#[proc_macro_derive(Job, attributes(job))]
pub fn derive_job(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    job(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn job(input: &DeriveInput) -> Result<Tokens, Error> {
    let (mut kind, mut defaults) = (None, vec![]);
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("job")) {
        attribute.parse_nested_meta(|meta| {
            let name = meta.path.require_ident()?.clone();
            let value: Expr = meta.value()?.parse()?;
            match name.to_string().as_str() {
                "kind" => kind = Some(text(&value)?),
                "max_attempts" | "priority" | "executor" | "domain" | "actor" => {
                    defaults.push(quote!(.#name(#value)));
                }
                _ => {
                    return Err(meta.error(
                        "unknown option; there are kind, max_attempts, priority, executor, domain and actor",
                    ));
                }
            }
            Ok(())
        })?;
    }
    let kind = kind.ok_or_else(|| {
        Error::new(
            input.ident.span(),
            "a job needs a kind: add #[job(kind = \"resize\")] with a name of yours",
        )
    })?;
    let name = &input.ident;
    let (implemented, generics, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        impl #implemented ::towpath::Job for #name #generics #bounds {
            const KIND: &'static str = #kind;

            fn defaults() -> ::towpath::EnqueueOptions {
                ::towpath::EnqueueOptions::default() #(#defaults)*
            }
        }
    })
}

/// The kind is a text that is not blank.
fn text(value: &Expr) -> Result<LitStr, Error> {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) if !text.value().trim().is_empty() => Ok(text.clone()),
            _ => Err(Error::new(value.span(), "a kind is a text such as \"resize\"")),
        },
        _ => Err(Error::new(value.span(), "a kind is a text such as \"resize\"")),
    }
}
