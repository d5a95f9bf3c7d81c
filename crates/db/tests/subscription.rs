//! Who claims what, who exists, who enqueues what: `sql/functions/subscription.sql`.

use towpath_db::Error;
use towpath_db::job::NewJob;
use towpath_db::subscription::SubscriptionSpec;
use towpath_testkit::TestDb;

use crate::job_read::{claim, enqueue, with_worker};

fn spec() -> SubscriptionSpec<'static> {
    SubscriptionSpec {
        executor_id: "py",
        executor_kind: "external_worker",
        actor: "tester",
        ..Default::default()
    }
}

/// R06: one row per executor, kind and domain, also where kind and domain are any.
#[tokio::test]
async fn a_subscription_is_one_row_even_with_nulls() {
    let db = TestDb::open().await;
    let database = db.database().await;
    database.consumer_put("py", "external_worker", None, None, "tester").await.unwrap();
    assert!(database.subscription_put(&spec()).await.unwrap().created);
    let changed = SubscriptionSpec { max_parallel: Some(7), enabled: true, ..spec() };
    assert!(!database.subscription_put(&changed).await.unwrap().created);
    let kind = SubscriptionSpec { job_kind: Some("mail"), ..spec() };
    assert!(database.subscription_put(&kind).await.unwrap().created);
    let rows = database.subscription_list(Some("py")).await.unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[0].max_parallel, rows[0].enabled, rows[0].held), (Some(7), true, Some(0)));
    assert!(database.subscription_list(Some("other")).await.unwrap().is_empty());
}

/// R06, R07: values that make no sense are refused with the field, MOT on every surface.
#[tokio::test]
async fn bad_entries_are_refused() {
    let db = TestDb::open().await;
    let database = db.database().await;
    for bad in [
        SubscriptionSpec { executor_kind: "MOT", ..spec() },
        SubscriptionSpec { executor_id: " ", ..spec() },
        SubscriptionSpec { job_kind: Some(" "), ..spec() },
        SubscriptionSpec { event_domain: Some(""), ..spec() },
        SubscriptionSpec { priority_floor: -1, ..spec() },
        SubscriptionSpec { max_parallel: Some(0), ..spec() },
        SubscriptionSpec { actor: "", ..spec() },
    ] {
        let words = format!("{bad:?}");
        assert!(matches!(database.subscription_put(&bad).await, Err(Error::Invalid(_))), "{words}");
    }
    assert!(matches!(database.consumer_put("x", "MOT", None, None, "t").await, Err(Error::Invalid(_))));
    assert!(matches!(database.producer_grant_put("x", None, Some("MOT"), "t").await, Err(Error::Invalid(_))));
    assert!(matches!(database.producer_grant_put(" ", None, None, "t").await, Err(Error::Invalid(_))));
}

/// A subscription that holds leases stays until they end.
#[tokio::test]
async fn a_subscription_with_leases_is_not_forgotten() {
    let (_db, database) = with_worker(None).await;
    enqueue(&database, "mail").await;
    let id = database.subscription_list(None).await.unwrap()[0].subscription_id;
    let claimed = claim(&database).await;
    assert!(matches!(database.subscription_delete(id).await, Err(Error::Conflict(_))));
    claimed.lease.ack(&database).await.unwrap();
    database.subscription_delete(id).await.unwrap();
    assert!(matches!(database.subscription_delete(id).await, Err(Error::NotFound(_))));
}

/// R08: an executor cannot grant itself anything; only administrators write these tables.
#[tokio::test]
async fn only_administrators_write_the_registry() {
    let db = TestDb::open().await;
    let calls = [
        "fn_job_subscription_put('me', 'PG_worker', p_enabled => true)",
        "fn_job_subscription_delete(gen_random_uuid())",
        "fn_consumer_put('me', 'PG_worker')",
        "fn_executor_register('me', '{mail}')",
        "fn_consumer_delete('me')",
        "fn_producer_grant_put('me')",
        "fn_producer_grant_revoke(gen_random_uuid())",
    ];
    for role in ["towpath_observer", "towpath_producer", "worker_service_user"] {
        let client = db.client_as(role).await;
        for call in calls {
            let error = client.batch_execute(&format!("select towpath.{call}")).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "42501", "{role}: {call}");
        }
        for table in ["job_subscription", "consumer_registry", "producer_grant"] {
            let error = client.batch_execute(&format!("delete from towpath.{table}")).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "42501", "{role}: {table}");
        }
    }
    let admin = db.client_as("workflow_admin").await;
    for call in calls {
        admin.batch_execute(&format!("select towpath.{call}")).await.unwrap();
    }
}

