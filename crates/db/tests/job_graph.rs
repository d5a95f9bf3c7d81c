//! Graphs: who waits for whom, and what becomes of the children of a job that does not succeed (Q18).

use std::collections::HashMap;

use serde_json::{Value, json};
use towpath_db::Error;
use towpath_db::job::{Failure, Lease};
use towpath_model::id::JobId;
use towpath_testkit::queue::Queue;

/// An emitted graph: the names of its nodes and their jobs.
struct Graph {
    queue: Queue,
    jobs: HashMap<String, JobId>,
}

impl Graph {
    /// Emits nodes `names`, each a job of its own kind, with edges `(from, to, on_failure)`.
    async fn emit(names: &[&str], edges: &[(&str, &str, &str)]) -> Graph {
        let queue = Queue::open().await;
        let answer = queue.producer.graph_emit(&graph(names, edges)).await.unwrap();
        let jobs = answer.jobs.into_iter().collect();
        Graph { queue, jobs }
    }

    /// What can be claimed now, by name.
    async fn due(&self) -> Vec<(String, Lease)> {
        let jobs = self.queue.claim_as("a", 100).await.unwrap();
        let mut due: Vec<_> = jobs.into_iter().map(|job| (job.kind, job.lease)).collect();
        due.sort_by(|a, b| a.0.cmp(&b.0));
        due
    }

    /// Claims exactly these and answers their leases in this order.
    async fn take<const N: usize>(&self, wanted: [&str; N]) -> [Lease; N] {
        let due = self.due().await;
        assert_eq!(due.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), wanted);
        due.into_iter().map(|(_, lease)| lease).collect::<Vec<_>>().try_into().unwrap()
    }

    async fn state(&self, name: &str) -> String {
        self.queue.state(self.jobs[name]).await
    }

    async fn blocked_by(&self, name: &str) -> Vec<JobId> {
        let sql = format!(
            "select to_jsonb(coalesce(blocked_by, '{{}}')) from towpath.job_queue where job_id = '{}'",
            self.jobs[name]
        );
        serde_json::from_value(self.queue.db.json(&sql).await).unwrap()
    }
}

fn graph(names: &[&str], edges: &[(&str, &str, &str)]) -> Value {
    let nodes: Vec<_> = names.iter().map(|name| json!({"node": name, "job_kind": name})).collect();
    let edges: Vec<_> = edges
        .iter()
        .map(|(from, to, on_failure)| json!({"from": from, "to": to, "on_failure": on_failure}))
        .collect();
    json!({"name": "g", "nodes": nodes, "edges": edges})
}

/// Q18: fan-out and fan-in: a job runs once everything it waits for has succeeded, and not before.
#[tokio::test]
async fn a_job_runs_when_all_it_waits_for_has_succeeded() {
    let edges = [("a", "b", "cancel"), ("a", "c", "cancel"), ("b", "d", "cancel"), ("c", "d", "cancel")];
    let graph = Graph::emit(&["a", "b", "c", "d"], &edges).await;
    assert_eq!(graph.blocked_by("d").await.len(), 2);
    let [a] = graph.take(["a"]).await;
    assert!(graph.due().await.is_empty(), "a parent that runs has not succeeded");
    a.ack(&graph.queue.worker).await.unwrap();
    let [b, c] = graph.take(["b", "c"]).await;
    b.ack(&graph.queue.worker).await.unwrap();
    assert!(graph.due().await.is_empty(), "one of two parents is not all of them");
    assert_eq!(graph.blocked_by("d").await, [graph.jobs["c"]]);
    let later = Failure { retry_after: Some(std::time::Duration::ZERO), ..Failure::retry("again") };
    c.fail(&graph.queue.worker, later).await.unwrap();
    let [c] = graph.take(["c"]).await;
    c.ack(&graph.queue.worker).await.unwrap();
    let [d] = graph.take(["d"]).await;
    d.ack(&graph.queue.worker).await.unwrap();
    assert!(graph.blocked_by("d").await.is_empty());
}

/// Q18: the edge says what a dead-lettered parent does to a child: cancel it and what waits for it, or
/// hold it until the parent's replay succeeds.
#[tokio::test]
async fn a_dead_parent_cancels_or_holds_as_the_edge_says() {
    let edges = [("a", "b", "cancel"), ("b", "c", "cancel"), ("a", "d", "hold"), ("d", "e", "hold")];
    let graph = Graph::emit(&["a", "b", "c", "d", "e"], &edges).await;
    let [a] = graph.take(["a"]).await;
    a.fail(&graph.queue.worker, Failure::permanent("broken")).await.unwrap();
    for (name, state) in
        [("a", "dead_letter"), ("b", "cancelled"), ("c", "cancelled"), ("d", "queued"), ("e", "queued")]
    {
        assert_eq!(graph.state(name).await, state, "{name}");
    }
    assert!(graph.due().await.is_empty(), "what is held is not claimed");
    let admin = graph.queue.db.database().await;
    let letter = admin.job_show(graph.jobs["a"]).await.unwrap().dead_letter.unwrap().dead_letter_id;
    admin.dead_letter_replay(letter, "tester").await.unwrap();
    let [again] = graph.take(["a"]).await;
    again.ack(&graph.queue.worker).await.unwrap();
    let [d] = graph.take(["d"]).await;
    d.ack(&graph.queue.worker).await.unwrap();
    graph.take(["e"]).await;
    assert_eq!(graph.state("b").await, "cancelled", "what was cancelled stays so");
}

/// Q18: of cycles, unknown nodes, strangers to the whitelist and kinds that were not granted, nothing is
/// left behind, however good the rest is.
#[tokio::test]
async fn a_bad_graph_writes_nothing() {
    let queue = Queue::open().await;
    let good = || graph(&["a", "b"], &[("a", "b", "cancel")]);
    let with = |pointer: &str, value: Value| {
        let mut graph = good();
        *graph.pointer_mut(pointer).unwrap() = value;
        graph
    };
    let mut mot = good();
    mot["nodes"][1]["executor"] = json!("MOT");
    for (bad, word) in [
        (graph(&["a", "b"], &[("a", "b", "cancel"), ("b", "a", "cancel")]), "cycle"),
        (graph(&["a", "b"], &[("a", "a", "cancel")]), "cycle"),
        (graph(&["a", "b"], &[("a", "c", "cancel")]), "unknown node"),
        (graph(&["a", "b"], &[("a", "b", "explode")]), "cancel or hold"),
        (graph(&["a", "a"], &[]), "must be unique"),
        (graph(&[], &[]), "1 to 1000"),
        (with("/nodes/1/job_kind", json!(" ")), "blank"),
        (mot, "whitelist"),
    ] {
        let refused = queue.producer.graph_emit(&bad).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid(words) if words.contains(word)), "{bad}: {refused}");
    }
    let (producer, login) = queue.db.database_as("towpath_producer").await;
    queue.db.execute("delete from towpath.producer_grant").await;
    queue.db.execute(&format!("select towpath.fn_producer_grant_put('{login}', 'a', 'PG_worker')")).await;
    let refused = producer.graph_emit(&good()).await.unwrap_err();
    assert!(matches!(refused, Error::NotAuthorised(_)), "b was not granted: {refused}");
    for table in ["job", "job_live", "job_ready", "job_edge", "job_graph", "job_graph_node"] {
        assert_eq!(queue.db.text(&format!("select count(*) from towpath.{table}")).await, "0", "{table}");
    }
}
