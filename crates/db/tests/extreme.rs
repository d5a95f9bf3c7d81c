//! Every public function with every extreme of each of its parameters, read from the catalogue.
//!
//! A call may be refused in words. It may not fail inside, and it may not stop anybody else: after each group of
//! calls comes the pulse of extreme.sql, one round of everybody's work. If a pulse stops, the group is called again,
//! one by one on a fresh database, to name the call that did it.

use serde_json::{Map, Value, json};
use tokio_postgres::Client;
use towpath_model::refusal::Refusal;
use towpath_testkit::TestDb;

/// Calls between two pulses: a pulse takes as long as some thirty calls.
const GROUP: usize = 100;
/// Calls on one database: what they leave behind makes pulses slow.
const CALLS_MAX: usize = 800;
/// A call that takes longer is taken for one that hangs.
const CALL_MAX: &str = "60s";
/// Longer than any text of ours may be, short enough to be sent a few hundred times.
const LONG: &str = "repeat('long ', 20000)";

/// Q22: no text stops anybody: not an empty one, a long one, control characters or what looks like an escape.
#[tokio::test]
async fn no_text_about_a_job_or_event_stops_anybody() {
    check("texts of jobs and events", is_of_jobs, texts).await;
}

/// Q22: the same for the functions of routes, processes, schedules, messages and the rest.
#[tokio::test]
async fn no_text_stops_anybody() {
    check("other texts", |function| !is_of_jobs(function), texts).await;
}

/// Q22: no number, time, id or list stops anybody.
#[tokio::test]
async fn no_number_time_or_list_stops_anybody() {
    check("numbers, times, ids and lists", |_| true, |_, parameter| scalars(&parameter.kind)).await;
}

/// Q22: no document stops anybody, whatever it is instead of the object that was meant.
#[tokio::test]
async fn no_document_stops_anybody() {
    let documents = |_: &Function, parameter: &Parameter| match parameter.kind.as_str() {
        "jsonb" => DOCUMENTS.iter().map(|text| (*text).to_owned()).collect(),
        _ => vec![],
    };
    check("documents", |_| true, documents).await;
}

/// Q22: no field of a job, an event or a graph stops anybody.
#[tokio::test]
async fn no_field_of_a_job_or_event_stops_anybody() {
    check("fields of jobs and events", is_of_jobs, fields).await;
}

/// Q22: no field of another document stops anybody: targets, settings, decisions, messages, filters.
#[tokio::test]
async fn no_field_of_a_document_stops_anybody() {
    check("fields of other documents", |function| !is_of_jobs(function), fields).await;
}

fn is_of_jobs(function: &Function) -> bool {
    ["job", "event", "graph", "enqueue"].iter().any(|noun| function.name.contains(noun))
}

fn fields(function: &Function, parameter: &Parameter) -> Vec<String> {
    match template(function, parameter) {
        Some(template) => variants(&template).iter().map(document).collect(),
        None => vec![],
    }
}

fn texts(_: &Function, parameter: &Parameter) -> Vec<String> {
    match parameter.kind.as_str() {
        "text" => TEXTS.iter().map(|text| (*text).to_owned()).collect(),
        _ => vec![],
    }
}

/// A checker that cannot fail proves nothing: it sees a function that raises, one that answers nothing, and that
/// somebody's work has stopped.
#[tokio::test]
async fn the_check_sees_what_it_looks_for() {
    let place = Extreme::new().await;
    place
        .db
        .execute(
            "set role towpath_owner;
             create function towpath.fn_bad(p_number integer) returns jsonb language plpgsql as
                 'begin return jsonb_build_object(''ok'', true, ''n'', p_number + 1); end';
             create function towpath.fn_null(p_number integer) returns jsonb language sql as 'select null::jsonb';
             grant execute on function towpath.fn_bad(integer), towpath.fn_null(integer) to workflow_admin",
        )
        .await;
    let functions = catalogue(&place.client).await;
    let named = |name: &str| functions.iter().find(|function| function.name == name).unwrap();
    let overflow = named("towpath.fn_bad").call("p_number", "2147483647");
    assert!(place.ask(&overflow).await.unwrap_err().contains("22003"));
    assert!(place.ask(&named("towpath.fn_null").call("p_number", "1")).await.is_err());
    assert!(
        place.ask(&named("towpath.fn_job_enqueue").call("p_priority", "-1")).await.is_ok(),
        "refused in words"
    );
    place.pulse().await.unwrap();
    place.db.execute("update towpath.job_subscription set enabled = false where executor_id = 'pulse'").await;
    let stopped = place.pulse().await.unwrap_err();
    assert!(stopped.contains("both jobs are claimed"), "{stopped}");
}

