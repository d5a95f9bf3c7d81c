//! Properties that must hold for any input: the targets of `./dev fuzz`, and of the test that replays their
//! saved inputs.

pub use crate::http1::fuzz::{append, http1};

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
#[test]
fn kept_inputs_hold() {
    replay::replay("towpath_server", &[("append", append), ("http1", http1)]);
}
