//! For tests of programs that use this crate.

use towpath_db::Error;

use crate::Worker;

/// A test that runs more rounds than this has a job that makes itself again and again.
const ROUNDS_MAX: usize = 10_000;

/// Runs what is due now, and what that makes due, until nothing is. Answers how many
/// attempts that were. Retries that are not due yet stay: move the clock to reach them.
pub async fn run_until_drained(worker: &Worker) -> Result<usize, Error> {
    let mut attempts = 0;
    for _ in 0..ROUNDS_MAX {
        match worker.run_once().await? {
            0 => return Ok(attempts),
            more => attempts += more,
        }
    }
    panic!("still not drained after {ROUNDS_MAX} rounds and {attempts} attempts");
}