/// Texts as SQL writes them.
const TEXTS: &[&str] = &[
    "null",
    "''",
    "' '",
    LONG,
    "repeat('ü', 150)",
    r"E'a\nb'",
    r"E'\x1b[2J\x1b]0;x\x07'",
    r"E'a\u009b31m\u007f'",
    r"'a\u0000b'",
    r"'\x00'",
    "'null'",
    "'-1'",
    "'infinity'",
    "'99999999999999999999999999'",
    r#"'{"a": 1}'"#,
    "'towpath.fn_now'",
    "'%s %I $1 ''; --'",
];

const DOCUMENTS: &[&str] = &[
    "null",
    "'null'",
    "'true'",
    "'0'",
    "'-1e400'",
    "'{\"a\": [1e400]}'",
    "'\"text\"'",
    "'\"\"'",
    "'[]'",
    "'[null]'",
    "'[1, \"x\", [[]], {}]'",
    "'{}'",
    "'{\"\": \"\"}'",
    "'{\"unknown\": 1}'",
    "'{\"a\": {\"b\": [{\"Password\": \"x\"}]}}'",
    r#"'{"\u0001": "\u001b[2J", "process_id": "\u007f"}'"#,
    "(repeat('[', 2000) || repeat(']', 2000))::jsonb",
    "(repeat('{\"a\":', 1000) || '1' || repeat('}', 1000))::jsonb",
    "jsonb_build_object('a', (select string_agg(md5(n::text), '') from generate_series(1, 5000) n))",
    "(select jsonb_object_agg('k' || n, n) from generate_series(1, 20000) n)",
    "(select jsonb_agg(n) from generate_series(1, 20000) n)",
];

/// What a field of a document is put to.
fn odd_values() -> Vec<Value> {
    let long = "x".repeat(9_000);
    let mut values: Vec<Value> = vec![
        json!(null),
        json!(true),
        json!(""),
        json!(" "),
        json!("a\nb"),
        json!("\u{1b}[2J\u{9b}"),
        json!(long),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(2_147_483_647),
        json!(2_147_483_648_i64),
        json!("infinity"),
        json!("-infinity"),
        json!("NaN"),
        json!("9999999999-01-01"),
        json!([]),
        json!([null]),
        json!({}),
        json!({"a": {"token": [1]}}),
    ];
    values.push(serde_json::from_str("1e300").unwrap());
    values
}

