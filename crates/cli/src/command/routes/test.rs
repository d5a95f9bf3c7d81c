//! `towpath routes test`: one signed webhook, sent as the route role would send it.

use std::process::ExitCode;

use serde_json::json;
use towpath_db::Database;
use towpath_route::webhook::{Client, send_test};

use super::known;
use crate::output::{EXIT_FAILURES, Exit, Output};
use crate::progress;
use crate::settings::Settings;

pub(crate) async fn run(route: &str, settings: &Settings, database: &Database, output: &Output) -> Exit {
    let test = known(database.route_test(route).await, route, database).await?;
    let client = Client::new(crate::route::reach_of_server(settings))?;
    let report = progress::patience("waiting for the receiver", send_test(&client, &test)).await;
    let failure = report.failure.as_ref();
    let data = json!({
        "route_name": route, "webhook_id": test.webhook_id, "url": test.url, "taken": failure.is_none(),
        "status_code": report.outcome.status_code, "duration_ms": report.outcome.duration.as_millis(),
        "address": report.outcome.address, "answer": report.outcome.answer,
        "class": failure.map(|failure| failure.class.word()), "error": failure.map(|failure| &failure.error),
    });
    output.show(&data, |_| match failure {
        None => format!(
            "{} accepted it with {} in {} ms",
            test.url,
            report.outcome.status_code.unwrap_or(0),
            report.outcome.duration.as_millis()
        ),
        Some(failure) => format!("{} did not accept it: {}", test.url, failure.error),
    });
    Ok(if failure.is_none() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILURES) })
}
