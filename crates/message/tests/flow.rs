//! Source 5's example flow, from kickoff to the last fact, through every transport.

use std::time::Duration;

use towpath_message::Transports;
use towpath_testkit::mail::MailServer;
use towpath_testkit::provider::Provider;
use towpath_worker::testing::run_until_drained;

use crate::messaging::{Messaging, http, smtp};

/// P12: the server refuses the first attempt. Failure, retry, success, terminal; and the mail is in
/// the mailbox once, with the Message-ID that both attempts had. Once per way of TLS.
#[tokio::test]
async fn a_refused_mail_is_sent_again_and_arrives() {
    let server = MailServer::start().await;
    for (address, to) in [(server.smtps(), "once+a@example.org"), (server.smtp(), "once+b@example.org")] {
        let messaging = Messaging::open(smtp(&address, &server)).await;
        let process_id = messaging.email(to).await;
        assert_eq!(
            messaging.facts(process_id).await,
            "started, scheduled 1",
            "kickoff schedules the first attempt"
        );
        assert_eq!(messaging.work().await, 1);
        assert_eq!(messaging.facts(process_id).await, "started, scheduled 1, begun 1, failed 1, scheduled 2");
        assert!(messaging.errors().await[0].starts_with("provider: smtp: transient error (451)"));
        assert_eq!(messaging.work().await, 0, "the second attempt waits for the backoff");
        assert!(server.mailbox(to).is_empty());

        assert_eq!(messaging.work_after(11).await, 1);
        let whole = "started, scheduled 1, begun 1, failed 1, scheduled 2, begun 2, succeeded 2";
        assert_eq!(messaging.facts(process_id).await, whole);
        assert_eq!(messaging.work_after(100_000).await, 0, "nothing follows the terminal fact");
        assert_eq!(messaging.facts(process_id).await, whole);

        let mails = server.mailbox(to);
        assert_eq!((mails.len(), server.asked(to).len()), (1, 2));
        assert!(mails[0].contains(&format!("Message-ID: <{process_id}@example.com>")), "{}", mails[0]);
        let facts = "select comms.count_send_email_task_scheduled(1) || ' ' || comms.count_send_email_task_failures(1)
                         || ' ' || comms.has_send_email_task_succeeded(1)";
        assert_eq!(messaging.queue.db.text(facts).await, "2 1 true", "the facts of comms say the same");
    }
}

/// P09, P12: the same through Resend, which throttles the first attempt and says for how long; both
/// requests carry the same key and the same body.
#[tokio::test]
async fn the_flow_through_resend() {
    let provider = Provider::start().await;
    let messaging = Messaging::open(http(&provider)).await;
    let process_id = messaging.email("once@example.org").await;
    messaging.work().await;
    messaging.work_after(11).await;
    let whole = "started, scheduled 1, begun 1, failed 1, scheduled 2, begun 2, succeeded 2";
    assert_eq!(messaging.facts(process_id).await, whole);
    let requests = provider.requests("once@example.org");
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0], requests[1], "the content is frozen");
    assert_eq!(requests[0].key, process_id.to_string());
    assert_eq!(provider.delivered("once@example.org").len(), 1);
}

/// P09, P12: the same through Twilio.
#[tokio::test]
async fn the_flow_through_twilio() {
    let provider = Provider::start().await;
    let messaging = Messaging::open(http(&provider)).await;
    let process_id = messaging.sms("+31600000429").await;
    messaging.work().await;
    messaging.work_after(11).await;
    let whole = "started, scheduled 1, begun 1, failed 1, scheduled 2, begun 2, succeeded 2";
    assert_eq!(messaging.facts(process_id).await, whole);
    let requests = provider.requests("+31600000429");
    assert!(requests.iter().all(|request| request.key == process_id.to_string()), "{requests:?}");
    assert_eq!(provider.delivered("+31600000429").len(), 1);
}

/// P09: what the provider refuses for good is given up at once, and says why.
#[tokio::test]
async fn a_permanent_refusal_is_not_tried_again() {
    let server = MailServer::start().await;
    let messaging = Messaging::open(smtp(&server.smtps(), &server)).await;
    let process_id = messaging.email("never@example.org").await;
    messaging.work().await;
    messaging.work_after(100).await;
    assert_eq!(messaging.facts(process_id).await, "started, scheduled 1, begun 1, failed 1, gave_up 1");
    assert_eq!(server.asked("never@example.org").len(), 1);
}