fn scalars(kind: &str) -> Vec<String> {
    let values: &[&str] = match kind {
        "integer" => &["null", "-2147483648", "2147483647", "-1", "0", "1", "32768", "1001"],
        "smallint" => &["null", "-32768", "32767", "-1", "0"],
        "bigint" => &["null", "-9223372036854775808", "9223372036854775807", "-1", "0", "2147483648"],
        "boolean" => &["null", "true", "false"],
        "double precision" => &[
            "null",
            "'NaN'",
            "'Infinity'",
            "'-Infinity'",
            "1e308",
            "-1e308",
            "5e-324",
            "0",
            "-1",
            "31536001",
        ],
        "numeric" => &["null", "'NaN'", "'Infinity'", "'-Infinity'", "1e1000", "1e-1000", "0", "-1"],
        "interval" => &["null", "'-178000000 years'", "'178000000 years'", "'0'", "'-1 second'"],
        "timestamp with time zone" => &[
            "null",
            "'infinity'",
            "'-infinity'",
            "'4713-11-24 00:00:00+00 BC'",
            "'294276-12-31 23:59:59.999999+00'",
            "'1969-12-31 23:59:59+00'",
            "'1970-01-01 00:00:00+00'",
            "'2999-12-31 23:59:59.999999+00'",
            "'3000-01-01 00:00:00+00'",
        ],
        "uuid" => &[
            "null",
            "'00000000-0000-0000-0000-000000000000'",
            "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
            "'ffffffff-ffff-7fff-bfff-ffffffffffff'",
            "'00000000-0000-7000-8000-000000000000'",
            "gen_random_uuid()",
        ],
        "bytea" => &["null", "''", "'\\x00'", "decode(repeat('ff', 100000), 'hex')"],
        "uuid[]" => &[
            "null",
            "'{}'",
            "'{null}'",
            "array[array[gen_random_uuid()], array[gen_random_uuid()]]",
            "array_fill(gen_random_uuid(), array[20000])",
            "array[extreme.held(), null, extreme.held()]",
        ],
        "integer[]" => {
            &["null", "'{}'", "'{null,2147483647,-2147483648}'", "'{{1},{2}}'", "array_fill(1, array[20000])"]
        }
        "bigint[]" => &[
            "null",
            "'{}'",
            "'{null,9223372036854775807}'",
            "'{{1},{2}}'",
            "array_fill(1::bigint, array[20000])",
        ],
        "text[]" => &[
            "null",
            "'{}'",
            "'{null}'",
            "'{{a},{b}}'",
            r"array[E'\x1b', '', null]",
            "array_fill(repeat('x', 100), array[20000])",
        ],
        _ => &[],
    };
    values.iter().map(|value| (*value).to_owned()).collect()
}

/// The expressions that make a call whole: of the function, or of any function that has a parameter of this name.
const WHOLE: &[(&str, &str, &str)] = &[
    ("towpath.fn_job_claim", "p_executor", "'victim'"),
    ("towpath.fn_job_claim_rows", "p_executor", "'victim'"),
    ("towpath.fn_job_arm", "p_executor", "'victim'"),
    ("towpath.fn_job_cancel", "p_job_id", "extreme.waiting()"),
    ("towpath.fn_job_retry", "p_job_id", "extreme.waiting()"),
    (
        "towpath.fn_job_subscription_delete",
        "p_subscription_id",
        "(select subscription_id from towpath.job_subscription where executor_id = 'victim' limit 1)",
    ),
    ("towpath.fn_route_dead_letter_replay", "p_dead_letter_id", "extreme.route_letter()"),
    ("towpath.fn_route_dead_letter_resolve", "p_dead_letter_id", "extreme.route_letter()"),
    ("towpath.fn_route_dead_letter_show", "p_dead_letter_id", "extreme.route_letter()"),
    ("towpath.fn_process_attempt_end", "p_process_id", "extreme.begun()"),
    ("towpath.fn_process_attempt_extend", "p_process_id", "extreme.begun()"),
    ("towpath.fn_process_decide", "p_process_id", "extreme.undecided()"),
    ("towpath.fn_process_resolve", "p_process_id", "extreme.asked()"),
    ("towpath.fn_process_start", "p_process_kind", "'pulse.process'"),
    ("towpath.fn_process_resolve", "p_resolution", "'retry'"),
    ("towpath.fn_schedule_fire", "p_next_at", "towpath.fn_now() + interval '1 hour'"),
    ("towpath.fn_schedule_skip", "p_next_at", "towpath.fn_now() + interval '1 hour'"),
    ("towpath.fn_route_worker_run", "p_worker_name", "'default'"),
    ("towpath.fn_event_read", "p_consumer", "'agent:victim'"),
    ("towpath.fn_task_error_record", "p_kind", "'operational'"),
    ("comms.kickoff_send_email_task", "root_id", "extreme.email()"),
    ("comms.kickoff_send_sms_task", "root_id", "extreme.sms()"),
    ("", "function_name", "'towpath.process_supervisor'"),
    ("", "p_action", "'act'"),
    ("", "p_actor", "'tester'"),
    ("", "p_after_position", "0"),
    ("", "p_attempt", "1"),
    ("", "p_attempt_no", "1"),
    ("", "p_attempts", "'{1}'"),
    ("", "p_class", "'timeout'"),
    ("", "p_dead_letter_id", "extreme.dead_letter()"),
    ("", "p_delivery_id", "extreme.delivery()"),
    ("", "p_event_domain", "'victim'"),
    ("", "p_event_id", "extreme.event()"),
    ("", "p_event_type", "'t'"),
    ("", "p_executor", "'PG_worker'"),
    ("", "p_executor_id", "'victim'"),
    ("", "p_executor_kind", "'PG_worker'"),
    ("", "p_executor_name", "'victim'"),
    ("", "p_expression", "'* * * * *'"),
    ("", "p_gate", "'queue.heartbeat.enabled'"),
    ("", "p_generation", "1"),
    ("", "p_graph_id", "extreme.graph()"),
    ("", "p_item", "extreme.fault()"),
    ("", "p_job_id", "extreme.held()"),
    ("", "p_job_ids", "array[extreme.held()]"),
    ("", "p_job_kind", "'victim.job'"),
    ("", "p_key", "'queue.heartbeat.enabled'"),
    ("", "p_lease_owner", "'o'"),
    ("", "p_loop", "'job_reaper'"),
    ("", "p_message_id", "extreme.email()"),
    ("", "p_mode", "'live'"),
    ("", "p_name", "extreme.schedule()"),
    ("", "p_next_at", "towpath.fn_now()"),
    ("", "p_outcome", "'transient'"),
    ("", "p_process_id", "extreme.process()"),
    ("", "p_process_kind", "'victim.process'"),
    ("", "p_producer", "'victim'"),
    ("", "p_recipient_ref", "'agent:victim'"),
    ("", "p_ref", "gen_random_uuid()::text"),
    ("", "p_route_name", "'victim-job'"),
    ("", "p_route_stream_no", "extreme.stream()"),
    ("", "p_seen_next_at", "'2026-01-01 00:00:00+00'"),
    ("", "p_status", "'acknowledged'"),
    ("", "p_subscription_id", "(select subscription_id from towpath.event_subscription limit 1)"),
    ("", "p_target_kind", "'job'"),
    ("", "p_tick_at", "'2026-01-01 00:00:00+00'"),
    ("", "p_time_zone", "'UTC'"),
    ("", "p_to_position", "10"),
    ("", "p_token_hash", "sha256('victim')"),
    ("", "p_token_id", "(select token_id from towpath.executor_token limit 1)"),
    ("", "p_value", "'true'"),
    ("", "p_worker", "'o'"),
    ("", "p_worker_name", "'victim'"),
    ("", "send_email_task_id", "extreme.email_task()"),
    ("", "send_sms_task_id", "extreme.sms_task()"),
];

