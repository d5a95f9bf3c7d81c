//! Transports and task types against a real mail server, a real PostgreSQL, and doubles of the
//! HTTP providers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod flow;
mod http;
mod messaging;
mod smtp;
mod task;

use towpath_model::message::{Email, Sms};

fn email(to: &str) -> Email {
    Email {
        from: Some("shop@example.com".into()),
        to: vec![to.into()],
        subject: "Your order".into(),
        text: Some("It is on its way.".into()),
        idempotency_key: format!("key-of-{to}"),
        ..Email::default()
    }
}

fn sms(to: &str) -> Sms {
    Sms {
        from: Some("+15005550006".into()),
        to: to.into(),
        text: "1234 is your code & more".into(),
        idempotency_key: format!("key-of-{to}"),
    }
}
