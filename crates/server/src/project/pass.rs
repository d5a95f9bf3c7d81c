//! The rights of a request.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, ORIGIN};
use jiff::Timestamp;
use towpath_model::address::is_loopback_origin;
use towpath_model::stream::name::StreamName;
use towpath_model::token::{Action, Denied, Grant, Invalid};

use super::{Auth, Project, Projects};
use crate::stream::Fields;

/// What a request may do.
#[derive(Clone)]
pub(crate) enum Pass {
    /// Anything: the project is open.
    Open,
    /// What its token allows.
    Token(Arc<Ticket>),
}

/// A verified token, for the time of a request.
pub(crate) struct Ticket {
    grant: Arc<Grant>,
    project: String,
    at: Arc<Project>,
    projects: Projects,
}

/// Which web pages may read a response.
pub(crate) enum Origins {
    /// Pages of this origin, which sent the request and is allowed.
    One(HeaderValue),
    /// None.
    None,
    /// None, and the request is refused: any web page could act as this machine.
    Foreign,
}

impl Projects {
    /// Verifies the token of a request to `project`.
    pub(crate) fn admit(&self, project: &str, fields: &impl Fields, auth: Auth) -> Result<Pass, Invalid> {
        self.admit_with(project, fields, None, auth)
    }

    /// The same for a request that may have its token in the URL: `EventSource` of browsers sends no header.
    pub(crate) fn admit_with(
        &self,
        project: &str,
        fields: &impl Fields,
        in_url: Option<&str>,
        auth: Auth,
    ) -> Result<Pass, Invalid> {
        let at = match (self.get(project), auth) {
            (Some(at), _) => at,
            (None, Auth::Local) => return Ok(Pass::Open),
            // The same answer as for a registered project.
            (None, Auth::Required) => {
                let has_token = in_url.is_some() || fields.all(&AUTHORIZATION).next().is_some();
                return Err(if has_token { Invalid::Unverified } else { Invalid::Missing });
            }
        };
        let now = Timestamp::now();
        let grant = match (bearer(fields), in_url) {
            (Err(Invalid::Missing), Some(token)) => {
                let grant = at.grant(token, project, now)?;
                grant.fits_url(now).then_some(grant).ok_or(Invalid::Url)?
            }
            (token, _) => at.grant(token?, project, now)?,
        };
        let ticket = Ticket { grant, project: project.to_owned(), at, projects: self.clone() };
        Ok(Pass::Token(Arc::new(ticket)))
    }

    /// Which web pages may read responses of `project`: for an open one pages of this machine, for a registered
    /// one those of its origins.
    pub(crate) fn origins(&self, project: &str, headers: &HeaderMap) -> Origins {
        let Some(origin) = headers.get(ORIGIN) else { return Origins::None };
        let Some(at) = self.get(project) else {
            let is_local =
                headers.get_all(ORIGIN).iter().all(|origin| origin.to_str().is_ok_and(is_loopback_origin));
            return if is_local { Origins::One(origin.clone()) } else { Origins::Foreign };
        };
        let listed = |listed: &&String| *listed == "*" || listed.as_bytes() == origin.as_bytes();
        match at.record.origins.iter().find(listed) {
            Some(_) => Origins::One(origin.clone()),
            None => Origins::None,
        }
    }
}

fn bearer(fields: &impl Fields) -> Result<&str, Invalid> {
    let mut values = fields.all(&AUTHORIZATION);
    let value = values.next().ok_or(Invalid::Missing)?;
    let text = std::str::from_utf8(value).ok().filter(|_| values.next().is_none());
    let (scheme, token) = text.and_then(|text| text.split_once(' ')).ok_or(Invalid::Unverified)?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).ok_or(Invalid::Unverified)
}

impl Pass {
    /// Refuses an action that it does not allow.
    pub(crate) fn check(&self, action: Action<'_>) -> Result<(), Denied> {
        match self {
            Pass::Open => Ok(()),
            Pass::Token(ticket) => ticket.grant.allows(action),
        }
    }

    /// Waits until the token expires or its key is revoked; forever without a token.
    pub(crate) async fn ended(self) {
        match self {
            Pass::Open => std::future::pending().await,
            Pass::Token(ticket) => ticket.ended().await,
        }
    }

    /// The reader key of a stream's cached pages, for readers with a token.
    pub(crate) fn reader_key(&self, name: &StreamName) -> Option<String> {
        match self {
            Pass::Open => None,
            Pass::Token(ticket) => Some(ticket.reader_key(name)),
        }
    }

    /// Who may cache pages of a stream, given the reader key in the URL.
    pub(crate) fn keeping(&self, name: &StreamName, given: Option<&str>) -> Keeping {
        match self {
            Pass::Open => Keeping::Shared,
            Pass::Token(ticket) => match given {
                Some(given) if ticket.reader_key_is(name, given) => Keeping::Shared,
                _ => Keeping::Own,
            },
        }
    }
}

/// Who may cache a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Shared caches too: only clients with access know the URL.
    Shared,
    /// The reader only, and it must revalidate.
    Own,
}

impl Ticket {
    async fn ended(&self) {
        let left = self.grant.expires_at.duration_since(Timestamp::now());
        let left = Duration::try_from(left).unwrap_or(Duration::ZERO);
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            () = self.revoked() => {}
        }
    }

    async fn revoked(&self) {
        // Before the keys are read, so that no change is missed.
        let mut changes = self.projects.0.changes.subscribe();
        loop {
            let there = self.projects.get(&self.project);
            if !there.is_some_and(|project| project.ring.holds(&self.grant.kid)) {
                return;
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn reader_key(&self, name: &StreamName) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.hmac(), name.id.as_bytes()))
    }

    fn reader_key_is(&self, name: &StreamName, given: &str) -> bool {
        let given = URL_SAFE_NO_PAD.decode(given).unwrap_or_default();
        hmac::verify(&self.hmac(), name.id.as_bytes(), &given).is_ok()
    }

    fn hmac(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.at.record.reader_secret.bytes())
    }
}
