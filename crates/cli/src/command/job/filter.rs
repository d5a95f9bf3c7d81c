//! The filter shared by `job list`, `job cancel` and `job retry`.

use clap::Args;
use jiff::Timestamp;
use towpath_db::job_read::JobFilter;
use towpath_model::job_state::JobState;
use uuid::Uuid;

use crate::moment;

#[derive(Args)]
pub(crate) struct Filter {
    /// Only jobs in this state
    #[arg(long)]
    state: Option<JobState>,
    /// Only this job kind
    #[arg(long)]
    kind: Option<String>,
    /// Only for this executor kind
    #[arg(long)]
    executor: Option<String>,
    /// Only of this event domain
    #[arg(long)]
    domain: Option<String>,
    /// Only enqueued by this actor
    #[arg(long)]
    actor: Option<String>,
    /// Only of this run
    #[arg(long, value_name = "UUID")]
    run_id: Option<Uuid>,
    /// Only with this idempotency key
    #[arg(long)]
    key: Option<String>,
    /// Only leased by this owner
    #[arg(long)]
    owner: Option<String>,
    /// Only if the payload contains this, as in {"order": 7} or order=7
    #[arg(long, value_name = "JSON", value_parser = crate::input::part)]
    payload: Option<serde_json::Value>,
    /// Only if the last error contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only enqueued after this time, or within this duration
    #[arg(long, value_name = "WHEN", value_parser = moment::ago)]
    since: Option<Timestamp>,
    /// Only enqueued before this time, or longer ago than this duration
    #[arg(long, value_name = "WHEN", value_parser = moment::ago)]
    before: Option<Timestamp>,
}

impl Filter {
    pub(super) fn read(self) -> JobFilter {
        JobFilter {
            state: self.state,
            job_kind: self.kind,
            executor: self.executor,
            event_domain: self.domain,
            actor: self.actor,
            run_id: self.run_id,
            idempotency_key: self.key,
            lease_owner: self.owner,
            created_after: self.since,
            created_before: self.before,
            payload: self.payload,
            error_contains: self.error,
        }
    }
}
