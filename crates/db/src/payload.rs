//! Stored payloads: `sql/functions/payload_store.sql` and `payload_keep.sql`.
//!
//! Data of a project with a key is encrypted and decrypted here; the database sees neither the data nor the key.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use towpath_model::job::{Attempt, JobId};
use towpath_model::payload::{About, MasterKeys, PayloadRef};
use uuid::Uuid;

use crate::answer::{read, read_field};
use crate::executor_token::TokenHash;
use crate::job::{LeaseOwner, Pass};
use crate::{Database, Error, Parameter};

/// Data to store.
#[derive(Clone, Copy)]
pub struct NewPayload<'a> {
    /// The bytes, at most 16 MiB.
    pub data: &'a [u8],
    /// Their content type.
    pub content_type: &'a str,
    /// Their project, whose key encrypts them if it has one.
    pub project: &'a str,
}

/// A payload, decrypted.
#[derive(Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns of payload; 0002_job.sql says what each holds")]
pub struct Payload {
    pub payload_ref: PayloadRef,
    pub project: String,
    pub content_type: String,
    pub created_at: Timestamp,
    pub created_by: String,
    pub data: Vec<u8>,
}

impl Payload {
    /// The data as JSON of this type.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.data)
    }
}

/// Not derived, so that the data does not end up in a log.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {}, {} bytes of {}",
            self.payload_ref,
            self.project,
            self.data.len(),
            self.content_type
        )
    }
}

/// A key of a project, without the key itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of payload_key; 0002_job.sql says what each holds")]
pub struct PayloadKey {
    pub key_id: i64,
    pub project: String,
    pub created_at: Timestamp,
    pub created_by: String,
    pub erased_at: Option<Timestamp>,
    pub erased_by: Option<String>,
}

/// The id of a new payload, and the key that must encrypt it.
#[derive(Deserialize)]
struct Prepared {
    payload_id: Uuid,
    key_id: Option<i64>,
    wrapped: Option<String>,
}

/// A payload as stored.
#[derive(Deserialize)]
struct Stored {
    payload_ref: String,
    project: String,
    content_type: String,
    created_at: Timestamp,
    created_by: String,
    wrapped: Option<String>,
    data: String,
}

