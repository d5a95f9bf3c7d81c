//! Reads the jsonb answers of public SQL functions.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

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

/// A jsonb answer that is read straight into its type: answers of batches are long.
pub(crate) type RawAnswer = tokio_postgres::types::Json<Box<RawValue>>;

/// The answer as `T`, or the refusal as an [`Error`].
pub(crate) fn read_raw<T: DeserializeOwned>(answer: &RawAnswer) -> Result<T, Error> {
    #[derive(serde::Deserialize)]
    struct Head {
        ok: bool,
    }
    let text = answer.0.get();
    match serde_json::from_str(text) {
        Ok(Head { ok: true }) => serde_json::from_str(text).map_err(|_| Error::Unreadable(text.to_owned())),
        _ => Err(refusal(text)),
    }
}

/// The refusal in an answer that is still text.
pub(crate) fn refusal(text: &str) -> Error {
    match serde_json::from_str(text) {
        Ok(answer) => Error::refused(&answer),
        Err(_) => Error::Unreadable(text.to_owned()),
    }
}
