//! The migrator: idempotent, serialised, and careful with what it does not know.

use towpath_db::Error;
use towpath_db::migrate::{self, Mode};
use towpath_testkit::TestDb;
use towpath_testkit::race::all_at_once;

const CATALOGUE: &str = "select md5(string_agg(identity || definition, e'\\n' order by identity)) \
                         from towpath._schema_catalogue()";

/// O06: eight at once on an empty database: one does it, the others find it done.
#[tokio::test]
async fn concurrent_migrations_are_serialised() {
    let db = TestDb::empty().await;
    let url = db.url();
    let reports = all_at_once(8, |_| {
        let url = url.clone();
        async move { migrate::run(&url, Mode::Apply).await.unwrap() }
    })
    .await;
    assert_eq!(reports.iter().filter(|report| report.changed()).count(), 1);
}

/// Q06: migrating again changes no value, and nothing else either.
#[tokio::test]
async fn running_twice_changes_nothing() {
    let db = TestDb::empty().await;
    migrate::run(&db.url(), Mode::Apply).await.unwrap();
    db.execute("update towpath.config set value = '77' where key = 'queue.lease.duration_sec'").await;
    let before = db.text(CATALOGUE).await;
    assert!(!migrate::run(&db.url(), Mode::Apply).await.unwrap().changed());
    assert!(migrate::run(&db.url(), Mode::Reinstall).await.unwrap().reinstalled);
    assert_eq!(db.text(CATALOGUE).await, before);
    let value = "select value from towpath.config where key = 'queue.lease.duration_sec'";
    assert_eq!(db.text(value).await, "77");
    assert_eq!(db.text("select count(*) from towpath.schema_migration").await, migrate::newest().to_string());
}

/// O06: a schema newer than the binary refuses to run, with a clear message.
#[tokio::test]
async fn a_newer_schema_is_refused() {
    let db = TestDb::empty().await;
    migrate::run(&db.url(), Mode::Apply).await.unwrap();
    db.execute("insert into towpath.schema_migration values (999, '0999_future', 'x', now(), '9.9.9')").await;
    db.execute("update towpath.schema_release set release = '9.9.9'").await;
    for error in [
        migrate::run(&db.url(), Mode::Apply).await.unwrap_err(),
        db.database().await.require_schema().await.unwrap_err(),
    ] {
        let message = error.to_string();
        assert!(matches!(error, Error::Unsupported(_)), "{message}");
        assert!(
            message.contains("999") && message.contains("9.9.9") && message.contains("upgrade"),
            "{message}"
        );
    }
}

/// A migration whose text changed after it ran is not silently taken for the same.
#[tokio::test]
async fn a_rewritten_migration_is_refused() {
    let db = TestDb::empty().await;
    migrate::run(&db.url(), Mode::Apply).await.unwrap();
    db.execute("update towpath.schema_migration set checksum = 'other' where version = 1").await;
    let error = migrate::run(&db.url(), Mode::Apply).await.unwrap_err();
    assert!(error.to_string().contains("0001_base is not the one that was applied"), "{error}");
}

/// Functions of a newer release with the same tables stay: a rolling upgrade has both.
#[tokio::test]
async fn functions_of_a_newer_release_stay() {
    let db = TestDb::empty().await;
    migrate::run(&db.url(), Mode::Apply).await.unwrap();
    db.execute("update towpath.schema_release set release = '99.0.0', checksum = 'newer'").await;
    let report = migrate::run(&db.url(), Mode::Apply).await.unwrap();
    assert!(!report.changed());
    assert_eq!(report.kept_newer_release.as_deref(), Some("99.0.0"));
}

/// A function that no file has any more goes; what a table depends on stays.
#[tokio::test]
async fn retired_functions_are_dropped() {
    let db = TestDb::empty().await;
    migrate::run(&db.url(), Mode::Apply).await.unwrap();
    let before = db.text(CATALOGUE).await;
    db.execute(
        "set role towpath_owner; create function towpath.fn_old(int) returns int language sql as 'select 1'",
    )
    .await;
    db.execute("create function towpath.not_ours() returns int language sql as 'select 1'").await;
    let report = migrate::run(&db.url(), Mode::Reinstall).await.unwrap();
    assert_eq!(report.retired, ["towpath.fn_old(integer)"]);
    db.execute("drop function towpath.not_ours()").await;
    assert_eq!(db.text(CATALOGUE).await, before);
}

