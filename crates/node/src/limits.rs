//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// How long a node that does not answer keeps its place: a standby serves after this time.
pub(crate) const LEASE_SECONDS: i32 = 5;
/// How often the lease is renewed, and how often a standby asks for it.
pub(crate) const LEASE_RENEW: Duration = Duration::from_secs(1);
/// Messages that one commit takes in: the ids of a batch are a small value of the store, of 64 KiB at most.
pub(crate) const INTAKE_ROWS: i32 = 500;
/// How often the intake is looked at when no notification came. A notification is lost only if the store fell asleep
/// while a transaction was committing.
pub(crate) const INTAKE_POLL: Duration = Duration::from_secs(1);
/// How soon it looks for the first time; then the waits double.
pub(crate) const INTAKE_POLL_FIRST: Duration = Duration::from_millis(20);
/// How long to wait for a store that is busy.
pub(crate) const INTAKE_BUSY_WAIT: Duration = Duration::from_millis(20);
/// How long a store holds the intake. A store that stopped gives its place up after this time.
pub(crate) const INTAKE_HOLD_SECONDS: i32 = 15;
/// How often that is renewed: two renewals may fail.
pub(crate) const INTAKE_RENEW: Duration = Duration::from_secs(5);
/// Between looks, while another store holds the intake.
pub(crate) const INTAKE_OTHERS_POLL: Duration = Duration::from_secs(5);