/// A good document for a parameter. `$held()` and the like stand for what a function of extreme.sql makes.
fn template(function: &Function, parameter: &Parameter) -> Option<Value> {
    if parameter.kind != "jsonb" {
        return None;
    }
    let time = "2026-01-01T00:00:00Z";
    let run = "0190f5a4-5c2e-7bb0-9f33-0123456789ab";
    let job = json!({"job_kind": "victim.job", "executor": "PG_worker", "event_domain": "victim", "source_ref": "r", "target_ref": "r",
        "payload_ref": "r", "payload_json": {"a": 1}, "priority": 1, "scheduled_at": time, "max_attempts": 2, "actor": "a",
        "idempotency_key": "$key()", "run_id": run, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"});
    let event = json!({"event_domain": "victim", "event_type": "t", "event_stream": "s", "subject_table": "t", "subject_ref": "r",
        "payload": {"at": time, "priority": 1, "target": "r"}, "actor": "a", "ordering_key": "k"});
    let with = |value: &Value, more: Value| {
        let mut whole: Map<String, Value> = value.as_object().unwrap().clone();
        whole.extend(more.as_object().unwrap().clone());
        Value::Object(whole)
    };
    let name = function.name.as_str();
    let task = match name {
        _ if name.contains("email") => json!({"send_email_task_id": "$email_task()"}),
        _ if name.contains("sms") => json!({"send_sms_task_id": "$sms_task()"}),
        _ => json!({"process_id": "$process()"}),
    };
    Some(match (name, parameter.name.as_str()) {
        ("towpath.fn_executor_token_enqueue", "p_jobs") => {
            json!([with(&job, json!({"job_kind": "victim.job"}))])
        }
        (_, "p_jobs") => json!([job]),
        (_, "p_job") => job,
        (_, "p_graph") => json!({"name": "g", "actor": "a", "run_id": run, "idempotency_key": "$key()",
            "nodes": [with(&job, json!({"node": "x"})), {"node": "y", "job_kind": "victim.job"}],
            "edges": [{"from": "x", "to": "y", "on_failure": "hold"}]}),
        (_, "p_events") => json!([with(&event, json!({"event_id": null}))]),
        ("towpath.fn_event_emit", "p_payload") => event["payload"].clone(),
        (_, "p_event") => event,
        (_, "p_failures") => {
            json!([{"job_id": "$held()", "attempt": 1, "error": "e", "permanent": false, "retry_delay_seconds": 1}])
        }
        (_, "p_target") => {
            json!({"job_kind": "victim.routed", "executor": "PG_worker", "priority": 1, "max_attempts": 1,
            "target_ref": "r", "from_payload": {"scheduled_at": "at", "priority": "priority", "run_id": "run"}})
        }
        (_, "p_settings") => {
            json!({"task_kind": "victim.task", "supervisor": null, "recorder": null, "db_function": "a.b",
            "before_handler": "a.b", "success_handler": "a.b", "error_handler": "a.b", "ref_field": "ref", "max_attempts": 5,
            "lease_seconds": 120, "pickup_seconds": 600, "deadline_seconds": 86400, "check_seconds": 30, "backoff_seconds": 10,
            "on_uncertain": "hold"})
        }
        (_, "p_decision") => {
            json!({"do": "attempt", "due_at": time, "check_at": time, "detail": {"a": 1}, "why": "w"})
        }
        ("comms.send_sms" | "comms.create_sms_message", "p_message") => {
            json!({"from": "123", "to": "+4915112345678", "text": "t"})
        }
        (_, "p_message") => {
            json!({"from": "a@b.test", "to": ["a@b.test"], "cc": ["a@b.test"], "bcc": "a@b.test", "reply_to": "a@b.test",
            "subject": "s", "text": "t", "html": "h", "headers": {"X-A": "b"}})
        }
        ("comms.message_list", "p_filter") => json!({"channel": "email"}),
        ("towpath.fn_process_list", "p_filter") => json!({"process_kind": "k", "state": "open", "ref": "r"}),
        ("towpath.fn_task_error_list", "p_filter") => {
            json!({"kind": "operational", "job_id": run, "process_id": run, "task_type": "t", "function_name": "f"})
        }
        ("towpath.fn_event_list", "p_filter") => with(&event, json!({"ordering_key": "k"})),
        ("towpath.fn_job_list", "p_filter") => {
            json!({"job_kind": "victim.job", "executor": "PG_worker", "event_domain": "d",
            "state": "queued", "actor": "a", "run_id": run, "idempotency_key": "k", "lease_owner": "o", "error_contains": "e",
            "created_after": time, "created_before": time})
        }
        (_, "p_filter") => {
            json!({"job_kind": "victim.waiting", "executor": "PG_worker", "event_domain": "d", "triage_status": "pending",
            "run_id": run, "error_contains": "e", "moved_after": time, "moved_before": time, "replayed": false})
        }
        (_, "payload") if name.starts_with("comms.record_") => json!({
            "original_payload": with(&task, json!({"attempt_no": 1})),
            "worker_payload": {"transport": "t", "provider_id": "p", "response": "r"},
            "error": {"outcome": "transient", "message": "m", "code": "c", "transport": "t", "retry_after_seconds": 1,
                      "key_honoured": true}}),
        (_, "payload") => with(
            &task,
            json!({"attempt_no": 1, "worker": {"name": "w", "transport": "t", "from": "a@b.test", "key_honoured": true}}),
        ),
        _ => json!({"a": 1}),
    })
}

/// The document with each of its fields, at any depth, put to each odd value.
fn variants(template: &Value) -> Vec<Value> {
    let mut paths = vec![];
    fn walk(value: &Value, path: &str, paths: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                fields.iter().for_each(|(key, value)| walk(value, &format!("{path}/{key}"), paths));
            }
            Value::Array(items) => {
                items.iter().take(1).for_each(|value| walk(value, &format!("{path}/0"), paths));
            }
            _ => {}
        }
        if !path.is_empty() {
            paths.push(path.to_owned());
        }
    }
    walk(template, "", &mut paths);
    let odd = odd_values();
    let put = |path: &String, value: &Value| {
        let mut document = template.clone();
        *document.pointer_mut(path).unwrap() = value.clone();
        document
    };
    paths.iter().flat_map(|path| odd.iter().map(move |value| put(path, value))).collect()
}

