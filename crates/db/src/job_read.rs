//! Reading jobs, and what an operator may do to one: `sql/functions/job_read.sql`,
//! `job_why.sql`, `graph.sql` and the ends of `job_dead_letter.sql`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use towpath_model::actor;
use towpath_model::id::{GraphId, JobId};
use towpath_model::job_state::JobState;
use towpath_model::trace::TraceParent;
use uuid::Uuid;

use crate::answer::{read, read_field};
use crate::dead_letter::DeadLetter;
use crate::{Attribution, Database, Error};

/// One row of the view `job_queue`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of the contract; sql/views/job_queue.sql says what each shows")]
pub struct Job {
    pub job_id: JobId,
    pub job_kind: String,
    pub state: JobState,
    pub source_ref: Option<String>,
    pub target_ref: Option<String>,
    pub payload_ref: Option<String>,
    pub payload_json: Value,
    pub priority: i32,
    pub scheduled_at: Timestamp,
    pub picked_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub lease_owner: Option<String>,
    pub lease_until: Option<Timestamp>,
    pub attempts: i32,
    pub max_attempts: i32,
    pub idempotency_key: String,
    pub actor: String,
    pub run_id: Option<Uuid>,
    pub last_error: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub executor: String,
    pub event_domain: Option<String>,
    pub blocked_by: Option<Vec<JobId>>,
    pub progress_percent: Option<i16>,
    pub progress_message: Option<String>,
    pub progress_at: Option<Timestamp>,
    /// The span that wanted it; its second part is the trace.
    pub traceparent: Option<TraceParent>,
    /// The login that named another actor than itself.
    pub login: Option<String>,
}

impl Job {
    /// The actor, and the login behind it if it is another.
    pub fn who(&self) -> String {
        actor::in_words(&self.actor, self.login.as_deref())
    }
}

/// Which jobs to list. What is none does not narrow.
#[derive(Debug, Clone, Default, Serialize)]
#[expect(missing_docs, reason = "the columns of the same name, and two bounds on created_at")]
pub struct JobFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_after: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_before: Option<Timestamp>,
    /// What the payload must contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// A part of the last error, in any letter case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_contains: Option<String>,
}

impl JobFilter {
    /// Whether this filter narrows nothing.
    pub fn is_empty(&self) -> bool {
        serde_json::to_value(self)
            .is_ok_and(|filter| filter.as_object().is_some_and(serde_json::Map::is_empty))
    }
}

/// A page of jobs, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Where to go on. An empty page with a cursor is not the end.
    pub cursor: Option<JobId>,
}

/// One thing that happened to a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobEvent {
    /// When.
    pub at: Option<Timestamp>,
    /// What, in one word.
    pub event: String,
    /// Who.
    pub actor: Option<String>,
    /// The login that named another actor than itself.
    pub login: Option<String>,
    /// In which attempt.
    pub attempt: Option<i32>,
    /// What there is to add.
    pub detail: Option<String>,
}

impl JobEvent {
    /// The actor, and the login behind it if it is another.
    pub fn who(&self) -> Option<String> {
        self.actor.as_deref().map(|actor| actor::in_words(actor, self.login.as_deref()))
    }
}

/// One job and everything around it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobWhole {
    /// The job; none if only its dead letter is left.
    pub job: Option<Job>,
    /// Its copy among the dead letters.
    pub dead_letter: Option<DeadLetter>,
    /// The dead job that it was made from.
    pub replay_of: Option<JobId>,
    /// The jobs it waits for, or waited for.
    pub parents: Vec<JobEdge>,
    /// The jobs that wait for it.
    pub children: Vec<JobEdge>,
    /// The graph it is part of.
    pub graph_id: Option<GraphId>,
}

/// The other end of an edge.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobEdge {
    /// The job there.
    pub job_id: JobId,
    /// `cancel` or `hold`.
    pub on_failure: String,
    /// Whether the parent has succeeded.
    pub satisfied: bool,
}

/// Why a job is not running.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobWhy {
    /// The job.
    pub job_id: JobId,
    /// Where it stands.
    pub state: JobState,
    /// Every reason there is.
    pub reasons: Vec<JobReason>,
}

/// One reason, for people and for programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobReason {
    /// One word of the list in `sql/functions/job_why.sql`.
    pub code: String,
    /// A sentence.
    pub text: String,
    /// What else belongs to it: the gate, the owner, the time.
    #[serde(flatten)]
    pub more: serde_json::Map<String, Value>,
}

impl JobReason {
    /// The command that follows from it.
    pub fn next(&self) -> Option<String> {
        towpath_model::why::next(&self.code, &self.more)
    }
}

/// A job after an operator's decision.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobMoved {
    /// The job.
    pub job_id: JobId,
    /// Where it stands now.
    pub state: JobState,
}

/// A graph that was emitted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GraphEmitted {
    /// Its id.
    pub graph_id: GraphId,
    /// Whether its key had been emitted before.
    pub duplicate: bool,
    /// The job of each node.
    pub jobs: std::collections::BTreeMap<String, JobId>,
}

