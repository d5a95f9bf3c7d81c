//! Properties that hold for any input: the targets of `./dev fuzz` and of the test that replays stored inputs.
//!
//! A target interprets bytes as client input and panics if a property does not hold.

mod cron;
mod dice;
mod event;
mod header;
mod json;
mod path;

pub use cron::cron;
pub use event::event;
pub use header::header;
pub use json::json;
pub use path::path;

#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
#[test]
fn kept_inputs_hold() {
    replay::replay(
        "towpath_model",
        &[("cron", cron), ("event", event), ("header", header), ("json", json), ("path", path)],
    );
}
