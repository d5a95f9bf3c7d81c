//! Each transition and each refusal, on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod catalogue;
mod comms;
mod config;
mod dead_letter;
mod event;
mod event_call;
mod event_rules;
mod event_verify;
mod executor_token;
mod job_claim;
mod job_enqueue;
mod job_finish;
mod job_graph;
mod job_lease;
mod job_ledger;
mod job_race;
mod job_read;
mod job_ready;
mod job_refusal;
mod job_retention;
mod job_run;
mod job_sqlx;
mod job_view;
mod loop_fault;
mod metrics;
mod migrate;
mod operate;
mod payload_key;
mod process;
mod process_end;
mod process_outside;
mod process_place;
mod queue;
mod queue_place;
mod rights;
mod route;
mod run_function;
mod schedule;
mod subscription;
mod tls;
mod trace;
mod value;
mod worker_role;
