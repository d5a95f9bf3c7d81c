//! The frame of every page: navigation, assets, the notice after an action, headers.

use askama::Template;
use axum::extract::{FromRequestParts, Path, Request};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};

use crate::App;
use crate::access::{Viewer, cookie};
use crate::fault::{Answer, Fault};
use crate::limits::PAGE_WAIT_MAX;

const CSS: &str = include_str!("../assets/towpath.css");
const JS: &str = include_str!("../assets/towpath.js");
const ICON: &str = include_str!("../assets/icon.svg");

/// The cookie with the notice after an action.
pub(crate) const NOTICE: &str = "towpath_notice";

/// The assets; the name changes with the content, so browsers can cache them forever.
#[derive(Clone, Copy)]
pub(crate) struct Assets {
    pub(crate) tag: u32,
}

/// The assets of this binary.
pub(crate) const ASSETS: Assets = Assets { tag: tag(&[CSS, JS, ICON]) };

/// FNV-1a hash of the content, computed at compile time.
const fn tag(texts: &[&str]) -> u32 {
    let mut hash: u32 = 0x811c_9dc5;
    let mut text = 0;
    while text < texts.len() {
        let bytes = texts[text].as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
            at += 1;
        }
        text += 1;
    }
    hash
}

/// One line of the navigation.
pub(crate) struct Place {
    pub(crate) path: &'static str,
    pub(crate) name: &'static str,
    /// The second key after `g` that goes there.
    pub(crate) key: char,
}

/// The pages, in the order of the navigation.
pub(crate) const PLACES: [Place; 12] = [
    Place { path: "/ui", name: "Overview", key: 'o' },
    Place { path: "/ui/jobs", name: "Jobs", key: 'j' },
    Place { path: "/ui/dead-letters", name: "Dead letters", key: 'd' },
    Place { path: "/ui/events", name: "Events", key: 'e' },
    Place { path: "/ui/routes", name: "Routes", key: 'r' },
    Place { path: "/ui/processes", name: "Processes", key: 'p' },
    Place { path: "/ui/schedules", name: "Schedules", key: 's' },
    Place { path: "/ui/executors", name: "Executors", key: 'x' },
    Place { path: "/ui/streams", name: "Streams", key: 't' },
    Place { path: "/ui/sessions", name: "Sessions", key: 'n' },
    Place { path: "/ui/gates", name: "Gates", key: 'g' },
    Place { path: "/ui/audit", name: "Audit", key: 'a' },
];

/// What the layout needs besides the page itself.
pub(crate) struct Shell {
    pub(crate) assets: Assets,
    pub(crate) places: &'static [Place],
    /// The path of the place in the navigation that this page belongs to.
    pub(crate) here: &'static str,
    pub(crate) title: String,
    pub(crate) viewer: Viewer,
    /// The result of the last action, and whether it succeeded.
    pub(crate) notice: Option<(bool, String)>,
    /// The topics whose changes concern this page.
    pub(crate) topics: &'static str,
}

impl Shell {
    /// The frame of the next page that a viewer sees.
    pub(crate) fn new(viewer: Viewer, headers: &HeaderMap) -> Shell {
        let notice = cookie(headers, NOTICE).and_then(|notice| {
            let text = crate::filters::unpercent(notice.get(1..)?);
            Some((notice.starts_with('+'), text))
        });
        Shell { assets: ASSETS, places: &PLACES, here: "", title: String::new(), viewer, notice, topics: "" }
    }

    /// Names the page and its place in the navigation.
    pub(crate) fn at(self, here: &'static str, title: impl Into<String>) -> Shell {
        Shell { here, title: title.into(), ..self }
    }

    /// Shows what is wrong with the filter, if anything. Such a page is not live.
    pub(crate) fn saying(mut self, problem: Option<&String>) -> Shell {
        if let Some(problem) = problem {
            self.notice = Some((false, problem.clone()));
            self.topics = "";
        }
        self
    }

    /// Makes the page reload when one of these topics changes.
    pub(crate) fn live(mut self, topics: &'static str) -> Shell {
        self.topics = topics;
        self
    }
}

impl FromRequestParts<App> for Shell {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Shell, Fault> {
        let viewer = Viewer::from_request_parts(parts, app).await?;
        Ok(Shell::new(viewer, &parts.headers))
    }
}

/// A list. One with an invalid filter is a bad request and shows what was typed.
pub(crate) fn render_list(page: &impl Template, problem: bool) -> Answer {
    let mut response = render(page)?;
    if problem {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    Ok(response)
}

/// A page. Clears the notice once it is shown.
pub(crate) fn render(page: &impl Template) -> Answer {
    let mut response = Html(page.render()?).into_response();
    let forget = format!("{NOTICE}=; Path=/ui; Max-Age=0; HttpOnly; SameSite=Strict");
    response.headers_mut().insert(SET_COOKIE, HeaderValue::from_str(&forget).expect("a plain text"));
    Ok(response)
}

/// A stylesheet, a script or the icon.
pub(crate) async fn asset(Path(name): Path<String>) -> Answer {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    let (kind, text) = match ending {
        "css" => ("text/css; charset=utf-8", CSS),
        "js" => ("text/javascript; charset=utf-8", JS),
        "svg" => ("image/svg+xml", ICON),
        _ => return Err(Fault::NotFound(format!("there is no asset {name}"))),
    };
    let headers = [(CONTENT_TYPE, kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
    Ok((headers, text).into_response())
}

/// Limits how long a page may take: behind a lock or on an overloaded database, it shows an error instead. Actions
/// have no limit.
pub(crate) async fn patience(request: Request, next: Next) -> Answer {
    // No name can contain it, and the database rejects it.
    if request.uri().path().contains("%00") {
        return Err(Fault::NotFound("a path cannot contain a NUL character".into()));
    }
    if !request.method().is_safe() {
        return Ok(next.run(request).await);
    }
    tokio::time::timeout(PAGE_WAIT_MAX, next.run(request)).await.map_err(|_| {
        let seconds = PAGE_WAIT_MAX.as_secs();
        Fault::Unavailable(format!(
            "the database did not respond within {seconds} s; narrow the filter, or check what it is waiting for"
        ))
    })
}

/// No third-party content, nothing inline, no framing, no caching.
pub(crate) async fn harden(mut response: Response) -> Response {
    const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
         connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
