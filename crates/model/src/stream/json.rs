//! JSON mode: values with boundaries, stored so that a page is made without parsing.
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

/// Turns a body into stored values: an array gives its elements, anything else is one
/// value. Only one level is opened. The text of a value is kept as it came.
pub fn flatten(body: &[u8]) -> Result<Vec<u8>, Invalid> {
    let values = values(body)?;
    let mut stored = Vec::with_capacity(body.len() + 1);
    for value in &values {
        stored.extend_from_slice(value.get().as_bytes());
        stored.push(b',');
    }
    match stored.is_empty() {
        true => Err(Invalid::Empty),
        false => Ok(stored),
    }
}

fn values(body: &[u8]) -> Result<Vec<&RawValue>, Invalid> {
    let array = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let parsed = match array {
        true => serde_json::from_slice(body),
        false => serde_json::from_slice(body).map(|value| vec![value]),
    };
    parsed.map_err(|_| Invalid::Syntax)
}

/// The length in stored bytes of the first `count` values of a stored run, or `None` if it
/// has fewer.
pub fn prefix_len(stored: &[u8], count: u64) -> Option<usize> {
    let mut end = 0;
    for _ in 0..count {
        let mut values = serde_json::Deserializer::from_slice(&stored[end..]).into_iter::<&RawValue>();
        values.next()?.ok()?;
        // The iterator stands behind the value; the comma belongs to it.
        end += values.byte_offset() + 1;
    }
    Some(end)
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
            let stored = flatten(json!(values).to_string().as_bytes()).unwrap();
            prop_assert_eq!(read(&stored), json!(values));
        }

        #[test]
        fn runs_join_by_standing_side_by_side(a in any_json(), b in any_json()) {
            let one = |value: &Value| flatten(json!([value]).to_string().as_bytes()).unwrap();
            prop_assert_eq!(read(&[one(&a), one(&b)].concat()), json!([a, b]));
        }

        #[test]
        fn prefixes_end_between_values(values in prop::collection::vec(any_json(), 1..8), count in 0..10u64) {
            let stored = flatten(json!(values).to_string().as_bytes()).unwrap();
            match prefix_len(&stored, count) {
                Some(end) => prop_assert_eq!(read(&stored[..end]), json!(values[..count as usize])),
                None => prop_assert!(count as usize > values.len()),
            }
        }

        #[test]
        fn any_bytes_are_refused_or_make_an_array(body in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(stored) = flatten(&body) {
                read(&stored);
            }
        }
    }

    #[test]
    fn the_text_of_a_value_is_kept() {
        assert_eq!(flatten(b" {\"a\" : 1.50}\n").unwrap(), b"{\"a\" : 1.50},");
        assert_eq!(flatten(b"[1 , [2]]").unwrap(), b"1,[2],");
        assert_eq!(flatten(b"[]"), Err(Invalid::Empty));
        for body in ["", "[1,]", "{", "1 2", "[1] x", "\u{feff}1", "nul"] {
            assert_eq!(flatten(body.as_bytes()), Err(Invalid::Syntax), "{body}");
        }
        assert_eq!(flatten(b"\"\xff\""), Err(Invalid::Syntax));
    }
}