/// A document as SQL writes it.
fn document(value: &Value) -> String {
    let mut sql = format!("$json${value}$json$");
    for made in ["held", "email_task", "sms_task", "process", "key"] {
        let mark = format!("${made}()");
        if sql.contains(&mark) {
            let fresh =
                if made == "key" { "gen_random_uuid()".to_owned() } else { format!("extreme.{made}()") };
            sql = format!("replace({sql}, '{mark}', {fresh}::text)");
        }
    }
    format!("({sql})::jsonb")
}

struct Parameter {
    name: String,
    kind: String,
    has_default: bool,
}

struct Function {
    name: String,
    answers: bool,
    parameters: Vec<Parameter>,
}

impl Function {
    /// A call that is whole but for one parameter.
    fn call(&self, changed: &str, value: &str) -> Call {
        let arguments = self.parameters.iter().filter_map(|parameter| {
            let value = match parameter.name == changed {
                true => value.to_owned(),
                false if parameter.has_default => return None,
                false => self.whole(parameter),
            };
            Some(format!("{} => ({value})::{}", parameter.name, parameter.kind))
        });
        let arguments = arguments.collect::<Vec<_>>().join(", ");
        Call {
            sql: format!("select to_jsonb(a)::text from {}({arguments}) as a", self.name),
            answers: self.answers,
        }
    }

