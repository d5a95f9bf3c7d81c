//! Who is asking, and what they may do.
//!
//! Without secrets the pages are open, which is only allowed on loopback; the `Host` header is
//! then checked, so that a page on the web cannot reach them by a name of its own. With
//! secrets, signing in gives a cookie that carries name, role and end, sealed by a key made
//! from the secrets: change a secret, and everybody is signed out.

pub(crate) mod login;

use std::sync::Mutex;

use aws_lc_rs::{constant_time, hmac};
use axum::extract::FromRequestParts;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST};
use axum::http::{HeaderMap, Method, request::Parts};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use towpath_model::address::is_loopback_host;

use crate::App;
use crate::fault::Fault;
use crate::limits::{SIGN_IN_SECONDS, WRONG_PASSWORDS_MAX};

/// A password that is never printed.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Keeps it.
    pub fn new(secret: impl Into<String>) -> Secret {
        Secret(secret.into())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Who may look and who may act.
#[derive(Debug, Clone)]
pub enum Access {
    /// Everybody who reaches the address, which must be on loopback.
    Open,
    /// Those who know a password.
    Guarded {
        /// Lets in to look and act.
        admin: Secret,
        /// Lets in to look.
        viewer: Option<Secret>,
    },
}

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Admin,
    Viewer,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Viewer => "viewer",
        }
    }
}

/// Somebody who looks at a page.
#[derive(Debug, Clone)]
pub(crate) struct Viewer {
    /// What they call themselves; for the audit.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// What a form of theirs must carry.
    pub(crate) csrf: String,
    /// Whether they signed in, and so can sign out.
    pub(crate) signed_in: bool,
}

impl Viewer {
    pub(crate) fn is_admin(&self) -> bool {
        self.role == Role::Admin
    }
}

/// Checks passwords and seals cookies.
pub(crate) struct Guard {
    access: Access,
    key: hmac::Key,
    wrong: Mutex<(i64, u32)>,
}

pub(crate) const COOKIE_NAME: &str = "towpath_ui";

impl Guard {
    pub(crate) fn new(access: Access) -> Guard {
        let key = match &access {
            // A key of this process: forms of another one are not ours.
            Access::Open => {
                let mut random = [0; 32];
                aws_lc_rs::rand::fill(&mut random).expect("the system has randomness");
                hmac::Key::new(hmac::HMAC_SHA256, &random)
            }
            Access::Guarded { admin, viewer } => {
                let both = format!("{}\n{}", admin.0, viewer.as_ref().map_or("", |viewer| &viewer.0));
                hmac::Key::new(hmac::HMAC_SHA256, both.as_bytes())
            }
        };
        Guard { access, key, wrong: Mutex::default() }
    }

    /// The role a password opens, none if it opens nothing.
    fn role_of(&self, password: &str) -> Option<Role> {
        let Access::Guarded { admin, viewer } = &self.access else { return None };
        let same = |secret: &Secret| {
            constant_time::verify_slices_are_equal(
                hmac::sign(&self.key, secret.0.as_bytes()).as_ref(),
                hmac::sign(&self.key, password.as_bytes()).as_ref(),
            )
            .is_ok()
        };
        if same(admin) {
            return Some(Role::Admin);
        }
        viewer.as_ref().is_some_and(same).then_some(Role::Viewer)
    }

    /// Whether another guess is allowed; a wrong one is counted.
    fn may_guess(&self, wrong: bool) -> bool {
        let minute = Timestamp::now().as_second() / 60;
        let mut count = self.wrong.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if count.0 != minute {
            *count = (minute, 0);
        }
        count.1 += u32::from(wrong);
        count.1 < WRONG_PASSWORDS_MAX
    }

    /// A cookie for somebody who knew a password.
    fn seal(&self, name: &str, role: Role) -> String {
        let until = Timestamp::now().as_second() + SIGN_IN_SECONDS;
        let text = format!("{}.{until}.{}", role.word(), BASE64.encode(name));
        format!("{text}.{}", self.sign(&text))
    }

