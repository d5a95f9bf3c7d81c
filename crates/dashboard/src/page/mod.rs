//! One file per page.

pub(crate) mod audit;
pub(crate) mod bulk;
pub(crate) mod dead_letter;
pub(crate) mod dead_letters;
pub(crate) mod event;
pub(crate) mod events;
pub(crate) mod executors;
pub(crate) mod gates;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod overview;
pub(crate) mod process;
pub(crate) mod processes;
pub(crate) mod routes;
pub(crate) mod schedules;
pub(crate) mod stream;
pub(crate) mod streams;

use crate::filters::percent;

/// A query parameter that was left empty is none.
pub(crate) fn given(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The fields of a filter that narrow, as a query.
pub(crate) fn query(fields: &[(&str, &str)]) -> String {
    let narrowing =
        fields.iter().map(|(name, value)| (name, value.trim())).filter(|(_, value)| !value.is_empty());
    narrowing.map(|(name, value)| format!("{name}={}", percent(value))).collect::<Vec<_>>().join("&")
}
