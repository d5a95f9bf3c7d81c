//! Turns bytes into choices, so that a fuzzer changes values instead of producing invalid text.

use serde_json::{Map, Value};

/// Yields one byte at a time, then zeros.
pub(super) struct Dice<'a>(pub(super) &'a [u8]);

impl Dice<'_> {
    /// A number below `sides`.
    pub(super) fn below(&mut self, sides: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % sides
    }

    /// One of these.
    pub(super) fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// A short text, or none.
    pub(super) fn name(&mut self) -> Option<String> {
        self.one(&[None, Some("a"), Some("b")]).map(str::to_owned)
    }

    /// Any JSON value up to this depth.
    pub(super) fn json(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 4 } else { 8 }) {
            0 => Value::Null,
            1 => Value::Bool(self.below(2) == 1),
            2 => self.number(),
            3 => Value::from(self.one(&["", "a", "b", "1"])),
            4 | 5 => {
                let length = self.below(4);
                (0..length).map(|_| self.json(depth - 1)).collect()
            }
            _ => Value::Object(self.object(depth)),
        }
    }

    /// An object with a few keys.
    pub(super) fn object(&mut self, depth: usize) -> Map<String, Value> {
        let length = self.below(4);
        (0..length).map(|_| (self.one(&["a", "b", "c"]).to_owned(), self.json(depth - 1))).collect()
    }

    /// Numbers around the boundaries of number types.
    fn number(&mut self) -> Value {
        let around = self.below(3) as u64;
        match self.below(8) {
            0 => Value::from(around),
            1 => Value::from(around as f64),
            2 => Value::from((1u64 << 53) + around),
            3 => Value::from(((1u64 << 53) + around) as f64),
            4 => Value::from(u64::MAX - around),
            5 => Value::from((u64::MAX - around) as f64),
            6 => Value::from(i64::MIN + around as i64),
            _ => Value::from(around as f64 + 0.5),
        }
    }
}