    fn unseal(&self, cookie: &str) -> Option<Viewer> {
        let (text, seal) = cookie.rsplit_once('.')?;
        if !self.is_signed(text, seal) {
            return None;
        }
        let mut parts = text.split('.');
        let role = match parts.next()? {
            "admin" => Role::Admin,
            "viewer" => Role::Viewer,
            _ => return None,
        };
        if parts.next()?.parse::<i64>().ok()? < Timestamp::now().as_second() {
            return None;
        }
        let name = String::from_utf8(BASE64.decode(parts.next()?).ok()?).ok()?;
        Some(Viewer { name, role, csrf: self.sign(&format!("form {cookie}")), signed_in: true })
    }

    fn sign(&self, text: &str) -> String {
        BASE64.encode(hmac::sign(&self.key, text.as_bytes()))
    }

    fn is_signed(&self, text: &str, seal: &str) -> bool {
        BASE64.decode(seal).is_ok_and(|seal| hmac::verify(&self.key, text.as_bytes(), &seal).is_ok())
    }

    /// Who sent these headers.
    pub(crate) fn viewer(&self, headers: &HeaderMap) -> Result<Viewer, Fault> {
        if matches!(self.access, Access::Open) {
            let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
            return match is_loopback_host(host) {
                true => Ok(Viewer {
                    name: "dashboard".into(),
                    role: Role::Admin,
                    csrf: self.sign("form"),
                    signed_in: false,
                }),
                false => Err(Fault::Forbidden(format!(
                    "the dashboard has no password, so it answers only as localhost, not as {host:?}; \
                     set admin_password to reach it by another name"
                ))),
            };
        }
        let bearer =
            headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        if let Some(password) = bearer
            && self.may_guess(false)
        {
            return match self.role_of(password) {
                // A page elsewhere cannot make a browser send this header, so it stands for the form's word too.
                Some(role) => {
                    Ok(Viewer { name: "dashboard".into(), role, csrf: self.sign("form"), signed_in: false })
                }
                None => {
                    self.may_guess(true);
                    Err(Fault::SignIn)
                }
            };
        }
        cookie(headers, COOKIE_NAME).and_then(|cookie| self.unseal(cookie)).ok_or(Fault::SignIn)
    }
}

/// A cookie's value.
pub(crate) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(key, value)| (key == name).then_some(value))
}

/// Whether a request was made by a page of ours, as far as the browser tells.
pub(crate) fn is_same_origin(method: &Method, headers: &HeaderMap) -> bool {
    if method.is_safe() {
        return true;
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site") {
        return matches!(site, "same-origin" | "none");
    }
    match (text("origin"), text("host")) {
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, rest)| rest == host),
        // Not a browser.
        _ => true,
    }
}

impl FromRequestParts<App> for Viewer {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Viewer, Fault> {
        app.guard.viewer(&parts.headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(admin: &str) -> Guard {
        Guard::new(Access::Guarded { admin: Secret::new(admin), viewer: Some(Secret::new("look")) })
    }

    #[test]
    fn a_cookie_is_worth_nothing_when_changed_or_after_the_password_changed() {
        let guard = guarded("pass");
        let cookie = guard.seal("ann", Role::Viewer);
        let viewer = guard.unseal(&cookie).unwrap();
        assert_eq!((viewer.name.as_str(), viewer.role), ("ann", Role::Viewer));
        assert!(guard.unseal(&cookie.replacen("viewer", "admin", 1)).is_none());
        assert!(guarded("other").unseal(&cookie).is_none());
    }

    #[test]
    fn passwords_open_their_role_and_nothing_else_does() {
        let guard = guarded("pass");
        assert_eq!(guard.role_of("pass"), Some(Role::Admin));
        assert_eq!(guard.role_of("look"), Some(Role::Viewer));
        assert_eq!(guard.role_of(""), None);
        assert_eq!(Guard::new(Access::Open).role_of(""), None);
    }

    #[test]
    fn guesses_end() {
        let guard = guarded("pass");
        let allowed = (0..100).take_while(|_| guard.may_guess(true)).count();
        assert!(allowed < 100);
        assert!(!guard.may_guess(false));
    }
}
