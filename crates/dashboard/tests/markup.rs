//! Markup in names and contents is shown, never run.

use std::sync::Arc;

use serde_json::json;
use towpath_db::Attribution;
use towpath_db::event::NewEvent;
use towpath_db::job::NewJob;
use towpath_db::subscription::SubscriptionSpec;
use towpath_model::stream::producer::Producer;
use towpath_streams::{Append, Messages};

use crate::kit::{PAGES, TestDashboard};

/// Leaves an attribute, opens a script, and has every character that means something. It has no space, which some names
/// must not have; a slash does the same.
const EVIL: &str = r#"x'"><script>alert(1)</script><img/src=x/onerror=alert(2)>&amp;"#;

/// Nothing of it stands on a page as it was written.
fn is_inert(path: &str, page: &str) {
    for live in ["<script>alert", "<img/src=x", "onerror=alert(2)>"] {
        assert!(!page.contains(live), "{path} has {live}");
    }
}

/// O03: hostile names in kinds, keys, actors, payloads, errors, pauses, dead letters, events, routes,
/// processes, schedules, executors, streams and producers are inert on every page.
#[tokio::test]
async fn markup_is_inert() {
    let place = TestDashboard::open().await;
    let by = Attribution { actor: EVIL, reason: EVIL };
    let job = NewJob::new(EVIL).payload(&json!({ EVIL: EVIL })).unwrap().actor(EVIL).idempotency_key(EVIL);
    let job = place.database.enqueue(&job).await.unwrap().job_id;
    let dead = place.enqueue(EVIL, json!({ EVIL: [EVIL] })).await.job_id;
    place.database.job_move_to_dead_letter(dead, by).await.unwrap();
    let letter = place.database.job_show(dead).await.unwrap().dead_letter.unwrap().dead_letter_id;
    place.database.queue_pause(EVIL, by).await.unwrap();
    let event = NewEvent::new(EVIL, EVIL)
        .payload(&json!({ EVIL: EVIL }))
        .unwrap()
        .stream(EVIL)
        .subject(EVIL, EVIL)
        .actor(EVIL);
    let event = place.database.event_emit(&event).await.unwrap().event_id;
    place.database.event_sequence(100).await.unwrap();
    place.database.consumer_put(EVIL, "PG_worker", None, None, EVIL).await.unwrap();
    let spec = SubscriptionSpec {
        executor_id: EVIL,
        executor_kind: "PG_worker",
        job_kind: Some(EVIL),
        event_domain: Some(EVIL),
        notes: Some(EVIL),
        actor: EVIL,
        ..SubscriptionSpec::default()
    };
    place.database.subscription_put(&spec).await.unwrap();
    for sql in [
        "select towpath.fn_queue_heartbeat_tick($e$EVIL$e$, 'PG_worker', 'ok', null, $e$EVIL$e$)",
        "select towpath.fn_route_put('r', 'job', jsonb_build_object('job_kind', $e$EVIL$e$), $e$EVIL$e$, $e$EVIL$e$, \
         p_notes => $e$EVIL$e$, p_actor => $e$EVIL$e$)",
        "select towpath.fn_route_mode_set('r', 'dry_run', $e$EVIL$e$, $e$EVIL$e$)",
        "select comms.send_email(jsonb_build_object('to', 'ann@example.com', 'subject', $e$EVIL$e$, 'text', $e$EVIL$e$))",
        "select towpath.fn_schedule_put('nightly', '0 2 * * *', 'UTC', jsonb_build_object('job_kind', $e$EVIL$e$), now() + interval '1 hour', \
         p_actor => 'test')",
        "select towpath.fn_audit_record($e$EVIL$e$, $e$EVIL$e$, $e$EVIL$e$, $e$EVIL$e$, $e$EVIL$e$)",
    ] {
        place.db.execute(&sql.replace("EVIL", EVIL)).await;
    }
    let stream = place.stream(EVIL).await;
    let producer = Some(Producer { id: Arc::from(EVIL), epoch: 0, seq: 0 });
    let append = Append { messages: Messages::one(EVIL.to_owned()), producer, ..Append::default() };
    place.store.append(stream, append).await.unwrap();

    let asked: String = EVIL.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let processes = place.text("/ui/processes").await;
    let process = processes.split("/ui/processes/").nth(1).expect("a process").split('"').next().unwrap();
    let mut paths: Vec<String> = PAGES.iter().map(|path| (*path).to_owned()).collect();
    paths.extend([
        format!("/ui/jobs/{job}"),
        format!("/ui/jobs/{dead}"),
        format!("/ui/dead-letters/{letter}"),
        format!("/ui/events/{event}"),
        format!("/ui/processes/{process}"),
        "/ui/routes/r".into(),
        format!("/ui/stream?id={asked}"),
    ]);
    for path in &paths {
        is_inert(path, &place.text(path).await);
    }
    // It is there, in a harmless form.
    for path in [
        "/ui/jobs",
        "/ui/dead-letters",
        "/ui/events",
        "/ui/executors",
        "/ui/streams",
        "/ui/audit",
        "/ui/schedules",
    ] {
        assert!(place.text(path).await.contains("&#60;script&#62;"), "{path} does not show it at all");
    }
    // What was asked for stands in fields and in words of refusal.
    let fields = [
        "jobs?kind",
        "jobs?payload",
        "jobs?after",
        "jobs?state",
        "jobs?cursor",
        "dead-letters?error",
        "events?subject",
        "processes?ref",
        "processes?state",
        "streams?prefix",
        "streams?project",
        "sessions?session",
        "sessions?project",
        "stream?id",
        "stream?offset",
        "login?to",
    ];
    for field in fields {
        let path = format!("/ui/{field}={asked}");
        is_inert(&path, &place.get(&path).send().await.unwrap().text().await.unwrap());
    }
    for page in ["jobs", "events", "processes", "dead-letters", "bulk", "sessions", "routes", "nothing"] {
        let path = format!("/ui/{page}/{asked}");
        is_inert(&path, &place.get(&path).send().await.unwrap().text().await.unwrap());
    }
}
