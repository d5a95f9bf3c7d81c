//! One file per page.

pub(crate) mod audit;
pub(crate) mod bulk;
pub(crate) mod dead_letter;
pub(crate) mod dead_letters;
pub(crate) mod event;
pub(crate) mod events;
pub(crate) mod executors;
pub(crate) mod gates;
mod health;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod overview;
pub(crate) mod process;
pub(crate) mod processes;
pub(crate) mod route;
pub(crate) mod routes;
pub(crate) mod schedules;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod stream;
pub(crate) mod streams;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::App;
use crate::fault::Fault;
use crate::filters::percent;

/// An id in the path.
pub(crate) struct Id<T>(pub(crate) T);

impl<T: std::str::FromStr> FromRequestParts<App> for Id<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Id<T>, Fault> {
        let Path(text) = Path::<String>::from_request_parts(parts, app)
            .await
            .map_err(|error| Fault::NotFound(error.body_text()))?;
        text.parse().map(Id).map_err(|_| Fault::NotFound(format!("{text:?} is not an id")))
    }
}

/// The filter of a list, and what is wrong with it, if anything: the page shows both.
pub(crate) struct Filter<T> {
    pub(crate) asked: T,
    problem: Option<String>,
}

impl<T: DeserializeOwned + Default> FromRequestParts<App> for Filter<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Filter<T>, Fault> {
        let has_nul = parts.uri.query().is_some_and(|query| query.contains("%00"));
        Ok(match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(asked)) => {
                let problem = has_nul.then(|| "a filter cannot contain a NUL character".to_owned());
                Filter { asked, problem }
            }
            Err(error) => Filter { asked: T::default(), problem: Some(error.body_text()) },
        })
    }
}

impl<T> Filter<T> {
    /// Whether the filter is valid.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        self.problem.clone().map_or(Ok(()), |problem| Err(Fault::Invalid(problem)))
    }
}

/// The result, or nothing and the reason: an invalid filter is shown on the same page.
pub(crate) fn inline<F: Default>(found: Result<F, Fault>) -> Result<(F, Option<String>), Fault> {
    match found {
        Ok(found) => Ok((found, None)),
        Err(Fault::Invalid(why)) => Ok((F::default(), Some(why))),
        Err(fault) => Err(fault),
    }
}

/// A cursor in the URL; empty means the start.
pub(crate) fn read_cursor<C: std::str::FromStr>(text: &str, what: &str) -> Result<Option<C>, Fault> {
    let read = |text: String| text.parse().map_err(|_| Fault::Invalid(format!("{text:?} is not {what}")));
    given(text).map(read).transpose()
}

/// An empty query parameter counts as absent.
pub(crate) fn given(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The non-empty fields of a filter, as a query.
pub(crate) fn query(fields: &[(&str, &str)]) -> String {
    let narrowing =
        fields.iter().map(|(name, value)| (name, value.trim())).filter(|(_, value)| !value.is_empty());
    narrowing.map(|(name, value)| format!("{name}={}", percent(value))).collect::<Vec<_>>().join("&")
}

/// A command with the non-empty fields of a filter as flags, quoted for a shell.
pub(crate) fn command(base: &str, flags: &[(&str, &str)]) -> String {
    let narrowing =
        flags.iter().map(|(name, value)| (name, value.trim())).filter(|(_, value)| !value.is_empty());
    let flags = narrowing.map(|(name, value)| format!(" --{name} {}", quoted(value)));
    format!("{base}{}", flags.collect::<String>())
}

/// One shell word.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@".contains(&byte);
    match !word.is_empty() && word.bytes().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_one_that_a_shell_reads_the_same() {
        let flags = [("kind", "mail"), ("error", "it's <down>; rm"), ("state", " ")];
        assert_eq!(
            command("towpath job list", &flags),
            r"towpath job list --kind mail --error 'it'\''s <down>; rm'"
        );
    }
}
