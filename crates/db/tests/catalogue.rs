//! The catalogue: who may do what, and how every function is armoured.

use std::collections::BTreeSet;

use towpath_testkit::TestDb;

/// DESIGN: nobody but the owner has privileges on tables or sequences.
#[tokio::test]
async fn nobody_but_the_owner_has_table_privileges() {
    let db = TestDb::new().await;
    let open = db
        .text(
            "select string_agg(c.oid::regclass || ' ' || a.privilege_type || ' ' || a.grantee::regrole, ', ')
               from pg_class c join pg_namespace n on n.oid = c.relnamespace, aclexplode(c.relacl) a
              where n.nspname in ('towpath', 'comms') and a.grantee <> c.relowner
                and not (c.relkind = 'v' and a.privilege_type = 'SELECT' and a.grantee <> 0)",
        )
        .await;
    assert_eq!(open, "null", "only views may be read, and only by named roles");
    let foreign = db
        .text(
            "select string_agg(c.oid::regclass::text, ', ') from pg_class c join pg_namespace n on n.oid = c.relnamespace
              where n.nspname in ('towpath', 'comms') and pg_get_userbyid(c.relowner) <> 'towpath_owner'",
        )
        .await;
    assert_eq!(foreign, "null", "the owner owns everything");
}

/// P02, P10: every function with definer's rights fixes its search path, and temporary
/// objects come last in it; no function of ours can be called by everybody.
#[tokio::test]
async fn every_function_is_armoured() {
    let db = TestDb::new().await;
    let of_ours = "from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname in ('towpath', 'comms')";
    let unarmoured = db
        .text(&format!(
            "select string_agg(p.oid::regprocedure::text, ', ') {of_ours} and p.prosecdef
                and not coalesce(p.proconfig @> array['search_path=pg_catalog, pg_temp'], false)"
        ))
        .await;
    assert_eq!(unarmoured, "null", "definer's rights without a fixed search path");
    // What begins outside of a definer's search path fixes its own. Bodies that are parsed when they are made need none.
    let begins = "(p.proname !~ '^_' or p.prorettype = 'trigger'::regtype or p.proname = any (
                     '{_schema_catalogue,_schema_record,_payload_denied_key,_event_no_truncate}'))";
    let loose = db
        .text(&format!(
            "select string_agg(p.oid::regprocedure::text, ', ') {of_ours} and {begins} and p.prosqlbody is null
                and p.proname <> 'fn_now' and not coalesce(p.proconfig @> array['search_path=pg_catalog, pg_temp'], false)"
        ))
        .await;
    assert_eq!(loose, "null", "functions that anybody may begin with, without a fixed search path");
    let needless = db
        .text(&format!(
            "select string_agg(p.oid::regprocedure::text, ', ') {of_ours} and not {begins}
                and p.proconfig::text like '%search_path%'"
        ))
        .await;
    assert_eq!(
        needless, "null",
        "private functions run inside the search path of a definer; each SET costs a call"
    );
    let open = db
        .text(&format!(
            "select string_agg(p.oid::regprocedure::text, ', ') {of_ours}
                and (p.proacl is null or exists (select 1 from aclexplode(p.proacl) a where a.grantee = 0))"
        ))
        .await;
    assert_eq!(open, "null", "functions that everybody may call");
    let private = db
        .text(&format!(
            "select string_agg(p.oid::regprocedure::text, ', ') {of_ours} and p.proname like '\\_%'
                -- Pure ones that views call, which they do by the reader's rights.
                and p.proname <> all ('{{_uuid7_at,_run_reach,_run_span_ms}}')
                and exists (select 1 from aclexplode(p.proacl) a where a.grantee <> p.proowner)"
        ))
        .await;
    assert_eq!(private, "null", "private functions that somebody was granted");
    let orphan = db
        .text(&format!(
            "select string_agg(p.oid::regprocedure::text, ', ') {of_ours} and p.proname like 'fn\\_%'
                and not exists (select 1 from aclexplode(p.proacl) a where a.grantee <> p.proowner)"
        ))
        .await;
    assert_eq!(orphan, "null", "public functions that nobody was granted");
}

/// A temporary table named like one of ours does not come between a function and it.
#[tokio::test]
async fn a_temporary_table_hijacks_nothing() {
    let db = TestDb::new().await;
    let admin = db.client_as("workflow_admin").await;
    admin.batch_execute("create temporary table config (key text, kind text, value text)").await.unwrap();
    admin.batch_execute("insert into config values ('queue.worker.enabled', 'gate', 'true')").await.unwrap();
    let sql = "select towpath.fn_config_set('queue.worker.enabled', 'false', 'a', 'b')::text";
    let answer: String = admin.query_one(sql, &[]).await.unwrap().get(0);
    assert!(
        answer.contains("\"changed\": false"),
        "it read the real table, where the gate is closed: {answer}"
    );
}

/// A checker that cannot fail proves nothing: show it a function left open, one without a
/// search path, and a granted table.
#[tokio::test]
async fn the_checks_see_what_they_look_for() {
    let db = TestDb::new().await;
    db.execute(
        "set role towpath_owner;
         create function towpath.fn_bad() returns int language sql security definer as 'select 1';
         grant execute on function towpath.fn_bad() to public;
         grant select on towpath.config to towpath_observer",
    )
    .await;
    let facts = db.database().await.inspect(None).await.unwrap();
    assert_eq!(facts.functions_open_to_public, ["towpath.fn_bad()"]);
    let drift: BTreeSet<&str> = facts.schema.drift.iter().map(String::as_str).collect();
    assert!(drift.contains("function towpath.fn_bad() was added"), "{drift:?}");
    assert!(drift.contains("table towpath.config differs from what migrate installed"), "{drift:?}");
    // The test kit's own clock is drift too, and it is seen.
    assert!(drift.contains("function towpath.fn_now() differs from what migrate installed"), "{drift:?}");
    assert_eq!(drift.len(), 3, "{drift:?}");
}

/// The roles: only what each was granted by name.
#[tokio::test]
async fn roles_can_do_only_what_they_were_granted() {
    let db = TestDb::new().await;
    let admin_only = "select towpath.fn_gate_set('queue.worker.enabled', true, 'x', 'y')";
    for role in ["towpath_observer", "towpath_producer", "worker_service_user"] {
        let client = db.client_as(role).await;
        let error = client.batch_execute(admin_only).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{role} moved a gate");
        for table in ["config", "config_change", "schema_migration"] {
            let error = client.batch_execute(&format!("select * from towpath.{table}")).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "42501", "{role} read {table}");
        }
        client.batch_execute("select towpath.fn_schema_status()").await.unwrap();
    }
    db.client_as("workflow_admin").await.batch_execute(admin_only).await.unwrap();
    db.client_as("towpath_observer").await.batch_execute("select towpath.fn_config_list()").await.unwrap();
    let producer = db.client_as("towpath_producer").await;
    assert!(producer.batch_execute("select towpath.fn_config_list()").await.is_err());
}
