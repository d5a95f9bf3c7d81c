//! Checkpoints of plain jobs: `sql/functions/job_checkpoint.sql`.

use std::collections::HashMap;

use serde_json::Value;
use towpath_model::job::{Attempt, JobId};
use uuid::Uuid;

use crate::answer::read_field;
use crate::job::LeaseOwner;
use crate::{Database, Error};

impl Database {
    /// Stores where an attempt has got to, for the next one.
    pub async fn checkpoint(
        &self,
        owner: &LeaseOwner,
        (job_id, attempt): (JobId, Attempt),
        checkpoint: &Value,
    ) -> Result<(), Error> {
        let sql = "select towpath.fn_job_checkpoint($1, $2, $3, $4)";
        let answer =
            self.call(sql, &[&job_id.uuid(), &owner.as_str(), &attempt.number(), checkpoint]).await?;
        read_field::<JobId>(answer, "job_id").map(drop)
    }

    /// What earlier attempts of these jobs left, for the owner that holds them.
    pub async fn checkpoints(
        &self,
        owner: &LeaseOwner,
        job_ids: &[JobId],
    ) -> Result<HashMap<JobId, Value>, Error> {
        let ids: Vec<Uuid> = job_ids.iter().map(|job_id| job_id.uuid()).collect();
        let sql = "select towpath.fn_job_checkpoints($1, $2)";
        read_field(self.call(sql, &[&ids, &owner.as_str()]).await?, "checkpoints")
    }
}
