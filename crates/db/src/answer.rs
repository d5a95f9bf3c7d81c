//! Parses the jsonb answers of public SQL functions.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Error;

/// The fields of a filter that are given; one that is absent matches everything.
pub(crate) fn given(filter: &impl Serialize) -> Value {
    let mut filter = serde_json::to_value(filter).expect("a filter is plain data");
    filter.as_object_mut().expect("a filter has fields").retain(|_, value| !value.is_null());
    filter
}

/// The answer as `T`, or the refusal as an [`Error`].
pub(crate) fn read<T: DeserializeOwned>(answer: Value) -> Result<T, Error> {
    if answer["ok"] != Value::Bool(true) {
        return Err(Error::refused(&answer));
    }
    from_value(answer)
}

/// One field of a successful answer as `T`.
pub(crate) fn read_field<T: DeserializeOwned>(mut answer: Value, field: &str) -> Result<T, Error> {
    if answer["ok"] != Value::Bool(true) {
        return Err(Error::refused(&answer));
    }
    from_value(answer[field].take())
}

/// The value as `T`. A value that our types cannot hold, such as an infinite time, becomes the nearest one that they
/// can: one odd row must not hide all others.
fn from_value<T: DeserializeOwned>(mut value: Value) -> Result<T, Error> {
    T::deserialize(&value).or_else(|_| {
        let text = value.to_string();
        clamp(&mut value);
        T::deserialize(value).map_err(|_| Error::Unreadable(text))
    })
}

/// PostgreSQL writes infinite times in lower case and infinite numbers in title case.
fn clamp(value: &mut Value) {
    match value {
        Value::String(text) => match text.as_str() {
            "infinity" => *value = "9999-12-30T00:00:00Z".into(),
            "-infinity" => *value = "0001-01-01T00:00:00Z".into(),
            "Infinity" => *value = f64::MAX.into(),
            "-Infinity" => *value = f64::MIN.into(),
            "NaN" => *value = 0.into(),
            _ => {}
        },
        Value::Array(values) => values.iter_mut().for_each(clamp),
        Value::Object(fields) => fields.values_mut().for_each(clamp),
        _ => {}
    }
}

/// A jsonb answer that is parsed directly into its type, because batch answers are long.
pub(crate) type RawAnswer = tokio_postgres::types::Json<Box<RawValue>>;

/// The answer as `T`, or the refusal as an [`Error`].
pub(crate) fn read_raw<T: DeserializeOwned>(answer: &RawAnswer) -> Result<T, Error> {
    #[derive(serde::Deserialize)]
    struct Head {
        ok: bool,
    }
    let text = answer.0.get();
    match serde_json::from_str(text) {
        Ok(Head { ok: true }) => serde_json::from_str(text).or_else(|_| {
            from_value(serde_json::from_str(text).map_err(|_| Error::Unreadable(text.to_owned()))?)
        }),
        _ => Err(refusal(text)),
    }
}

/// The refusal in an unparsed answer.
pub(crate) fn refusal(text: &str) -> Error {
    match serde_json::from_str(text) {
        Ok(answer) => Error::refused(&answer),
        Err(_) => Error::Unreadable(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Row {
        name: String,
        at: Timestamp,
        seconds: f64,
    }

    /// Q22: a row with an infinite time is shown with the largest time, beside all others.
    #[test]
    fn one_odd_value_does_not_hide_the_others() {
        let row = |name: &str, at: &str, seconds: Value| json!({"name": name, "at": at, "seconds": seconds});
        let good = row("infinity", "2026-01-01T00:00:00Z", json!(1.5));
        let odd = row("odd", "infinity", json!("Infinity"));
        let rows: Vec<Row> = read_field(json!({"ok": true, "rows": [good]}), "rows").unwrap();
        assert_eq!(rows[0].name, "infinity", "a valid value is unchanged");
        let rows: Vec<Row> = read_field(json!({"ok": true, "rows": [good, odd]}), "rows").unwrap();
        assert_eq!(rows[0].seconds, 1.5);
        assert_eq!((rows[1].at.to_string().as_str(), rows[1].seconds), ("9999-12-30T00:00:00Z", f64::MAX));
        let text = r#"{"ok": true, "name": "raw", "at": "-infinity", "seconds": 0}"#;
        let raw: Row =
            read_raw(&tokio_postgres::types::Json(RawValue::from_string(text.to_owned()).unwrap())).unwrap();
        assert_eq!(raw.at.to_string(), "0001-01-01T00:00:00Z");
        let wrong: Result<Row, Error> = read(json!({"ok": true, "name": 1}));
        assert!(matches!(wrong, Err(Error::Unreadable(_))));
    }
}
