//! The result envelope that every function called by name returns to a worker (P03).
//!
//! `{success, error, validation_failure_message, payload}` as a type. Other fields pass through.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The envelope on the wire. [`FunctionResult::verdict`] interprets it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionResult {
    /// Whether the function succeeded.
    #[serde(default)]
    pub success: bool,
    /// An operational failure: logged and retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The input is invalid or the process has already finished: a retry cannot help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_failure_message: Option<String>,
    /// Data for the worker, such as what a before-handler rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Fields this binary does not know.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// What an envelope means to the worker.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Done; the data, if there is any.
    Done(Option<Value>),
    /// Recorded and not retried.
    Invalid(String),
    /// Recorded and retried.
    Failed(String),
}

impl FunctionResult {
    /// Success with data.
    pub fn done(payload: Option<Value>) -> FunctionResult {
        FunctionResult { success: true, payload, ..FunctionResult::default() }
    }

    /// A validation failure.
    pub fn invalid(message: impl Into<String>) -> FunctionResult {
        FunctionResult { validation_failure_message: Some(message.into()), ..FunctionResult::default() }
    }

    /// An operational failure.
    pub fn failed(error: impl Into<String>) -> FunctionResult {
        FunctionResult { error: Some(error.into()), ..FunctionResult::default() }
    }

    /// Parses an envelope. Anything else is an operational failure of the function.
    pub fn read(answer: Value) -> FunctionResult {
        if !answer.is_object() {
            return FunctionResult::failed(format!(
                "the function returned {answer} instead of a result envelope"
            ));
        }
        serde_json::from_value(answer)
            .unwrap_or_else(|error| FunctionResult::failed(format!("invalid result envelope: {error}")))
    }

    /// A validation failure outranks an error, and both outrank success. An empty text counts as absent, and a
    /// failure needs no reason.
    pub fn verdict(self) -> Verdict {
        let said = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        match (said(self.validation_failure_message), said(self.error)) {
            (Some(message), _) => Verdict::Invalid(message),
            (None, Some(error)) => Verdict::Failed(error),
            (None, None) if self.success => Verdict::Done(self.payload.filter(|payload| !payload.is_null())),
            (None, None) => Verdict::Failed("the function returned success: false without a reason".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// P03: every shape of envelope has one meaning.
    #[test]
    fn an_envelope_has_one_meaning() {
        let failed = |words: &str| Verdict::Failed(words.to_owned());
        let invalid = |words: &str| Verdict::Invalid(words.to_owned());
        for (answer, verdict) in [
            (json!({"success": true}), Verdict::Done(None)),
            (json!({"success": true, "payload": null}), Verdict::Done(None)),
            (json!({"success": true, "payload": {"to": "a"}}), Verdict::Done(Some(json!({"to": "a"})))),
            (json!({"success": true, "error": "", "validation_failure_message": ""}), Verdict::Done(None)),
            (
                json!({"success": false, "validation_failure_message": "no such task"}),
                invalid("no such task"),
            ),
            (json!({"success": true, "validation_failure_message": "gone"}), invalid("gone")),
            (json!({"error": "disk", "validation_failure_message": "gone"}), invalid("gone")),
            (json!({"success": false, "error": "disk full"}), failed("disk full")),
            (json!({"success": true, "error": "disk full"}), failed("disk full")),
            (json!({}), failed("the function returned success: false without a reason")),
            (json!(null), failed("the function returned null instead of a result envelope")),
            (json!([1]), failed("the function returned [1] instead of a result envelope")),
        ] {
            assert_eq!(FunctionResult::read(answer.clone()).verdict(), verdict, "{answer}");
        }
        assert!(matches!(FunctionResult::read(json!({"success": "yes"})).verdict(), Verdict::Failed(_)));
    }

    proptest! {
        /// P01: unknown fields pass through.
        #[test]
        fn unknown_fields_survive(name in "x_[a-z]{1,8}", value in any::<i64>(), success in any::<bool>()) {
            let mut answer = json!({"success": success, "payload": {"deep": [value]}});
            answer[&name] = json!({"value": value});
            let read: FunctionResult = serde_json::from_value(answer.clone()).expect("an envelope");
            prop_assert_eq!(serde_json::to_value(read).expect("plain data"), answer);
        }
    }
}
