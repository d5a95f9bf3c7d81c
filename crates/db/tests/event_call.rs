//! The typed calls of events: what operators and producers ask, and what they are refused.

use serde_json::{Value, json};
use towpath_db::event::{
    self, EventActorSpec, EventFilter, Extent, From, Letters, NewEvent, Question, Replay, RouteSpec,
    RouteWorkerSpec, Span,
};
use towpath_db::{Attribution, Database, Error};
use towpath_model::event::recipient::Step;
use towpath_model::event::route::{Decision, Mode};
use towpath_model::id::EventId;
use towpath_testkit::TestDb;
use towpath_testkit::event::{route, subscription};
use uuid::Uuid;

const BY: Attribution<'static> = Attribution { actor: "tester", reason: "a test" };

/// A route that takes everything of its domain to jobs.
fn to_jobs<'a>(name: &'a str, domain: Option<&'a str>, target: Value) -> RouteSpec<'a> {
    RouteSpec { event_domain: domain, ..route(name, "job", target) }
}

async fn emitted(database: &Database, event: NewEvent) -> EventId {
    let id = database.event_emit(&event).await.unwrap().event_id;
    database.event_sequence(1000).await.unwrap();
    id
}

async fn routed(database: &Database) {
    while database.route_worker_run("default", 1000, None).await.unwrap().more {}
}

/// E01: in the caller's own transaction, commit makes it real and rollback leaves nothing; a batch says
/// per row what became of it.
#[tokio::test]
async fn an_event_commits_with_its_cause() {
    let db = TestDb::open().await;
    let database = db.database().await;
    let mut client = db.client().await;
    let event = NewEvent::new("orders", "created")
        .subject("orders", "7")
        .stream("audit")
        .payload(&json!({"order_id": 7}))
        .unwrap();
    let transaction = client.transaction().await.unwrap();
    let gone = event::emit(&transaction, &event).await.unwrap();
    transaction.rollback().await.unwrap();
    assert!(matches!(database.event_show(gone.event_id).await, Err(Error::NotFound(_))));

    let own = EventId::from(Uuid::now_v7());
    let transaction = client.transaction().await.unwrap();
    let kept = event::emit(&transaction, &event.clone().event_id(own).actor("shop")).await.unwrap();
    let batch = [
        event.clone().event_id(own),
        NewEvent::new("orders", "paid").ordering_key("o7"),
        NewEvent::new(" ", "paid"),
    ];
    let many = event::emit_many(&transaction, &batch).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!((kept.event_id, kept.duplicate), (own, false));
    assert!(many[0].as_ref().unwrap().duplicate && !many[1].as_ref().unwrap().duplicate);
    assert!(matches!(&many[2], Err(Error::Invalid(_))), "{:?}", many[2]);

    assert!(database.event_show(own).await.unwrap().event.position.is_none(), "not numbered yet");
    database.event_sequence(100).await.unwrap();
    let shown = database.event_show(own).await.unwrap().event;
    assert_eq!((shown.position, shown.actor.as_str()), (Some(1), "shop"));
    assert_eq!(shown.ordering_key.as_deref(), Some("orders/7"), "the subject is the key");
    let secret = NewEvent::new("orders", "created").payload(&json!({"a": [{"PassWord": "x"}]})).unwrap();
    let refused = database.event_emit(&secret).await.unwrap_err().to_string();
    assert!(refused.contains("PassWord"), "{refused}");
    let answers = database.event_emit_many(&batch[1..2]).await.unwrap();
    assert_eq!(answers.len(), 1);
}

