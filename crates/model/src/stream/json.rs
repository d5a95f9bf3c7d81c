//! JSON mode: values with boundaries, stored so that a page needs no parsing.
//!
//! A stored value is its own text followed by a comma. Any run of stored values becomes
//! an array by putting `[` before it and `]` over its last comma.

use serde_json::value::RawValue;

/// Why a body was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// It is not one JSON text.
    Syntax,
    /// `[]`: an append of nothing.
    Empty,
}

/// Stored values and where each of them ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The values, each followed by its comma.
    pub data: Vec<u8>,
    /// The position after each value's comma.
    pub ends: Vec<u32>,
}

/// Turns a body into stored values: an array gives its elements, anything else is one value. Only
/// one level of arrays is removed. The text of a value is not changed.
pub fn flatten(body: &[u8]) -> Result<Run, Invalid> {
    let values = values(body)?;
    let mut run = Run { data: Vec::with_capacity(body.len() + 1), ends: Vec::with_capacity(values.len()) };
    for value in &values {
        run.data.extend_from_slice(value.get().as_bytes());
        run.data.push(b',');
        run.ends.push(u32::try_from(run.data.len()).map_err(|_| Invalid::Syntax)?);
    }
    match values.is_empty() {
        true => Err(Invalid::Empty),
        false => Ok(run),
    }
}

/// The texts of a run of stored values, without their commas.
pub fn stored_values(mut stored: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let mut values = serde_json::Deserializer::from_slice(stored).into_iter::<&RawValue>();
        values.next()?.ok()?;
        let (value, rest) = stored.split_at(values.byte_offset());
        stored = rest.strip_prefix(b",").unwrap_or(rest);
        Some(value)
    })
}

fn values(body: &[u8]) -> Result<Vec<&RawValue>, Invalid> {
    let array = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let parsed = match array {
        true => serde_json::from_slice(body),
        false => serde_json::from_slice(body).map(|value| vec![value]),
    };
    parsed.map_err(|_| Invalid::Syntax)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn read(stored: &[u8]) -> Value {
        let run = stored.strip_suffix(b",").unwrap_or(stored);
        serde_json::from_slice(&[b"[", run, b"]"].concat()).unwrap()
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map("[a-z,\\]\\[]{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn one_level_of_an_array_is_opened(values in prop::collection::vec(any_json(), 1..8)) {
            let run = flatten(json!(values).to_string().as_bytes()).unwrap();
            prop_assert_eq!(read(&run.data), json!(values));
        }

        #[test]
        fn runs_join_by_standing_side_by_side(a in any_json(), b in any_json()) {
            let one = |value: &Value| flatten(json!([value]).to_string().as_bytes()).unwrap().data;
            prop_assert_eq!(read(&[one(&a), one(&b)].concat()), json!([a, b]));
        }

        #[test]
        fn ends_stand_between_values(values in prop::collection::vec(any_json(), 1..8)) {
            let run = flatten(json!(values).to_string().as_bytes()).unwrap();
            prop_assert_eq!(run.ends.len(), values.len());
            for (index, end) in run.ends.iter().enumerate() {
                prop_assert_eq!(read(&run.data[..*end as usize]), json!(values[..=index]));
            }
        }

        #[test]
        fn any_bytes_are_refused_or_make_an_array(body in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(run) = flatten(&body) {
                read(&run.data);
            }
        }
    }

    #[test]
    fn the_text_of_a_value_is_kept() {
        assert_eq!(flatten(b" {\"a\" : 1.50}\n").unwrap().data, b"{\"a\" : 1.50},");
        assert_eq!(flatten(b"[1 , [2]]").unwrap().data, b"1,[2],");
        assert_eq!(flatten(b"[]"), Err(Invalid::Empty));
        for body in ["", "[1,]", "{", "1 2", "[1] x", "\u{feff}1", "nul"] {
            assert_eq!(flatten(body.as_bytes()), Err(Invalid::Syntax), "{body}");
        }
        assert_eq!(flatten(b"\"\xff\""), Err(Invalid::Syntax));
    }
}
