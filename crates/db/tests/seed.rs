//! Random histories that can be repeated.

/// The seed of a random history, printed, or the one to repeat.
#[expect(clippy::print_stdout, reason = "a failed test shows it, and it can be run again")]
pub(crate) fn seed() -> u64 {
    const VARIABLE: &str = "TOWPATH_TEST_SEED";
    let seed = std::env::var(VARIABLE).map_or_else(|_| fastrand::u64(..), |text| text.parse().unwrap());
    println!("{VARIABLE}={seed}");
    seed
}
