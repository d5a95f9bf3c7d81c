//! `towpath job show | why`.

use serde::Serialize;
use towpath_db::Database;
use towpath_db::job_read::{Job, JobEvent, JobWhole, JobWhy};
use towpath_model::id::JobId;
use towpath_model::trace::TraceParent;

use crate::output::{Exit, Output, done, table};

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    whole: JobWhole,
    history: Vec<JobEvent>,
}

pub(crate) async fn show(job_id: JobId, database: &Database, output: &Output) -> Exit {
    let whole = database.job_show(job_id).await?;
    let history = match &whole.job {
        Some(_) => database.job_history(job_id).await?,
        None => vec![],
    };
    output.show(&Shown { whole, history }, in_words);
    done()
}

/// Explains why a job is not running.
pub(crate) async fn why(job_id: JobId, database: &Database, output: &Output) -> Exit {
    let why = database.job_why(job_id).await?;
    output.show(&why, why_in_words);
    done()
}

fn why_in_words(why: &JobWhy) -> String {
    let mut lines = vec![format!("job {} is {}:", why.job_id, why.state)];
    for reason in &why.reasons {
        lines.push(format!("- {}", reason.text));
        lines.extend(reason.next().map(|next| format!("  next: {next}")));
    }
    lines.join("\n")
}

fn in_words(shown: &Shown) -> String {
    let mut parts = vec![];
    match (&shown.whole.job, &shown.whole.dead_letter) {
        (Some(job), _) => parts.push(job_in_words(job)),
        (None, Some(letter)) => {
            parts.push(format!("retention dropped job {}; only its dead letter is left", letter.job_id));
        }
        (None, None) => {}
    }
    if let Some(letter) = &shown.whole.dead_letter {
        let replay =
            letter.replayed_job_id.map_or_else(String::new, |job| format!(", replayed as job {job}"));
        parts.push(format!(
            "dead letter  {} ({}{replay})\nfinal error  {}",
            letter.dead_letter_id, letter.triage_status, letter.final_error
        ));
    }
    let mut links = vec![];
    links.extend(shown.whole.replay_of.map(|job| format!("replay of    {job}")));
    links.extend(shown.whole.graph_id.map(|graph| format!("graph        {graph}")));
    for edge in &shown.whole.parents {
        let met = if edge.satisfied { "succeeded" } else { "unfinished" };
        links.push(format!("waits for    {} ({met}; on failure: {})", edge.job_id, edge.on_failure));
    }
    links.extend(shown.whole.children.iter().map(|edge| format!("followed by  {}", edge.job_id)));
    if !links.is_empty() {
        parts.push(links.join("\n"));
    }
    if !shown.history.is_empty() {
        parts.push(history(&shown.history));
    }
    parts.join("\n\n")
}

fn job_in_words(job: &Job) -> String {
    let mut fields = vec![
        ("job", job.job_id.to_string()),
        ("kind", job.job_kind.clone()),
        ("state", job.state.to_string()),
        ("executor", job.executor.clone()),
        ("priority", job.priority.to_string()),
        ("attempts", format!("{} of {}", job.attempts, job.max_attempts)),
        ("scheduled", format!("{:.0}", job.scheduled_at)),
        ("created", format!("{:.0} by {}", job.created_at, job.who())),
        ("key", job.idempotency_key.clone()),
        ("payload", job.payload_json.to_string()),
    ];
    let optional = [
        ("domain", job.event_domain.clone()),
        ("source", job.source_ref.clone()),
        ("target", job.target_ref.clone()),
        ("payload ref", job.payload_ref.clone()),
        ("run", job.run_id.map(|id| id.to_string())),
        ("trace", job.traceparent.map(TraceParent::trace)),
        (
            "lease",
            job.lease_owner.as_ref().zip(job.lease_until).map(|(o, until)| format!("{o} until {until:.0}")),
        ),
        ("progress", job.progress_percent.map(|percent| progress(percent, job.progress_message.as_deref()))),
        ("finished", job.finished_at.map(|at| format!("{at:.0}"))),
        ("last error", job.last_error.clone()),
    ];
    fields.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    fields.iter().map(|(name, value)| format!("{name:<11}  {value}")).collect::<Vec<_>>().join("\n")
}

/// A job's progress on one line.
pub(crate) fn progress(percent: i16, message: Option<&str>) -> String {
    match message {
        Some(message) => format!("{percent} %: {message}"),
        None => format!("{percent} %"),
    }
}

fn history(events: &[JobEvent]) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let rows = events.iter().map(|event| {
        let at = event.at.map_or_else(String::new, |at| format!("{at:.3}"));
        let attempt = event.attempt.map_or_else(String::new, |attempt| attempt.to_string());
        [at, event.event.clone(), attempt, text(&event.who()), text(&event.detail)]
    });
    table(["WHEN", "WHAT", "ATTEMPT", "WHO", "DETAIL"], rows)
}
