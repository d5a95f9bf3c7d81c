//! P10: what `worker_service_user` must not be able to do, each of it tried.

use tokio_postgres::{Client, NoTls};

use crate::process_kit::Processes;

/// P10: no privilege on any table, sequence or view of ours, tried and not only read.
#[tokio::test]
async fn the_worker_touches_no_table() {
    let place = Processes::open().await;
    let relations = place.text(
            "select string_agg(c.oid::regclass::text || ' ' || (select a.attname from pg_attribute a
                        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum limit 1), ',')
               from pg_class c where c.relnamespace in ('towpath'::regnamespace, 'comms'::regnamespace)
                and c.relkind in ('r', 'p', 'v')",
        )
        .await;
    let relations: Vec<(&str, &str)> = relations.split(',').map(|r| r.split_once(' ').unwrap()).collect();
    assert!(relations.len() > 60, "{}", relations.len());
    for (relation, column) in relations {
        for sql in [
            format!("select * from {relation} limit 1"),
            format!("insert into {relation} default values"),
            format!("update {relation} set {column} = default"),
            format!("delete from {relation}"),
            format!("truncate {relation}"),
            format!("begin; lock table {relation} in share mode"),
            format!("copy {relation} to stdout"),
            format!("alter table {relation} add column x int"),
            format!("drop table {relation}"),
            format!("create trigger x before insert on {relation} execute function towpath._append_only()"),
        ] {
            let error = refused(&place.worker, &sql).await;
            let code = error.code().unwrap().code().to_owned();
            // A view is refused by kind before anybody asks who is there: also no.
            assert!(["42501", "42809", "55000"].contains(&code.as_str()), "{sql}: {error:?}");
            place.worker.batch_execute("rollback").await.unwrap();
        }
    }
}

/// The error of a statement that must not go through.
async fn refused(client: &Client, sql: &str) -> tokio_postgres::Error {
    client.batch_execute(sql).await.err().unwrap_or_else(|| panic!("the worker did this: {sql}"))
}

/// P10: it cannot become anybody else, make anything, or open a door for somebody.
#[tokio::test]
async fn the_worker_cannot_rise() {
    let place = Processes::open().await;
    let (database, login) = place.db.database_as("worker_service_user").await;
    drop(database);
    // A real login: SET SESSION AUTHORIZATION remembers who connected.
    let url = format!("{}&user={login}", place.db.url());
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("set role worker_service_user; reset role").await.unwrap();
    for sql in [
        "set role towpath_owner",
        "set role workflow_admin",
        "set role towpath_producer",
        "set role postgres",
        "set session authorization towpath_owner",
        "create schema mine",
        "create table towpath.mine (a int)",
        "create table comms.mine (a int)",
        "create table public.mine (a int)",
        "create function towpath.mine(payload jsonb) returns jsonb language sql as 'select payload'",
        "create function comms.mine(payload jsonb) returns jsonb language sql as 'select payload'",
        "create or replace function comms.send_email_supervisor(payload jsonb) returns jsonb language sql as 'select payload'",
        "create or replace function towpath.fn_now() returns timestamptz language sql as 'select now()'",
        "alter function comms.send_email_supervisor(jsonb) security invoker",
        "drop function comms.send_email_supervisor(jsonb)",
        "grant towpath_owner to worker_service_user",
        "alter role worker_service_user superuser",
        "create role mine",
        "alter schema comms owner to worker_service_user",
        "drop schema comms cascade",
        "alter default privileges for role towpath_owner grant execute on functions to public",
        "set session_replication_role = replica",
        "alter table towpath.process_fact disable trigger all",
        "select pg_read_file('/etc/hostname')",
        "copy (select 1) to program 'true'",
        "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'postgres'",
        "create extension plpython3u",
        "select nextval('comms.message_message_id_seq')",
        "select setval('towpath.task_error_task_error_id_seq', 1)",
    ] {
        let error = refused(&client, sql).await;
        let code = error.code().unwrap().code().to_owned();
        assert!(["42501", "58P01", "0A000"].contains(&code.as_str()), "{sql}: {error:?}");
    }
    // A grant it may not give is a warning, not an error; what counts is that nothing changed.
    let _ = client
        .batch_execute(
            "grant execute on function towpath.fn_gate_set(text, boolean, text, text) to worker_service_user",
        )
        .await;
    let _ = client.batch_execute("grant usage on schema towpath to public").await;
    let open = "has_function_privilege('worker_service_user', 'towpath.fn_gate_set(text, boolean, text, text)', 'execute')
                or has_schema_privilege('public', 'towpath', 'usage')";
    assert_eq!(place.text(open).await, "false");
}

/// P10: objects of its own in the way of ours: functions with definer's rights do not see them.
#[tokio::test]
async fn the_worker_cannot_slip_its_own_tables_under_our_functions() {
    let place = Processes::open().await;
    let send = place.send("email").await;
    place
        .worker
        .batch_execute(
            "create temporary table process (like pg_class);
             create temporary table process_fact (a int);
             create temporary table process_attempt (a int);
             create temporary table process_kind (a int);
             create temporary table email_message (a int);
             create temporary table send_email_task (a int);
             create temporary table config (key text, kind text, value text);
             insert into config values ('process.enabled', 'gate', 'false');
             create function pg_temp._process_find(text, text) returns int language sql as 'select 1/0';
             create function pg_temp.fn_now() returns timestamptz language sql as 'select null::timestamptz';
             create function pg_temp.coalesce_int(int) returns int language sql as 'select 1/0';
             set search_path = pg_temp, comms, towpath",
        )
        .await
        .unwrap();
    assert_eq!(place.begin(&send, 1, false).await["success"], true);
    assert_eq!(place.succeed(&send, 1).await["payload"]["state"], "succeeded");
    assert_eq!(place.facts(&send.process).await, ["started", "scheduled 1", "begun 1", "succeeded 1"]);
    place.check().await;
}

/// P10: what the worker needs, it has: a login with only this role takes a message from claim to
/// its last fact.
#[tokio::test]
async fn the_worker_can_do_its_work() {
    let place = Processes::open().await;
    let send = place.send("sms").await;
    place.execute("select towpath.fn_consumer_put('w', 'PG_worker')").await;
    place.execute("select towpath.fn_job_subscription_put('w', 'PG_worker', p_enabled => true)").await;
    let claimed = place.ask("fn_job_claim('w', array['sms'], 1, 'me')").await;
    assert_eq!(claimed["jobs"][0]["payload_json"]["process_id"], send.process.as_str(), "{claimed}");
    assert_eq!(place.begin(&send, 1, false).await["success"], true);
    assert_eq!(place.succeed(&send, 1).await["success"], true);
    let job = claimed["jobs"][0]["job_id"].as_str().unwrap();
    assert_eq!(place.ask(&format!("fn_job_ack('{job}', 'me', 1)")).await["ok"], true);
    assert_eq!(place.ask("fn_task_error_record('operational', 'x')").await["ok"], true);
    assert_eq!(place.facts(&send.process).await.last().unwrap(), "succeeded 1");
}
