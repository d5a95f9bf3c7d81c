//! A role that runs, routes for it, and events.

use towpath_route::webhook::Reach;
use towpath_route::{Config, Role};
use towpath_testkit::TestDb;
use towpath_testkit::background::Background;

/// Starts a role as the least privileged login.
pub(crate) async fn start_role(db: &TestDb) -> Background {
    start_role_with(db, Config::default()).await
}

/// The same with other settings. Webhooks reach this machine.
pub(crate) async fn start_role_with(db: &TestDb, config: Config) -> Background {
    let (database, _) = db.database_as("towpath_router").await;
    let reach = Reach { local: true, networks: vec![] };
    let role = Role::new(database, Config { reach, ..config }).unwrap();
    Background::start(|shutdown| role.run(shutdown))
}

/// A live webhook route `hook` for every event of the domain `d`, and its signing key.
pub(crate) async fn hook(db: &TestDb, url: &str, more: &str) -> String {
    db.call(&format!("fn_route_put('hook', 'webhook', '{{\"url\": \"{url}\"}}', 'd'{more})")).await;
    let key = db.call("fn_route_secret_rotate('hook')").await["signing_key"].as_str().unwrap().to_owned();
    db.call("fn_route_mode_set('hook', 'live', 'tester', 'a test')").await;
    key
}

/// A live route `jobs` that makes a job of every event of the domain `d`.
pub(crate) async fn jobs(db: &TestDb) {
    db.call(r#"fn_route_put('jobs', 'job', '{"job_kind": "k"}', 'd')"#).await;
    db.call("fn_route_mode_set('jobs', 'live', 'tester', 'a test')").await;
}

/// Emits so many events of the domain `d`.
pub(crate) async fn emit(db: &TestDb, count: u32) {
    let many = format!(
        "fn_event_emit_many((select jsonb_agg(jsonb_build_object('event_domain', 'd', 'event_type', 't', \
         'subject_ref', n::text)) from generate_series(1, {count}) n))"
    );
    assert_eq!(db.call(&many).await["emitted"], count);
}
