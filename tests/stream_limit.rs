//! The limits of streams: the settings, and the answers to clients that exceed them.

use std::time::Duration;

use reqwest::Method;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use towpath_testkit::victim::Victim;

use crate::towpath::Place;

/// S06: every limit has a setting that works and an answer that names it: 413, 429, 503. The fourth, 507, is
/// in `stream_disk`.
#[tokio::test]
async fn every_setting_has_its_answer() {
    let place = Place::new();
    let mut command = place.command(&["serve", "--stream-body-bytes-max", "1000", "--stream-count-max", "2"]);
    command.args(["--stream-readers-max", "1", "--stream-page-bytes-max", "1024", "--connections-max", "8"]);
    let mut server = Victim::spawn(command);
    server.wait_for_line("ready at").await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = |method: Method, path: &str, body: String| {
        let url = format!("http://127.0.0.1:{}/v1/shop/stream/{path}", place.port);
        http.request(method, url).header("content-type", "text/plain").body(body).send()
    };
    let said = async |method: Method, path: &str, body: &str| {
        let answer = ask(method, path, body.to_owned()).await.unwrap();
        let retry = answer.headers().contains_key("retry-after");
        (answer.status().as_u16(), retry, answer.text().await.unwrap())
    };
    assert_eq!(said(Method::PUT, "a", "").await.0, 201);
    let (status, retry, words) = said(Method::POST, "a", &"x".repeat(1001)).await;
    assert!(status == 413 && !retry && words.contains("1000"), "{status} {words}");
    for part in ["x", "y", "z"] {
        assert_eq!(said(Method::POST, "a", &part.repeat(900)).await.0, 204);
    }
    let page = said(Method::GET, "a?offset=-1", "").await.2;
    assert!((900..2700).contains(&page.len()), "a page ends early: {}", page.len());

    assert_eq!(said(Method::PUT, "b", "").await.0, 201);
    let (status, retry, words) = said(Method::PUT, "c", "").await;
    assert!(status == 429 && retry && words.contains('2'), "{status} {words}");

    let reader = ask(Method::GET, "a?offset=now&live=sse", String::new()).await.unwrap();
    assert_eq!(reader.status(), 200);
    let (status, retry, words) = said(Method::GET, "a?offset=now&live=sse", "").await;
    assert!(status == 429 && retry && words.contains('1'), "{status} {words}");

    let refused = crowd(&place).await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after"), "{refused}");
    assert!(refused.contains("too many connections"), "{refused}");
    server.terminate();
    server.wait_exit().await;
}

/// Opens connections until one is refused, and returns the response to it.
async fn crowd(place: &Place) -> String {
    let mut held = vec![];
    loop {
        assert!(held.len() < 100, "{} connections are open", held.len());
        let mut one = TcpStream::connect(("127.0.0.1", place.port)).await.unwrap();
        let mut answer = String::new();
        // One that is let in gets nothing until it asks.
        match tokio::time::timeout(Duration::from_millis(200), one.read_to_string(&mut answer)).await {
            Ok(_) => return answer,
            Err(_) => held.push(one),
        }
    }
}