    fn whole(&self, parameter: &Parameter) -> String {
        let given = |owner: &str| {
            WHOLE
                .iter()
                .find(|(function, name, _)| *function == owner && *name == parameter.name)
                .map(|(_, _, sql)| (*sql).to_owned())
        };
        given(&self.name).or_else(|| given("")).unwrap_or_else(|| match parameter.kind.as_str() {
            "text" => "'x'".to_owned(),
            "boolean" => "true".to_owned(),
            "uuid" => "gen_random_uuid()".to_owned(),
            "bytea" => "'data'".to_owned(),
            "jsonb" => document(&template(self, parameter).unwrap()),
            "timestamp with time zone" => "towpath.fn_now()".to_owned(),
            "interval" => "'1 second'".to_owned(),
            "text[]" | "integer[]" | "uuid[]" | "bigint[]" | "jsonb[]" => "'{}'".to_owned(),
            _ => "1".to_owned(),
        })
    }
}

struct Call {
    sql: String,
    /// Whether it answers jsonb, and so has to say ok or why not.
    answers: bool,
}

/// Every public function of ours that somebody was granted.
async fn catalogue(client: &Client) -> Vec<Function> {
    let rows = client
        .query(
            "select p.oid::regproc::text, p.prorettype = 'jsonb'::regtype, a.name, format_type(a.kind, null),
                    a.no > p.pronargs - p.pronargdefaults
               from pg_proc p, unnest(p.proargtypes::oid[], p.proargnames[1:p.pronargs]) with ordinality as a(kind, name, no)
              where p.pronamespace in ('towpath'::regnamespace, 'comms'::regnamespace) and p.proname not like '\\_%'
                and p.prokind = 'f' and exists (select 1 from aclexplode(p.proacl) g where g.grantee <> p.proowner)
              order by 1, a.no",
            &[],
        )
        .await
        .unwrap();
    let mut functions: Vec<Function> = vec![];
    for row in rows {
        let name: String = row.get(0);
        if functions.last().is_none_or(|last| last.name != name) {
            functions.push(Function { name, answers: row.get(1), parameters: vec![] });
        }
        let parameter = Parameter { name: row.get(2), kind: row.get(3), has_default: row.get(4) };
        functions.last_mut().unwrap().parameters.push(parameter);
    }
    functions
}

struct Extreme {
    db: TestDb,
    client: Client,
}

