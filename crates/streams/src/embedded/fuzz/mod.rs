//! What must be true whatever is on the disk: the targets of `./dev fuzz`, and of the test that
//! replays their corpus.

mod disk;
mod image;
mod record;
mod recovery;

pub use record::record;
pub use recovery::recovery;

#[cfg(test)]
#[path = "../../../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
#[test]
fn kept_inputs_hold() {
    replay::replay("towpath_streams", &[("record", record), ("recovery", recovery)]);
}
