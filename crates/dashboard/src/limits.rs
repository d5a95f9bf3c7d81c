//! Every bound of the pages, with its reason.

use std::time::Duration;

/// A form is a few short fields.
pub(crate) const FORM_BYTES_MAX: usize = 64 << 10;
/// Rows of one page of jobs: as many as people scroll through.
pub(crate) const JOBS_PAGE: i32 = 50;
/// Rows of one page of anything shorter.
pub(crate) const ROWS_PAGE: i32 = 100;
/// How long a sign-in lasts.
pub(crate) const SIGN_IN_SECONDS: i64 = 12 * 60 * 60;
/// Wrong passwords in one minute under one name from one address: more than a person mistypes.
pub(crate) const WRONG_PASSWORDS_MAX: u32 = 10;
/// The same from one address, whatever name is given.
pub(crate) const WRONG_PASSWORDS_PER_ADDRESS_MAX: u32 = 30;
/// Who guessed wrongly in this minute, remembered. Beyond it nobody new may guess before the next one.
pub(crate) const GUESSERS_MAX: usize = 10_000;
/// Refused actions that are written down in one minute: a page somewhere else must not fill the audit.
pub(crate) const REFUSALS_WRITTEN_MAX: u32 = 60;
/// How often the database is asked whether anything changed, while somebody looks.
pub(crate) const LIVE_TICK: Duration = Duration::from_secs(1);
/// How long one live connection lasts before the page comes back.
pub(crate) const LIVE_SECONDS: u64 = 300;
/// Ended attempts that percentiles are made from.
pub(crate) const LATENCY_SAMPLE: i32 = 5_000;
/// Jobs that one bulk action may touch; more need another round.
pub(crate) const BULK_MAX: i64 = 1_000_000;
/// How long a preview counts before it says "more than".
pub(crate) const COUNT_BUDGET: Duration = Duration::from_millis(150);
/// Sources with something that waits that are looked at.
pub(crate) const LAGGING_MAX: usize = 1_000;
/// Items that loops have set aside which the overview names; the command line lists all.
pub(crate) const FAULTS_MAX: i32 = 50;
/// How long anybody waits for a page: searches and counts end long before, so something is wrong.
pub(crate) const PAGE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a page waits for numbers that take longer the more there is.
pub(crate) const COUNT_WAIT: Duration = Duration::from_millis(120);
/// Counting rests so many times as long as it took.
pub(crate) const COUNT_REST: u32 = 10;
/// Bytes of a stream shown at once.
pub(crate) const STREAM_PAGE_BYTES: usize = 256 << 10;
/// Looks for folders of streams: one each.
pub(crate) const FOLDER_LOOKS: usize = 50;
/// Producers of a stream shown; a stream written by more is written by short-lived ones.
pub(crate) const PRODUCERS_MAX: usize = 200;
/// Text of one message shown before it is cut.
pub(crate) const MESSAGE_CHARS_MAX: usize = 4_000;
