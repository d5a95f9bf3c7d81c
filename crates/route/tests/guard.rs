//! Where webhooks must not go (E08).

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use towpath_db::event::FailureClass;
use towpath_route::webhook::{Client, Found, Lookup, Reach, Report, Request, send_once};
use towpath_testkit::receiver::Receiver;

/// A key of the right form; nobody verifies it here.
const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

async fn send(client: &Client, url: &str) -> Report {
    let (headers, keys) = (BTreeMap::new(), [KEY.to_owned()]);
    let request = Request {
        url,
        webhook_id: "wh_test",
        headers: &headers,
        timeout: Duration::from_secs(20),
        body: "{}",
        signing_keys: &keys,
        generation: 0,
    };
    send_once(client, &request).await
}

/// A client that looks names up in a script.
fn guarded(reach: Reach, script: &Arc<Script>) -> Client {
    Client::with_lookup(reach, &(script.clone() as Arc<dyn Lookup>)).unwrap()
}

/// Answers one list of addresses after the other; the last one again and again.
struct Script {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    looks: AtomicUsize,
}

impl Script {
    fn new(answers: &[&[&str]]) -> Arc<Script> {
        let read = |list: &&[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
        Arc::new(Script {
            answers: Mutex::new(answers.iter().map(read).collect()),
            looks: AtomicUsize::new(0),
        })
    }
}

impl Lookup for Script {
    fn lookup(&self, _name: &str) -> Found {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        Box::pin(async move { io::Result::Ok(answer) })
    }
}

/// E08: every way to write an address that is not public, and every scheme but https, is
/// refused before a connection is opened.
#[tokio::test]
async fn no_form_of_a_private_address_is_connected_to() {
    let client = Client::new(Reach::default()).unwrap();
    let forms = [
        // This machine, however it is written.
        "https://127.0.0.1/",
        "https://127.1/",
        "https://127.0.1/",
        "https://127.255.255.254/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.0.0.1/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://017700000001/",
        "https://127.0.0.1./",
        "https://127.0.0.1:8443/",
        "https://%31%32%37.0.0.1/",
        "https://１２７.0.0.1/",
        "https://①②⑦.⓪.⓪.①/",
        "https://localhost/",
        "https://LOCALHOST/",
        "https://0.0.0.0/",
        "https://0/",
        "https://0x0/",
        "https://0.1.2.3/",
        // Private networks.
        "https://10.0.0.1/",
        "https://10.255.255.255/",
        "https://167772161/",
        "https://0x0a000001/",
        "https://012.0.0.1/",
        "https://172.16.0.1/",
        "https://172.31.255.255/",
        "https://192.168.0.1/",
        "https://3232235777/",
        "https://0xC0A80101/",
        "https://0300.0250.1.1/",
        "https://192.168.257/",
        // Networks with a meaning of their own.
        "https://100.64.0.1/",
        "https://100.127.255.255/",
        "https://169.254.169.254/latest/meta-data/",
        "https://2852039166/",
        "https://0xa9fea9fe/",
        "https://169.254.170.2/",
        "https://192.0.0.1/",
        "https://192.0.2.1/",
        "https://192.88.99.1/",
        "https://198.18.0.1/",
        "https://198.19.255.255/",
        "https://198.51.100.1/",
        "https://203.0.113.1/",
        "https://224.0.0.1/",
        "https://239.255.255.255/",
        "https://240.0.0.1/",
        "https://255.255.255.255/",
        // IPv6, and IPv4 inside of it.
        "https://[::]/",
        "https://[::1]/",
        "https://[0:0:0:0:0:0:0:1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:7f00:1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[::ffff:169.254.169.254]/",
        "https://[::ffff:0:127.0.0.1]/",
        "https://[::127.0.0.1]/",
        "https://[64:ff9b::127.0.0.1]/",
        "https://[64:ff9b::a00:1]/",
        "https://[64:ff9b:1::a00:1]/",
        "https://[2002:7f00:1::]/",
        "https://[2002:a00:1::1]/",
        "https://[2002:c0a8:101::1]/",
        "https://[2001:0:7f00:1::]/",
        "https://[2001:2::1]/",
        "https://[2001:10::1]/",
        "https://[2001:20::1]/",
        "https://[2001:db8::1]/",
        "https://[3fff::1]/",
        "https://[fc00::1]/",
        "https://[fd00:ec2::254]/",
        "https://[fe80::1]/",
        "https://[fec0::1]/",
        "https://[ff02::1]/",
        "https://[100::1]/",
        "https://[5f00::1]/",
        // Not https.
        "http://1.1.1.1/",
        "http://example.com/",
        "ftp://1.1.1.1/",
        "file:///etc/passwd",
        "gopher://1.1.1.1/",
    ];
    assert!(forms.len() >= 60, "{}", forms.len());
    for url in forms {
        let failure = send(&client, url).await.failure.expect(url);
        assert_eq!(failure.class, FailureClass::Forbidden, "{url}: {failure:?}");
    }
    for url in ["https://user:word@1.1.1.1/", "https:///", "https://[::1", "nonsense", ""] {
        let failure = send(&client, url).await.failure.expect(url);
        assert_eq!(failure.class, FailureClass::Setup, "{url}: {failure:?}");
    }
}

/// E08: a name is as good as its addresses, whatever it is called.
#[tokio::test]
async fn names_that_lead_inside_are_refused() {
    for address in
        ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fd00::1", "64:ff9b::a00:1"]
    {
        let client = guarded(Reach::default(), &Script::new(&[&[address]]));
        let failure = send(&client, "https://innocent.example/").await.failure.unwrap();
        assert_eq!(failure.class, FailureClass::Forbidden, "{address}: {failure:?}");
    }
}

/// E08: a name that was fine at the first look-up and leads inside at the second is refused at
/// the second: the address that is checked is the one that is connected to.
#[tokio::test]
async fn a_name_that_changes_its_mind_is_refused() {
    let close = |_: usize, _: &_| ([("connection", "close")], StatusCode::OK).into_response();
    // Stands for the public receiver: its network is allowed, the other's is not.
    let allowed = Receiver::at("127.0.0.2:0".parse().unwrap(), close).await;
    let inside = Receiver::at(([127, 0, 0, 1], allowed.address.port()).into(), close).await;
    let reach = Reach { local: false, networks: vec!["127.0.0.2/32".parse().unwrap()] };
    let script = Script::new(&[&["127.0.0.2"], &["127.0.0.1"]]);
    let client = guarded(reach, &script);
    let url = format!("http://rebinding.example:{}/", allowed.address.port());
    let first = send(&client, &url).await;
    assert_eq!(first.failure, None);
    assert_eq!(
        first.outcome.address,
        Some(allowed.address.to_string()),
        "the address it connected to is reported"
    );
    let second = send(&client, &url).await;
    assert_eq!(second.failure.unwrap().class, FailureClass::Forbidden);
    assert_eq!(script.looks.load(Ordering::Relaxed), 2);
    assert_eq!((allowed.arrived().len(), inside.arrived().len()), (1, 0));
}

/// E08: of a name with several addresses only the allowed ones are used.
#[tokio::test]
async fn only_the_allowed_addresses_of_a_name_are_used() {
    let ok = |_: usize, _: &_| StatusCode::OK.into_response();
    let allowed = Receiver::at("127.0.0.2:0".parse().unwrap(), ok).await;
    let inside = Receiver::at(([127, 0, 0, 1], allowed.address.port()).into(), ok).await;
    let reach = Reach { local: false, networks: vec!["127.0.0.2/32".parse().unwrap()] };
    let script = Script::new(&[&["127.0.0.1", "127.0.0.2", "::1"]]);
    let client = guarded(reach, &script);
    let report = send(&client, &format!("http://both.example:{}/", allowed.address.port())).await;
    assert_eq!(report.failure, None);
    assert_eq!((allowed.arrived().len(), inside.arrived().len()), (1, 0));
}

/// E08: redirects are not followed, wherever they lead.
#[tokio::test]
async fn redirects_are_not_followed() {
    let inside = Receiver::content().await;
    for status in [301, 302, 303, 307, 308] {
        let location = inside.url();
        let answer = move |_: usize, _: &_| {
            (StatusCode::from_u16(status).unwrap(), [("location", location.clone())]).into_response()
        };
        let outside = Receiver::new(answer).await;
        let client = Client::new(Reach { local: true, networks: vec![] }).unwrap();
        let report = send(&client, &outside.url()).await;
        assert_eq!(report.outcome.status_code, Some(status.into()));
        assert!(report.failure.unwrap().error.contains("redirects are not followed"));
    }
    assert_eq!(inside.arrived().len(), 0);
}

/// Development opens this machine and nothing else.
#[tokio::test]
async fn development_opens_this_machine_and_nothing_else() {
    let receiver = Receiver::content().await;
    let client = Client::new(Reach { local: true, networks: vec![] }).unwrap();
    assert_eq!(send(&client, &receiver.url()).await.failure, None);
    for url in ["http://10.0.0.1/", "http://169.254.169.254/", "http://1.1.1.1/", "https://192.168.1.1/"] {
        let failure = send(&client, url).await.failure.unwrap();
        assert_eq!(failure.class, FailureClass::Forbidden, "{url}: {failure:?}");
    }
}

/// E08: each failure of a connection has its own code, because the database treats them differently.
#[tokio::test]
async fn each_failure_of_a_connection_has_its_code() {
    let client = Client::new(Reach { local: true, networks: vec![] }).unwrap();
    let plain = Receiver::content().await;
    let tls = send(&client, &plain.url().replace("http:", "https:")).await.failure.unwrap();
    assert_eq!(tls.class, FailureClass::Tls, "{tls:?}");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = send(&client, &format!("http://127.0.0.1:{port}/")).await.failure.unwrap();
    assert_eq!(refused.class, FailureClass::Connect, "{refused:?}");
    // Accepts and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (headers, keys) = (BTreeMap::new(), [KEY.to_owned()]);
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let request = Request {
        url: &url,
        webhook_id: "wh_test",
        headers: &headers,
        timeout: Duration::from_millis(200),
        body: "{}",
        signing_keys: &keys,
        generation: 0,
    };
    let slow = send_once(&client, &request).await.failure.unwrap();
    assert_eq!(slow.class, FailureClass::Timeout, "{slow:?}");
}

/// An answer without end is not read to its end, and what is kept of it fits into the database.
#[tokio::test]
async fn an_endless_answer_is_cut() {
    let answer = |_: usize, _: &_| (StatusCode::OK, "x\0é".repeat(1 << 20)).into_response();
    let receiver = Receiver::new(answer).await;
    let client = Client::new(Reach { local: true, networks: vec![] }).unwrap();
    let report = send(&client, &receiver.url()).await;
    let kept = report.outcome.answer.unwrap();
    assert_eq!(kept.chars().count(), 2_000);
    assert!(!kept.contains('\0'), "PostgreSQL cannot keep it");
}
