//! P10: who may execute what, the whole list. A function that is new, renamed or granted to somebody else is a
//! decision, and it is made here.

use std::collections::BTreeSet;

use towpath_testkit::TestDb;

/// Every role but the owner, and what it executes or reads: all functions, views and tables of `towpath` and
/// `comms`. Names without a schema are of `towpath`.
const RIGHTS: &[(&str, &str)] = &[
    // Claims, runs and ends jobs, and calls by name what it was granted: source 5 and nothing else.
    (
        "worker_service_user",
        "comms.get_email_payload comms.get_sms_payload comms.record_email_failure comms.record_email_success \
         comms.record_sms_failure comms.record_sms_success comms.send_email_supervisor \
         comms.send_sms_supervisor ack fn_job_ack fn_job_ack_many fn_job_arm fn_job_claim fn_job_claim_rows \
         fn_job_claim_set_aside fn_loop_fault_record \
         fn_job_extend_lease fn_job_extend_lease_many fn_job_fail_or_retry fn_job_fail_or_retry_many \
         fn_job_append fn_job_held fn_job_payload fn_job_progress fn_job_release fn_job_snooze fn_job_start fn_job_start_many fn_now \
         fn_process_attempt_begin fn_process_attempt_end fn_process_attempt_extend fn_process_decide \
         fn_process_due fn_queue_heartbeat_end fn_queue_heartbeat_tick fn_schema_status fn_task_error_record \
         fn_job_checkpoint fn_job_checkpoints fn_process_begin_many fn_process_end_many fn_process_extend_many \
         fn_process_function_begin_many fn_process_function_end_many fn_process_run_many fn_process_step_many \
         fn_process_wait function_refusal process_child process_sleep process_sleep_until process_step process_supervisor process_wait run_function",
    ),
    // Numbers events, routes them, sends webhooks with their keys, and appends to streams.
    (
        "towpath_router",
        "fn_delivery_claim fn_delivery_extend fn_delivery_fail fn_delivery_release fn_delivery_succeed \
         fn_event_sequence fn_loop_fault_over fn_loop_fault_record fn_now fn_route_worker_list \
         fn_route_worker_run fn_schema_status fn_stream_delivery_claim fn_stream_delivery_end",
    ),
    // Reaps, counts, fires schedules, scans processes, makes and drops partitions, and publishes numbers.
    (
        "towpath_maintainer",
        "fn_event_broadcast_check fn_event_counter_fold fn_event_partition_tick fn_event_retention_tick \
         fn_job_counter_fold fn_job_floor_tick fn_job_lane_tick fn_job_parallel_recount fn_job_partition_tick fn_job_reap \
         fn_job_retention_tick fn_loop_fault_over fn_loop_fault_record fn_metrics_postgres fn_metrics_read \
         fn_now fn_payload_retention_tick fn_process_scan fn_queue_stale_check fn_schedule_due fn_schedule_fire fn_schedule_skip \
         fn_schema_status v_queue_heartbeat",
    ),
    // Reads the events that it subscribed to.
    ("towpath_consumer", "fn_event_read fn_now fn_schema_status"),
    // Enqueues, emits, starts and sends, within its grants.
    (
        "towpath_producer",
        "comms.create_email_message comms.create_sms_message comms.kickoff_send_email_task \
         append comms.kickoff_send_sms_task comms.send_email comms.send_sms emit emit_many enqueue enqueue_many \
         fn_event_emit fn_event_emit_many fn_job_enqueue fn_job_enqueue_many fn_job_token job_token \
         fn_mot_graph_emit fn_now \
         fn_payload_delete fn_payload_get fn_payload_prepare fn_payload_put fn_process_start fn_schema_status payload_get \
         fn_process_signal fn_process_start_many process_child process_sleep process_sleep_until process_step \
         process_wait signal_process payload_put payload_put_bytes publish send_email send_sms start_process",
    ),
    // Reads everything that carries no secret.
    (
        "towpath_observer",
        "_run_reach _run_span_ms _uuid7_at comms.count_send_email_task_failures comms.count_send_email_task_lost \
         comms.count_send_email_task_scheduled comms.count_send_sms_task_failures \
         comms.count_send_sms_task_lost comms.count_send_sms_task_scheduled \
         comms.has_send_email_task_succeeded comms.has_send_sms_task_succeeded comms.is_send_email_task_over \
         comms.is_send_sms_task_over comms.message_list fn_audit_list fn_config_history fn_config_list \
         fn_consumer_list fn_delivery_history fn_event_actor_list fn_event_chart fn_event_grant_list \
         fn_event_list fn_event_show fn_event_subscription_list fn_event_verify fn_executor_kinds \
         fn_health_marks fn_health_show fn_job_dead_letter_count fn_job_dead_letter_list \
         fn_job_chunks fn_job_dead_letter_show fn_job_history fn_job_list fn_job_result_payload fn_job_show fn_job_state fn_job_subscription_list fn_job_watch fn_job_why \
         fn_loop_fault_list fn_metrics_postgres fn_metrics_read fn_mot_graph_show fn_now fn_payload_key_list fn_process_kind_list \
         fn_process_list fn_process_show fn_producer_grant_list fn_queue_chart fn_queue_latency \
         fn_queue_pause_history fn_queue_paused fn_queue_stale_check fn_queue_unhandled fn_queue_worker_list fn_resolve_recipients fn_route_attempts \
         fn_route_dead_letter_list fn_route_dead_letter_show fn_route_explain fn_route_list \
         fn_route_worker_list fn_schedule_list fn_schema_drift fn_schema_status fn_stream_intake_refused fn_task_error_list job_queue \
         v_event_health v_executor_subscription_health v_job_dead_letter_summary v_job_queue_backlog \
         v_process_attention v_process_health v_queue_health v_queue_heartbeat v_route_attempt v_route_health \
         v_route_worker_cursor v_subscription_broadcast_used",
    ),
    // Administers, and serves: the dashboard acts and tokens are checked in its name.
    (
        "workflow_admin",
        "_run_reach _run_span_ms _uuid7_at comms.count_send_email_task_failures comms.count_send_email_task_lost \
         comms.count_send_email_task_scheduled comms.count_send_sms_task_failures \
         comms.count_send_sms_task_lost comms.count_send_sms_task_scheduled comms.create_email_message \
         comms.create_sms_message comms.has_send_email_task_succeeded comms.has_send_sms_task_succeeded \
         comms.is_send_email_task_over comms.is_send_sms_task_over comms.kickoff_send_email_task \
         comms.kickoff_send_sms_task comms.message_list comms.message_show comms.send_email comms.send_sms \
         append emit emit_many enqueue enqueue_many fn_audit_list fn_audit_record fn_config_history fn_config_list fn_config_set fn_consumer_delete \
         fn_consumer_list fn_consumer_put fn_delivery_history fn_event_actor_delete fn_event_actor_list \
         fn_event_actor_put fn_event_broadcast_check fn_event_chart fn_event_counter_fold fn_event_emit \
         fn_event_emit_many fn_event_grant_list fn_event_grant_put fn_event_grant_revoke fn_event_list \
         fn_event_partition_tick fn_event_read fn_event_retention_tick fn_event_sequence fn_event_show \
         fn_event_subscription_delete fn_event_subscription_list fn_event_subscription_mute \
         fn_event_subscription_put fn_event_verify fn_executor_kinds fn_executor_register fn_executor_token_check \
         fn_executor_token_create fn_executor_token_emit fn_executor_token_enqueue fn_executor_token_event_read \
         fn_executor_token_job_cancel fn_executor_token_job_state \
         fn_executor_token_list fn_executor_token_register fn_executor_token_payload_put fn_executor_token_revoke fn_gate_set fn_health_marks fn_health_show \
         fn_job_cancel fn_job_counter_fold fn_job_dead_letter_count fn_job_dead_letter_list \
         fn_job_dead_letter_replay fn_job_dead_letter_replay_many fn_job_dead_letter_show \
         fn_job_chunks fn_job_dead_letter_triage fn_job_enqueue fn_job_enqueue_many fn_job_floor_tick fn_job_lane_tick fn_job_history \
         fn_job_list fn_job_move_to_dead_letter fn_job_parallel_recount fn_job_partition_tick fn_job_reap \
         fn_job_result_payload fn_job_retention_tick fn_job_retry fn_job_show fn_job_state fn_job_subscription_delete fn_job_subscription_list \
         fn_job_subscription_put fn_job_token fn_job_token_key fn_job_token_key_rotate fn_job_watch fn_job_why job_token fn_loop_fault_drop fn_loop_fault_list fn_loop_fault_over \
         fn_loop_fault_record fn_loop_fault_retry fn_metrics_postgres fn_metrics_read fn_mot_graph_emit \
         fn_mot_graph_show fn_now fn_payload_delete fn_payload_get fn_payload_key_erase fn_payload_key_list fn_payload_key_rotate \
         fn_payload_prepare fn_payload_put fn_payload_retention_tick fn_process_cancel fn_process_kind_list fn_process_kind_put fn_process_list \
         fn_process_resolve fn_process_scan fn_process_show fn_process_start fn_producer_grant_list \
         fn_producer_grant_put fn_producer_grant_revoke fn_queue_chart fn_queue_heartbeat_forget \
         fn_queue_latency fn_queue_pause fn_queue_pause_history fn_queue_paused fn_queue_resume \
         fn_queue_stale_check fn_queue_unhandled fn_queue_worker_list fn_resolve_recipients fn_route_attempts fn_route_circuit_close \
         fn_route_dead_letter_list fn_route_dead_letter_replay fn_route_dead_letter_replay_many \
         fn_route_dead_letter_resolve fn_route_dead_letter_show fn_route_explain fn_route_list \
         fn_route_mode_set fn_route_put fn_route_replay fn_route_retire fn_route_secret_rotate fn_route_send \
         fn_route_test fn_route_worker_list fn_route_worker_put fn_schedule_delete fn_schedule_due \
         fn_schedule_fire fn_schedule_list fn_schedule_pause fn_schedule_put fn_schedule_resume \
         fn_schedule_skip fn_schema_drift fn_schema_status fn_stream_intake_arm fn_stream_intake_end fn_stream_intake_hold \
         fn_stream_intake_read fn_stream_intake_refused fn_stream_log_hold fn_stream_log_open fn_stream_log_put fn_stream_log_read \
         fn_task_error_list job_queue payload_get payload_put \
         fn_executor_token_process_resolve fn_executor_token_process_signal fn_executor_token_process_start \
         fn_executor_token_process_state fn_process_ended fn_process_signal fn_process_start_many process_child \
         process_kind process_sleep process_sleep_until process_step process_wait signal_process \
         payload_put_bytes publish send_email send_sms start_process v_event_health \
         v_executor_subscription_health v_job_dead_letter_summary v_job_queue_backlog v_process_attention \
         v_process_health v_queue_health v_queue_heartbeat v_route_attempt v_route_health \
         v_route_worker_cursor v_subscription_broadcast_used",
    ),
];

