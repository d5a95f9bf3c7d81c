//! Bars and spinners: on standard error, on a terminal only, for what takes longer than a second.

use std::pin::pin;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A wait that nobody notices.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bar for so many things. Draws only on a terminal.
pub(crate) fn bar(total: u64, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}, {eta} left");
    ProgressBar::new(total).with_style(style.expect("our own template")).with_message(what.to_owned())
}

/// Waits for `work`, and says after a second what it waits for.
pub(crate) async fn patience<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Ok(done) = tokio::time::timeout(PATIENCE, &mut work).await {
        return done;
    }
    let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}").expect("our own template");
    let spinner = ProgressBar::new_spinner().with_style(style).with_message(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(100));
    let done = work.await;
    spinner.finish_and_clear();
    done
}
