//! Actions: one form, one function of the database, one row in the audit.

use std::future::Future;

use axum::extract::{Form, FromRequest, Request};
use axum::http::header::{LOCATION, REFERER, SET_COOKIE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use towpath_db::Attribution;
use towpath_db::audit::Audit;

use crate::App;
use crate::access::{Viewer, is_same_origin};
use crate::fault::Fault;

/// A form that was sent by somebody who may act, from a page of ours.
pub(crate) struct Action {
    pub(crate) viewer: Viewer,
    fields: Vec<(String, String)>,
    referer: String,
}

impl FromRequest<App> for Action {
    type Rejection = Fault;

    async fn from_request(request: Request, app: &App) -> Result<Action, Fault> {
        let viewer = app.guard.viewer(request.headers())?;
        if !is_same_origin(request.method(), request.headers()) {
            return Err(Fault::Forbidden("this form was not sent from this dashboard".into()));
        }
        if !viewer.is_admin() {
            return Err(Fault::Forbidden(format!("{} may look and not act", viewer.name)));
        }
        let bearer = request.headers().contains_key("authorization");
        let referer = request.headers().get(REFERER).and_then(|value| value.to_str().ok());
        let referer = referer.unwrap_or_default().to_owned();
        let Form(fields) = Form::from_request(request, app)
            .await
            .map_err(|_| Fault::Invalid("this form is too large or cannot be read".into()))?;
        let action = Action { viewer, fields, referer };
        if !bearer && action.text("csrf") != action.viewer.csrf {
            return Err(Fault::Forbidden(
                "this form is too old; go back, reload the page and send it again".into(),
            ));
        }
        Ok(action)
    }
}

impl Action {
    /// A field, empty if it is not there.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.fields.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.trim())
    }

    /// The reason that was given.
    fn reason(&self) -> &str {
        match self.text("reason") {
            "" => "from the dashboard",
            reason => reason,
        }
    }

    /// Does it, writes it down, and goes back to the page with a word about it.
    pub(crate) async fn perform<T, F>(
        &self,
        app: &App,
        what: (&str, &str),
        work: impl FnOnce(towpath_db::Database, String, String) -> F,
        said: impl FnOnce(T) -> String,
    ) -> Result<Response, Fault>
    where
        F: Future<Output = Result<T, towpath_db::Error>>,
    {
        let (verb, target) = what;
        let result = work(app.database.clone(), self.viewer.name.clone(), self.reason().to_owned()).await;
        self.record(app, verb, target, result.as_ref().err().map(ToString::to_string).as_deref()).await?;
        app.live.nudge();
        let back = self.back();
        Ok(match result {
            Ok(done) => go(&back, &said(done), true),
            Err(error) => go(&back, &error.to_string(), false),
        })
    }

    /// Writes down what was done elsewhere than in the database, and goes to `to`, or back to the page.
    pub(crate) async fn done<E: std::fmt::Display>(
        &self,
        app: &App,
        what: (&str, &str),
        to: Option<&str>,
        result: Result<String, E>,
    ) -> Result<Response, Fault> {
        let (verb, target) = what;
        let problem = result.as_ref().err().map(ToString::to_string);
        self.record(app, verb, target, problem.as_deref()).await?;
        app.live.nudge();
        Ok(match result {
            Ok(word) => go(to.unwrap_or(&self.back()), &word, true),
            Err(error) => go(&self.back(), &error.to_string(), false),
        })
    }

    /// One row in the audit.
    pub(crate) async fn record(
        &self,
        app: &App,
        verb: &str,
        target: &str,
        problem: Option<&str>,
    ) -> Result<(), Fault> {
        let audit = Audit {
            actor: &self.viewer.name,
            action: verb,
            target,
            detail: Some(self.reason()),
            outcome: problem.unwrap_or("ok"),
        };
        tracing::info!(actor = audit.actor, target, outcome = audit.outcome, "dashboard: {verb}");
        Ok(app.database.audit_record(audit).await?)
    }

    /// The page the form was on: the path only, so that nobody is sent elsewhere.
    fn back(&self) -> String {
        let path = self.referer.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
        path.filter(|path| path.starts_with("/ui")).unwrap_or("/ui").to_owned()
    }
}

/// Who acts and why, as the database wants it.
pub(crate) fn by<'a>(actor: &'a str, reason: &'a str) -> Attribution<'a> {
    Attribution { actor, reason }
}

/// To a page, with a word to show there once.
pub(crate) fn go(to: &str, word: &str, good: bool) -> Response {
    let mark = if good { '+' } else { '-' };
    let word = super::filters::percent(&word.chars().take(500).collect::<String>());
    let cookie =
        format!("{}={mark}{word}; Path=/ui; Max-Age=30; HttpOnly; SameSite=Strict", super::shell::WORD);
    let mut response = StatusCode::SEE_OTHER.into_response();
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/ui"));
    response.headers_mut().insert(LOCATION, to);
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}