/// A graph with the states of its jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Graph {
    /// Its id.
    pub graph_id: GraphId,
    /// What its emitter called it.
    pub name: String,
    /// Who emitted it.
    pub actor: String,
    /// When.
    pub created_at: Timestamp,
    /// Its nodes, parents before children.
    pub nodes: Vec<GraphNode>,
    /// Who waits for whom.
    pub edges: Vec<GraphEdge>,
}

/// One node of a graph.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GraphNode {
    /// Its name in the graph.
    pub node: String,
    /// Its job.
    pub job_id: JobId,
    /// The job's kind, none once retention dropped it.
    pub job_kind: Option<String>,
    /// Where the job stands.
    pub state: JobState,
}

/// One edge of a graph.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GraphEdge {
    /// The job that is waited for.
    pub from: JobId,
    /// The job that waits.
    pub to: JobId,
    /// `cancel` or `hold`.
    pub on_failure: String,
    /// Whether the parent has succeeded.
    pub satisfied: bool,
}

impl Database {
    /// One job and everything around it.
    pub async fn job_show(&self, job_id: JobId) -> Result<JobWhole, Error> {
        let answer = self.call("select towpath.fn_job_show($1)", &[&job_id.uuid()]).await;
        read(answer?).map_err(|error| no_such_job(error, job_id))
    }

    /// What happened to a job, oldest first (Q20).
    pub async fn job_history(&self, job_id: JobId) -> Result<Vec<JobEvent>, Error> {
        let answer = self.call("select towpath.fn_job_history($1)", &[&job_id.uuid()]).await?;
        read_field(answer, "events").map_err(|error| no_such_job(error, job_id))
    }

    /// A page of jobs, newest first.
    pub async fn job_list(
        &self,
        filter: &JobFilter,
        limit: i32,
        cursor: Option<JobId>,
    ) -> Result<JobPage, Error> {
        let filter = serde_json::to_value(filter).expect("a filter is plain data");
        let cursor = cursor.map(JobId::uuid);
        read(self.call("select towpath.fn_job_list($1, $2, $3)", &[&filter, &limit, &cursor]).await?)
    }

    /// Why a job is not running.
    pub async fn job_why(&self, job_id: JobId) -> Result<JobWhy, Error> {
        let answer = self.call("select towpath.fn_job_why($1)", &[&job_id.uuid()]).await?;
        read(answer).map_err(|error| no_such_job(error, job_id))
    }

    /// Ends an unfinished job; a worker that runs it gets `lease_lost` at its next call.
    pub async fn job_cancel(&self, job_id: JobId, by: Attribution<'_>) -> Result<JobMoved, Error> {
        let sql = "select towpath.fn_job_cancel($1, $2, $3)";
        let answer = self.call(sql, &[&job_id.uuid(), &by.actor, &by.reason]).await?;
        read(answer).map_err(|error| no_such_job(error, job_id))
    }

    /// Does not wait any longer: a waiting job is due now; a dead one is replayed, and the answer
    /// has the fresh job's id.
    pub async fn job_retry(&self, job_id: JobId, actor: &str) -> Result<JobMoved, Error> {
        let answer = self.call("select towpath.fn_job_retry($1, $2)", &[&job_id.uuid(), &actor]).await?;
        read(answer).map_err(|error| no_such_job(error, job_id))
    }

    /// Moves an unfinished job to the dead letters, with the reason as its final error.
    pub async fn job_move_to_dead_letter(
        &self,
        job_id: JobId,
        by: Attribution<'_>,
    ) -> Result<JobMoved, Error> {
        let sql = "select towpath.fn_job_move_to_dead_letter($1, $2, $3)";
        let answer = self.call(sql, &[&job_id.uuid(), &by.reason, &by.actor]).await?;
        read(answer).map_err(|error| no_such_job(error, job_id))
    }

    /// Emits a whole graph of jobs, or nothing (Q18).
    pub async fn graph_emit(&self, graph: &Value) -> Result<GraphEmitted, Error> {
        let mut answer = self.call("select towpath.fn_mot_graph_emit($1)", &[graph]).await?;
        // The node and the cycle belong to the words a person reads.
        if let (Some(detail), Some(node)) = (answer["detail"].as_str(), answer["node"].as_str()) {
            answer["detail"] = format!("node {node}: {detail}").into();
        } else if let (Some(detail), Some(nodes)) = (answer["detail"].as_str(), answer["nodes"].as_array()) {
            let names: Vec<&str> = nodes.iter().filter_map(Value::as_str).collect();
            answer["detail"] = format!("{detail}: {}", names.join(", ")).into();
        }
        read(answer)
    }

    /// A graph with the states of its jobs.
    pub async fn graph_show(&self, graph_id: GraphId) -> Result<Graph, Error> {
        let answer = self.call("select towpath.fn_mot_graph_show($1)", &[&graph_id.uuid()]).await?;
        read(answer).map_err(|error| match error {
            Error::NotFound(_) => Error::NotFound(format!("there is no graph {graph_id}")),
            other => other,
        })
    }
}

fn no_such_job(error: Error, job_id: JobId) -> Error {
    match error {
        Error::NotFound(_) => Error::NotFound(format!("there is no job {job_id}, or retention dropped it")),
        other => other,
    }
}
