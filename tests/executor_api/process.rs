//! Processes over HTTP: started, signalled and read by applications, run by workers, decided by people.

use std::sync::Arc;

use serde_json::{Value, json};
use towpath_db::executor_token::TokenSpec;

use super::{Api, Said, with};

impl Api {
    async fn process(&self, token: &str, verb: &str, body: Value) -> Said {
        let path = format!("/api/v1/processes/{verb}");
        self.post_to(&path, Some(format!("Bearer {token}")), body.to_string()).await
    }

    /// Where a process stands.
    async fn standing(&self, token: &str, process_id: &str, query: &str) -> Said {
        self.get(token, &format!("/api/v1/processes/{process_id}?{query}")).await
    }

    /// Starts a process of the kind `resize`, which `py` works on.
    async fn started(&self, token: &str, reference: &str) -> String {
        let said = self
            .process(token, "start", json!({"kind": "resize", "ref": reference, "input": {"w": 3}}))
            .await;
        assert_eq!(said.status, 200, "{said:?}");
        said.body["process_id"].as_str().unwrap().to_owned()
    }

    /// Claims one attempt, which must be there.
    async fn attempt(&self, token: &str) -> Value {
        let said = self.process(token, "claim", json!({})).await;
        assert_eq!(said.status, 200, "{said:?}");
        assert!(said.body["attempts"][0].is_object(), "nothing to claim: {said:?}");
        said.body["attempts"][0].clone()
    }
}

/// An API with the process kind `resize`, and a token of its worker.
async fn place(settings: &str) -> (Api, String) {
    let api = Api::start().await;
    api.db.execute(&format!("select towpath.process_kind('resize', backoff_seconds => 0{settings})")).await;
    let token = api.token("py", &[]).await;
    (api, token)
}

/// What every call about an attempt takes.
fn key(attempt: &Value) -> Value {
    json!({ "process_id": attempt["process_id"], "attempt_no": attempt["attempt_no"] })
}

fn ended(attempt: &Value, outcome: &str) -> Value {
    with(&key(attempt), &json!({ "outcome": outcome, "result": {"done": outcome} }))
}

/// P13, P14, P15: a process from its start to its result, with a step, a wait and a signal.
#[tokio::test]
async fn a_process_lives_over_http() {
    let (api, token) = place("").await;
    let process_id = api.started(&token, "a").await;
    assert_eq!(api.started(&token, "a").await, process_id, "one per kind and reference");
    let said = api.standing(&token, &process_id, "").await;
    assert_eq!((said.status, &said.body["state"], &said.body["ref"]), (200, &json!("open"), &json!("a")));
    let attempt = api.attempt(&token).await;
    assert_eq!((&attempt["input"], &attempt["steps"]), (&json!({"w": 3}), &json!({})), "{attempt}");
    let step = |value: i32| with(&key(&attempt), &json!({"name": "pay", "value": value}));
    assert_eq!(api.process(&token, "step", step(1)).await.body["value"], 1);
    assert_eq!(api.process(&token, "step", step(2)).await.body["value"], 1, "the first result stays");
    let wait = |attempt: &Value| with(&key(attempt), &json!({"name": "go", "signal": "go", "seconds": 3600}));
    assert_eq!(api.process(&token, "wait", wait(&attempt)).await.body["ready"], false);
    assert_eq!(api.process(&token, "step", step(3)).await.word(), (409, "lease_lost"), "it is suspended");
    assert_eq!(api.standing(&token, &process_id, "").await.body["waits_for"], "go");

    let signal = json!({"kind": "resize", "ref": "a", "name": "go", "payload": 7});
    assert_eq!(api.process(&token, "signal", signal.clone()).await.body["recorded"], true);
    let again = json!({"process_id": process_id, "name": "go", "payload": 8});
    assert_eq!(api.process(&token, "signal", again).await.body["recorded"], false);
    let second = api.attempt(&token).await;
    assert_eq!((&second["attempt_no"], &second["steps"]), (&json!(2), &json!({"pay": 1})), "{second}");
    assert_eq!(api.process(&token, "wait", wait(&second)).await.body["value"], json!({"signal": 7}));
    let held = with(&key(&second), &second["job"]);
    let held = json!({"process_id": held["process_id"], "attempt_no": 2, "job_id": held["job_id"], "attempt": held["attempt"]});
    assert_eq!(api.process(&token, "extend", held.clone()).await.status, 200);
    assert_eq!(api.process(&token, "end", ended(&second, "accepted")).await.body["state"], "succeeded");
    let said = api.standing(&token, &process_id, "wait=60").await;
    assert_eq!(
        (&said.body["state"], &said.body["result"]),
        (&json!("succeeded"), &json!({"done": "accepted"}))
    );
    assert_eq!(said.body["attempts"], 1, "one that was suspended does not count");
    assert_eq!(api.process(&token, "extend", held).await.word(), (409, "lease_lost"));
    assert_eq!(api.process(&token, "signal", signal).await.word(), (409, "conflict"));
}

