//! Resend and Twilio against doubles that behave as their documentation says.

use std::time::Duration;

use towpath_message::{Resend, Transport, Twilio};
use towpath_model::message::Outcome;
use towpath_model::redact::Secret;
use towpath_testkit::provider::{Provider, RESEND_KEY, TWILIO_ACCOUNT, TWILIO_SECRET};
use towpath_testkit::proxy::{Direction, FaultProxy};

use crate::{email, sms};

const TIMEOUT: Duration = Duration::from_secs(20);

fn resend(url: &str) -> Resend {
    Resend::new(url, Secret::new(RESEND_KEY), None, TIMEOUT).unwrap()
}

fn twilio(url: &str) -> Twilio {
    Twilio::new(url, TWILIO_ACCOUNT.into(), Secret::new(TWILIO_SECRET), None, TIMEOUT).unwrap()
}

/// P09: an e-mail is accepted by Resend, and asking again under the same key sends nothing more.
#[tokio::test]
async fn resend_takes_an_email_once_per_key() {
    let provider = Provider::start().await;
    let transport = resend(&provider.url());
    let first = transport.send(&email("ann@example.org")).await.unwrap();
    let again = transport.send(&email("ann@example.org")).await.unwrap();
    assert_eq!(first.provider_id, again.provider_id);
    assert_eq!(provider.requests("ann@example.org").len(), 2);
    let delivered = provider.delivered("ann@example.org");
    assert_eq!(delivered.len(), 1);
    assert_eq!(delivered[0].key, "key-of-ann@example.org");
    assert_eq!(delivered[0].body["text"], "It is on its way.");
    // The same key with another content is a mistake of ours, and no retry fixes it.
    let mut other = email("ann@example.org");
    other.subject = "something else".into();
    let not_sent = transport.send(&other).await.unwrap_err();
    assert_eq!(not_sent.outcome, Outcome::Permanent, "{not_sent:?}");
    assert_eq!(not_sent.code.as_deref(), Some("invalid_idempotent_request"));
}

/// P09: each of Resend's errors gets its outcome; a throttled one says when to come back.
#[tokio::test]
async fn resends_answers_decide_the_outcome() {
    let provider = Provider::start().await;
    let transport = resend(&provider.url());
    let throttled = transport.send(&email("once@example.org")).await.unwrap_err();
    assert_eq!((throttled.outcome, throttled.retry_after_seconds), (Outcome::Transient, Some(1.0)));
    assert!(throttled.key_honoured);
    transport.send(&email("once@example.org")).await.unwrap();
    let broken = transport.send(&email("broken@example.org")).await.unwrap_err();
    assert_eq!(broken.outcome, Outcome::Transient, "{broken:?}");
    let never = transport.send(&email("never@example.org")).await.unwrap_err();
    assert_eq!(never.outcome, Outcome::Permanent, "{never:?}");

    let stranger = Resend::new(&provider.url(), Secret::new("re_wrong"), None, TIMEOUT).unwrap();
    let refused = stranger.send(&email("ann@example.org")).await.unwrap_err();
    assert_eq!(refused.outcome, Outcome::Transient, "an operator fixes it: {refused:?}");
    assert!(!refused.message.contains("re_wrong"), "{refused:?}");
}

/// P09: an SMS is accepted by Twilio, with everything where its API wants it.
#[tokio::test]
async fn twilio_takes_an_sms() {
    let provider = Provider::start().await;
    let receipt = twilio(&provider.url()).send(&sms("+31600000001")).await.unwrap();
    assert!(receipt.provider_id.unwrap().starts_with("SM"));
    let delivered = provider.delivered("+31600000001");
    assert_eq!(delivered[0].body["Body"], "1234 is your code & more");
    assert_eq!(delivered[0].body["From"], "+15005550006");
    assert_eq!(delivered[0].key, "key-of-+31600000001");
    let mut service = sms("+31600000002");
    service.from = Some("MG0123".into());
    twilio(&provider.url()).send(&service).await.unwrap();
    assert_eq!(provider.delivered("+31600000002")[0].body["MessagingServiceSid"], "MG0123");
}

/// P08, P09: each of Twilio's errors gets its outcome. A 500 may hide an SMS that was sent, and Twilio promises
/// nothing about keys: uncertain.
#[tokio::test]
async fn twilios_answers_decide_the_outcome() {
    let provider = Provider::start().await;
    let transport = twilio(&provider.url());
    for (to, outcome, code) in [
        ("+31600000429", Outcome::Transient, "20429"),
        ("+31600000503", Outcome::Transient, "20503"),
        ("+31600000500", Outcome::Uncertain, "20500"),
        ("+31600000211", Outcome::Permanent, "21211"),
    ] {
        let not_sent = transport.send(&sms(to)).await.unwrap_err();
        assert_eq!((not_sent.outcome, not_sent.code.as_deref()), (outcome, Some(code)), "{not_sent:?}");
        assert!(!not_sent.key_honoured);
    }
    let stranger =
        Twilio::new(&provider.url(), TWILIO_ACCOUNT.into(), Secret::new("wrong"), None, TIMEOUT).unwrap();
    let refused = stranger.send(&sms("+31600000001")).await.unwrap_err();
    assert_eq!(refused.outcome, Outcome::Transient, "{refused:?}");
}

/// P08: no connection is certain, a lost answer is not; with a key the second try tells.
#[tokio::test]
async fn a_lost_answer_is_uncertain_and_no_connection_is_not() {
    let provider = Provider::start().await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let not_sent = resend(&format!("http://{nobody}")).send(&email("ann@example.org")).await.unwrap_err();
    assert_eq!(not_sent.outcome, Outcome::Transient, "{not_sent:?}");

    let proxy = FaultProxy::start(provider.address()).await;
    let transport = resend(&format!("http://{}", proxy.addr()));
    proxy.cut_after(Direction::ToClient, 0);
    let not_sent = transport.send(&email("ann@example.org")).await.unwrap_err();
    assert_eq!(not_sent.outcome, Outcome::Uncertain, "{not_sent:?}");
    assert!(not_sent.key_honoured);
    transport.send(&email("ann@example.org")).await.unwrap();
    assert_eq!(provider.delivered("ann@example.org").len(), 1, "the key was honoured");
}
