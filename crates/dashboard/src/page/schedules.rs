//! `/ui/schedules`: periodic jobs.

use askama::Template;
use axum::extract::State;
use jiff::Timestamp;
use towpath_db::Database;
use towpath_db::job::{Enqueued, NewJob};
use towpath_db::schedule::Schedule;
use towpath_model::cron::Cron;

use crate::App;
use crate::act::Action;
use crate::fault::{Answer, Fault};
use crate::filters;
use crate::shell::{self, Shell};

#[derive(Template)]
#[template(path = "schedules.html")]
struct Page {
    shell: Shell,
    schedules: Vec<Row>,
}

struct Row {
    schedule: Schedule,
    words: String,
    next: Vec<Timestamp>,
}

pub(crate) async fn show(shell: Shell, State(app): State<App>) -> Answer {
    let schedules = app.database.schedule_list().await?.into_iter().map(row).collect();
    let shell = shell.at("/ui/schedules", "Schedules").live("schedules");
    shell::render(&Page { shell, schedules })
}

fn row(schedule: Schedule) -> Row {
    let cron = Cron::parse(&schedule.expression, &schedule.time_zone);
    let words = cron.as_ref().map_or_else(Clone::clone, Cron::describe);
    let next = match (&cron, schedule.paused) {
        (Ok(cron), false) => {
            let later = cron.ticks_after(schedule.next_at).take(2);
            std::iter::once(schedule.next_at).chain(later).collect()
        }
        _ => vec![],
    };
    Row { schedule, words, next }
}

pub(crate) async fn act(State(app): State<App>, action: Action) -> Answer {
    let name = action.text("target").to_owned();
    let all = app.database.schedule_list().await?;
    let schedule = all
        .into_iter()
        .find(|schedule| schedule.name == name)
        .ok_or_else(|| Fault::NotFound(format!("there is no schedule {name:?}")))?;
    match action.text("do") {
        "pause" => {
            let work = async |db: Database, who: String, _| db.schedule_pause(&name, &who).await;
            action.perform(&app, ("schedule pause", &name), work, |_| format!("{name} is paused")).await
        }
        "resume" => {
            let cron = Cron::parse(&schedule.expression, &schedule.time_zone).map_err(Fault::Invalid)?;
            let next = cron
                .next_after(Timestamp::now())
                .ok_or_else(|| Fault::Invalid(format!("{name} has no further ticks")))?;
            let work = async |db: Database, who: String, _| db.schedule_resume(&name, next, &who).await;
            action.perform(&app, ("schedule resume", &name), work, |_| format!("{name} is resumed")).await
        }
        "run" => {
            let work = async |db: Database, who: String, _| db.enqueue(&once(&schedule, &who)?).await;
            let said = |enqueued: Enqueued| format!("enqueued as job {}", enqueued.job_id);
            action.perform(&app, ("schedule run", &name), work, said).await
        }
        other => Err(Fault::Invalid(format!("unknown action {other:?} for a schedule"))),
    }
}

/// The schedule's job, once and now.
fn once(schedule: &Schedule, who: &str) -> Result<NewJob, towpath_db::Error> {
    let job = NewJob::new(&schedule.job_kind)
        .payload(&schedule.payload_json)?
        .priority(schedule.priority)
        .actor(who);
    let job = match &schedule.executor {
        Some(executor) => job.executor(executor),
        None => job,
    };
    let job = match &schedule.event_domain {
        Some(domain) => job.event_domain(domain),
        None => job,
    };
    Ok(match schedule.max_attempts {
        Some(attempts) => job.max_attempts(attempts),
        None => job,
    })
}
