//! Progress bars and spinners: on standard error, only on a terminal, only for work that takes longer than a
//! second, and never with JSON.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shorter waits show nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether a script reads the output.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Draws nothing from now on.
pub(crate) fn silence() {
    SILENT.store(true, Ordering::Relaxed);
}

/// A bar with a known total.
pub(crate) fn bar(total: u64, what: &str) -> ProgressBar {
    patient(ProgressBar::new(total), "{bar:30} {pos}/{len} {msg}, {eta} left", what)
}

/// A bar for work that reports its own percentage.
pub(crate) fn percent() -> ProgressBar {
    patient(ProgressBar::new(100), "{spinner} {bar:30} {pos:>3} % {msg}", "")
}

/// Shows what the command waits for, until it is dropped.
pub(crate) fn spinner(what: &str) -> ProgressBar {
    patient(ProgressBar::no_length(), "{spinner} {msg}, {elapsed}", what)
}

/// A count with an unknown total.
pub(crate) fn count(what: &str) -> ProgressBar {
    patient(ProgressBar::no_length(), "{spinner} {pos} {msg}, {elapsed}", what)
}

/// The same of bytes.
pub(crate) fn bytes(what: &str) -> ProgressBar {
    patient(ProgressBar::no_length(), "{spinner} {decimal_bytes} {msg}, {elapsed}", what)
}

/// Waits for `work`, and after a second shows what it waits for.
pub(crate) async fn patience<T>(what: &str, work: impl Future<Output = T>) -> T {
    let spinner = spinner(what);
    let done = work.await;
    spinner.finish_and_clear();
    done
}

/// Drawn after a second, unless it has finished by then.
fn patient(bar: ProgressBar, template: &str, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("our own template");
    let bar = bar.with_style(style).with_message(what.to_owned());
    // A new bar would draw at once, so it starts hidden.
    bar.set_draw_target(ProgressDrawTarget::hidden());
    if !SILENT.load(Ordering::Relaxed) {
        let later = bar.downgrade();
        tokio::spawn(async move {
            tokio::time::sleep(PATIENCE).await;
            if let Some(bar) = later.upgrade().filter(|bar| !bar.is_finished()) {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.enable_steady_tick(Duration::from_millis(100));
            }
        });
    }
    bar
}
