//! JSON containment as in PostgreSQL's `jsonb @>`, which filters use.

use serde_json::{Number, Value};

/// Whether `whole` contains `part`: an object if every key's value is contained, an array if every element
/// is contained somewhere, anything else if it is equal.
///
/// A number is its value, so 1 contains 1.0, also beyond the 53 bits of a double.
pub fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, part)| whole.get(key).is_some_and(|whole| contains(whole, part)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            part.iter().all(|part| whole.iter().any(|whole| contains(whole, part)))
        }
        (Value::Number(whole), Value::Number(part)) => same_number(whole, part),
        (whole, part) => whole == part,
    }
}

fn same_number(one: &Number, other: &Number) -> bool {
    match (whole(one), whole(other)) {
        (None, None) => one.as_f64() == other.as_f64(),
        (one, other) => one == other,
    }
}

/// A number without a fraction, exactly; all of them beyond 2^127 are doubles.
fn whole(number: &Number) -> Option<i128> {
    let integer = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
    integer.or_else(|| {
        let double = number.as_f64()?;
        (double.fract() == 0.0 && double.abs() < 2f64.powi(126)).then_some(double as i128)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::contains;

    #[test]
    fn containment_is_that_of_jsonb() {
        for (whole, part, holds) in [
            (json!({}), json!({}), true),
            (json!({"a": 1, "b": 2}), json!({"a": 1}), true),
            (json!({"a": 1}), json!({"a": 1, "b": 2}), false),
            (json!({"a": 1}), json!({"a": 1.0}), true),
            (json!({"a": (1i64 << 53) + 1}), json!({"a": (1i64 << 53) as f64}), false),
            (json!({"a": 1i64 << 53}), json!({"a": (1i64 << 53) as f64}), true),
            (json!({"a": null}), json!({"a": null}), true),
            (json!({}), json!({"a": null}), false),
            (json!({"a": {"b": [1, 2]}}), json!({"a": {"b": [2]}}), true),
            (json!({"a": [1, [2, 3]]}), json!({"a": [[3]]}), true),
            (json!({"a": [1]}), json!({"a": [1, 1]}), true),
            (json!({"a": [1]}), json!({"a": []}), true),
            (json!({"a": [1]}), json!({"a": 1}), false),
            (json!({"a": {}}), json!({"a": []}), false),
        ] {
            assert_eq!(contains(&whole, &part), holds, "{whole} @> {part}");
        }
    }
}
