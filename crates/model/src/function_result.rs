//! The result envelope: what every function that a worker calls by name answers (P03).
//!
//! `{success, error, validation_failure_message, payload}`, as a type. What else a function
//! says passes through.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The envelope as it travels. [`FunctionResult::verdict`] says what it means.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionResult {
    /// Whether the function did what it was asked.
    #[serde(default)]
    pub success: bool,
    /// An operational failure: worth a log line, and another try by whoever schedules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The input is wrong or the end was reached already: trying again cannot help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_failure_message: Option<String>,
    /// Data for the worker: what a before-handler has rendered.
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
    /// Recorded, and not tried again.
    Invalid(String),
    /// Recorded, and tried again.
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

    /// Reads an envelope. Anything that is none is an operational failure of the function.
    pub fn read(answer: Value) -> FunctionResult {
        if !answer.is_object() {
            return FunctionResult::failed(format!("the function answered no result envelope but {answer}"));
        }
        serde_json::from_value(answer)
            .unwrap_or_else(|error| FunctionResult::failed(format!("the result envelope is odd: {error}")))
    }

    /// A validation failure is stronger than an error, and both are stronger than success. An
    /// empty text says nothing, and a failure without a reason is still one.
    pub fn verdict(self) -> Verdict {
        let said = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        match (said(self.validation_failure_message), said(self.error)) {
            (Some(message), _) => Verdict::Invalid(message),
            (None, Some(error)) => Verdict::Failed(error),
            (None, None) if self.success => Verdict::Done(self.payload.filter(|payload| !payload.is_null())),
            (None, None) => Verdict::Failed("the function answered success: false without a reason".into()),
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
            (json!({}), failed("the function answered success: false without a reason")),
            (json!(null), failed("the function answered no result envelope but null")),
            (json!([1]), failed("the function answered no result envelope but [1]")),
        ] {
            assert_eq!(FunctionResult::read(answer.clone()).verdict(), verdict, "{answer}");
        }
        assert!(matches!(FunctionResult::read(json!({"success": "yes"})).verdict(), Verdict::Failed(_)));
    }

    proptest! {
        /// P01: what we do not know passes through.
        #[test]
        fn unknown_fields_survive(name in "x_[a-z]{1,8}", value in any::<i64>(), success in any::<bool>()) {
            let mut answer = json!({"success": success, "payload": {"deep": [value]}});
            answer[&name] = json!({"value": value});
            let read: FunctionResult = serde_json::from_value(answer.clone()).expect("an envelope");
            prop_assert_eq!(serde_json::to_value(read).expect("plain data"), answer);
        }
    }
}
