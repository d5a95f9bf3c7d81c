//! SMTP against a real server, with TLS both ways.

use std::path::Path;
use std::time::Duration;

use towpath_message::{Receipt, Smtp, Transport};
use towpath_model::message::{NotSent, Outcome};
use towpath_testkit::mail::MailServer;
use towpath_testkit::proxy::{Direction, FaultProxy};

use crate::email;

const TIMEOUT: Duration = Duration::from_secs(20);

fn smtp(url: &str, ca: Option<&Path>) -> Smtp {
    Smtp::new(url, ca, None, TIMEOUT).unwrap()
}

async fn send(smtp: &Smtp, to: &str) -> Result<Receipt, NotSent> {
    smtp.send(&email(to)).await
}

/// P09: a mail arrives over implicit TLS and over STARTTLS, as the user of the address, and says
/// in its Message-ID which send it is.
#[tokio::test]
async fn a_mail_arrives_by_tls_both_ways() {
    let server = MailServer::start().await;
    for (address, to) in [(server.smtps(), "implicit@example.org"), (server.smtp(), "starttls@example.org")] {
        let transport = smtp(&address, Some(&server.ca()));
        let receipt = send(&transport, to).await.unwrap();
        assert!(receipt.response.starts_with("250 "), "{receipt:?}");
        let mails = server.mailbox(to);
        assert_eq!(mails.len(), 1);
        let id = format!("Message-ID: <key-of-{}@example.com>", to.replace('@', "%40").replace('.', "%2E"));
        assert!(mails[0].contains(&id), "{id} is not in {}", mails[0]);
        assert!(mails[0].contains("It is on its way."));
        let asked = server.asked(to);
        assert_eq!((&asked[0]["secure"], &asked[0]["user"]), (&true.into(), &"towpath".into()));
    }
}

/// P09: a certificate by nobody we believe, a server without STARTTLS and a wrong password send
/// nothing, and none of it is the mail's fault.
#[tokio::test]
async fn a_line_that_is_not_safe_carries_nothing() {
    let server = MailServer::start().await;
    let wrong = format!("smtps://towpath:wrong@localhost:{}", server.implicit);
    let bare = format!("smtp://localhost:{}", server.plain);
    for (address, ca, words) in [
        (server.smtps(), None, "certificate"),
        (server.smtp(), None, "certificate"),
        (bare, Some(server.ca()), "STARTTLS"),
        (wrong, Some(server.ca()), "535"),
    ] {
        let not_sent = send(&smtp(&address, ca.as_deref()), "anybody@example.org").await.unwrap_err();
        assert_eq!(not_sent.outcome, Outcome::Transient, "{not_sent:?}");
        assert!(not_sent.message.contains(words), "{words}: {not_sent:?}");
        assert!(!not_sent.message.contains("wrong@"), "no password is repeated: {not_sent:?}");
    }
    assert!(server.mailbox("anybody@example.org").is_empty());
}

/// P09: the four outcomes, each from what a real server does.
#[tokio::test]
async fn what_the_server_does_decides_the_outcome() {
    let server = MailServer::start().await;
    let transport = smtp(&server.smtps(), Some(&server.ca()));
    for (to, outcome, code) in [
        ("never@example.org", Outcome::Permanent, Some("550")),
        ("full@example.org", Outcome::Permanent, Some("552")),
        ("busy@example.org", Outcome::Transient, Some("451")),
        ("once@example.org", Outcome::Transient, Some("451")),
        ("hangup@example.org", Outcome::Transient, None),
        ("vanish@example.org", Outcome::Uncertain, None),
    ] {
        let not_sent = send(&transport, to).await.unwrap_err();
        assert_eq!((not_sent.outcome, not_sent.code.as_deref()), (outcome, code), "{to}: {not_sent:?}");
        assert_eq!((not_sent.transport.as_str(), not_sent.key_honoured), ("smtp", false));
    }
    send(&transport, "once@example.org").await.unwrap();
    assert_eq!(server.mailbox("once@example.org").len(), 1);
    assert_eq!(server.mailbox("vanish@example.org").len(), 1, "it did arrive: that is what uncertain means");
    assert!(server.mailbox("busy@example.org").is_empty());
}

/// P08: a server that takes the mail and never answers leaves us uncertain, within the time limit;
/// one that does not even greet leaves us certain that nothing was sent.
#[tokio::test]
async fn silence_after_the_data_is_uncertain_and_before_it_is_not() {
    let server = MailServer::start().await;
    let short = |url: &str| Smtp::new(url, Some(&server.ca()), None, Duration::from_secs(2)).unwrap();
    let not_sent = send(&short(&server.smtps()), "silent@example.org").await.unwrap_err();
    assert_eq!(not_sent.outcome, Outcome::Uncertain, "{not_sent:?}");
    assert_eq!(server.mailbox("silent@example.org").len(), 1);

    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("smtp://{}?tls=none", deaf.local_addr().unwrap());
    let not_sent = send(&short(&address), "anybody@example.org").await.unwrap_err();
    assert_eq!(not_sent.outcome, Outcome::Transient, "{not_sent:?}");
}

/// Connections are used again, and one that died while idle costs nothing but a new one.
#[tokio::test]
async fn connections_are_pooled_and_a_dead_one_is_replaced() {
    let server = MailServer::start().await;
    let upstream: std::net::SocketAddr = format!("127.0.0.1:{}", server.plain).parse().unwrap();
    let proxy = FaultProxy::start(upstream).await;
    let transport = smtp(&format!("smtp://{}?tls=none", proxy.addr()), None);
    for _ in 0..5 {
        send(&transport, "pool@example.org").await.unwrap();
    }
    assert_eq!(proxy.arrivals(), 1, "five mails, one connection");
    proxy.cut();
    proxy.wait_connections(0).await;
    send(&transport, "pool@example.org").await.unwrap();
    assert_eq!(proxy.arrivals(), 2);
    assert_eq!(server.mailbox("pool@example.org").len(), 6);
}

/// P08: the answer to the data gets lost on the way. The mail is there, and we know that we do
/// not know.
#[tokio::test]
async fn a_lost_answer_is_uncertain() {
    let server = MailServer::start().await;
    let upstream: std::net::SocketAddr = format!("127.0.0.1:{}", server.plain).parse().unwrap();
    let proxy = FaultProxy::start(upstream).await;
    let transport = smtp(&format!("smtp://{}?tls=none", proxy.addr()), None);
    send(&transport, "measure@example.org").await.unwrap();
    // The same dialogue again, cut inside the last answer: all of it but "50 taken\r\n".
    let before = proxy.passed(Direction::ToClient);
    send(&transport, "measure@example.org").await.unwrap();
    let dialogue = proxy.passed(Direction::ToClient) - before;
    proxy.cut_after(Direction::ToClient, dialogue - "50 taken\r\n".len() as u64);
    let not_sent = send(&transport, "measure@example.org").await.unwrap_err();
    assert_eq!(not_sent.outcome, Outcome::Uncertain, "{not_sent:?}");
    assert_eq!(server.until_mails("measure@example.org", 3).await.len(), 3);
}
