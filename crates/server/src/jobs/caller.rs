//! The caller: the token of a request, checked before its body is read.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use towpath_db::Database;
use towpath_db::executor_token::{TokenHash, TokenScope};
use towpath_db::job::LeaseOwner;

use super::{Error, Jobs};

/// The header with the name of a worker process, shown with its leases.
const WORKER_HEADER: &str = "towpath-worker";
/// The name of a process that sends none.
const WORKER_DEFAULT: &str = "http";
/// The longest name of a process.
const WORKER_CHARS_MAX: usize = 64;

/// The holder of a valid token.
pub(crate) struct Caller {
    pub(crate) hash: TokenHash,
    pub(crate) scope: TokenScope,
    /// The owner of the caller's leases.
    ///
    /// It contains the token's id, which only the server writes: no worker name that a client
    /// chooses can match the owner of another token's lease.
    pub(crate) owner: LeaseOwner,
}

impl FromRequestParts<Jobs> for Caller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, jobs: &Jobs) -> Result<Caller, Error> {
        let worker = worker(parts)?;
        let (hash, scope) = authenticated(parts, &jobs.database).await?;
        let owner = LeaseOwner::new(format!("{}/{worker}@{}", scope.executor_id, scope.token_id));
        Ok(Caller { hash, scope, owner })
    }
}

impl Caller {
    /// The kinds to claim: the requested ones, if the token has them all; by default all it has.
    pub(crate) fn kinds(&self, asked: Option<Vec<String>>) -> Result<Option<Vec<String>>, Error> {
        let (Some(asked), Some(own)) = (&asked, &self.scope.kinds) else {
            return Ok(asked.or_else(|| self.scope.kinds.clone()));
        };
        match asked.iter().find(|kind| !own.contains(kind)) {
            Some(kind) => Err(Error::NotAuthorised(format!(
                "this token of {} does not cover the kind {kind}; it covers {}",
                self.scope.executor_id,
                own.join(", ")
            ))),
            None => Ok(Some(asked.clone())),
        }
    }
}

/// The token of a request and its rights.
pub(crate) async fn authenticated(
    parts: &Parts,
    database: &Database,
) -> Result<(TokenHash, TokenScope), Error> {
    let hash = TokenHash::of(bearer(parts)?);
    match database.executor_token_check(&hash).await {
        Err(towpath_db::Error::NotAuthorised(detail)) => Err(Error::Unauthenticated(detail)),
        scope => Ok((hash, scope?)),
    }
}

fn bearer(parts: &Parts) -> Result<&str, Error> {
    let missing = || Error::Unauthenticated("send the header Authorization: Bearer <token>".into());
    let value = parts.headers.get(AUTHORIZATION).ok_or_else(missing)?.to_str().map_err(|_| missing())?;
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => Err(missing()),
    }
}

fn worker(parts: &Parts) -> Result<&str, Error> {
    let Some(value) = parts.headers.get(WORKER_HEADER) else { return Ok(WORKER_DEFAULT) };
    let name = value.to_str().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    if name.is_empty() || name.len() > WORKER_CHARS_MAX || !name.chars().all(plain) {
        return Err(Error::Invalid(format!(
            "{WORKER_HEADER} must be a name of at most {WORKER_CHARS_MAX} letters, digits, and . - _ :"
        )));
    }
    Ok(name)
}
