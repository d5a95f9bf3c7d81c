//! Every operation of the HTTP API with every extreme of each property of its body, read from the OpenAPI document.
//!
//! A request may be refused. It may not cause a server error, and it may not stop other work: after each operation a
//! pulse checks the real program: a job runs, and every page of the dashboard, `top` and `doctor` work.

use serde_json::{Map, Value, json};
use towpath_testkit::victim::Victim;
use towpath_testkit::wait;

use crate::towpath::Place;

const OPENAPI: &str = include_str!("../crates/server/src/openapi.json");

/// The pages of the dashboard that need no id.
const PAGES: &[&str] = &[
    "",
    "/jobs",
    "/dead-letters",
    "/events",
    "/routes",
    "/processes",
    "/schedules",
    "/executors",
    "/streams",
    "/sessions",
    "/gates",
    "/audit",
];

/// Q22: no request body stops other work.
#[tokio::test]
async fn no_request_stops_anybody() {
    let server = Server::start().await;
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let (mut requests, mut accepted, mut wrong) = (0, 0, vec![]);
    for operation in operations(&document) {
        for schema in &operation.bodies {
            let sample = sample(&document, schema);
            for body in variants(&sample) {
                requests += 1;
                let status = server.send(&operation, &body).await;
                accepted += usize::from((200..300).contains(&status));
                if !(200..500).contains(&status) {
                    let body: String = body.chars().take(300).collect();
                    wrong.push(format!("{status} from {} {} {body}", operation.method, operation.path));
                }
            }
        }
        if let Err(why) = server.pulse().await {
            wrong.push(format!("{} {} stops everybody: {why}", operation.method, operation.path));
            break;
        }
    }
    println!("{requests} requests, {accepted} accepted");
    assert!(
        requests > 1000 && accepted > 100,
        "{requests} requests, {accepted} accepted: is the document read?"
    );
    assert!(wrong.is_empty(), "{} of {requests} requests went wrong:\n{}", wrong.len(), wrong.join("\n"));
    server.stop().await;
}

/// The values that a property is set to, as JSON.
fn odd_values() -> Vec<String> {
    let long = format!("\"{}\"", "x".repeat(100_000));
    let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
    let mut values: Vec<String> = [
        "null",
        "true",
        "\"\"",
        "\" \"",
        r#""a\nb""#,
        r#""\u001b[2J\u009b""#,
        r#""\u0000""#,
        r#""\ud800""#,
        "-1",
        "0",
        "1.5",
        "1e9",
        "2147483647",
        "2147483648",
        "9223372036854775808",
        "1e300",
        "1e400",
        "\"infinity\"",
        "\"-infinity\"",
        "\"NaN\"",
        "\"9999-12-31T23:59:59Z\"",
        "\"00000000-0000-0000-0000-000000000000\"",
        "\"../..\"",
        "[]",
        "[null]",
        "[1]",
        "{}",
        r#"{"a": {"token": [1]}}"#,
    ]
    .map(str::to_owned)
    .into();
    values.extend([long, deep]);
    values
}

struct Operation {
    method: String,
    path: String,
    security: String,
    bodies: Vec<Value>,
}

/// The operations that take JSON.
fn operations(document: &Value) -> Vec<Operation> {
    let mut operations = vec![];
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            if schema.is_null() {
                continue;
            }
            let security = operation["security"][0].as_object().and_then(|one| one.keys().next().cloned());
            let bodies = match schema["oneOf"].as_array() {
                Some(schemas) => schemas.clone(),
                None => vec![schema.clone()],
            };
            let filled = path
                .replace("{project}", if path.starts_with("/admin") { "extreme" } else { "default" })
                .replace("{stream}", "extreme")
                .replace("{streamId}", "extreme")
                .replace("{subscriptionId}", "extreme");
            operations.push(Operation {
                method: method.to_uppercase(),
                path: filled,
                security: security.unwrap_or_default(),
                bodies,
            });
        }
    }
    assert!(operations.len() > 10, "the document is read");
    operations
}

/// A good value for a schema.
fn sample(document: &Value, schema: &Value) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        return sample(document, document.pointer(reference.trim_start_matches('#')).unwrap());
    }
    if let Some(constant) = schema.get("const") {
        return constant.clone();
    }
    if let Some(one) = schema["enum"].get(0).or_else(|| schema["examples"].get(0)) {
        return one.clone();
    }
    if let Some(schemas) = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array()) {
        return sample(document, &schemas[0]);
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or("object");
    match (kind, schema["format"].as_str()) {
        ("object", _) => {
            let properties = schema["properties"].as_object();
            let field = |(name, schema): (&String, &Value)| match name.as_str() {
                // A word of a list that the document does not hold.
                "executor" => (name.clone(), json!("external_worker")),
                _ => (name.clone(), sample(document, schema)),
            };
            let fields = properties.into_iter().flatten().map(field);
            Value::Object(fields.collect::<Map<_, _>>())
        }
        ("array", _) => json!([sample(document, &schema["items"])]),
        ("string", Some("uuid")) => json!("0190f5a4-5c2e-7bb0-9f33-0123456789ab"),
        ("string", Some("date-time")) => json!("2026-01-01T00:00:00Z"),
        ("string", _) => json!("extreme"),
        ("boolean", _) => json!(true),
        // Nobody waits for a job here.
        _ => schema["minimum"].as_i64().filter(|minimum| *minimum >= 0).unwrap_or(1).into(),
    }
}

