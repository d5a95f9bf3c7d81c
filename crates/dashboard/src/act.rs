//! Actions: one form, one database function, one row in the audit log.

use std::future::Future;

use axum::extract::{Form, FromRequest, Request, State};
use axum::http::header::{LOCATION, REFERER, SET_COOKIE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use towpath_db::Attribution;
use towpath_db::audit::Audit;

use crate::App;
use crate::access::{Viewer, address_of, is_from_our_page};
use crate::fault::{Answer, Fault, Refused};

/// Guards every request that changes something: only administrators pass, and only from pages of this dashboard.
/// Refusals of known users are recorded.
pub(crate) async fn guard(State(app): State<App>, mut request: Request, next: Next) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let path = request.uri().path().to_owned();
    let from_our_page = is_from_our_page(request.headers());
    if SIGN_IN_AND_OUT.contains(&path.as_str()) {
        return match from_our_page {
            true => next.run(request).await,
            false => elsewhere().into_response(),
        };
    }
    let address = address_of(request.extensions(), request.headers());
    let viewer = match app.guard.viewer(request.headers(), address) {
        Ok(viewer) => viewer,
        Err(fault) => return fault.into_response(),
    };
    let name = viewer.name.clone();
    let response = if !from_our_page && !viewer.by_password {
        elsewhere().into_response()
    } else if !viewer.is_admin() {
        Fault::Forbidden(format!("{} has read-only access", viewer.name)).into_response()
    } else {
        request.extensions_mut().insert(viewer);
        next.run(request).await
    };
    let refused = response.extensions().get::<Refused>().cloned();
    if let Some(Refused(why)) = refused
        && app.guard.may_write_down()
    {
        let audit = Audit { actor: &name, action: "refused", target: &path, detail: None, outcome: &why };
        tracing::info!(actor = name, target = path, outcome = why, "dashboard: refused");
        if let Err(error) = app.database.audit_record(audit).await {
            tracing::warn!("cannot record a refusal in the audit log: {error}");
        }
    }
    response
}

/// These need no administrator.
const SIGN_IN_AND_OUT: [&str; 2] = ["/ui/login", "/ui/logout"];

fn elsewhere() -> Fault {
    Fault::Forbidden("this form was not sent from a page of this dashboard".into())
}

/// A form sent by an administrator, from a page of this dashboard, with that page's token.
pub(crate) struct Action {
    pub(crate) viewer: Viewer,
    fields: Vec<(String, String)>,
    referer: String,
    cookie_end: &'static str,
}

impl FromRequest<App> for Action {
    type Rejection = Fault;

    async fn from_request(request: Request, app: &App) -> Result<Action, Fault> {
        // Only [`guard`] inserts it.
        let viewer = request.extensions().get::<Viewer>().cloned().ok_or(Fault::SignIn)?;
        let referer = request.headers().get(REFERER).and_then(|value| value.to_str().ok());
        let referer = referer.unwrap_or_default().to_owned();
        let cookie_end = app.guard.cookie_end(request.headers());
        let Form(fields) = Form::from_request(request, app)
            .await
            .map_err(|_| Fault::Invalid("this form is too large or invalid".into()))?;
        let action = Action { viewer, fields, referer, cookie_end };
        if !action.viewer.by_password && action.text("csrf") != action.viewer.csrf {
            return Err(Fault::Forbidden(
                "this form has expired; go back, reload the page and submit it again".into(),
            ));
        }
        if let Some((field, _)) = action.fields.iter().find(|(_, value)| value.contains('\0')) {
            return Err(Fault::Invalid(format!("{field} contains a NUL character, which is not allowed")));
        }
        Ok(action)
    }
}

impl Action {
    /// A field, empty if missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.fields.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.trim())
    }

    /// The given reason.
    fn reason(&self) -> &str {
        match self.text("reason") {
            "" => "from the dashboard",
            reason => reason,
        }
    }

    /// Performs the action, records it, and returns to the page with a notice.
    pub(crate) async fn perform<T, F>(
        &self,
        app: &App,
        what: (&str, &str),
        work: impl FnOnce(towpath_db::Database, String, String) -> F,
        said: impl FnOnce(T) -> String,
    ) -> Answer
    where
        F: Future<Output = Result<T, towpath_db::Error>>,
    {
        let (verb, target) = what;
        let database = app.database.auditing(self.audit(verb, target, "ok"));
        let result = work(database.clone(), self.viewer.name.clone(), self.reason().to_owned()).await;
        // An exception in the database rolled everything back, including the audit row.
        if !database.is_audited() {
            let problem = result.as_ref().err().map(ToString::to_string);
            self.record(app, verb, target, problem.as_deref()).await?;
        }
        app.live.nudge();
        let back = self.back();
        Ok(match result {
            Ok(done) => self.go(&back, &said(done), true),
            Err(error) => self.go(&back, &error.to_string(), false),
        })
    }

    /// Performs an action outside the database, records it, and goes to `to` or back to the page. No transaction
    /// covers both, so it first checks that the database responds.
    pub(crate) async fn perform_outside<E: std::fmt::Display>(
        &self,
        app: &App,
        what: (&str, &str),
        to: Option<&str>,
        work: impl Future<Output = Result<String, E>>,
    ) -> Answer {
        let (verb, target) = what;
        app.database.ping().await?;
        let result = work.await;
        let problem = result.as_ref().err().map(ToString::to_string);
        self.record(app, verb, target, problem.as_deref()).await?;
        app.live.nudge();
        Ok(match result {
            Ok(notice) => self.go(to.unwrap_or(&self.back()), &notice, true),
            Err(error) => self.go(&self.back(), &error.to_string(), false),
        })
    }

    /// One row in the audit log.
    pub(crate) async fn record(
        &self,
        app: &App,
        verb: &str,
        target: &str,
        problem: Option<&str>,
    ) -> Result<(), Fault> {
        let audit = self.audit(verb, target, problem.unwrap_or("ok"));
        tracing::info!(actor = audit.actor, target, outcome = audit.outcome, "dashboard: {verb}");
        Ok(app.database.audit_record(audit).await?)
    }

    fn audit<'a>(&'a self, action: &'a str, target: &'a str, outcome: &'a str) -> Audit<'a> {
        Audit { actor: &self.viewer.name, action, target, detail: Some(self.reason()), outcome }
    }

    /// Redirects to a page, with a notice to show there once.
    pub(crate) fn go(&self, to: &str, notice: &str, good: bool) -> Response {
        let mark = if good { '+' } else { '-' };
        let notice = super::filters::percent(&notice.chars().take(500).collect::<String>());
        let cookie =
            format!("{}={mark}{notice}; Path=/ui; Max-Age=30{}", super::shell::NOTICE, self.cookie_end);
        let mut response = StatusCode::SEE_OTHER.into_response();
        let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/ui"));
        response.headers_mut().insert(LOCATION, to);
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
        response
    }

    /// The page of the form: only its path, so that the redirect stays on this server.
    fn back(&self) -> String {
        let path = self.referer.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
        path.filter(|path| path.starts_with("/ui")).unwrap_or("/ui").to_owned()
    }
}

/// Actor and reason for the database.
pub(crate) fn by<'a>(actor: &'a str, reason: &'a str) -> Attribution<'a> {
    Attribution { actor, reason }
}