/// E10: pages of events go both ways, narrowed by a filter, and say where to go on.
#[tokio::test]
async fn events_are_listed_both_ways() {
    let db = TestDb::open().await;
    let database = db.database().await;
    for n in 0..5 {
        let event = NewEvent::new("d", if n % 2 == 0 { "even" } else { "odd" });
        database.event_emit(&event.payload(&json!({"n": n, "deep": {"x": [n]}})).unwrap()).await.unwrap();
    }
    database.event_sequence(100).await.unwrap();
    let positions =
        |page: &event::EventPage| page.events.iter().map(|e| e.position.unwrap()).collect::<Vec<_>>();
    let all = EventFilter::default();
    let newest = database.event_list(&all, From::Newest, 2).await.unwrap();
    assert_eq!((positions(&newest), newest.more), (vec![5, 4], true));
    let before = database.event_list(&all, From::Before(newest.position), 10).await.unwrap();
    assert_eq!((positions(&before), before.more), (vec![3, 2, 1], false));
    let odd = EventFilter { event_type: Some("odd".into()), ..Default::default() };
    let after = database.event_list(&odd, From::After(2), 10).await.unwrap();
    assert_eq!((positions(&after), after.position, after.more), (vec![4], 5, false));
    let deep = EventFilter { payload: Some(json!({"deep": {"x": [3]}})), ..Default::default() };
    assert_eq!(positions(&database.event_list(&deep, From::After(0), 10).await.unwrap()), [4]);
}

/// R02, R03: subscriptions are made, muted, asked about and forgotten.
#[tokio::test]
async fn subscriptions_are_kept() {
    let db = TestDb::open().await;
    let database = db.database().await;
    let made = database.event_subscription_put(&subscription("role:a", "d")).await.unwrap();
    assert!(made.created);
    let again = database.event_subscription_put(&subscription("role:a", "d")).await.unwrap();
    assert_eq!((again.subscription_id, again.created), (made.subscription_id, false));
    let question = Question::Imagined {
        event_domain: "d".into(),
        event_type: "t".into(),
        event_stream: None,
        subject_table: None,
        payload: json!({}),
    };
    let resolved = database.resolve_recipients(&question).await.unwrap();
    assert_eq!(
        (resolved.step, resolved.recipients[0].subscription_id),
        (Step::DomainOnly, made.subscription_id)
    );
    database.event_subscription_mute(made.subscription_id, "tester").await.unwrap();
    let muted = database.resolve_recipients(&question).await.unwrap();
    assert!(muted.broadcast && muted.suppressed.len() == 1);
    database.event_subscription_unmute(made.subscription_id, "tester").await.unwrap();
    assert!(!database.event_subscription_list(Some("role:a")).await.unwrap()[0].mute);
    database.event_subscription_delete(made.subscription_id).await.unwrap();
    assert!(database.event_subscription_list(None).await.unwrap().is_empty());
    let gone = database.event_subscription_mute(made.subscription_id, "tester").await.unwrap_err();
    assert!(matches!(gone, Error::NotFound(_)), "{gone}");
    let wrong = database.event_subscription_put(&subscription("nobody", "d")).await.unwrap_err();
    assert!(wrong.to_string().contains("role:"), "{wrong}");
}