/// A read that waits is answered when the process ends, and not before.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_waits_for_the_end_of_a_process() {
    let (api, token) = place("").await;
    let api = Arc::new(api);
    for outcome in ["accepted", "permanent"] {
        let process_id = api.started(&token, outcome).await;
        let attempt = api.attempt(&token).await;
        let began = api.db.text("select clock_timestamp()").await;
        let waiting = tokio::spawn({
            let (api, token, process_id) = (api.clone(), token.clone(), process_id.clone());
            async move { api.standing(&token, &process_id, "wait=60").await }
        });
        api.until_called("fn_process_ended", &began).await;
        assert!(!waiting.is_finished(), "{outcome}");
        api.process(&token, "end", ended(&attempt, outcome)).await;
        let expected = if outcome == "accepted" { "succeeded" } else { "gave_up" };
        assert_eq!(waiting.await.unwrap().body["state"], expected, "{outcome}");
    }
    let open = api.started(&token, "open").await;
    assert_eq!(api.standing(&token, &open, "wait=1").await.body["state"], "open", "the time is over");
    for (query, status) in [("wait=61", 422), ("wait=x", 422), ("weight=1", 422)] {
        assert_eq!(api.standing(&token, &open, query).await.status, status, "{query}");
    }
}

/// P08: a held process is decided by a person, in each of the four ways, with a reason that is recorded.
#[tokio::test]
async fn a_held_process_is_decided() {
    let (api, token) = place(", on_uncertain => 'hold'").await;
    for (resolution, state) in
        [("succeeded", "succeeded"), ("retry", "open"), ("gave_up", "gave_up"), ("cancelled", "cancelled")]
    {
        let process_id = api.started(&token, resolution).await;
        let decide = format!("{process_id}/resolve");
        let body = json!({"resolution": resolution, "reason": "asked the bank"});
        assert_eq!(api.process(&token, &decide, body.clone()).await.word(), (409, "conflict"), "not held");
        let attempt = api.attempt(&token).await;
        api.process(&token, "end", ended(&attempt, "uncertain")).await;
        assert_eq!(api.standing(&token, &process_id, "").await.body["state"], "held", "{resolution}");
        let said = api.process(&token, &decide, body).await;
        assert_eq!((said.status, &said.body["state"]), (200, &json!(state)), "{resolution}: {said:?}");
        let note = format!(
            "select detail ->> 'note' || ' ' || actor from towpath.process_fact
              where process_id = '{process_id}' and fact = 'resolved'"
        );
        assert_eq!(api.db.text(&note).await, "asked the bank executor:py");
        if resolution == "retry" {
            let again = api.attempt(&token).await;
            assert_eq!(again["attempt_no"], 2, "{again}");
            assert_eq!(
                api.process(&token, "end", ended(&again, "accepted")).await.body["state"],
                "succeeded"
            );
        }
    }
    let decide = format!("{}/resolve", api.started(&token, "b").await);
    assert_eq!(api.process(&token, &decide, json!({"resolution": "shrug"})).await.word(), (422, "invalid"));
}

