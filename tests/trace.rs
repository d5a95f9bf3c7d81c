//! Traces: from a request through enqueue to each run, as a collector gets them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use towpath_testkit::victim::Victim;
use towpath_testkit::wait::until_some;

use crate::towpath::Place;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// A collector: takes spans by OTLP over HTTP and keeps them.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    async fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans: Arc<Mutex<Vec<Span>>> = Arc::default();
        let kept = spans.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(take(BufReader::new(stream), kept.clone()));
            }
        });
        Collector { url, spans }
    }

    /// Waits for a span of this name about a job.
    async fn span(&self, name: &str, job_id: &str) -> Span {
        let about = |span: &Span| attributes(span).get("towpath.job.id").is_some_and(|id| id == job_id);
        self.until(name, |span| span.name == name && about(span)).await
    }

    /// Waits for a span.
    async fn until(&self, what: &str, right: impl Fn(&Span) -> bool) -> Span {
        let find = async || self.spans.lock().unwrap().iter().find(|span| right(span)).cloned();
        until_some(format!("a span {what}"), find).await
    }
}

/// Requests of one connection, until it ends.
async fn take(mut stream: BufReader<tokio::net::TcpStream>, spans: Arc<Mutex<Vec<Span>>>) {
    loop {
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let batch = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        let of_all = batch.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        spans.lock().unwrap().extend(of_all.flat_map(|scope| scope.spans));
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

fn attributes(span: &Span) -> HashMap<String, String> {
    let read = |value: &any_value::Value| match value {
        any_value::Value::StringValue(text) => text.clone(),
        any_value::Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let pairs = span
        .attributes
        .iter()
        .filter_map(|pair| Some((pair.key.clone(), read(pair.value.as_ref()?.value.as_ref()?))));
    pairs.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// O05: one trace leads from the request of a client through the enqueue to each run of the job, and
/// an external executor gets it too.
#[tokio::test]
async fn a_trace_leads_from_the_request_to_the_run() {
    let (collector, place) = (Collector::start().await, Place::new());
    let mut command = place.command(&["up", "--dev"]);
    command.env("TOWPATH_OTLP_ENDPOINT", &collector.url).env("OTEL_BSP_SCHEDULE_DELAY", "50");
    let mut up = Victim::spawn(command);
    up.wait_for_line("towpath is ready").await;
    place.ok(&["executor", "add", "py", "--executor", "external_worker", "--job-kind", "resize", "--enable"]);
    place.ok(&["executor", "grant", "add", "executor:py", "--executor", "PG_worker"]);
    let token = place.ok(&["--json", "executor", "token", "create", "py", "--may-enqueue"]);
    let token: Value = serde_json::from_str(&token).unwrap();
    let post = async |verb: &str, body: Value| {
        let request = reqwest::Client::new()
            .post(format!("http://127.0.0.1:{}/api/v1/jobs/{verb}", place.port))
            .bearer_auth(token["token"].as_str().unwrap())
            .header("traceparent", format!("00-{TRACE}-{SPAN}-01"));
        let answer = request.body(body.to_string()).send().await.unwrap();
        let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
        assert!(status < 300, "{verb}: {status} {text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };

    for (kind, outcome) in [("towpath.noop", "succeeded"), ("towpath.fail", "failed")] {
        let job = json!({ "job_kind": kind, "executor": "PG_worker", "max_attempts": 1 });
        let enqueued = post("enqueue", job).await;
        let id = enqueued["job_id"].as_str().unwrap();
        let run = collector.span(&format!("run {kind}"), id).await;
        let enqueue = collector.span(&format!("enqueue {kind}"), id).await;
        let request = collector.until("of the request", |span| span.span_id == enqueue.parent_span_id).await;
        assert_eq!((request.name.as_str(), hex(&request.parent_span_id).as_str()), ("jobs_enqueue", SPAN));
        assert_eq!(run.parent_span_id, enqueue.span_id, "the run is a child of the enqueue");
        for span in [&request, &enqueue, &run] {
            assert_eq!(hex(&span.trace_id), TRACE, "{}", span.name);
        }
        let about = attributes(&run);
        assert_eq!((about["towpath.job.kind"].as_str(), about["towpath.job.attempt"].as_str()), (kind, "1"));
        assert_eq!(about["towpath.job.outcome"], outcome);
        assert_eq!(run.status.as_ref().is_some_and(|status| status.code == 2), outcome == "failed");
        assert!(place.ok(&["job", "show", id]).contains(&format!("trace        {TRACE}")));
    }

    let elsewhere = post("enqueue_many", json!({ "jobs": [{ "job_kind": "resize" }] })).await;
    let claimed = post("claim", json!({ "kinds": ["resize"] })).await;
    let job = &claimed["jobs"][0];
    assert_eq!(job["job_id"], elsewhere["jobs"][0]["job_id"]);
    assert!(job["traceparent"].as_str().unwrap().starts_with(&format!("00-{TRACE}-")), "{job}");
    up.terminate();
    up.wait_exit().await;
}
