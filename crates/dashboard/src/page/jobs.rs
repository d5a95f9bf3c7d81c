//! `/ui/jobs`: jobs by filter, newest first. The filter is the URL.

use askama::Template;
use axum::extract::State;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use towpath_db::job_read::{Job, JobFilter};
use towpath_model::id::JobId;
use towpath_model::job_state::JobState;

use super::{Filter, given, inline, read_cursor};
use crate::App;
use crate::fault::{Answer, Fault};
use crate::filters;
use crate::limits::JOBS_PAGE;
use crate::shell::{self, Shell};

/// The filter as the form and the URL have it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    pub(crate) state: String,
    pub(crate) kind: String,
    pub(crate) executor: String,
    pub(crate) actor: String,
    pub(crate) key: String,
    /// `order=7`, `customer.id="x"` or JSON that the payload must contain.
    pub(crate) payload: String,
    pub(crate) error: String,
    pub(crate) after: String,
    pub(crate) before: String,
    pub(crate) cursor: String,
}

impl Asked {
    /// Converts to the database's filter.
    pub(crate) fn filter(&self) -> Result<JobFilter, Fault> {
        let moment = |text: &str| match given(text) {
            None => Ok(None),
            Some(text) => read_moment(&text).map(Some),
        };
        let state = match given(&self.state) {
            None => None,
            Some(word) => Some(
                word.parse::<JobState>().map_err(|_| Fault::Invalid(format!("unknown state {word:?}")))?,
            ),
        };
        Ok(JobFilter {
            state,
            job_kind: given(&self.kind),
            executor: given(&self.executor),
            actor: given(&self.actor),
            idempotency_key: given(&self.key),
            created_after: moment(&self.after)?,
            created_before: moment(&self.before)?,
            payload: given(&self.payload).map(|text| read_payload(&text)).transpose()?,
            error_contains: given(&self.error),
            ..JobFilter::default()
        })
    }

    /// The filter fields, by name.
    fn fields(&self) -> [(&'static str, &str); 9] {
        [
            ("state", &self.state),
            ("kind", &self.kind),
            ("executor", &self.executor),
            ("actor", &self.actor),
            ("key", &self.key),
            ("payload", &self.payload),
            ("error", &self.error),
            ("after", &self.after),
            ("before", &self.before),
        ]
    }

    /// The same filter as a query.
    pub(crate) fn query(&self) -> String {
        super::query(&self.fields())
    }

    /// The same filter on the command line.
    pub(crate) fn command(&self, verb: &str) -> String {
        let payload = on_the_command_line(&self.payload);
        let flags = self.fields().map(|(name, value)| match name {
            "after" => ("since", value),
            "payload" => (name, payload.as_str()),
            _ => (name, value),
        });
        super::command(&["towpath", "job", verb].join(" "), &flags)
    }
}

/// A payload filter as JSON, for commands.
pub(crate) fn on_the_command_line(payload: &str) -> String {
    read_payload(payload.trim()).map_or_else(|_| String::new(), |payload| payload.to_string())
}

/// A time in UTC, as people type it or browsers send it.
fn read_moment(text: &str) -> Result<Timestamp, Fault> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let civil = text
        .parse::<jiff::civil::DateTime>()
        .ok()
        .and_then(|civil| civil.to_zoned(jiff::tz::TimeZone::UTC).ok());
    civil.map(|zoned| zoned.timestamp()).ok_or_else(|| {
        Fault::Invalid(format!("invalid time {text:?}; expected a form such as 2026-05-01T12:00 (UTC)"))
    })
}

/// The creation time in a job's id.
fn made_at(id: JobId) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(id.uuid().as_u128() >> 80).ok()?).ok()
}

/// `a.b=value` or JSON.
pub(crate) fn read_payload(text: &str) -> Result<Value, Fault> {
    if text.starts_with('{') {
        return serde_json::from_str(text)
            .map_err(|error| Fault::Invalid(format!("the payload filter is not valid JSON: {error}")));
    }
    let (path, value) = text.split_once('=').ok_or_else(|| {
        Fault::Invalid(format!("invalid payload filter {text:?}; use order=7, customer.id=x or JSON"))
    })?;
    let value = serde_json::from_str(value.trim()).unwrap_or_else(|_| value.trim().into());
    Ok(path.trim().rsplit('.').fold(value, |inner, name| json!({ name: inner })))
}

#[derive(Template)]
#[template(path = "jobs.html")]
struct Page {
    shell: Shell,
    asked: Asked,
    states: [JobState; 9],
    /// The executor kinds.
    executors: Vec<String>,
    jobs: Vec<Job>,
    /// Where the next page starts.
    older: Option<JobId>,
    /// How far back a search went that stopped early.
    searched_to: Option<Timestamp>,
    query: String,
    command: String,
}

pub(crate) async fn show(shell: Shell, State(app): State<App>, filter: Filter<Asked>) -> Answer {
    let asked = &filter.asked;
    let look = async {
        filter.check()?;
        let cursor = read_cursor(&asked.cursor, "a job")?;
        let found = app.database.job_list(&asked.filter()?, JOBS_PAGE, cursor).await?;
        Ok::<_, Fault>((found.jobs, found.cursor))
    };
    let (found, executors) = tokio::join!(look, app.database.executor_kinds());
    let (((jobs, older), problem), executors) = (inline(found)?, executors?);
    let asked = filter.asked;
    let page = Page {
        query: asked.query(),
        command: asked.command("list"),
        asked,
        states: JobState::ALL,
        executors,
        searched_to: older.filter(|_| jobs.len() < JOBS_PAGE as usize).and_then(made_at),
        jobs,
        older,
        shell: shell.at("/ui/jobs", "Jobs").live("jobs").saying(problem.as_ref()),
    };
    shell::render_list(&page, problem.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_filter_is_a_path_or_json() {
        assert_eq!(read_payload("order=7").unwrap(), json!({ "order": 7 }));
        assert_eq!(read_payload("customer.id = x").unwrap(), json!({ "customer": { "id": "x" } }));
        assert_eq!(read_payload(r#"{"a": [1]}"#).unwrap(), json!({ "a": [1] }));
        assert!(read_payload("order").is_err());
        assert!(read_payload("{").is_err());
    }

    #[test]
    fn the_filter_is_in_the_url_and_on_the_command_line() {
        let asked = Asked { kind: "mail out".into(), payload: "order=7".into(), ..Asked::default() };
        assert_eq!(asked.query(), "kind=mail%20out&payload=order%3D7");
        assert_eq!(asked.command("list"), r#"towpath job list --kind 'mail out' --payload '{"order":7}'"#);
    }

    #[test]
    fn moments_are_read_as_browsers_and_people_write_them() {
        for text in ["2026-05-01T12:00", "2026-05-01T12:00:00Z", "2026-05-01 12:00"] {
            assert_eq!(read_moment(text).unwrap().as_second(), 1_777_636_800, "{text}");
        }
        assert!(read_moment("yesterday").is_err());
    }
}
