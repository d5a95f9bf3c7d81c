//! What the worker does with handlers: what it hands them, and what it makes of their answers.

use serde_json::json;
use towpath_db::job::NewJob;
use towpath_testkit::mail::MailServer;
use towpath_worker::testing::run_until_drained;

use crate::messaging::{Messaging, smtp};

/// Handlers that write down what they were given, and answer what the payload says.
const HANDLERS: &str = "
    create schema shop;
    grant usage on schema shop to worker_service_user;
    create table shop.seen (n bigint generated always as identity, who text, payload jsonb);
    create function shop.before(payload jsonb) returns jsonb language sql security definer
        set search_path = pg_catalog, pg_temp as $$
        insert into shop.seen (who, payload) values ('before', $1);
        select coalesce($1->'before_says', jsonb_build_object('success', true, 'payload', jsonb_build_object(
            'to', $1->>'recipient', 'subject', 'hi', 'text', 'hello', 'idempotency_key', 'k', 'extra', 1)))
        $$;
    create function shop.success(payload jsonb) returns jsonb language sql security definer
        set search_path = pg_catalog, pg_temp as $$
        insert into shop.seen (who, payload) values ('success', $1); select '{\"success\": true}'::jsonb $$;
    create function shop.failure(payload jsonb) returns jsonb language sql security definer
        set search_path = pg_catalog, pg_temp as $$
        insert into shop.seen (who, payload) values ('error', $1); select '{\"success\": true}'::jsonb $$;
    create function shop.work(payload jsonb) returns jsonb language sql security definer
        set search_path = pg_catalog, pg_temp as $$
        insert into shop.seen (who, payload) values ('work', $1); select $1->'says' $$;
    create function shop.secret(payload jsonb) returns jsonb language sql as $$ select '{\"success\": true}'::jsonb $$;
    revoke execute on all functions in schema shop from public;
    grant execute on function shop.before, shop.success, shop.failure, shop.work to worker_service_user";

struct Shop {
    messaging: Messaging,
    server: MailServer,
}

impl Shop {
    async fn open() -> Shop {
        let server = MailServer::start().await;
        let messaging = Messaging::open(smtp(&server.smtps(), &server)).await;
        messaging.queue.db.execute(HANDLERS).await;
        // However slow the machine is, no retry becomes due within a test.
        messaging
            .queue
            .db
            .execute("update towpath.config set value = '600' where key = 'queue.retry.backoff_base_sec'")
            .await;
        Shop { messaging, server }
    }

    async fn enqueue(&self, kind: &str, payload: &serde_json::Value) -> towpath_model::job::JobId {
        let job = NewJob::new(kind).payload(payload).unwrap().max_attempts(2);
        self.messaging.queue.admin.enqueue(&job).await.unwrap().job_id
    }

    async fn email(&self, recipient: &str, more: serde_json::Value) -> towpath_model::job::JobId {
        let mut payload = json!({
            "task_type": "email", "send_email_task_id": 123, "recipient": recipient, "passes": {"through": [1]},
            "before_handler": "shop.before", "success_handler": "shop.success", "error_handler": "shop.failure",
        });
        payload.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        self.enqueue("email", &payload).await
    }

    async fn run(&self) -> usize {
        run_until_drained(&self.messaging.worker()).await.unwrap().len()
    }

    /// What handlers were given, in order.
    async fn seen(&self) -> Vec<(String, serde_json::Value)> {
        let sql =
            "select coalesce(jsonb_agg(jsonb_build_array(who, payload) order by n), '[]') from shop.seen";
        let seen = self.messaging.queue.db.json(sql).await;
        serde_json::from_value(seen).unwrap()
    }

    async fn state(&self, job_id: towpath_model::job::JobId) -> String {
        self.messaging
            .queue
            .db
            .text(&format!("select state from towpath.job_queue where job_id = '{job_id}'"))
            .await
    }
}

