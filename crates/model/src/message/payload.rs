//! What a before-handler renders: one e-mail or one SMS.
//!
//! Unknown fields are ignored: a before-handler may add more.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// An e-mail for a transport.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Email {
    /// The sender; none means the transport's default.
    #[serde(default)]
    pub from: Option<String>,
    /// Recipients: one address or a list.
    #[serde(deserialize_with = "one_or_many")]
    pub to: Vec<String>,
    /// Recipients of a copy.
    #[serde(default, deserialize_with = "none_one_or_many")]
    pub cc: Vec<String>,
    /// Recipients of a blind copy.
    #[serde(default, deserialize_with = "none_one_or_many")]
    pub bcc: Vec<String>,
    /// Reply-To addresses.
    #[serde(default, deserialize_with = "none_one_or_many")]
    pub reply_to: Vec<String>,
    /// The subject.
    pub subject: String,
    /// The plain text.
    #[serde(default)]
    pub text: Option<String>,
    /// The HTML text.
    #[serde(default)]
    pub html: Option<String>,
    /// Further headers.
    #[serde(default, deserialize_with = "none_is_default")]
    pub headers: BTreeMap<String, String>,
    /// Identifies the logical send: the same for every attempt.
    pub idempotency_key: String,
}

/// An SMS for a transport.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sms {
    /// The sender; none means the transport's default.
    #[serde(default)]
    pub from: Option<String>,
    /// The recipient's number.
    pub to: String,
    /// The text.
    pub text: String,
    /// Identifies the logical send: the same for every attempt.
    pub idempotency_key: String,
}

/// The Message-ID of a logical send: equal keys give equal ids, different keys different ones. Mail clients show a
/// mail with a known id once.
///
/// Letters, digits, `-` and `_` of the key stay; the rest is escaped, because an id is a
/// dot-atom.
pub fn message_id(key: &str, domain: &str) -> String {
    let mut id = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => id.push(char::from(byte)),
            other => id.push_str(&format!("%{other:02X}")),
        }
    }
    format!("<{id}@{domain}>")
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrMany> for Vec<String> {
    fn from(one_or_many: OneOrMany) -> Vec<String> {
        match one_or_many {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        }
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    OneOrMany::deserialize(deserializer).map(Vec::from)
}

fn none_one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Option::<OneOrMany>::deserialize(deserializer).map(|some| some.map(Vec::from).unwrap_or_default())
}

fn none_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// P01: a before-handler may omit fields, set them to null, and add more.
    #[test]
    fn a_rendered_mail_is_read_with_what_is_left_out_and_what_is_extra() {
        let email: Email = serde_json::from_value(json!({
            "to": "a@example.org", "cc": null, "headers": null, "subject": "hello", "text": "hi",
            "idempotency_key": "k", "from": null, "tracking": {"campaign": 7}
        }))
        .expect("it is a mail");
        assert_eq!((email.to, email.cc, email.html), (vec!["a@example.org".to_owned()], vec![], None));
        let sms: Sms =
            serde_json::from_value(json!({"to": "+31600000000", "text": "hi", "idempotency_key": "k"}))
                .expect("it is an sms");
        assert_eq!(sms.from, None);
        assert!(
            serde_json::from_value::<Email>(json!({"subject": "no one", "idempotency_key": "k"})).is_err()
        );
    }

    proptest! {
        #[test]
        fn different_keys_have_different_ids(one in ".{1,40}", other in ".{1,40}") {
            let id = |key: &str| message_id(key, "example.org");
            prop_assert_eq!(one == other, id(&one) == id(&other));
            let local = id(&one);
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_%<>@.".contains(c);
            prop_assert!(local.chars().all(plain), "{}", local);
        }
    }
}
