//! Composes a rendered e-mail into a mail.

use lettre::Message;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart, SinglePart};
use towpath_model::message::{Email, message_id};

/// A mail and its Message-ID.
pub(super) struct Composed {
    pub(super) mail: Message,
    pub(super) message_id: String,
}

/// Composes the mail, or returns a permanent error.
pub(super) fn compose(email: &Email, from: Option<&str>) -> Result<Composed, String> {
    let from = email.from.as_deref().or(from);
    let from = mailbox(from.ok_or("the e-mail has no sender; set from, or the setting mail_from")?)?;
    let message_id = message_id(&email.idempotency_key, from.email.domain());
    let mut builder =
        Message::builder().from(from).subject(&email.subject).message_id(Some(message_id.clone()));
    if email.to.is_empty() && email.cc.is_empty() && email.bcc.is_empty() {
        return Err("the e-mail has no recipient".into());
    }
    for to in &email.to {
        builder = builder.to(mailbox(to)?);
    }
    for cc in &email.cc {
        builder = builder.cc(mailbox(cc)?);
    }
    for bcc in &email.bcc {
        builder = builder.bcc(mailbox(bcc)?);
    }
    for reply_to in &email.reply_to {
        builder = builder.reply_to(mailbox(reply_to)?);
    }
    for (name, value) in &email.headers {
        let header =
            HeaderName::new_from_ascii(name.clone()).map_err(|_| format!("invalid header name {name:?}"))?;
        builder = builder.raw_header(HeaderValue::new(header, value.clone()));
    }
    let composed = match (&email.text, &email.html) {
        (Some(text), Some(html)) => {
            builder.multipart(MultiPart::alternative_plain_html(text.clone(), html.clone()))
        }
        (None, Some(html)) => builder.singlepart(SinglePart::html(html.clone())),
        (text, None) => builder.singlepart(SinglePart::plain(text.clone().unwrap_or_default())),
    };
    let mail = composed.map_err(|error| format!("cannot compose the e-mail: {error}"))?;
    Ok(Composed { mail, message_id })
}

fn mailbox(text: &str) -> Result<Mailbox, String> {
    text.parse().map_err(|error| format!("{text:?} is not an e-mail address: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn email() -> Email {
        Email {
            to: vec!["Ann <ann@example.org>".into()],
            subject: "Grüße".into(),
            text: Some("hello".into()),
            idempotency_key: "k1".into(),
            ..Email::default()
        }
    }

    /// P08: every attempt has the same Message-ID, derived from the key.
    #[test]
    fn the_key_makes_the_message_id() {
        let one = compose(&email(), Some("shop@example.com")).map(|composed| composed.message_id);
        assert_eq!(one.as_deref(), Ok("<k1@example.com>"));
    }

    /// A line break in a header would start another header, or the text.
    #[test]
    fn nothing_breaks_out_of_a_header() {
        let mut bad = email();
        bad.subject = "hi\r\nBcc: everyone@example.org".into();
        bad.headers.insert("X-Note".into(), "a\r\nX-Injected: yes".into());
        let mail = compose(&bad, Some("shop@example.com")).map(|composed| composed.mail.formatted());
        let text = String::from_utf8(mail.unwrap_or_default()).unwrap_or_default();
        let heads: Vec<&str> = text.split("\r\n\r\n").next().unwrap_or_default().split("\r\n").collect();
        assert!(
            !heads.iter().any(|line| line.starts_with("Bcc:") || line.starts_with("X-Injected:")),
            "{heads:?}"
        );
        bad.headers.insert("X-Note: y\r\nBcc".into(), "everyone@example.org".into());
        assert!(compose(&bad, Some("shop@example.com")).is_err());
    }

    #[test]
    fn what_cannot_be_sent_says_why() {
        let why = |email: &Email, from| compose(email, from).map(|_| ()).unwrap_err();
        assert!(why(&email(), None).contains("mail_from"));
        let mut bad = email();
        bad.to = vec!["nobody".into()];
        assert!(why(&bad, Some("shop@example.com")).contains("\"nobody\" is not an e-mail address"));
        bad.to = vec![];
        assert_eq!(why(&bad, Some("shop@example.com")), "the e-mail has no recipient");
    }

    #[test]
    fn a_blind_copy_is_in_the_envelope_only() {
        let mut blind = email();
        blind.bcc = vec!["boss@example.org".into()];
        let mail =
            compose(&blind, Some("shop@example.com")).map(|composed| composed.mail).expect("it composes");
        assert_eq!(mail.envelope().to().len(), 2);
        assert!(!String::from_utf8_lossy(&mail.formatted()).contains("boss@"));
    }
}
