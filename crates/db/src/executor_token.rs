//! Tokens of executors and producers: `sql/functions/executor_token.sql`.
//!
//! A token is hashed here, before it reaches a statement.

use std::fmt;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio_postgres::types::{Json, ToSql};
use towpath_model::id::TokenId;

use crate::answer::{read, read_field};
use crate::event::EventPage;
use crate::job::{Enqueued, LeaseOwner};
use crate::{Database, Error};

/// The SHA-256 of a token: enough to look it up, not enough to use it.
#[derive(Clone)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Hashes the token a client sent.
    pub fn of(word: &str) -> TokenHash {
        TokenHash(Sha256::digest(word.as_bytes()).into())
    }

    /// As a database parameter.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// A token to create.
#[derive(Debug, Clone, Default)]
pub struct TokenSpec<'a> {
    /// The registered executor.
    pub executor_id: &'a str,
    /// Only these kinds; none for all subscribed kinds.
    pub kinds: Option<&'a [String]>,
    /// Whether it may enqueue too.
    pub may_enqueue: bool,
    /// Whether it may subscribe its executor to kinds.
    pub may_register: bool,
    /// What it may enqueue and emit besides.
    pub produces: Produces<'a>,
    /// Its expiry; none for 90 days.
    pub expires_at: Option<Timestamp>,
    /// Notes for operators.
    pub notes: Option<&'a str>,
    /// The actor.
    pub actor: &'a str,
}

/// What a token may enqueue for any executor, and emit; `*` is all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Produces<'a> {
    /// The kinds.
    pub kinds: Option<&'a [String]>,
    /// The event domains.
    pub domains: Option<&'a [String]>,
}

/// A token to create for a producer, which has no executor.
#[derive(Debug, Clone, Default)]
pub struct ProducerTokenSpec<'a> {
    /// What it may do, and nothing else.
    pub produces: Produces<'a>,
    /// Its expiry; none for 90 days.
    pub expires_at: Option<Timestamp>,
    /// Notes for operators.
    pub notes: Option<&'a str>,
    /// The actor.
    pub actor: &'a str,
}

/// A new token, which is stored nowhere else.
#[derive(Clone, Serialize, Deserialize)]
pub struct TokenCreated {
    /// Its id, by which it is listed and revoked.
    pub token_id: TokenId,
    /// The token to give to the executor.
    pub token: String,
    /// Its executor; none for a producer.
    pub executor_id: Option<String>,
    /// Its expiry.
    pub expires_at: Timestamp,
}

/// Not derived, so that the token does not end up in a log.
impl fmt::Debug for TokenCreated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.executor_id.as_deref().unwrap_or("a producer");
        write!(f, "TokenCreated({} of {of})", self.token_id)
    }
}

/// A token as operators see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of executor_token; 0003_executor.sql says what each holds")]
pub struct Token {
    pub token_id: TokenId,
    pub executor_id: Option<String>,
    pub kinds: Option<Vec<String>>,
    pub may_enqueue: bool,
    pub may_register: bool,
    pub produce: Option<Vec<String>>,
    pub emit: Option<Vec<String>>,
    pub notes: Option<String>,
    pub created_at: Timestamp,
    pub created_by: String,
    pub expires_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
    pub revoked_by: Option<String>,
    pub last_used_at: Option<Timestamp>,
    /// `active`, `expired` or `revoked`.
    pub state: String,
}

/// What a token allows right now.
#[derive(Debug, Clone, Deserialize)]
pub struct TokenScope {
    /// Its id.
    pub token_id: TokenId,
    /// Its executor; none for a producer.
    pub executor_id: Option<String>,
    /// That executor's kind.
    pub executor: Option<String>,
    /// Only these kinds; none for all subscribed kinds.
    pub kinds: Option<Vec<String>>,
    /// Whether it may enqueue too.
    pub may_enqueue: bool,
}

/// What a worker process handles.
#[derive(Debug, Clone, Copy)]
pub struct Handles<'a> {
    /// The kinds.
    pub kinds: &'a [String],
    /// How many jobs at once, if it says.
    pub concurrency: Option<i32>,
}

/// What an executor is subscribed to after it registered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Registered {
    /// The executor.
    pub executor: String,
    /// The kinds it asked for.
    pub kinds: Vec<String>,
    /// Those that are new.
    pub added: Vec<String>,
    /// Those whose subscription an operator disabled.
    pub disabled: Vec<String>,
}

/// The outcome of a revocation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TokenRevoked {
    /// Its id.
    pub token_id: TokenId,
    /// False if it was already revoked.
    pub changed: bool,
}