impl Extreme {
    async fn new() -> Extreme {
        let db = TestDb::open().await;
        let client = db.client().await;
        let settings = format!("set jit = off; set statement_timeout = '{CALL_MAX}'");
        client.batch_execute(&settings).await.unwrap();
        client.batch_execute(include_str!("extreme.sql")).await.unwrap();
        Extreme { db, client }
    }

    /// Calls, in a transaction of its own; otherwise what is wrong with the answer.
    async fn ask(&self, call: &Call) -> Result<(), String> {
        let rows = match self.client.query(&call.sql, &[]).await {
            Ok(rows) => rows,
            Err(error) => {
                let error = error.as_db_error().expect("the server goes on");
                return match error.code().code() {
                    code if code.starts_with("TP") => Ok(()),
                    code => Err(format!("{code}: {}", error.message())),
                };
            }
        };
        for row in rows {
            let answer: Option<String> = row.get(0);
            let answer: Value = serde_json::from_str(&answer.unwrap_or_default()).unwrap_or_default();
            if call.answers && !is_answer(&answer) {
                return Err(format!("answers {answer}"));
            }
        }
        Ok(())
    }

    async fn pulse(&self) -> Result<(), String> {
        let pulse = self.client.batch_execute("call extreme.pulse()").await;
        pulse.map_err(|error| {
            error.as_db_error().map_or(error.to_string(), |error| {
                format!(
                    "{}: {} at {}",
                    error.code().code(),
                    error.message(),
                    error.where_().unwrap_or_default()
                )
            })
        })
    }
}

/// `{ok: true}`, a refusal in one of our words, or the envelope of what a worker calls by name.
fn is_answer(answer: &Value) -> bool {
    match &answer["ok"] {
        Value::Bool(true) => true,
        Value::Bool(false) => {
            let word = answer["error"].as_str().unwrap_or_default();
            Refusal::ALL.iter().any(|known| known.word() == word)
                && (word != "invalid" || answer["detail"].is_string())
        }
        _ => answer["success"].is_boolean(),
    }
}

/// Calls every function that `which` takes with every value that `values` has for each of its parameters.
#[expect(clippy::print_stdout, reason = "how many calls there were is worth knowing")]
async fn check(
    what: &str,
    which: impl Fn(&Function) -> bool,
    values: impl Fn(&Function, &Parameter) -> Vec<String>,
) {
    let functions: Vec<Function> =
        catalogue(&Extreme::new().await.client).await.into_iter().filter(which).collect();
    let of_function = |function: &Function| {
        let of_parameter = |parameter: &Parameter| {
            let calls =
                values(function, parameter).into_iter().map(|value| function.call(&parameter.name, &value));
            calls.collect::<Vec<_>>()
        };
        function.parameters.iter().flat_map(of_parameter).collect::<Vec<_>>()
    };
    let calls: Vec<Call> = functions.iter().flat_map(of_function).collect();
    let mut wrong = vec![];
    for calls in calls.chunks(CALLS_MAX) {
        let place = Extreme::new().await;
        for group in calls.chunks(GROUP) {
            for call in group {
                if let Err(why) = place.ask(call).await {
                    wrong.push(told(call, &why));
                }
            }
            if let Err(why) = place.pulse().await {
                wrong.push(culprit(group, &why).await);
                break;
            }
        }
    }
    println!(
        "{what}: {} calls of {} functions, {} pulses",
        calls.len(),
        functions.len(),
        calls.len().div_ceil(GROUP)
    );
    assert!(wrong.is_empty(), "{} of {} calls went wrong:\n{}", wrong.len(), calls.len(), wrong.join("\n"));
}

/// Which call of a group stopped the pulse.
async fn culprit(group: &[Call], why: &str) -> String {
    let place = Extreme::new().await;
    for call in group {
        let _ = place.ask(call).await;
        if let Err(why) = place.pulse().await {
            return told(call, &format!("stops everybody: {why}"));
        }
    }
    let calls = group.iter().map(|call| told(call, "")).collect::<Vec<_>>().join("\n  ");
    format!("one of these, and not one alone, stops everybody: {why}\n  {calls}")
}

fn told(call: &Call, why: &str) -> String {
    let sql: String = call.sql.chars().take(600).collect();
    format!("{why}\n    {sql}")
}
