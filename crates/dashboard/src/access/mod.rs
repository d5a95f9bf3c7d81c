//! Authentication and authorisation.
//!
//! Without passwords the pages are open, which is allowed only on loopback; the `Host` header is then checked
//! against DNS rebinding. With passwords, signing in sets a cookie with name, role and expiry, signed by a key
//! derived from the passwords: changing a password signs everybody out.

pub(crate) mod login;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::{constant_time, hmac};
use axum::extract::FromRequestParts;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST};
use axum::http::{Extensions, HeaderMap, request::Parts};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use towpath_model::address::{Client, is_loopback_host};

use crate::App;
use crate::fault::Fault;
use crate::limits::{
    GUESSERS_MAX, REFUSALS_WRITTEN_MAX, SIGN_IN_SECONDS, WRONG_PASSWORDS_MAX, WRONG_PASSWORDS_PER_ADDRESS_MAX,
};

/// A password that is never printed.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps it.
    pub fn new(secret: impl Into<String>) -> Secret {
        Secret(secret.into())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Who may read and who may act.
#[derive(Debug, Clone)]
pub enum Access {
    /// Everybody who can reach the address, which must be loopback.
    Open,
    /// Users with a password.
    Guarded {
        /// For full access.
        admin: Secret,
        /// For read-only access.
        viewer: Option<Secret>,
    },
}

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Admin,
    Viewer,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Viewer => "viewer",
        }
    }
}

/// The user of a request.
#[derive(Debug, Clone)]
pub(crate) struct Viewer {
    /// The name given at sign-in, for the audit log.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The CSRF token for their forms.
    pub(crate) csrf: String,
    /// Whether they signed in and can sign out.
    pub(crate) signed_in: bool,
    /// Whether the request itself carried the password, which no other site can make a browser do.
    pub(crate) by_password: bool,
}

impl Viewer {
    pub(crate) fn is_admin(&self) -> bool {
        self.role == Role::Admin
    }
}

/// Checks passwords and signs cookies.
pub(crate) struct Guard {
    access: Access,
    key: hmac::Key,
    wrong: Mutex<Guesses>,
    refusals: Mutex<(i64, u32)>,
    cookies: Cookies,
}

/// Wrong passwords in one minute: by address, and by address and name.
#[derive(Default)]
struct Guesses {
    minute: i64,
    by_address: HashMap<IpAddr, u32>,
    by_name: HashMap<(IpAddr, String), u32>,
}

/// The source of a password attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guesser<'a> {
    pub(crate) address: IpAddr,
    pub(crate) name: &'a str,
}

/// How cookies may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cookies {
    /// Only over TLS.
    Secure,
    /// Like the request.
    AsAsked,
}

pub(crate) const COOKIE_NAME: &str = "towpath_ui";

impl Guard {
    pub(crate) fn new(access: Access, cookies: Cookies) -> Guard {
        let key = match &access {
            // A random key: forms of an earlier process are invalid.
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
        Guard { access, key, wrong: Mutex::default(), refusals: Mutex::default(), cookies }
    }

    /// The role of a password, if it is correct.
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

    /// Whether this source may try a password. Wrong passwords lock out only their own source.
    pub(crate) fn may_guess(&self, guesser: Guesser<'_>) -> bool {
        let guesses = self.guesses();
        let of_address = guesses.by_address.get(&guesser.address).copied().unwrap_or_default();
        let of_name = guesses.by_name.get(&guesser.key()).copied().unwrap_or_default();
        let is_known = of_address > 0 || guesses.by_address.len() < GUESSERS_MAX;
        is_known && of_address < WRONG_PASSWORDS_PER_ADDRESS_MAX && of_name < WRONG_PASSWORDS_MAX
    }

    /// Counts a wrong password.
    pub(crate) fn guessed_wrong(&self, guesser: Guesser<'_>) {
        let mut guesses = self.guesses();
        *guesses.by_address.entry(guesser.address).or_default() += 1;
        *guesses.by_name.entry(guesser.key()).or_default() += 1;
    }

    fn guesses(&self) -> std::sync::MutexGuard<'_, Guesses> {
        let mut guesses = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = Timestamp::now().as_second() / 60;
        if guesses.minute != minute {
            *guesses = Guesses { minute, ..Guesses::default() };
        }
        guesses
    }

