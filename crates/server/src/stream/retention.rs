//! Retention of a stream: `Stream-Retain-Seconds` and `Stream-Retain-Bytes`, set when it is created and changed
//! with `PATCH`.

use hyper::header::{CACHE_CONTROL, HeaderMap, HeaderName};
use hyper::{Request, StatusCode};
use towpath_model::stream::expiry::decimal;
use towpath_model::stream::name::StreamName;
use towpath_streams::{Retention, RetentionChange};

use super::refusal::Refusal;
use super::request::header;
use super::{Answer, Streams, empty, headers};
use crate::upload::Upload;

impl Streams {
    /// Changes the given limits. Data beyond them is dropped soon after.
    pub(super) async fn retain(&self, name: StreamName, request: &Request<Upload>) -> Answer {
        let change = change(request.headers())?;
        if change == RetentionChange::default() {
            let words =
                "send the limit to change: Stream-Retain-Seconds or Stream-Retain-Bytes, a number or none";
            return Err(Refusal::invalid(words));
        }
        let retention = self.store().retain(name, change).await?;
        let mut response = empty(StatusCode::NO_CONTENT);
        response.headers_mut().insert(CACHE_CONTROL, headers::NO_STORE);
        describe(response.headers_mut(), retention);
        Ok(response)
    }
}

/// The value of a header: a number, `none`, or absent.
pub(super) fn change(headers: &HeaderMap) -> Result<RetentionChange, Refusal> {
    Ok(RetentionChange {
        age_seconds: limit(headers, &headers::RETAIN_SECONDS)?,
        bytes: limit(headers, &headers::RETAIN_BYTES)?,
    })
}

fn limit(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Option<u64>>, Refusal> {
    match header(headers, name)? {
        None => Ok(None),
        Some("none") => Ok(Some(None)),
        Some(text) => match decimal(text).filter(|number| *number > 0) {
            Some(number) => Ok(Some(Some(number))),
            None => Err(Refusal::invalid(format!("{name} must be a whole number above zero, or none"))),
        },
    }
}

/// Adds the headers with the limits.
pub(super) fn describe(out: &mut HeaderMap, retention: Retention) {
    for (name, limit) in
        [(headers::RETAIN_SECONDS, retention.age_seconds), (headers::RETAIN_BYTES, retention.bytes)]
    {
        if let Some(limit) = limit {
            out.insert(name, headers::number(limit));
        }
    }
}