/// R05: a login reads what its recipient subscribed and nothing else; another recipient it may not be.
#[tokio::test]
async fn a_login_reads_as_its_own_recipient_only() {
    let db = TestDb::open().await;
    let admin = db.database().await;
    let (reader, login) = db.database_as("towpath_consumer").await;
    let read_by = |recipient_ref, login_role| EventActorSpec {
        recipient_ref,
        login_role,
        actor: "tester",
        ..Default::default()
    };
    admin.event_actor_put(&read_by("agent:a", Some(&login))).await.unwrap();
    admin.event_actor_put(&read_by("agent:b", None)).await.unwrap();
    let none = reader.event_read("agent:a", 0, 10).await.unwrap_err();
    assert!(none.to_string().contains("subscriptions add"), "{none}");
    admin.event_subscription_put(&subscription("agent:a", "mine")).await.unwrap();
    admin.event_subscription_put(&subscription("agent:b", "theirs")).await.unwrap();
    for domain in ["mine", "theirs", "nobodys", "mine"] {
        emitted(&admin, NewEvent::new(domain, "t")).await;
    }
    let page = reader.event_read("agent:a", 0, 10).await.unwrap();
    let seen: Vec<_> = page.events.iter().map(|event| event.event_domain.as_str()).collect();
    assert_eq!((seen, page.position), (vec!["mine", "mine"], 4));
    assert!(matches!(reader.event_read("agent:b", 0, 10).await, Err(Error::NotAuthorised(_))));
    admin.gate_set("queue.subscription_resolution.enabled", towpath_db::GateMove::Close, BY).await.unwrap();
    assert_eq!(
        reader.event_read("agent:a", 0, 10).await.unwrap().events.len(),
        2,
        "R04 gives no access here"
    );
    let actors = admin.event_actor_list().await.unwrap();
    assert_eq!((actors.len(), actors[0].subscriptions), (2, 1));
    admin.event_actor_delete("agent:a").await.unwrap();
    assert!(matches!(reader.event_read("agent:a", 0, 10).await, Err(Error::NotAuthorised(_))));
}

/// R09 for events: a producer emits what it was granted and nothing else.
#[tokio::test]
async fn a_producer_emits_what_it_was_granted() {
    let db = TestDb::open().await;
    let admin = db.database().await;
    let (producer, login) = db.database_as("towpath_producer").await;
    let event = NewEvent::new("orders", "created");
    assert!(matches!(producer.event_emit(&event).await, Err(Error::NotAuthorised(_))));
    let grant = admin.event_grant_put(&login, Some("orders"), None, "tester").await.unwrap();
    assert!(grant.created);
    producer.event_emit(&event).await.unwrap();
    assert!(matches!(
        producer.event_emit(&NewEvent::new("mail", "sent")).await,
        Err(Error::NotAuthorised(_))
    ));
    let both = producer.event_emit_many(&[event.clone(), NewEvent::new("mail", "sent")]).await.unwrap();
    assert!(both[0].is_ok() && matches!(both[1], Err(Error::NotAuthorised(_))));
    assert_eq!(admin.event_grant_list(Some(&login)).await.unwrap().len(), 1);
    admin.event_grant_revoke(grant.grant_id).await.unwrap();
    assert!(matches!(producer.event_emit(&event).await, Err(Error::NotAuthorised(_))));
}

/// E05, E07, E10: a route is created off, tried out in mode dry, set live; explain says beforehand what a pass
/// then does; a replay counts first and is a new generation.
#[tokio::test]
async fn a_route_is_made_tried_and_replayed() {
    let db = TestDb::open().await;
    let database = db.database().await;
    let spec = RouteSpec {
        rate_limit_per_second: Some(2.5),
        retry_seconds: Some(&[1, 2]),
        ..to_jobs("to-jobs", Some("d"), json!({"job_kind": "k"}))
    };
    let made = database.route_put(&spec).await.unwrap();
    assert!(made.created && made.mode == Mode::Off);
    let route = database.route_show("to-jobs").await.unwrap();
    assert_eq!((route.rate_limit_per_second, route.retry_seconds.as_slice()), (Some(2.5), &[1, 2][..]));
    let id = emitted(&database, NewEvent::new("d", "t")).await;
    let explain = async |worker| database.route_explain(&Question::Stored { event_id: id }, worker).await;
    assert_eq!(explain("default").await.unwrap().decisions[0].decision, Decision::Disabled);
    assert!(matches!(explain("nobody").await, Err(Error::NotFound(_))));
    let set = database.route_mode_set("to-jobs", Mode::DryRun, BY).await.unwrap();
    assert_eq!((set.old_mode, set.mode), (Mode::Off, Mode::DryRun));
    routed(&database).await;
    let span = Span { after: 0, to: 100 };
    database.route_mode_set("to-jobs", Mode::Live, BY).await.unwrap();
    let counted = database.route_replay("to-jobs", span, Replay::Count, 1000, "tester").await.unwrap();
    assert_eq!((counted.matched, counted.sent), (1, 0));
    let sent = database.route_replay("to-jobs", span, Replay::Send, 1000, "tester").await.unwrap();
    assert_eq!((sent.matched, sent.sent, sent.more), (1, 1, false));
    assert_eq!(database.route_send("to-jobs", id, "tester").await.unwrap().generation, 1);
    let whole = database.event_show(id).await.unwrap();
    let decided: Vec<_> = whole.attempts.iter().map(|a| (a.decision, a.generation)).collect();
    assert_eq!(decided, [(Decision::DryRun, 0), (Decision::Sent, 0), (Decision::Sent, 1)]);
    assert!(whole.recipients.broadcast && whole.deliveries.waiting.is_empty());
    let absent = database.route_send("to-jobs", Uuid::now_v7().into(), "tester").await.unwrap_err();
    assert!(absent.to_string().contains("no event"), "{absent}");
    let absent = database.route_replay("no-such", span, Replay::Count, 1000, "tester").await.unwrap_err();
    assert!(absent.to_string().contains("routes list"), "{absent}");
    assert_eq!(database.route_retire("to-jobs", BY).await.unwrap().cancelled, 0);
    assert!(database.route_list().await.unwrap().is_empty());
    assert!(matches!(database.route_mode_set("to-jobs", Mode::Live, BY).await, Err(Error::Conflict(_))));
}