/// R09: everything is granted in so many words, never by leaving the kind out.
#[tokio::test]
async fn a_grant_names_its_scope() {
    let db = TestDb::open().await;
    let ok = async |arguments: &str| {
        db.json(&format!("towpath.fn_producer_grant_put({arguments})")).await["ok"].clone()
    };
    for scope in ["'a', 'mail'", "'a', null, 'Agent'", "'a', p_any_kind => true"] {
        assert_eq!(ok(scope).await, true, "{scope}");
    }
    for none in
        ["'b'", "'b', p_any_kind => false", "'b', p_any_kind => null", "'b', 'mail', p_any_kind => true"]
    {
        assert_eq!(ok(none).await, false, "{none}");
    }
    assert_eq!(db.text("select string_agg(distinct producer, ' ') from towpath.producer_grant").await, "a");
}

/// R09: a grant lets a producer in, and taking it back keeps it out.
#[tokio::test]
async fn a_grant_opens_and_closes() {
    let db = TestDb::open().await;
    let database = db.database().await;
    db.execute(
        "do $$ begin create role subscription_shop login in role towpath_producer;
                exception when duplicate_object then null; end $$",
    )
    .await;
    let shop = db.client_as("subscription_shop").await;
    let enqueue = async |kind: &str| towpath_db::job::enqueue(&shop, &NewJob::new(kind)).await;
    assert!(matches!(enqueue("mail").await, Err(Error::NotAuthorised(_))));
    let grant = database.producer_grant_put("subscription_shop", Some("mail"), None, "tester").await.unwrap();
    enqueue("mail").await.unwrap();
    assert!(matches!(enqueue("report").await, Err(Error::NotAuthorised(_))));
    assert_eq!(database.producer_grant_list(Some("subscription_shop")).await.unwrap().len(), 1);
    database.producer_grant_revoke(grant.grant_id).await.unwrap();
    assert!(matches!(enqueue("mail").await, Err(Error::NotAuthorised(_))));
}

/// R08: a worker's registration adds what is missing, and leaves what an administrator has set.
#[tokio::test]
async fn a_registration_adds_what_is_missing() {
    let db = TestDb::open().await;
    let database = db.database().await;
    let kinds = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<String>>();
    let register = async |names: &[&str]| database.executor_register("images", &kinds(names)).await;
    assert_eq!(register(&["resize", "crop", "crop"]).await.unwrap(), ["crop", "resize"]);
    assert!(register(&["resize", "crop"]).await.unwrap().is_empty(), "a second time adds nothing");
    db.call("fn_job_subscription_put('images', 'PG_worker', 'crop', p_enabled => false)").await;
    assert_eq!(register(&["crop", "blur"]).await.unwrap(), ["blur"]);
    let rows = "select string_agg(format('%s %s %s', job_kind, enabled, coalesce(max_parallel, 0)), ', ' order by job_kind)
                  from towpath.job_subscription where executor_id = 'images'";
    assert_eq!(db.text(rows).await, "blur t 0, crop f 1, resize t 0", "what was disabled stays so");
    // An executor that claims every kind needs no more, and keeps the kind it was registered as.
    db.call("fn_consumer_put('all', 'external_worker')").await;
    db.call("fn_job_subscription_put('all', 'external_worker', p_enabled => true)").await;
    assert!(database.executor_register("all", &kinds(&["resize"])).await.unwrap().is_empty());
    // All kinds or none.
    let refused = register(&["tile", " "]).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    assert!(matches!(register(&[]).await, Err(Error::Invalid(_))));
    assert_eq!(db.text("select count(*) from towpath.job_subscription where job_kind = 'tile'").await, "0");
    let (worker, _) = db.database_as("worker_service_user").await;
    let denied = worker.executor_register("images", &kinds(&["resize"])).await.unwrap_err();
    assert!(matches!(&denied, Error::NotAuthorised(how) if how.contains("towpath executor add")), "{denied}");
}
