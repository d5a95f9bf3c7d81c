//! Signing in and out.

use askama::Template;
use axum::extract::{Form, Query, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use serde::Deserialize;

use super::{COOKIE_NAME, Guesser, address_of};
use crate::App;
use crate::fault::Answer;
use crate::limits::SIGN_IN_SECONDS;
use crate::shell;

#[derive(Template)]
#[template(path = "login.html")]
struct Login {
    assets: shell::Assets,
    to: String,
    problem: Option<&'static str>,
}

/// Where to go after signing in.
#[derive(Deserialize)]
pub(crate) struct To {
    #[serde(default)]
    to: String,
}

/// What the form sends.
#[derive(Deserialize)]
pub(crate) struct Entry {
    #[serde(default)]
    name: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    to: String,
}

/// The form.
pub(crate) async fn show(Query(To { to }): Query<To>) -> Answer {
    page(to, None, StatusCode::OK)
}

/// Checks what was entered.
pub(crate) async fn enter(
    State(app): State<App>,
    extensions: Extensions,
    headers: HeaderMap,
    Form(entry): Form<Entry>,
) -> Answer {
    let guesser = Guesser { address: address_of(&extensions, &headers), name: &entry.name };
    if !app.guard.may_guess(guesser) {
        return page(
            entry.to,
            Some("Too many wrong passwords. Wait a minute and try again."),
            StatusCode::TOO_MANY_REQUESTS,
        );
    }
    let Some(role) = app.guard.role_of(&entry.password) else {
        app.guard.guessed_wrong(guesser);
        tracing::warn!(address = %guesser.address, "wrong password for the dashboard");
        return page(entry.to, Some("Wrong password."), StatusCode::UNAUTHORIZED);
    };
    let name = if entry.name.trim().is_empty() { "dashboard" } else { entry.name.trim() };
    let name: String = name.chars().filter(|letter| !letter.is_control()).take(60).collect();
    let seal = app.guard.seal(&name, role);
    let end = app.guard.cookie_end(&headers);
    let cookie = format!("{COOKIE_NAME}={seal}; Path=/ui; Max-Age={SIGN_IN_SECONDS}{end}");
    Ok(redirect(inside(&entry.to), Some(cookie)))
}

/// Clears the cookie.
pub(crate) async fn leave(State(app): State<App>, headers: HeaderMap) -> Response {
    let end = app.guard.cookie_end(&headers);
    redirect("/ui/login", Some(format!("{COOKIE_NAME}=; Path=/ui; Max-Age=0{end}")))
}

/// Only paths of the dashboard are valid targets.
fn inside(to: &str) -> &str {
    if to == "/ui" || to.starts_with("/ui/") || to.starts_with("/ui?") { to } else { "/ui" }
}

fn redirect(to: &str, cookie: Option<String>) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    let header = |text: &str| HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("/ui"));
    response.headers_mut().insert(LOCATION, header(to));
    if let Some(cookie) = cookie {
        response.headers_mut().insert(SET_COOKIE, header(&cookie));
    }
    response
}

fn page(to: String, problem: Option<&'static str>, status: StatusCode) -> Answer {
    let html = Login { assets: shell::ASSETS, to, problem }.render()?;
    Ok((status, Html(html)).into_response())
}
