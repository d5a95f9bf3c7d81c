//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// Idle SMTP connections kept for the next mail. Further ones are opened and closed per mail, which servers tolerate better
/// than many idle ones.
pub(crate) const SMTP_IDLE_MAX: usize = 8;
/// Maximum SMTP connections, busy and idle. Many servers refuse more than ten or twenty from one client; waiting counts
/// towards the timeout.
pub(crate) const SMTP_CONNECTIONS_MAX: usize = 10;
/// An idle connection older than this is not reused: servers close theirs after some minutes, often silently.
pub(crate) const SMTP_IDLE_AGE_MAX: Duration = Duration::from_secs(60);
/// Maximum bytes read of an HTTP response; errors are a few hundred bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of a provider's message in facts and logs.
pub(crate) const WORDS_MAX: usize = 500;
/// Maximum length of Resend's idempotency keys.
pub(crate) const RESEND_KEY_MAX: usize = 256;
/// Attempts to record an outcome before the job is left to an operator. The delays add up to about twelve seconds, enough
/// for a restart of PostgreSQL.
pub(crate) const RECORD_TRIES: u32 = 7;
/// The first of these delays; each doubles the previous one.
pub(crate) const RECORD_WAIT_MIN: Duration = Duration::from_millis(200);
/// The longest delay a provider can request: a day, as with webhooks.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);
/// Messages that a worker sends at once, per channel. A transport has its own limit of connections; the database
/// is asked about all of them together.
pub(crate) const MESSAGES_AT_ONCE: usize = 512;