/// P01, P04: the payload is passed whole, extra fields and all; success gets {original_payload,
/// worker_payload}, failure gets {original_payload, error}.
#[tokio::test]
async fn handlers_get_what_the_contract_says() {
    let shop = Shop::open().await;
    let good = shop.email("ann@example.org", json!({})).await;
    shop.run().await;
    let seen = shop.seen().await;
    assert_eq!(seen.iter().map(|(who, _)| who.as_str()).collect::<Vec<_>>(), ["before", "success"]);
    let (before, told) = (&seen[0].1, &seen[1].1);
    assert_eq!((&before["send_email_task_id"], &before["passes"]), (&json!(123), &json!({"through": [1]})));
    assert_eq!(
        (&before["worker"]["transport"], &before["worker"]["key_honoured"]),
        (&json!("smtp"), &json!(false))
    );
    let mut original = before.clone();
    original.as_object_mut().unwrap().remove("worker");
    assert_eq!(told["original_payload"], original);
    assert_eq!(told["worker_payload"]["transport"], "smtp");
    assert_eq!(told["worker_payload"]["provider_id"], "<k@example.com>");
    assert_eq!(shop.state(good).await, "succeeded");

    let bad = shop.email("never@example.org", json!({})).await;
    shop.run().await;
    let (who, told) = shop.seen().await.pop().unwrap();
    assert_eq!(
        (who.as_str(), &told["original_payload"]["recipient"]),
        ("error", &json!("never@example.org"))
    );
    assert_eq!(told["error"]["outcome"], "permanent");
    assert_eq!(
        shop.state(bad).await,
        "succeeded",
        "the task did what it could; the process decides what follows"
    );
    assert!(shop.messaging.errors().await[0].starts_with("provider: smtp: permanent error (550)"));
}

/// P03, P04: a before-handler that reports a validation failure sends nothing, is recorded and not
/// retried; one that fails operationally is told to the error-handler.
#[tokio::test]
async fn a_before_handler_can_stop_a_task() {
    let shop = Shop::open().await;
    let says = json!({"before_says": {"success": false, "validation_failure_message": "no such task"}});
    let invalid = shop.email("ann@example.org", says).await;
    shop.run().await;
    assert_eq!(shop.state(invalid).await, "succeeded");
    assert_eq!(shop.seen().await.len(), 1, "neither success nor error was called");
    assert_eq!(shop.messaging.errors().await, ["validation: no such task"]);

    shop.email("ann@example.org", json!({"before_says": {"success": false, "error": "disk full"}})).await;
    shop.run().await;
    let (who, told) = shop.seen().await.pop().unwrap();
    assert_eq!((who.as_str(), &told["error"]["code"]), ("error", &json!("before_handler")));
    assert_eq!(told["error"]["outcome"], "transient");

    shop.email("ann@example.org", json!({"before_says": {"success": true, "payload": {"to": 7}}})).await;
    shop.run().await;
    let (who, told) = shop.seen().await.pop().unwrap();
    assert_eq!((who.as_str(), &told["error"]["outcome"]), ("error", &json!("permanent")), "{told}");
    assert!(shop.server.mailbox("ann@example.org").is_empty(), "nothing was sent in any case");
}

/// P04: a before-handler that answers no key sends under the process's id, without a process under the job's;
/// what it left out else is named, with what a message needs.
#[tokio::test]
async fn a_message_has_a_key_and_what_it_lacks_is_named() {
    let shop = Shop::open().await;
    let message = json!({"to": "ann@example.org", "subject": "hi", "text": "hello"});
    let says = json!({"success": true, "payload": message});
    let process = json!({"before_says": says, "process_id": "6a1e1b0e-0000-7000-8000-000000000001"});
    shop.email("ann@example.org", process).await;
    shop.run().await;
    let key = shop.seen().await.pop().unwrap().1["worker_payload"]["idempotency_key"].clone();
    assert_eq!(key, "6a1e1b0e-0000-7000-8000-000000000001");
    let job = shop.email("ann@example.org", json!({"before_says": says})).await;
    shop.run().await;
    let key = shop.seen().await.pop().unwrap().1["worker_payload"]["idempotency_key"].clone();
    assert_eq!(key, json!(job.to_string()));

    let nobody = json!({"before_says": {"success": true, "payload": {"subject": "hi", "text": "hello"}}});
    shop.email("ann@example.org", nobody).await;
    let bare = shop.enqueue("email", &json!({"subject": "hi", "text": "hello"})).await;
    shop.run().await;
    let errors = shop.messaging.errors().await.join("\n");
    for words in [
        "the before handler shop.before cannot be sent: missing field `to`",
        "the payload without a before_handler",
    ] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
    assert!(errors.contains("an e-mail requires to, subject, and text or html"), "{errors}");
    assert_eq!(shop.state(bare).await, "dead_letter");
}

