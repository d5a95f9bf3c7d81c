//! The caller: the token of a request, checked before its body is read.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use towpath_db::executor_token::{TokenHash, TokenScope};
use towpath_db::executor_token_job::JobRight;
use towpath_db::job::LeaseOwner;
use towpath_db::job_read::JobMoved;
use towpath_db::job_stream::JobStatus;
use towpath_db::{Attribution, Database};
use towpath_model::job::JobId;
use uuid::Uuid;

use super::{Error, Jobs};

/// The header with the name of a worker process, shown with its leases.
const WORKER_HEADER: &str = "towpath-worker";
/// The name of a process that sends none.
const WORKER_DEFAULT: &str = "http";
/// The longest name of a process.
const WORKER_CHARS_MAX: usize = 64;

/// The holder of a valid token of an executor.
pub(crate) struct Caller {
    pub(crate) hash: TokenHash,
    pub(crate) scope: TokenScope,
    /// Its executor, by name and kind.
    pub(crate) executor_id: String,
    pub(crate) executor: String,
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
        let (executor_id, executor) = executor(&scope)?;
        let owner = LeaseOwner::new(format!("{executor_id}/{worker}@{}", scope.token_id));
        Ok(Caller { hash, scope, executor_id, executor, owner })
    }
}

/// The holder of any valid token, for calls that are not about a lease.
pub(crate) enum Holder {
    /// A token of an executor or a producer.
    Token(TokenHash, TokenScope),
    /// A token for one job, which a page in a browser has.
    Job(JobId),
}

impl FromRequestParts<Jobs> for Holder {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, jobs: &Jobs) -> Result<Holder, Error> {
        // Only tokens of projects have dots.
        if let (token, Some(streams)) = (bearer(parts)?, &jobs.streams)
            && token.contains('.')
        {
            return match streams.job_of(token).await {
                Ok(Some(job_id)) => Ok(Holder::Job(job_id)),
                Ok(None) => Err(Error::Unauthenticated("this token is not for a job".into())),
                Err(invalid) => Err(Error::Unauthenticated(invalid.detail().into())),
            };
        }
        let (hash, scope) = authenticated(parts, &jobs.database).await?;
        Ok(Holder::Token(hash, scope))
    }
}

impl Holder {
    /// What the waiting calls of this token are counted by.
    pub(crate) fn id(&self) -> Uuid {
        match self {
            Holder::Token(_, scope) => scope.token_id.uuid(),
            Holder::Job(job_id) => job_id.uuid(),
        }
    }

    /// The token, if it is of an executor or a producer.
    pub(crate) fn hash(&self) -> Result<&TokenHash, Error> {
        match self {
            Holder::Token(hash, _) => Ok(hash),
            Holder::Job(job_id) => Err(Error::NotAuthorised(format!(
                "this token is for job {job_id}: it may read the job and its stream, and cancel it"
            ))),
        }
    }

    /// Refuses a token for another job.
    fn check(&self, job_id: JobId) -> Result<(), Error> {
        match self {
            Holder::Job(own) if *own != job_id => self.hash().map(drop),
            _ => Ok(()),
        }
    }

    /// Where a job stands, if the token has this right.
    pub(crate) async fn job_status(
        &self,
        jobs: &Jobs,
        job_id: JobId,
        right: JobRight,
    ) -> Result<JobStatus, Error> {
        self.check(job_id)?;
        Ok(match self {
            Holder::Token(hash, _) => jobs.database.executor_token_job_status(hash, job_id, right).await?,
            Holder::Job(_) => jobs.database.job_status(job_id).await?,
        })
    }

    /// Cancels a job, if the token may.
    pub(crate) async fn job_cancel(
        &self,
        jobs: &Jobs,
        job_id: JobId,
        reason: Option<&str>,
    ) -> Result<JobMoved, Error> {
        self.check(job_id)?;
        Ok(match self {
            Holder::Token(hash, _) => jobs.database.executor_token_job_cancel(hash, job_id, reason).await?,
            Holder::Job(_) => {
                let by = Attribution { actor: "token of the job", reason: reason.unwrap_or_default() };
                jobs.database.job_cancel(job_id, by).await?
            }
        })
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
                self.executor_id,
                own.join(", ")
            ))),
            None => Ok(Some(asked.clone())),
        }
    }
}

/// The executor that the token is of. A producer has none.
pub(crate) fn executor(scope: &TokenScope) -> Result<(String, String), Error> {
    scope.executor_id.clone().zip(scope.executor.clone()).ok_or_else(|| {
        Error::NotAuthorised(
            "this token is for a producer; workers need one of: towpath executor token create".into(),
        )
    })
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