/// Why nothing of a batch was written.
#[derive(Debug)]
pub enum BatchError {
    /// Some rows are refused; at least one.
    Rows(Vec<RefusedRow>),
    /// Not for one of its rows.
    Whole(Error),
}

/// A row of a batch that is refused.
#[derive(Debug)]
pub struct RefusedRow {
    /// Its place, from 0.
    pub index: usize,
    /// The reason.
    pub error: Error,
}

impl From<Error> for BatchError {
    fn from(error: Error) -> BatchError {
        BatchError::Whole(error)
    }
}

/// The rows of a batch's answer, or why there are none.
pub(crate) fn read_rows<T: DeserializeOwned>(answer: Value, field: &str) -> Result<Vec<T>, BatchError> {
    match answer["refused"].as_array() {
        Some(rows) => Err(BatchError::Rows(
            rows.iter()
                .map(|row| RefusedRow {
                    index: row["index"]
                        .as_u64()
                        .and_then(|index| usize::try_from(index).ok())
                        .unwrap_or_default(),
                    error: Error::refused(row),
                })
                .collect(),
        )),
        None => Ok(read_field(answer, field)?),
    }
}

impl Database {
    /// Creates a token.
    pub async fn executor_token_create(&self, spec: &TokenSpec<'_>) -> Result<TokenCreated, Error> {
        let sql = "select towpath.fn_executor_token_create($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let TokenSpec { executor_id, kinds, may_enqueue, may_register, produces, expires_at, notes, actor } =
            spec;
        let Produces { kinds: produce, domains } = produces;
        let parameters: [&(dyn ToSql + Sync); 9] =
            [executor_id, kinds, may_enqueue, expires_at, notes, actor, may_register, produce, domains];
        read(self.call(sql, &parameters).await?)
    }

    /// Creates a token for a producer.
    pub async fn producer_token_create(&self, spec: &ProducerTokenSpec<'_>) -> Result<TokenCreated, Error> {
        let sql = "select towpath.fn_executor_token_create(null, p_expires_at => $1, p_notes => $2, p_actor => $3, \
                   p_produce => $4, p_emit => $5)";
        let ProducerTokenSpec { produces: Produces { kinds, domains }, expires_at, notes, actor } = spec;
        read(self.call(sql, &[expires_at, notes, actor, kinds, domains]).await?)
    }

    /// Subscribes the executor of a token to kinds.
    pub async fn executor_token_register(
        &self,
        hash: &TokenHash,
        worker: &LeaseOwner,
        handles: Handles<'_>,
    ) -> Result<Registered, Error> {
        let sql = "select towpath.fn_executor_token_register($1, $2, $3, $4)";
        let Handles { kinds, concurrency } = handles;
        read(self.call(sql, &[&hash.0.as_slice(), &kinds, &worker.as_str(), &concurrency]).await?)
    }

    /// The tokens of one executor or of all.
    pub async fn executor_token_list(&self, executor_id: Option<&str>) -> Result<Vec<Token>, Error> {
        read_field(self.call("select towpath.fn_executor_token_list($1)", &[&executor_id]).await?, "tokens")
    }

    /// Revokes a token at once.
    pub async fn executor_token_revoke(&self, id: TokenId, actor: &str) -> Result<TokenRevoked, Error> {
        read(self.call("select towpath.fn_executor_token_revoke($1, $2)", &[&id.uuid(), &actor]).await?)
    }

    /// What a token allows, or why it is invalid.
    pub async fn executor_token_check(&self, hash: &TokenHash) -> Result<TokenScope, Error> {
        read(self.call("select towpath.fn_executor_token_check($1)", &[&hash.0.as_slice()]).await?)
    }

    /// The events after a position that a token may read (R05): as one of its executor's recipients, or as the only
    /// one. No position means the end.
    pub async fn executor_token_event_read(
        &self,
        hash: &TokenHash,
        consumer: Option<&str>,
        after: Option<i64>,
        limit: i32,
    ) -> Result<EventPage, Error> {
        let sql = "select towpath.fn_executor_token_event_read($1, $2, $3, $4)";
        read(self.call(sql, &[&hash.0.as_slice(), &consumer, &after, &limit]).await?)
    }

    /// Enqueues with a token, all jobs or none; the answers are in the jobs' order.
    pub async fn executor_token_enqueue<T>(
        &self,
        hash: &TokenHash,
        jobs: &[T],
    ) -> Result<Vec<Enqueued>, BatchError>
    where
        T: Serialize + fmt::Debug + Sync,
    {
        let sql = "select towpath.fn_executor_token_enqueue($1, $2)";
        read_rows(self.call(sql, &[&hash.0.as_slice(), &Json(jobs)]).await?, "jobs")
    }
}
