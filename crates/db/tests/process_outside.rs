//! Processes that a program outside the database supervises.

use serde_json::{Value, json};

use crate::process_kit::{DEADLINE, LEASE, Processes, SECOND};

async fn place() -> Processes {
    Processes::with_kind(&json!({ "task_kind": "test" })).await
}

async fn due(place: &Processes) -> Vec<Value> {
    let answer = place.ask("fn_process_due('test.call', 10, 30)").await;
    assert_eq!(answer["ok"], true, "{answer}");
    answer["processes"].as_array().unwrap().clone()
}

async fn decide(place: &Processes, process: &str, generation: &Value, decision: Value) -> Value {
    place.ask(&format!("fn_process_decide('{process}', {generation}, '{decision}')")).await
}

/// P11: look, decide, attempt, outcome, look again: the whole life from outside.
#[tokio::test]
async fn a_program_supervises_to_the_end() {
    let place = place().await;
    let process = place.start("test.call", "a").await;
    let looked = due(&place).await;
    assert_eq!(looked[0]["process"]["process_id"], process.as_str());
    assert_eq!(due(&place).await.len(), 0, "it was given to one");
    let generation = &looked[0]["process"]["generation"];
    let decided = decide(&place, &process, generation, json!({ "do": "attempt" })).await;
    assert_eq!((&decided["ok"], &decided["attempt_no"]), (&json!(true), &json!(1)), "{decided}");
    let stale = decide(&place, &process, generation, json!({ "do": "give_up" })).await;
    assert_eq!(stale["error"], "conflict", "something happened since it looked");
    let twice = decide(&place, &process, &decided["generation"], json!({ "do": "attempt" })).await;
    assert_eq!(twice["error"], "conflict", "one attempt is outstanding");

    let begin = format!("fn_process_attempt_begin('{process}', 1, 'w1')");
    let begun = place.ask(&begin).await;
    assert_eq!(begun["idempotency_key"], process.as_str(), "{begun}");
    assert_eq!(place.ask(&begin).await["error"], "lease_lost");
    let extend = |worker: &str| format!("fn_process_attempt_extend('{process}', 1, '{worker}', 600)");
    assert_eq!(place.ask(&extend("w1")).await["ok"], true);
    assert_eq!(place.ask(&extend("w2")).await["error"], "lease_lost");
    place.advance(LEASE + SECOND).await;
    assert_eq!(due(&place).await.len(), 0, "the longer lease holds");
    let end = place
        .ask(&format!("fn_process_attempt_end('{process}', 1, 'transient', '{{\"code\": \"503\"}}')"))
        .await;
    assert_eq!((&end["state"], &end["late"]), (&json!("open"), &json!(false)), "{end}");

    let looked = due(&place).await;
    assert_eq!(looked[0]["attempts"][0]["outcome"], "transient", "it is due at once");
    let generation = &looked[0]["process"]["generation"];
    let waits =
        decide(&place, &process, generation, json!({ "do": "wait", "check_at": "2026-03-01T14:00:00Z" }))
            .await;
    assert_eq!(waits["ok"], true, "{waits}");
    assert_eq!(due(&place).await.len(), 0);
    place.advance(SECOND * 7_200).await;
    let looked = due(&place).await;
    let done =
        decide(&place, &process, &looked[0]["process"]["generation"], json!({ "do": "succeed" })).await;
    assert_eq!(done["state"], "succeeded", "{done}");
    assert_eq!(place.facts(&process).await, ["started", "scheduled 1", "begun 1", "failed 1", "succeeded"]);
    place.check().await;
}

/// P08: a supervisor that looked and died is followed by another; a worker that died too.
#[tokio::test]
async fn a_killed_supervisor_or_worker_is_followed_by_another() {
    let place = place().await;
    let process = place.start("test.call", "a").await;
    assert_eq!(due(&place).await.len(), 1);
    place.advance(SECOND * 30).await;
    let looked = due(&place).await;
    assert_eq!(looked.len(), 1, "the first did not decide in its time");
    decide(&place, &process, &looked[0]["process"]["generation"], json!({ "do": "attempt" })).await;
    place.ask(&format!("fn_process_attempt_begin('{process}', 1, 'w1')")).await;
    place.advance(LEASE).await;
    let looked = due(&place).await;
    assert_eq!(looked[0]["attempts"][0]["outcome"], "lost", "the worker did not come back");
    let held = json!({ "do": "hold", "why": "look yourself" });
    let held = decide(&place, &process, &looked[0]["process"]["generation"], held).await;
    assert_eq!(held["state"], "held");
    let attention = place.json("select to_jsonb(a) from towpath.v_process_attention a").await;
    assert_eq!((&attention["why"], &attention["attempt_no"]), (&json!("look yourself"), &json!(1)));
    let resolved = place.json(&format!("towpath.fn_process_resolve('{process}', 'retry', 'ann')")).await;
    assert_eq!(resolved["state"], "open", "{resolved}");
    assert_eq!(due(&place).await.len(), 1, "a person sent it back to the program");
}