/// P10: each role executes and reads this and nothing else, by whatever way the right came to it.
#[tokio::test]
async fn every_role_has_these_rights_and_no_other() {
    let db = TestDb::new().await;
    for (role, rights) in RIGHTS {
        let rights: BTreeSet<&str> = rights.split_whitespace().collect();
        let granted = granted(&db, role).await;
        let granted: BTreeSet<&str> = granted.split_whitespace().collect();
        let more: Vec<_> = granted.difference(&rights).collect();
        let less: Vec<_> = rights.difference(&granted).collect();
        assert!(more.is_empty() && less.is_empty(), "{role} has too much: {more:?}; too little: {less:?}");
    }
    let roles = "select string_agg(distinct a.grantee::regrole::text, ' ')
                   from pg_proc p join pg_namespace n on n.oid = p.pronamespace, aclexplode(p.proacl) a
                  where n.nspname in ('towpath', 'comms') and a.grantee <> p.proowner";
    let roles = db.text(roles).await;
    let known: BTreeSet<&str> = RIGHTS.iter().map(|(role, _)| *role).collect();
    assert_eq!(roles.split(' ').collect::<BTreeSet<_>>(), known, "a role that is not in the list has rights");
}

/// What a role executes and reads, overloads under one name.
async fn granted(db: &TestDb, role: &str) -> String {
    let sql = format!(
        "select string_agg(distinct regexp_replace(o.name, '^towpath[.]', ''), ' ')
           from (select n.nspname || '.' || p.proname as name
                   from pg_proc p join pg_namespace n on n.oid = p.pronamespace
                  where n.nspname in ('towpath', 'comms') and has_function_privilege('{role}', p.oid, 'execute')
                  union all
                 select n.nspname || '.' || c.relname
                   from pg_class c join pg_namespace n on n.oid = c.relnamespace
                  where n.nspname in ('towpath', 'comms') and c.relkind in ('r', 'p', 'v', 'm', 'f')
                    and has_table_privilege('{role}', c.oid, 'select, insert, update, delete, truncate')) o"
    );
    db.text(&sql).await
}

/// P10: a right that somebody gave to a role by hand is gone after the next installation.
#[tokio::test]
async fn installing_again_revokes_what_no_file_grants() {
    let db = TestDb::new().await;
    let may = "select has_function_privilege('worker_service_user', 'towpath.fn_delivery_claim(text, integer, integer)', 'execute')";
    db.execute(
        "grant execute on function towpath.fn_delivery_claim(text, integer, integer) to worker_service_user",
    )
    .await;
    assert_eq!(db.text(may).await, "true");
    towpath_db::migrate::run(&db.url(), towpath_db::migrate::Mode::Reinstall).await.unwrap();
    assert_eq!(db.text(may).await, "false");
    let admin = granted(&db, "workflow_admin").await;
    assert!(admin.contains("fn_gate_set"), "what files grant is there: {admin}");
}