    /// Whether one more refusal may be recorded in this minute.
    pub(crate) fn may_write_down(&self) -> bool {
        let minute = Timestamp::now().as_second() / 60;
        let mut written = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if written.0 != minute {
            *written = (minute, 0);
        }
        written.1 += 1;
        written.1 <= REFUSALS_WRITTEN_MAX
    }

    /// The attributes of a cookie for a request with these headers.
    pub(crate) fn cookie_end(&self, headers: &HeaderMap) -> &'static str {
        let forwarded = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
        match self.cookies == Cookies::Secure || forwarded {
            true => "; HttpOnly; SameSite=Strict; Secure",
            false => "; HttpOnly; SameSite=Strict",
        }
    }

    /// A cookie for a signed-in user.
    fn seal(&self, name: &str, role: Role) -> String {
        let until = Timestamp::now().as_second() + SIGN_IN_SECONDS;
        let text = format!("{}.{until}.{}", role.name(), BASE64.encode(name));
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
        Some(Viewer {
            name,
            role,
            csrf: self.sign(&format!("form {cookie}")),
            signed_in: true,
            by_password: false,
        })
    }

    fn sign(&self, text: &str) -> String {
        BASE64.encode(hmac::sign(&self.key, text.as_bytes()))
    }

    fn is_signed(&self, text: &str, seal: &str) -> bool {
        BASE64.decode(seal).is_ok_and(|seal| hmac::verify(&self.key, text.as_bytes(), &seal).is_ok())
    }

    /// The user of a request.
    pub(crate) fn viewer(&self, headers: &HeaderMap, address: IpAddr) -> Result<Viewer, Fault> {
        if matches!(self.access, Access::Open) {
            let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
            return match is_loopback_host(host) {
                true => Ok(self.anybody(Role::Admin)),
                false => Err(Fault::Forbidden(format!(
                    "the dashboard has no password, so it can be opened only as localhost, not as {host:?}; \
                     set admin_password to use another name"
                ))),
            };
        }
        let bearer =
            headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        if let Some(password) = bearer {
            let guesser = Guesser { address, name: "bearer" };
            if !self.may_guess(guesser) {
                return Err(Fault::SignIn);
            }
            return match self.role_of(password) {
                Some(role) => Ok(Viewer { by_password: true, ..self.anybody(role) }),
                None => {
                    self.guessed_wrong(guesser);
                    Err(Fault::SignIn)
                }
            };
        }
        cookie(headers, COOKIE_NAME).and_then(|cookie| self.unseal(cookie)).ok_or(Fault::SignIn)
    }

    /// A user without a name.
    fn anybody(&self, role: Role) -> Viewer {
        let csrf = self.sign("form");
        Viewer { name: "dashboard".into(), role, csrf, signed_in: false, by_password: false }
    }
}

impl Guesser<'_> {
    fn key(&self) -> (IpAddr, String) {
        (self.address, self.name.trim().chars().take(60).flat_map(char::to_lowercase).collect())
    }
}

/// The client's address. A proxy on this machine appends it to `X-Forwarded-For`.
pub(crate) fn address_of(extensions: &Extensions, headers: &HeaderMap) -> IpAddr {
    let direct = extensions.get::<Client>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |client| client.0);
    if !direct.is_loopback() {
        return direct;
    }
    let forwarded =
        headers.get_all("x-forwarded-for").iter().next_back().and_then(|value| value.to_str().ok());
    forwarded.and_then(|list| list.rsplit(',').next()?.trim().parse().ok()).unwrap_or(direct)
}

/// A cookie's value.
pub(crate) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(key, value)| (key == name).then_some(value))
}

/// Whether the request comes from a page of this dashboard, according to the browser's `Sec-Fetch-Site` and `Origin`
/// headers. A request without them is not trusted.
pub(crate) fn is_from_our_page(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let site = text("sec-fetch-site").map(|site| site == "same-origin");
    let origin = text("origin").map(|origin| {
        let host = text("host");
        origin.split_once("://").is_some_and(|(_, rest)| Some(rest) == host)
    });
    match (site, origin) {
        (None, None) => false,
        (site, origin) => site.unwrap_or(true) && origin.unwrap_or(true),
    }
}