/// P02, P03: the four ends of a db_function task.
#[tokio::test]
async fn a_function_task_ends_as_its_envelope_says() {
    let shop = Shop::open().await;
    let work = |says: serde_json::Value| json!({"task_type": "db_function", "db_function": "shop.work", "says": says});
    let done = shop.enqueue("db_function", &work(json!({"success": true, "news": 1}))).await;
    let invalid = json!({"success": false, "validation_failure_message": "it is over"});
    let invalid = shop.enqueue("db_function", &work(invalid)).await;
    let failed = shop.enqueue("db_function", &work(json!({"success": false, "error": "disk full"}))).await;
    let refused = json!({"task_type": "db_function", "db_function": "shop.secret"});
    let refused = shop.enqueue("db_function", &refused).await;
    let nameless = shop.enqueue("db_function", &json!({"task_type": "db_function"})).await;
    shop.run().await;
    for (job, state) in [
        (done, "succeeded"),
        (invalid, "succeeded"),
        (failed, "retry_waiting"),
        (refused, "dead_letter"),
        (nameless, "dead_letter"),
    ] {
        assert_eq!(shop.state(job).await, state);
    }
    let errors = shop.messaging.errors().await;
    let has = |words: &str| assert!(errors.iter().any(|error| error.contains(words)), "{words}: {errors:?}");
    has("validation: it is over");
    has("operational: disk full");
    has("grant execute on function shop.secret(jsonb) to worker_service_user");
    assert_eq!(shop.seen().await.len(), 3, "the refused function did not run");
    let error = shop
        .messaging
        .queue
        .admin
        .task_error_list(&Default::default(), 1, None)
        .await
        .unwrap()
        .task_errors
        .remove(0);
    assert_eq!(error.task_type.as_deref(), Some("db_function"), "P05: it says what it is about");
    assert!(error.job_id.is_some() && error.job_attempt == Some(1));
}

/// P04: the worker enqueues nothing: its role may not, and a whole flow makes no job of its own.
#[tokio::test]
async fn the_worker_enqueues_nothing() {
    let shop = Shop::open().await;
    assert!(
        shop.messaging.queue.worker.enqueue(&NewJob::new("email")).await.is_err(),
        "its role may not enqueue"
    );
    shop.email("ann@example.org", json!({})).await;
    shop.run().await;
    assert_eq!(shop.messaging.queue.db.text("select count(*) from towpath.job_queue").await, "1");
}

/// D9: an error handler, `last_error` and `task_error` get a provider's and a handler's words without credentials.
#[tokio::test]
async fn no_credential_reaches_an_error_handler() {
    let shop = Shop::open().await;
    let leak = "kaboom token=hunter2abc at smtp://me:hunter2abc@mail with Bearer hunter2abc";
    let says = json!({"before_says": {"success": false, "error": leak}});
    shop.email("ann@example.org", says.clone()).await;
    let mut alone =
        json!({"task_type": "email", "recipient": "ann@example.org", "before_handler": "shop.before"});
    alone.as_object_mut().unwrap().extend(says.as_object().cloned().unwrap());
    shop.enqueue("email", &alone).await;
    let work = json!({"db_function": "shop.work", "says": {"success": false, "error": leak}});
    shop.enqueue("db_function", &work).await;
    shop.run().await;
    let (_, told) =
        shop.seen().await.into_iter().find(|(who, _)| who == "error").expect("the error handler ran");
    let told = told["error"]["message"].as_str().unwrap().to_owned();
    assert!(told.contains("token=***") && !told.contains("hunter2abc"), "{told}");
    let kept = "select string_agg(last_error, ' ') from towpath.job_queue where state = 'retry_waiting'";
    let kept = shop.messaging.queue.db.text(kept).await;
    assert!(kept.matches("token=***").count() == 2 && !kept.contains("hunter2abc"), "{kept}");
    let errors = shop.messaging.errors().await;
    assert!(errors.len() == 3 && !errors.concat().contains("hunter2abc"), "{errors:?}");
}