/// P07: a deadline is kept even if no program outside ever looks.
#[tokio::test]
async fn the_deadline_needs_no_program() {
    let place = place().await;
    let process = place.start("test.call", "a").await;
    place.advance(DEADLINE).await;
    assert_eq!(due(&place).await.len(), 0);
    assert_eq!(place.scan().await["checked"], 1);
    assert_eq!(place.facts(&process).await, ["started", "gave_up"]);
    place.check().await;
}

/// P10: a worker moves from outside only what is supervised from outside.
#[tokio::test]
async fn what_functions_supervise_cannot_be_moved_from_outside() {
    let place = place().await;
    let send = place.send("email").await;
    let process = &send.process;
    for call in [
        format!("fn_process_decide('{process}', 2, '{{\"do\": \"succeed\"}}')"),
        format!("fn_process_attempt_begin('{process}', 1, 'w')"),
        format!("fn_process_attempt_extend('{process}', 1, 'w')"),
        format!("fn_process_attempt_end('{process}', 1, 'accepted')"),
    ] {
        assert_eq!(place.ask(&call).await["error"], "not_authorised", "{call}");
    }
    assert_eq!(place.ask("fn_process_due('comms.send_email')").await["error"], "not_found");
    assert_eq!(place.facts(process).await, ["started", "scheduled 1"]);
}

/// Bad decisions and outcomes are told what is wrong with them, and change nothing.
#[tokio::test]
async fn nonsense_is_refused() {
    let place = place().await;
    let process = place.start("test.call", "a").await;
    let nobody = "00000000-0000-7000-8000-000000000000";
    for (call, word) in [
        (format!("fn_process_decide('{process}', 1, '{{\"do\": \"dance\"}}')"), "invalid"),
        (format!("fn_process_decide('{process}', 1, null)"), "invalid"),
        (
            format!("fn_process_decide('{process}', 1, '{{\"do\": \"wait\", \"check_at\": \"soon\"}}')"),
            "invalid",
        ),
        (format!("fn_process_decide('{process}', 1, '{{\"do\": \"wait\"}}')"), "invalid"),
        (
            format!(
                "fn_process_decide('{process}', 1, '{{\"do\": \"succeed\", \"detail\": {{\"token\": 1}}}}')"
            ),
            "invalid",
        ),
        (format!("fn_process_decide('{nobody}', 1, '{{\"do\": \"attempt\"}}')"), "not_found"),
        (format!("fn_process_attempt_begin('{process}', 1, 'w')"), "not_found"),
        (format!("fn_process_attempt_begin('{process}', 1, ' ')"), "invalid"),
        (format!("fn_process_attempt_begin('{nobody}', 1, 'w')"), "not_found"),
        (format!("fn_process_attempt_end('{process}', 7, 'accepted')"), "not_found"),
        (format!("fn_process_attempt_end('{process}', 1, 'fine')"), "invalid"),
        (format!("fn_process_attempt_end('{process}', 1, 'accepted', '{{\"body\": 1}}')"), "invalid"),
        (format!("fn_process_attempt_end('{process}', 1, 'accepted', '[]')"), "invalid"),
        (format!("fn_process_attempt_extend('{process}', 1, 'w', 0)"), "invalid"),
        ("fn_process_due('test.call', 10, 0)".to_owned(), "invalid"),
        ("fn_process_due('nobody')".to_owned(), "not_found"),
    ] {
        let answer = place.ask(&call).await;
        assert_eq!(answer["error"], word, "{call}: {answer}");
    }
    assert_eq!(place.facts(&process).await, ["started"]);
}