impl FromRequestParts<App> for Viewer {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Viewer, Fault> {
        // The guard has already authenticated requests that change something.
        if let Some(viewer) = parts.extensions.get::<Viewer>() {
            return Ok(viewer.clone());
        }
        app.guard.viewer(&parts.headers, address_of(&parts.extensions, &parts.headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(admin: &str) -> Guard {
        let access = Access::Guarded { admin: Secret::new(admin), viewer: Some(Secret::new("look")) };
        Guard::new(access, Cookies::AsAsked)
    }

    #[test]
    fn a_cookie_is_invalid_when_changed_or_after_the_password_changed() {
        let guard = guarded("pass");
        let cookie = guard.seal("ann", Role::Viewer);
        let viewer = guard.unseal(&cookie).unwrap();
        assert_eq!((viewer.name.as_str(), viewer.role), ("ann", Role::Viewer));
        assert!(guard.unseal(&cookie.replacen("viewer", "admin", 1)).is_none());
        assert!(guarded("other").unseal(&cookie).is_none());
    }

    #[test]
    fn a_password_gives_exactly_its_role() {
        let guard = guarded("pass");
        assert_eq!(guard.role_of("pass"), Some(Role::Admin));
        assert_eq!(guard.role_of("look"), Some(Role::Viewer));
        assert_eq!(guard.role_of(""), None);
        assert_eq!(Guard::new(Access::Open, Cookies::AsAsked).role_of(""), None);
    }

    /// O03: wrong passwords lock out their own source and nobody else.
    #[test]
    fn wrong_passwords_lock_out_their_own_source() {
        let guard = guarded("pass");
        let from = |address: &str, name: &'static str| Guesser { address: address.parse().unwrap(), name };
        let wrong = |guesser: Guesser<'_>| {
            let mut count = 0;
            while guard.may_guess(guesser) && count < 100 {
                guard.guessed_wrong(guesser);
                count += 1;
            }
            count
        };
        // A new minute may start in between, which doubles the allowance.
        assert!(wrong(from("192.0.2.1", "ann")) <= 2 * WRONG_PASSWORDS_MAX);
        assert!(!guard.may_guess(from("192.0.2.1", " ANN ")), "however it is written");
        assert!(guard.may_guess(from("192.0.2.1", "bob")), "another name");
        assert!(guard.may_guess(from("192.0.2.2", "ann")), "from elsewhere");
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let all: u32 = names.into_iter().map(|name| wrong(from("192.0.2.1", name))).sum();
        assert!(all <= 2 * WRONG_PASSWORDS_PER_ADDRESS_MAX, "an address that invents names: {all}");
        assert!(guard.may_guess(from("192.0.2.2", "ann")));
    }

    #[test]
    fn a_proxy_on_this_machine_says_for_whom_it_asks() {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", "203.0.113.9, 192.0.2.7".parse().unwrap());
        let from = |address: &str| {
            let mut extensions = Extensions::new();
            extensions.insert(Client(address.parse().unwrap()));
            address_of(&extensions, &headers).to_string()
        };
        assert_eq!(from("127.0.0.1"), "192.0.2.7");
        assert_eq!(from("192.0.2.1"), "192.0.2.1", "only a local proxy is trusted");
    }

    /// O03: a form without an origin is refused.
    #[test]
    fn only_our_own_pages_send_forms() {
        let sent = |fields: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.insert(*name, value.parse().unwrap());
            }
            is_from_our_page(&headers)
        };
        let (host, own) = (("host", "localhost:4437"), ("origin", "http://localhost:4437"));
        assert!(sent(&[host, own]));
        assert!(sent(&[host, ("sec-fetch-site", "same-origin")]));
        assert!(sent(&[host, own, ("sec-fetch-site", "same-origin")]));
        for fields in [
            vec![],
            vec![host],
            vec![host, ("origin", "https://evil.example")],
            vec![host, ("origin", "null")],
            vec![own],
            vec![host, ("sec-fetch-site", "none")],
            vec![host, ("sec-fetch-site", "same-site")],
            vec![host, own, ("sec-fetch-site", "cross-site")],
            vec![host, ("sec-fetch-site", "same-origin"), ("origin", "https://evil.example")],
        ] {
            assert!(!sent(&fields), "{fields:?}");
        }
    }
}