impl Database {
    /// Stores a payload in its own transaction and returns its reference. In the caller's transaction, `select
    /// towpath.payload_put(…)` does the same for unencrypted data.
    pub async fn payload_put(&self, new: NewPayload<'_>) -> Result<PayloadRef, Error> {
        let (Prepared { payload_id, key_id, .. }, data) = self.payload_prepared(new).await?;
        let sql = "select towpath.fn_payload_put($1, $2, $3, $4, $5)";
        let params: [Parameter<'_>; 5] =
            [&data.as_slice(), &new.content_type, &new.project, &payload_id, &key_id];
        stored(self.call(sql, &params).await?)
    }

    /// The same with a token that may enqueue.
    pub async fn executor_token_payload_put(
        &self,
        hash: &TokenHash,
        new: NewPayload<'_>,
    ) -> Result<PayloadRef, Error> {
        let (Prepared { payload_id, key_id, .. }, data) = self.payload_prepared(new).await?;
        let sql = "select towpath.fn_executor_token_payload_put($1, $2, $3, $4, $5, $6)";
        let params: [Parameter<'_>; 6] =
            [&hash.bytes(), &data.as_slice(), &new.content_type, &new.project, &payload_id, &key_id];
        stored(self.call(sql, &params).await?)
    }

    /// A payload by its reference, for the login that stored it and for administrators.
    pub async fn payload_get(&self, payload_ref: PayloadRef, actor: &str) -> Result<Payload, Error> {
        let sql = "select towpath.fn_payload_get($1, $2)";
        self.payload_opened(self.call(sql, &[&payload_ref.to_string(), &actor]).await?)
    }

    /// Deletes one payload, for the login that stored it and for administrators. A job that still names it fails in
    /// words when it asks for its data.
    pub async fn payload_delete(&self, payload_ref: PayloadRef, actor: &str) -> Result<(), Error> {
        let sql = "select towpath.fn_payload_delete($1, $2)";
        let answer = self.call(sql, &[&payload_ref.to_string(), &actor]).await?;
        read_field::<String>(answer, "payload_ref").map(drop)
    }

    /// The payload that a job references in `payload_ref`, for the holder of its lease.
    pub async fn job_payload(
        &self,
        owner: &LeaseOwner,
        (job_id, attempt): (JobId, Attempt),
    ) -> Result<Payload, Error> {
        let sql = "select towpath.fn_job_payload($1, $2, $3)";
        self.payload_opened(self.call(sql, &[&job_id.uuid(), &owner.as_str(), &attempt.number()]).await?)
    }

    /// The payload that the result of a job became because it is larger than 64 KiB.
    pub async fn job_result_payload(&self, job_id: JobId) -> Result<Payload, Error> {
        let sql = "select towpath.fn_job_result_payload($1)";
        self.payload_opened(self.call(sql, &[&job_id.uuid()]).await?)
    }

    /// Creates the next key of a project; the first one turns encryption on.
    pub async fn payload_key_rotate(&self, project: &str, actor: &str) -> Result<i64, Error> {
        let wrapped = self.required_master_keys(project)?.new_key(project);
        let sql = "select towpath.fn_payload_key_rotate($1, $2, $3)";
        read_field(self.call(sql, &[&project, &wrapped, &actor]).await?, "key_id")
    }

    /// Erases every key of a project, and thereby everything encrypted with them. Returns how many.
    pub async fn payload_key_erase(&self, project: &str, actor: &str) -> Result<i64, Error> {
        read_field(
            self.call("select towpath.fn_payload_key_erase($1, $2)", &[&project, &actor]).await?,
            "erased",
        )
    }

    /// The keys of all projects.
    pub async fn payload_key_list(&self) -> Result<Vec<PayloadKey>, Error> {
        read_field(self.call("select towpath.fn_payload_key_list()", &[]).await?, "keys")
    }

    /// Drops old payloads that no unfinished job references.
    pub async fn payload_retention_tick(&self) -> Result<Pass, Error> {
        read(self.call("select towpath.fn_payload_retention_tick()", &[]).await?)
    }

    /// Prepares a new payload, and encrypts it if its project has a key.
    async fn payload_prepared(&self, new: NewPayload<'_>) -> Result<(Prepared, Vec<u8>), Error> {
        let NewPayload { data, content_type, project } = new;
        let prepared: Prepared =
            read(self.call("select towpath.fn_payload_prepare($1)", &[&project]).await?)?;
        let Some(wrapped) = &prepared.wrapped else { return Ok((prepared, data.to_vec())) };
        let key = self.required_master_keys(project)?.unwrap(project, &decoded(wrapped)?);
        let key =
            key.map_err(|why| Error::Conflict(format!("cannot encrypt for project {project}: {why}")))?;
        let about = About { payload_ref: PayloadRef::new(prepared.payload_id), project, content_type };
        let sealed = key.seal(about, data);
        Ok((prepared, sealed))
    }

    fn payload_opened(&self, answer: Value) -> Result<Payload, Error> {
        let Stored { payload_ref, project, content_type, created_at, created_by, wrapped, data } =
            read(answer)?;
        let payload_ref: PayloadRef = payload_ref.parse().map_err(Error::Unreadable)?;
        let mut data = decoded(&data)?;
        if let Some(wrapped) = wrapped {
            let keys = self.required_master_keys(&project)?;
            let about = About { payload_ref, project: &project, content_type: &content_type };
            let opened = keys.unwrap(&project, &decoded(&wrapped)?).and_then(|key| key.open(about, &data));
            data = opened.map_err(|why| Error::Conflict(format!("cannot decrypt {payload_ref}: {why}")))?;
        }
        Ok(Payload { payload_ref, project, content_type, created_at, created_by, data })
    }

    fn required_master_keys(&self, project: &str) -> Result<&MasterKeys, Error> {
        self.master_keys().ok_or_else(|| {
            Error::Conflict(format!(
                "project {project} needs a master key and this process has none; name its file in the setting \
                 payload_master_key_file"
            ))
        })
    }
}

fn stored(answer: Value) -> Result<PayloadRef, Error> {
    read_field::<String>(answer, "payload_ref")?.parse().map_err(Error::Unreadable)
}

fn decoded(text: &str) -> Result<Vec<u8>, Error> {
    STANDARD.decode(text).map_err(|error| Error::Unreadable(error.to_string()))
}
