//! Who may read the metrics: they show job kinds and load, which are not public.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::Json;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Who may read `/metrics`.
#[derive(Clone, Default)]
pub enum Access {
    /// All clients.
    #[default]
    Open,
    /// Clients with this bearer token.
    Token(String),
    /// None: the address is public and there is no token.
    Closed,
}

impl Access {
    /// The response to a client that may not read them.
    pub(super) fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        let token = match self {
            Access::Open => return None,
            Access::Token(token) => token,
            Access::Closed => {
                let detail = "this address can be reached from outside; set TOWPATH_METRICS_TOKEN and send it, \
                              or ask where TOWPATH_METRICS_LISTEN says";
                let body = Json(json!({ "error": "forbidden", "detail": detail }));
                return Some((StatusCode::FORBIDDEN, body).into_response());
            }
        };
        let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let given = given.strip_prefix(b"Bearer ").unwrap_or_default();
        verify_slices_are_equal(given, token.as_bytes()).err().map(|_| {
            let detail = "send the server's TOWPATH_METRICS_TOKEN as Authorization: Bearer TOKEN";
            let body = Json(json!({ "error": "unauthorized", "detail": detail }));
            (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], body).into_response()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O05: a token is required if there is one; on a public address without a token, metrics are disabled.
    #[test]
    fn only_the_holder_of_the_token_reads() {
        let status = |access: &Access, header: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            header.map(|value| headers.insert(AUTHORIZATION, HeaderValue::from_static(value)));
            access.refusal(&headers).map_or(200, |refused| refused.status().as_u16())
        };
        let guarded = Access::Token("secret".to_owned());
        assert_eq!(status(&guarded, None), 401);
        assert_eq!(status(&guarded, Some("Bearer secre")), 401);
        assert_eq!(status(&guarded, Some("secret")), 401);
        assert_eq!(status(&guarded, Some("Bearer secret")), 200);
        assert_eq!(status(&Access::Open, None), 200);
        assert_eq!(status(&Access::Closed, Some("Bearer ")), 403);
    }
}
