//! Reads the jsonb answers of public SQL functions.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Error;

/// The answer as `T`, or the refusal as an [`Error`].
pub(crate) fn read<T: DeserializeOwned>(answer: Value) -> Result<T, Error> {
    if answer["ok"] != Value::Bool(true) {
        return Err(Error::refused(&answer));
    }
    let text = answer.to_string();
    serde_json::from_value(answer).map_err(|_| Error::Unreadable(text))
}

/// One field of a successful answer as `T`.
pub(crate) fn read_field<T: DeserializeOwned>(mut answer: Value, field: &str) -> Result<T, Error> {
    if answer["ok"] != Value::Bool(true) {
        return Err(Error::refused(&answer));
    }
    let text = answer.to_string();
    serde_json::from_value(answer[field].take()).map_err(|_| Error::Unreadable(text))
}
