//! Runs the kept inputs of `fuzz/corpus` through the targets of a crate, as an ordinary test: a target cannot
//! rot, and what a fuzzer once found is asked again by every test run. Included by each crate that has targets.

use std::fs;
use std::path::Path;

/// A target: its name, and what it does with an input.
type Target = (&'static str, fn(&[u8]));

/// Replays the targets of the crate that calls.
pub(super) fn replay(krate: &str, targets: &[Target]) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for (name, target) in targets {
        let path = format!("fuzz_targets/{name}.rs");
        assert!(manifest.contains(&format!("path = {path:?}")), "fuzz/Cargo.toml does not name {path}");
        let program = fs::read_to_string(fuzz.join(&path)).unwrap();
        assert!(program.contains(&format!("{krate}::fuzz::{name}(data)")), "{path} does not call the target");
        let corpus = fuzz.join("corpus").join(name);
        let mut inputs: Vec<_> = fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "there is nothing in fuzz/corpus/{name}");
        inputs.sort();
        for input in inputs {
            println!("{name}: {}", input.display());
            target(&fs::read(&input).unwrap());
        }
    }
}