/// R06, R09: who may not enqueue a kind starts, signals and decides none of its processes; who may not claim it reads
/// none; and an attempt belongs to the token that claimed it.
#[tokio::test]
async fn a_token_touches_the_processes_of_its_kinds_only() {
    let (api, py) = place(", on_uncertain => 'hold'").await;
    let process_id = api.started(&py, "a").await;
    let attempt = api.attempt(&py).await;
    let ts = api.token("ts", &[]).await;
    let spec = TokenSpec { executor_id: "py", actor: "tester", ..Default::default() };
    let reader = api.database.executor_token_create(&spec).await.unwrap().token;
    let (web, other) = (api.producer(&["resize"], &[]).await, api.producer(&["crop"], &[]).await);
    let start = json!({"kind": "resize", "ref": "b"});
    let signal = json!({"process_id": process_id, "name": "go"});
    let decide = (format!("{process_id}/resolve"), json!({"resolution": "succeeded"}));
    for (token, may, reads) in
        [(&ts, false, false), (&reader, false, true), (&other, false, false), (&web, true, true)]
    {
        for (verb, body) in [("start", &start), ("signal", &signal), (&decide.0, &decide.1)] {
            let said = api.process(token, verb, body.clone()).await;
            match may {
                true => assert_ne!(said.status, 403, "{verb}: {said:?}"),
                false => assert_eq!(said.word(), (403, "not_authorised"), "{verb}"),
            }
        }
        let status = api.standing(token, &process_id, "").await.status;
        assert_eq!(status, if reads { 200 } else { 403 });
        for (verb, more) in [
            ("step", json!({"name": "pay", "value": 1})),
            ("wait", json!({"name": "nap", "seconds": 60})),
            ("end", json!({"outcome": "accepted"})),
        ] {
            // A producer has no leases at all.
            let said = api.process(token, verb, with(&key(&attempt), &more)).await;
            let is_worker = token == &ts || token == &reader;
            assert_eq!(
                said.word(),
                if is_worker { (409, "lease_lost") } else { (403, "not_authorised") },
                "{verb}"
            );
        }
    }
    let begin = with(&key(&attempt), &json!({"job_id": attempt["job"]["job_id"], "attempt": 1}));
    assert_eq!(api.process(&ts, "begin", begin).await.word(), (409, "lease_lost"));
    let unknown = json!({"kind": "nothing", "ref": "a"});
    assert_eq!(api.process(&py, "start", unknown).await.word(), (404, "not_found"));
    let gone = "0190f5a4-5c2e-7bb0-9f33-0123456789ab";
    assert_eq!(api.standing(&py, gone, "").await.word(), (404, "not_found"));
    assert_eq!(api.standing("tpx_guess", &process_id, "").await.word(), (401, "unauthenticated"));
    assert_eq!(api.process("tpx_guess", "start", start).await.word(), (401, "unauthenticated"));
    assert_eq!(api.process(&py, "end", ended(&attempt, "accepted")).await.body["state"], "succeeded");
}

/// P16: a process that is started before the first worker of its kind registers goes to that worker, and so do attempts
/// after a wait.
#[tokio::test]
async fn a_process_may_come_before_its_worker_registers() {
    let api = Api::start().await;
    api.db.execute("select towpath.process_kind('order'), towpath.start_process('order', 'sql')").await;
    let web = api.producer(&["order"], &[]).await;
    let said = api.process(&web, "start", json!({"kind": "order", "ref": "http"})).await;
    assert_eq!(said.status, 200, "{said:?}");
    let token = api.registering(None).await;
    let none = api.process(&token, "claim", json!({"kinds": ["order"]})).await;
    assert_eq!(none.body["attempts"], json!([]), "{none:?}");
    assert_eq!(api.register(&token, json!({"kinds": ["order"]})).await.body["added"], json!(["order"]));
    let claimed = api.process(&token, "claim", json!({"limit": 2})).await;
    assert_eq!(claimed.body["attempts"].as_array().map(Vec::len), Some(2), "{claimed:?}");
    for attempt in claimed.body["attempts"].as_array().unwrap() {
        let wait = with(&key(attempt), &json!({"name": "go", "signal": "go"}));
        assert_eq!(api.process(&token, "wait", wait).await.body["ready"], false);
        let signal = json!({"process_id": attempt["process_id"], "name": "go"});
        assert_eq!(api.process(&web, "signal", signal).await.body["recorded"], true);
        let second = api.attempt(&token).await;
        assert_eq!((&second["process_id"], &second["attempt_no"]), (&attempt["process_id"], &json!(2)));
        assert_eq!(api.process(&token, "end", ended(&second, "accepted")).await.body["state"], "succeeded");
    }
    let id = said.body["process_id"].as_str().unwrap();
    assert_eq!(api.standing(&token, id, "").await.body["state"], "succeeded", "its worker may read it");
}

/// A closed `process.enabled` stops attempts that are scheduled and not begun; they begin when it opens.
#[tokio::test]
async fn a_closed_gate_stops_attempts_that_have_not_begun() {
    let (api, token) = place("").await;
    let process_id = api.started(&token, "a").await;
    api.db.execute("update towpath.config set value = 'false' where key = 'process.enabled'").await;
    let none = api.process(&token, "claim", json!({})).await;
    assert_eq!((none.status, &none.body["attempts"]), (200, &json!([])), "{none:?}");
    let start = json!({"kind": "resize", "ref": "b"});
    assert_eq!(api.process(&token, "start", start).await.word(), (503, "gate_closed"));
    let begun = "select count(*) from towpath.process_attempt where begun_at is not null";
    assert_eq!(api.db.text(begun).await, "0");
    api.db.execute("update towpath.config set value = 'true' where key = 'process.enabled'").await;
    api.db.advance(std::time::Duration::from_secs(120)).await;
    let attempt = api.attempt(&token).await;
    assert_eq!((attempt["process_id"].as_str(), &attempt["attempt_no"]), (Some(&*process_id), &json!(1)));
}
