//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// SMTP connections kept for the next mail. More than this many at once are opened and closed
/// per mail, which servers tolerate better than a crowd of idle ones.
pub(crate) const SMTP_IDLE_MAX: usize = 8;
/// SMTP connections at once, busy and idle. Many servers refuse more than ten or twenty from
/// one place; whoever has to wait does so within its own time limit.
pub(crate) const SMTP_CONNECTIONS_MAX: usize = 10;
/// An idle connection older than this is not used again: servers close theirs after some
/// minutes, often without a word.
pub(crate) const SMTP_IDLE_AGE_MAX: Duration = Duration::from_secs(60);
/// What of an HTTP answer is read; errors are a few hundred bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// What of a provider's words goes into facts and logs.
pub(crate) const WORDS_MAX: usize = 500;
/// Idempotency keys that Resend takes.
pub(crate) const RESEND_KEY_MAX: usize = 256;
/// How often an outcome is given to the database before the job is left to an operator. The
/// waits between add up to about twelve seconds: a restart of PostgreSQL.
pub(crate) const RECORD_TRIES: u32 = 7;
/// The first of these waits; each is twice the one before.
pub(crate) const RECORD_WAIT_MIN: Duration = Duration::from_millis(200);
/// The longest pause a provider can ask for: a day, as with webhooks. Longer ones are cut to it.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);