/// E08: a webhook is sent signed: no key, no live route; a rotation answers the new key once and says
/// until when the old one counts.
#[tokio::test]
async fn a_webhook_route_needs_a_key() {
    let db = TestDb::open().await;
    let database = db.database().await;
    let hook = route("hook", "webhook", json!({"url": "https://example.com/in"}));
    database.route_put(&hook).await.unwrap();
    assert!(matches!(database.route_mode_set("hook", Mode::Live, BY).await, Err(Error::Conflict(_))));
    let first = database.route_secret_rotate("hook", None, 3600, "tester").await.unwrap();
    assert!(first.signing_key.starts_with("whsec_") && first.previous_until.is_none());
    assert!(!format!("{first:?}").contains("whsec"), "a log does not show it");
    let second = database.route_secret_rotate("hook", None, 3600, "tester").await.unwrap();
    assert!(second.signing_key != first.signing_key && second.previous_until.is_some());
    database.route_mode_set("hook", Mode::Live, BY).await.unwrap();
    let listed = database.route_list().await.unwrap().pop().unwrap();
    assert_eq!((listed.signed, listed.circuit.as_deref()), (true, Some("closed")));
    assert!(!serde_json::to_string(&listed).unwrap().contains("whsec"), "a list does not show it");
    let id = emitted(&database, NewEvent::new("d", "t")).await;
    routed(&database).await;
    assert_eq!(database.event_show(id).await.unwrap().deliveries.waiting.len(), 1);
    assert_eq!(database.route_retire("hook", BY).await.unwrap().cancelled, 1);
}

