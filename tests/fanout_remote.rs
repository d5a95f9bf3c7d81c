//! F03 to F06 with sessions on the official Durable Streams server, from its package: outage,
//! kill and recovery; everything late, nothing missing, nothing twice.

use std::path::PathBuf;
use std::process::Command;

use reqwest::{Client, Method};
use serde_json::{Value, json};
use towpath_testkit::proxy::{Fault, FaultProxy};
use towpath_testkit::victim::Victim;
use towpath_testkit::wait::until_true;

use crate::towpath::Place;

const VERSION: &str = "0.3.7";
const PROGRAM: &str = r#"
import { DurableStreamTestServer } from "@durable-streams/server"
const server = new DurableStreamTestServer({ port: Number(process.argv[2]), host: "127.0.0.1" })
await server.start()
console.log("official server is ready")
"#;

/// The official server, fetched once per machine into the temporary directory.
fn official() -> PathBuf {
    let directory = std::env::temp_dir().join(format!("towpath-durable-streams-{VERSION}"));
    let done = directory.join("complete");
    if !done.exists() {
        std::fs::create_dir_all(&directory).unwrap();
        let mut npm = Command::new("npm");
        npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]).arg(&directory);
        let output = npm.arg(format!("@durable-streams/server@{VERSION}")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::write(directory.join("server.mjs"), PROGRAM).unwrap();
        std::fs::write(done, "").unwrap();
    }
    directory
}

struct World {
    http: Client,
    /// Towpath, and the official server without the proxy.
    base: String,
    there: String,
}

fn session(number: u32) -> String {
    format!("0190f5a4-5c2e-7bb0-9f33-{number:012}")
}

impl World {
    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let request = self.http.request(method, format!("{}{path}", self.base));
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    async fn subscribe(&self, number: u32) {
        let body = json!({ "sessionId": session(number), "streamId": "room" });
        let (status, answer) = self.ask(Method::POST, "/v1/app/subscribe", Some(body)).await;
        assert_eq!(status, 200, "{answer}");
        assert!(answer["sessionStreamPath"].as_str().unwrap().ends_with(&session(number)));
    }

    /// Publishes a number and returns count, successes, failures and mode.
    async fn publish(&self, number: u32) -> [String; 4] {
        let request = self.http.post(format!("{}/v1/app/publish/room", self.base));
        let request = request.header("content-type", "application/json").body(number.to_string());
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 204, "a fan-out never fails a publish");
        let names = ["count", "successes", "failures", "mode"];
        names.map(|name| answer.headers()[format!("stream-fanout-{name}")].to_str().unwrap().to_owned())
    }

    fn stream_there(&self, number: u32) -> String {
        format!("{}/v1/stream/app/session:{}", self.there, session(number))
    }

    async fn values_there(&self, number: u32) -> Value {
        self.http.get(self.stream_there(number)).send().await.unwrap().json().await.unwrap_or_default()
    }
}

async fn serve(place: &Place, proxy: &FaultProxy) -> Victim {
    let url = format!("http://{}/v1/stream/{{project}}", proxy.addr());
    let arguments = [
        "serve",
        "--sessions-url",
        &url,
        "--circuit-breaker-failure-threshold",
        "3",
        "--circuit-breaker-recovery-ms",
        "300",
        "--fanout-rpc-timeout-ms",
        "2000",
    ];
    let victim = Victim::spawn(place.command(&arguments));
    victim.wait_for_line("ready at").await;
    victim
}

#[tokio::test]
async fn an_outage_of_the_official_server_is_lag() {
    let (place, other) = (Place::new(), Place::new());
    let directory = official();
    let mut command = Command::new("node");
    command.arg("server.mjs").arg(other.port.to_string()).current_dir(&directory);
    let node = Victim::spawn(command);
    node.wait_for_line("official server is ready").await;
    let there: std::net::SocketAddr = ([127, 0, 0, 1], other.port).into();
    let proxy = FaultProxy::start(there).await;
    let mut server = serve(&place, &proxy).await;
    let world = World {
        http: Client::builder().no_proxy().build().unwrap(),
        base: format!("http://127.0.0.1:{}", place.port),
        there: format!("http://{there}"),
    };
    let put = world.http.put(format!("{}/v1/app/stream/room", world.base));
    put.header("content-type", "application/json").send().await.unwrap();

    // Inline, to streams over there; a late joiner is not refused (defect 1).
    world.subscribe(1).await;
    world.subscribe(2).await;
    assert_eq!(world.publish(0).await, ["2", "2", "0", "inline"]);
    world.subscribe(3).await;
    assert_eq!(world.publish(1).await, ["3", "3", "0", "inline"]);
    assert_eq!(world.values_there(3).await, json!([1]));

    // The server over there is gone: publishes go on, and the circuit opens.
    proxy.set(Fault::Refuse);
    proxy.cut();
    let mut published = 2;
    let [_, successes, failures, _] = world.publish(published).await;
    assert_eq!((&*successes, &*failures), ("0", "3"));
    until_true("an open circuit", async || {
        published += 1;
        world.publish(published).await[3] == "circuit-open"
    })
    .await;
    // Killed while it is open; what waits is in the source.
    server.kill().await;
    server = serve(&place, &proxy).await;
    published += 1;
    world.publish(published).await;
    proxy.set(Fault::Pass);
    let all = |from: u32| -> Value { (from..=published).collect() };
    for (number, from) in [(1, 0), (2, 0), (3, 1)] {
        let has_all = async || world.values_there(number).await == all(from);
        until_true(&format!("session {number} misses something"), has_all).await;
    }
    let source = async || world.ask(Method::GET, "/v1/app/sources", None).await.1["sources"][0].clone();
    until_true("it is still behind", async || source().await["lagBytes"] == 0).await;
    until_true("the circuit stays open", async || source().await["circuit"] == "closed").await;

    // F06: a stream that is gone there takes its session along.
    world.http.delete(world.stream_there(2)).send().await.unwrap();
    published += 1;
    world.publish(published).await;
    until_true("a dead session is still counted", async || source().await["subscribers"] == 2).await;
    let path = format!("/v1/app/session/{}", session(1));
    assert_eq!(world.ask(Method::DELETE, &path, None).await.0, 200);
    assert_eq!(world.http.get(world.stream_there(1)).send().await.unwrap().status(), 404);
    let all: Value = (1..=published).collect();
    until_true("a session misses the end", async || world.values_there(3).await == all).await;
    server.terminate();
    server.wait_exit().await;
}