/// P08: an SMS that may have been sent is not sent again on a guess: a person is asked, and what
/// they say decides.
#[tokio::test]
async fn an_uncertain_sms_waits_for_a_person() {
    let provider = Provider::start().await;
    let messaging = Messaging::open(http(&provider)).await;
    let process_id = messaging.sms("+31600000500").await;
    messaging.work().await;
    messaging.work_after(1_000).await;
    assert_eq!(messaging.facts(process_id).await, "started, scheduled 1, begun 1, uncertain 1, held 1");
    assert_eq!(provider.requests("+31600000500").len(), 1, "no blind retry");
    let by = towpath_db::Attribution { actor: "ann", reason: "the provider's log shows it" };
    messaging.queue.admin.process_resolve(process_id, "succeeded", by).await.unwrap();
    assert!(messaging.facts(process_id).await.ends_with("held 1, resolved 1, succeeded 1"));
    assert_eq!(messaging.work_after(1_000).await, 0);
}

/// P08: an e-mail that may have been sent is sent again where that is the policy, under the same
/// Message-ID, by which receivers know it.
#[tokio::test]
async fn an_uncertain_mail_is_repeated_under_the_same_id() {
    let server = MailServer::start().await;
    let messaging = Messaging::open(smtp(&server.smtps(), &server)).await;
    let process_id = messaging.email("vanish@example.org").await;
    messaging.work().await;
    messaging.work_after(11).await;
    assert!(messaging.facts(process_id).await.contains("begun 1, uncertain 1, scheduled 2, begun 2"));
    let id = format!("Message-ID: <{process_id}@example.com>");
    let mails = server.mailbox("vanish@example.org");
    assert!(mails.len() == 2 && mails.iter().all(|mail| mail.contains(&id)), "{mails:?}");
}

/// P04: a worker without a transport leaves the tasks for one that has it.
#[tokio::test]
async fn without_a_transport_tasks_wait() {
    let messaging = Messaging::open(Transports::default()).await;
    let process_id = messaging.email("ann@example.org").await;
    assert_eq!(messaging.work().await, 0);
    assert_eq!(messaging.facts(process_id).await, "started, scheduled 1");
    assert_eq!(messaging.worker().kinds(), ["db_function", "process"]);
}

/// P07: closing `process.enabled` stops an attempt that is scheduled and not begun. Nothing is sent and no
/// attempt is counted, of the process or of its job, however often the job asks; an open gate lets it go on.
#[tokio::test]
async fn a_closed_gate_stops_what_has_not_begun() {
    let provider = Provider::start().await;
    let messaging = Messaging::open(http(&provider)).await;
    let process_id = messaging.email("late@example.org").await;
    let gate = |open: bool| format!("towpath.fn_gate_set('process.enabled', {open}, 'tester', 'a test')");
    assert_eq!(messaging.queue.db.json(&gate(false)).await["ok"], true);
    // More often than the job has attempts.
    for _ in 0..5 {
        assert_eq!(run_until_drained(&messaging.worker()).await.unwrap().len(), 1);
        messaging.queue.db.advance(Duration::from_secs(11)).await;
    }
    assert_eq!(messaging.facts(process_id).await, "started, scheduled 1");
    assert!(provider.requests("late@example.org").is_empty());
    assert!(messaging.errors().await.is_empty(), "a closed gate is no error");
    assert_eq!(messaging.queue.db.json(&gate(true)).await["ok"], true);
    messaging.work().await;
    assert_eq!(messaging.facts(process_id).await, "started, scheduled 1, begun 1, succeeded 1");
    assert_eq!(provider.delivered("late@example.org").len(), 1);
}

/// Q22: a message that cannot be prepared fails by itself, visibly; those after it are sent.
#[tokio::test]
async fn a_message_that_cannot_be_prepared_holds_up_no_other() {
    let provider = Provider::start().await;
    let messaging = Messaging::open(http(&provider)).await;
    let bad = messaging.email("bad@example.org").await;
    messaging
        .queue
        .db
        .execute(
            "create function public.planted() returns trigger language plpgsql as \
             $$ begin raise exception 'planted'; end $$; \
             create trigger planted before insert on comms.send_email_task_frozen for each row \
             when (new.send_email_task_id = 1) execute function public.planted()",
        )
        .await;
    let mut good = vec![];
    for n in 0..3 {
        good.push(messaging.email(&format!("good{n}@example.org")).await);
    }
    messaging.work().await;
    for (n, process_id) in good.into_iter().enumerate() {
        assert_eq!(messaging.facts(process_id).await, "started, scheduled 1, begun 1, succeeded 1");
        assert_eq!(provider.delivered(&format!("good{n}@example.org")).len(), 1);
    }
    assert_eq!(messaging.facts(bad).await, "started, scheduled 1, failed 1, scheduled 2");
    assert!(messaging.errors().await[0].contains("planted"), "{:?}", messaging.errors().await);
    messaging.queue.db.execute("drop trigger planted on comms.send_email_task_frozen").await;
    messaging.work_after(11).await;
    assert_eq!(
        messaging.facts(bad).await,
        "started, scheduled 1, failed 1, scheduled 2, begun 2, succeeded 2"
    );
}
