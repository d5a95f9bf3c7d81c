//! The command that follows from a reason of `fn_job_why`, as `towpath job why` and the job's page show it.

use serde_json::{Map, Value};

/// The command for a reason, if there is one. `more` is what the reason carries besides its code and its words.
pub fn next(code: &str, more: &Map<String, Value>) -> Option<String> {
    let of = |field: &str| more.get(field).and_then(Value::as_str).unwrap_or("NAME");
    Some(match code {
        "gate_closed" => format!("towpath gate open {} --why …", of("gate")),
        "blocked" => format!("towpath job why {}", of("job_id")),
        "paused" => format!("towpath queue resume {}", of("job_kind")),
        "no_subscription" => format!(
            "towpath executor add NAME --executor {} --job-kind {} --enable",
            of("executor"),
            of("job_kind")
        ),
        "subscription_disabled" => format!("towpath executor enable {}", of("executor_id")),
        "not_registered" => format!("towpath executor add {} --executor … --no-kind", of("executor_id")),
        "wrong_executor" => {
            format!("towpath job enqueue {} --executor {}", of("job_kind"), of("wanted"))
        }
        "no_worker" => format!("towpath work --executor {}", of("executor_id")),
        "no_transport" => "towpath settings".into(),
        "no_handler" | "max_parallel" | "priority_floor" => "towpath executor list".into(),
        "ready" => "towpath queue health".into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::next;

    #[test]
    fn a_reason_leads_to_a_command_with_its_own_names() {
        let more = json!({"job_kind": "greet", "wanted": "external_worker"});
        let command = next("wrong_executor", more.as_object().unwrap());
        assert_eq!(command.unwrap(), "towpath job enqueue greet --executor external_worker");
        assert_eq!(next("leased", more.as_object().unwrap()), None);
    }
}
