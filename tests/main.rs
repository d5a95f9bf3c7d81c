//! Whole-system tests: the binary as its users run it, and checks of the source tree.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod audit;
mod db_dump;
mod demo;
mod errors;
mod events_cli;
mod executor_api;
mod exit_codes;
mod extreme;
mod fanout_cli;
mod fanout_crash;
mod fanout_remote;
mod init;
mod job_crash;
mod job_stream;
mod jobs_cli;
mod message_cli;
mod message_crash;
mod metrics;
mod migrate;
mod old;
mod payload_cli;
mod pgbouncer;
mod plain_english;
mod private_files;
mod process_new;
mod progress;
mod public_address;
mod route_crash;
mod stream_backup;
mod stream_cli;
mod stream_disk;
mod stream_limit;
mod stream_shared;
mod stream_token;
mod terminal;
mod tidy;
mod top;
mod towpath;
mod trace;
mod up;
mod walks;
