//! Every bound of the pages, with its reason.

use std::time::Duration;

/// A form is a few short fields.
pub(crate) const FORM_BYTES_MAX: usize = 64 << 10;
/// Rows on a page of jobs.
pub(crate) const JOBS_PAGE: i32 = 50;
/// Rows on other pages.
pub(crate) const ROWS_PAGE: i32 = 100;
/// How long a sign-in lasts.
pub(crate) const SIGN_IN_SECONDS: i64 = 12 * 60 * 60;
/// Wrong passwords per minute, name and address: more than anyone mistypes.
pub(crate) const WRONG_PASSWORDS_MAX: u32 = 10;
/// Wrong passwords per minute and address, whatever the name.
pub(crate) const WRONG_PASSWORDS_PER_ADDRESS_MAX: u32 = 30;
/// Addresses remembered for wrong passwords in this minute. Beyond it no new address may try until the next one.
pub(crate) const GUESSERS_MAX: usize = 10_000;
/// Refused actions recorded per minute, so that another site cannot fill the audit log.
pub(crate) const REFUSALS_WRITTEN_MAX: u32 = 60;
/// How often the database is polled for changes while a page is open.
pub(crate) const LIVE_TICK: Duration = Duration::from_secs(1);
/// How long one live connection lasts before the page reconnects.
pub(crate) const LIVE_SECONDS: u64 = 300;
/// Finished attempts used for percentiles.
pub(crate) const LATENCY_SAMPLE: i32 = 5_000;
/// Jobs that one bulk action may change; more need another one.
pub(crate) const BULK_MAX: i64 = 1_000_000;
/// How long a preview counts before it shows "more than".
pub(crate) const COUNT_BUDGET: Duration = Duration::from_millis(150);
/// Lagging sources that are checked.
pub(crate) const LAGGING_MAX: usize = 1_000;
/// Faults on the overview; the command line lists all.
pub(crate) const FAULTS_MAX: i32 = 50;
/// Timeout of a page: searches and counts end long before.
pub(crate) const PAGE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a page waits for counts.
pub(crate) const COUNT_WAIT: Duration = Duration::from_millis(120);
/// Counting pauses this many times as long as it took.
pub(crate) const COUNT_PAUSE: u32 = 10;
/// Bytes of a stream on one page.
pub(crate) const STREAM_PAGE_BYTES: usize = 256 << 10;
/// Reads to find stream folders: one each.
pub(crate) const FOLDER_LOOKS: usize = 50;
/// Producers shown for a stream; more are short-lived ones.
pub(crate) const PRODUCERS_MAX: usize = 200;
/// Characters of a message before it is cut.
pub(crate) const MESSAGE_CHARS_MAX: usize = 4_000;