/// The body with each of its properties, at any depth, set to each odd value; and the odd values themselves.
fn variants(sample: &Value) -> Vec<String> {
    let mut paths = vec![String::new()];
    fn walk(value: &Value, path: &str, paths: &mut Vec<String>) {
        let mut step = |key: &str, value: &Value| {
            let path = format!("{path}/{key}");
            walk(value, &path, paths);
            paths.push(path);
        };
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| step(key, value)),
            Value::Array(items) => items.iter().take(1).for_each(|value| step("0", value)),
            _ => {}
        }
    }
    walk(sample, "", &mut paths);
    // As text, because a document cannot hold every number and half of a character.
    let put = |path: &String, odd: &String| {
        let mut body = sample.clone();
        *body.pointer_mut(path).unwrap() = json!("@odd@");
        body.to_string().replace("\"@odd@\"", odd)
    };
    let odd = odd_values();
    paths.iter().flat_map(|path| odd.iter().map(move |odd| put(path, odd))).collect()
}

struct Server {
    place: Place,
    up: Victim,
    http: reqwest::Client,
    executor_token: String,
    pulse_token: String,
    admin_token: String,
}

impl Server {
    async fn start() -> Server {
        let place = Place::new();
        let up = Victim::spawn(place.command(&["up", "--dev"]));
        up.wait_for_line("towpath is ready").await;
        let token = |executor: &str, kinds: &[&str]| {
            let add = [
                "executor",
                "add",
                executor,
                "--executor",
                "external_worker",
                "--enable",
                "--max-parallel",
                "unlimited",
            ];
            place.ok(&[&add[..], kinds].concat());
            let made = place.ok(&["--json", "executor", "token", "create", executor, "--may-enqueue"]);
            let made: Value = serde_json::from_str(&made).unwrap();
            made["token"].as_str().unwrap().to_owned()
        };
        let executor_token = token("extreme", &["--any-kind"]);
        let pulse_token = token("pulse", &["--job-kind", "pulse"]);
        let door = std::fs::read_to_string(place.data().join("server.json")).unwrap();
        let door: Value = serde_json::from_str(&door).unwrap();
        Server {
            executor_token,
            pulse_token,
            admin_token: door["token"].as_str().unwrap().to_owned(),
            http: reqwest::Client::builder().timeout(wait::WAIT_MAX).build().unwrap(),
            place,
            up,
        }
    }

    async fn send(&self, operation: &Operation, body: &str) -> u16 {
        let token = match operation.security.as_str() {
            "executorToken" => &self.executor_token,
            "adminToken" => &self.admin_token,
            _ => "",
        };
        let url = format!("http://127.0.0.1:{}{}", self.place.port, operation.path);
        let mut request = self.http.request(operation.method.parse().unwrap(), url).body(body.to_owned());
        request = request.header("content-type", "application/json");
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        request.send().await.map_or(0, |response| response.status().as_u16())
    }

    async fn post(&self, verb: &str, body: Value) -> Result<Value, String> {
        let url = format!("http://127.0.0.1:{}/api/v1/jobs/{verb}", self.place.port);
        let request = self.http.post(url).bearer_auth(&self.pulse_token).body(body.to_string());
        let response = request.send().await.map_err(|error| format!("{verb}: {error}"))?;
        let (status, text) = (response.status(), response.text().await.unwrap_or_default());
        if !status.is_success() {
            return Err(format!("{verb}: {status} {text}"));
        }
        serde_json::from_str(&text).map_err(|error| format!("{verb}: {error} in {text}"))
    }

    async fn pulse(&self) -> Result<(), String> {
        let made = self.post("enqueue", json!({"job_kind": "pulse", "priority": 32767})).await?;
        let claimed = self.post("claim", json!({"kinds": ["pulse"], "limit": 1})).await?;
        let job = &claimed["jobs"][0];
        if job["job_id"] != made["job_id"] {
            return Err(format!("claim: {claimed} without {made}"));
        }
        self.post("ack", json!({"job_id": job["job_id"], "attempt": job["attempt"]})).await?;
        for page in PAGES {
            let status = self.place.get(&format!("/ui{page}")).await;
            if status != 200 {
                return Err(format!("/ui{page}: {status}"));
            }
        }
        for arguments in [&["top", "--once", "--json"][..], &["top", "--once"], &["doctor"], &["job", "list"]]
        {
            let output = self.place.run(arguments);
            // Warnings are fine; a failure or what cannot be read is not.
            if !matches!(output.status.code(), Some(0 | 3)) {
                return Err(format!("{arguments:?}: {}", crate::towpath::words(&output)));
            }
        }
        Ok(())
    }

    async fn stop(mut self) {
        self.up.terminate();
        self.up.wait_exit().await;
    }
}