/// E06: dead letters are shown whole, replayed after the fix, in bulk or one by one, or resolved by hand.
#[tokio::test]
async fn dead_letters_of_routes_are_dealt_with() {
    let db = TestDb::open().await;
    let database = db.database().await;
    let from_payload = json!({"job_kind": "k", "from_payload": {"priority": "prio"}});
    database.route_put(&to_jobs("r", None, from_payload)).await.unwrap();
    database.route_mode_set("r", Mode::Live, BY).await.unwrap();
    for _ in 0..3 {
        let poison = NewEvent::new("d", "t").payload(&json!({"prio": "abc"})).unwrap();
        emitted(&database, poison).await;
    }
    routed(&database).await;
    let page = database.route_dead_letter_list(Some("r"), Letters::Open, 2, None).await.unwrap();
    let rest = database.route_dead_letter_list(Some("r"), Letters::Open, 2, page.cursor).await.unwrap();
    assert_eq!((page.dead_letters.len(), rest.dead_letters.len(), rest.cursor), (2, 1, None));
    let [first, second] = [page.dead_letters[0].dead_letter_id, page.dead_letters[1].dead_letter_id];
    let shown = database.route_dead_letter_show(first).await.unwrap();
    assert_eq!(shown.event_snapshot.unwrap()["payload"], json!({"prio": "abc"}));
    let again = database.route_dead_letter_replay(first, "tester").await.unwrap();
    assert_eq!((again.resolved, again.decision), (false, Decision::Failed));
    database.route_dead_letter_resolve(second, BY).await.unwrap();
    assert!(matches!(database.route_dead_letter_resolve(second, BY).await, Err(Error::Conflict(_))));
    database.route_put(&to_jobs("r", None, json!({"job_kind": "k"}))).await.unwrap();
    let many = database.route_dead_letter_replay_many(None, 100, "tester").await.unwrap();
    assert_eq!((many.replayed.len(), many.failed.len(), many.refused.len()), (2, 0, 0));
    let resolved = database.route_dead_letter_list(None, Letters::Resolved, 10, None).await.unwrap();
    assert_eq!(resolved.dead_letters.len(), 3);
    let absent = database.route_dead_letter_show(Uuid::now_v7().into()).await.unwrap_err();
    assert!(absent.to_string().contains("routes dlq list"), "{absent}");
}

/// E10, R10: nine checks hold on a database that works; health is one row, and the queue's shows it.
#[tokio::test]
async fn a_working_database_verifies() {
    let db = TestDb::open().await;
    let database = db.database().await;
    database.route_put(&to_jobs("r", None, json!({"job_kind": "k"}))).await.unwrap();
    database.route_mode_set("r", Mode::Live, BY).await.unwrap();
    emitted(&database, NewEvent::new("d", "t")).await;
    routed(&database).await;
    for extent in [Extent::Newest, Extent::Everything] {
        let verified = database.event_verify(extent).await.unwrap();
        assert!(verified.passed && verified.checks.len() == 9, "{verified:?}");
    }
    let folded = database.event_counter_fold(1000).await.unwrap();
    assert!(folded.did["folded"] == 1 && !folded.more && !folded.busy);
    let health = database.event_health().await.unwrap();
    assert_eq!((health.last_position, health.slowest_lag, health.events_24h), (1, 0, 1));
    assert_eq!(database.event_broadcasts().await.unwrap()[0].broadcast_events_24h, 1);
    let queue = database.queue_health().await.unwrap().remove(0);
    assert_eq!((queue.event_last_position, queue.broadcast_events_24h, queue.broadcast_kinds_24h), (1, 1, 1));
    assert!(queue.routing_enabled && queue.subscription_resolution_enabled);
    let check = database.event_broadcast_check().await.unwrap();
    assert_eq!((check.broadcasts, check.warned), (1, false), "below the minimum count");
    assert!(!database.event_partition_tick().await.unwrap().busy);
    // Empty default partitions stay; a backup that begins just now may be listing them.
    let defaults = "select string_agg(oid::text, ' ' order by oid) from pg_class where relname ~ '_default$'";
    let before = db.text(defaults).await;
    assert!(!database.event_retention_tick().await.unwrap().busy);
    assert_eq!(db.text(defaults).await, before);
    let other = RouteWorkerSpec {
        worker_name: "other",
        slices: 4,
        from_position: None,
        event_domain: Some("d"),
        actor: "tester",
    };
    let worker = database.route_worker_put(&other).await.unwrap();
    assert_eq!((worker.slices, worker.position, worker.created), (4, 1, true));
    assert_eq!(worker.event_domain.as_deref(), Some("d"));
    assert_eq!(database.route_worker_list().await.unwrap().workers.len(), 2);
}
