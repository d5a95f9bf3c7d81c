//! Tests of the store: random histories against a model, power cuts at every byte, killed processes,
//! full disks and failing syncs.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod behaviour;
mod fanout;
mod fanout_check;
mod faults;
mod files;
mod histories;
mod kill;
mod kill_fanout;
mod memory_log;
mod model;
mod model_fanout;
mod power;
mod shared;
mod sim;
mod support;