/// Reinstalling removes drift: a replaced function, and an added grant.
#[tokio::test]
async fn reinstalling_restores_functions() {
    let db = TestDb::empty().await;
    migrate::run(&db.url(), Mode::Apply).await.unwrap();
    db.execute(
        "create or replace function towpath.fn_schema_status() returns jsonb language sql stable as \
         $$ select jsonb_build_object('version', 1) $$",
    )
    .await;
    let drift = db.database().await.inspect(None).await.unwrap();
    assert!(!drift.schema.functions_current, "a replaced status function is noticed");
    migrate::run(&db.url(), Mode::Reinstall).await.unwrap();
    let facts = db.database().await.inspect(None).await.unwrap();
    assert!(facts.schema.functions_current && facts.schema.drift.is_empty(), "{:?}", facts.schema);
}

/// A user without the right to migrate is told what is missing, and nothing is written.
#[tokio::test]
async fn a_powerless_user_is_told_so() {
    let db = TestDb::empty().await;
    db.execute("do $$ begin create role powerless login; exception when duplicate_object then null; end $$")
        .await;
    let url = db.url().replace("postgres@", "powerless@");
    let error = migrate::run(&url, Mode::Apply).await.unwrap_err();
    assert!(error.to_string().contains("may create roles"), "{error}");
    assert_eq!(db.text("to_regnamespace('towpath')").await, "null");
}

/// A user who is no superuser but may create roles and schemas can install everything.
#[tokio::test]
async fn a_superuser_is_not_needed() {
    let db = TestDb::empty().await;
    let role = format!("installer_{}", db.name());
    db.execute(&format!(
        "create role {role} login createrole; grant create on database {} to {role}; \
         do $$ begin if exists (select 1 from pg_roles where rolname = 'towpath_owner') then \
         grant towpath_owner to {role}; end if; end $$",
        db.name()
    ))
    .await;
    migrate::run(&db.url().replace("postgres@", &format!("{role}@")), Mode::Apply).await.unwrap();
    let facts = db.database().await.inspect(None).await.unwrap();
    assert!(facts.schema.drift.is_empty() && facts.roles_missing.is_empty());
    db.execute(&format!("drop owned by {role}; drop role {role}")).await;
}

/// O06: rollback. The binary of the release before leaves newer functions alone, and what it prints puts its own in
/// their place: the same catalogue as before, data and gates untouched.
#[tokio::test]
async fn the_release_before_puts_its_functions_back() {
    let db = TestDb::empty().await;
    migrate::run(&db.url(), Mode::Apply).await.unwrap();
    let before = db.text(CATALOGUE).await;
    let data = "select string_agg(key || value, ' ' order by key) from towpath.config";
    let config = db.text(data).await;
    db.execute(
        "set role towpath_owner;
         create or replace function towpath.fn_schema_drift() returns jsonb language sql as 'select null::jsonb';
         create function towpath.fn_of_tomorrow() returns jsonb language sql as 'select null::jsonb';
         grant execute on function towpath.fn_schema_drift() to worker_service_user;
         drop view towpath.v_process_attention;
         update towpath.schema_release set release = '99.0.0', checksum = 'theirs'",
    )
    .await;
    let kept = migrate::run(&db.url(), Mode::Apply).await.unwrap();
    assert_eq!((kept.kept_newer_release.as_deref(), kept.changed()), (Some("99.0.0"), false));
    db.execute(&migrate::script(migrate::newest())).await;
    assert_eq!(db.text(CATALOGUE).await, before);
    assert_eq!(db.text(data).await, config);
    assert!(db.database().await.schema_status().await.unwrap().is_current());
    assert!(!migrate::run(&db.url(), Mode::Apply).await.unwrap().changed(), "nothing is left to do");
}

/// O06: a migration that fails changes nothing, says what to do, and works once that is done.
#[tokio::test]
async fn a_failed_migration_leaves_everything_as_it_was() {
    let db = TestDb::empty().await;
    migrate::run(&db.url(), Mode::Apply).await.unwrap();
    db.execute("create view public.mine as select * from towpath.v_queue_health").await;
    let before = db.text(CATALOGUE).await;
    let told = migrate::run(&db.url(), Mode::Reinstall).await.unwrap_err().to_string();
    assert!(told.contains("drop your own objects"), "{told}");
    assert_eq!(db.text(CATALOGUE).await, before);
    let database = db.database().await;
    assert!(database.schema_status().await.unwrap().is_current());
    database.queue_health().await.expect("work goes on");
    db.execute("drop view public.mine").await;
    migrate::run(&db.url(), Mode::Reinstall).await.unwrap();
    assert_eq!(db.text(CATALOGUE).await, before);
}
