//! S09: what is stored never runs as a page of the dashboard, and no other page reaches this machine by a name of
//! its own.

use reqwest::Method;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::server::{Server, header};

/// What the server says to a request, in lower case.
async fn raw(server: &Server, request: &str) -> String {
    let mut connection = BufReader::new(TcpStream::connect(server.address).await.unwrap());
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n") {
        let read = connection.read_line(&mut answer).await.unwrap();
        assert_ne!(read, 0, "{request}: it hung up after {answer:?}");
    }
    answer = answer.to_lowercase();
    let length = answer.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
    if let Some(length) = length.filter(|_| !request.starts_with("HEAD ")) {
        let mut body = vec![0; length];
        connection.read_exact(&mut body).await.unwrap();
        answer.push_str(&String::from_utf8_lossy(&body));
    }
    answer
}

/// A request by our own loop, and by hyper, which serves requests that ask to close the connection.
fn both_ways(method: &str, path: &str, host: &str, more: &str) -> [String; 2] {
    ["", "connection: close\r\n"].map(|close| {
        format!("{method} {path} HTTP/1.1\r\n{host}{close}content-type: text/html\r\n{more}content-length: 2\r\n\r\nhi")
    })
}

/// S09: every answer below `/v1` forbids scripts and guessing, whatever was asked, whichever loop answers.
#[tokio::test]
async fn nothing_that_is_stored_runs() {
    let server = Server::start().await;
    for (method, path, status) in [
        ("PUT", "/v1/stream/page", "201"),
        ("POST", "/v1/stream/page", "204"),
        ("GET", "/v1/stream/page", "200"),
        ("GET", "/v1/stream/page?offset=-1&live=long-poll", "200"),
        ("HEAD", "/v1/stream/page", "200"),
        ("OPTIONS", "/v1/stream/page", "204"),
        ("POST", "/v1/stream/missing", "404"),
        ("GET", "/v1/stream/missing", "404"),
        ("BREW", "/v1/stream/page", "405"),
        ("GET", "/v1/stream/page?offset=nonsense", "400"),
        ("GET", "/v1/default/streams", "200"),
        ("GET", "/v1/nothing", "404"),
        ("GET", "/v1/stream/__ds/jwks.json", "400"),
        ("GET", "/health", "200"),
    ] {
        for request in both_ways(method, path, "host: localhost\r\n", "") {
            let answer = raw(&server, &request).await;
            let status = if answer.starts_with("http/1.1 200") && method == "PUT" { "200" } else { status };
            assert!(answer.starts_with(&format!("http/1.1 {status}")), "{request}: {answer}");
            for field in
                ["\r\ncontent-security-policy: sandbox\r\n", "\r\nx-content-type-options: nosniff\r\n"]
            {
                assert_eq!(answer.matches(field).count(), 1, "{request}: {answer}");
            }
        }
    }
    let live = server.get("/v1/stream/page?offset=-1&live=sse").await;
    assert_eq!(header(&live, "content-security-policy"), "sandbox");
    drop(live);
    server.stop().await;
}

/// S09: a page that makes its own name mean this machine gets nothing, from streams or anything else.
#[tokio::test]
async fn another_name_is_not_answered() {
    let server = Server::start().await;
    assert_eq!(server.put("/v1/stream/a", "text/plain", "one").await.status(), 201);
    for path in [
        "/v1/stream/a",
        "/v1/stream/a?offset=-1&live=sse",
        "/health",
        "/metrics",
        "/ui",
        "/admin/v1/projects",
    ] {
        for host in ["host: evil.example\r\n", "host: localhost\r\nhost: evil.example\r\n", ""] {
            for method in ["GET", "POST", "DELETE"] {
                for request in both_ways(method, path, host, "") {
                    let answer = raw(&server, &request).await;
                    let refused = ["http/1.1 421", "http/1.1 400"].iter().any(|it| answer.starts_with(it));
                    assert!(refused, "{request}: {answer}");
                    assert!(!answer.contains("one"), "{request}: {answer}");
                }
            }
        }
    }
    let absolute = "GET http://evil.example/health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert!(raw(&server, absolute).await.starts_with("http/1.1 421"));
    assert_eq!(server.get("/v1/stream/a").await.text().await.unwrap(), "one", "nothing was deleted");
    server.stop().await;
}

/// S09: HTTP/2 says the name in another place.
#[tokio::test]
async fn another_name_is_not_answered_over_http2() {
    let server = Server::start().await;
    let address = server.address;
    let client = reqwest::Client::builder()
        .no_proxy()
        .http2_prior_knowledge()
        .resolve("evil.example", address)
        .build()
        .unwrap();
    let status = async |host: &str| {
        let url = format!("http://{host}:{}/v1/stream/a", address.port());
        client.request(Method::GET, url).send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("evil.example").await, 421);
    assert_eq!(status("127.0.0.1").await, 404);
    drop(client);
    server.stop().await;
}
