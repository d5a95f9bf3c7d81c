//! `towpath job graph emit | show`.

use anyhow::Context;
use clap::Subcommand;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use towpath_db::Database;
use towpath_db::job_read::{Graph as Shown, GraphEdge};
use towpath_model::id::{GraphId, JobId};

use crate::output::{Exit, Output, done, table};

#[derive(Subcommand)]
pub(crate) enum Graph {
    /// Enqueue a graph of jobs, all or nothing
    #[command(after_help = EXAMPLE)]
    Emit {
        /// JSON file, or - for standard input
        file: String,
    },
    /// Show a graph with the states of its jobs
    Show {
        /// Its id
        graph: GraphId,
        /// Print as source for a drawing: dot (Graphviz) or mermaid
        #[arg(long, value_enum)]
        draw: Option<Drawing>,
    },
}

/// A graph drawing language.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Drawing {
    Dot,
    Mermaid,
}

impl Drawing {
    fn of(self, graph: &Shown) -> String {
        // Node names are numbers; user text appears only as quoted labels.
        let numbers: BTreeMap<JobId, usize> =
            graph.nodes.iter().enumerate().map(|(number, node)| (node.job_id, number)).collect();
        let nodes = graph.nodes.iter().enumerate().map(|(number, node)| {
            let label = quoted(&format!("{}: {}", node.node, node.state));
            match self {
                Drawing::Dot => format!("  n{number} [label=\"{label}\"];"),
                Drawing::Mermaid => format!("  n{number}[\"{label}\"]"),
            }
        });
        let edges = graph.edges.iter().filter_map(|edge| {
            let (from, to) = (numbers.get(&edge.from)?, numbers.get(&edge.to)?);
            Some(match (self, edge.on_failure.as_str()) {
                (Drawing::Dot, "hold") => format!("  n{from} -> n{to} [style=dashed];"),
                (Drawing::Dot, _) => format!("  n{from} -> n{to};"),
                (Drawing::Mermaid, "hold") => format!("  n{from} -.-> n{to}"),
                (Drawing::Mermaid, _) => format!("  n{from} --> n{to}"),
            })
        });
        let body = nodes.chain(edges).collect::<Vec<_>>().join("\n");
        match self {
            Drawing::Dot => format!("digraph \"{}\" {{\n{body}\n}}", quoted(&graph.name)),
            Drawing::Mermaid => format!("flowchart TD\n{body}"),
        }
    }
}

/// Safe between double quotes in either language.
fn quoted(text: &str) -> String {
    text.replace(['"', '\\', '\n'], "'")
}

const EXAMPLE: &str = r#"A graph:
  {"name": "nightly",
   "nodes": [{"node": "extract", "job_kind": "extract"},
             {"node": "load", "job_kind": "load", "payload_json": {"table": "sales"}}],
   "edges": [{"from": "extract", "to": "load", "on_failure": "hold"}]}
A node takes the fields of an enqueued job. on_failure is cancel (default) or hold."#;

pub(crate) async fn run(graph: Graph, database: &Database, output: &Output) -> Exit {
    match graph {
        Graph::Emit { file } => {
            let mut graph = read(&file)?;
            if let Some(fields) = graph.as_object_mut() {
                fields.entry("actor").or_insert_with(|| crate::command::actor().into());
            }
            let emitted = database.graph_emit(&graph).await?;
            output.show(&emitted, |emitted| {
                let rows: Vec<_> =
                    emitted.jobs.iter().map(|(node, job)| [node.clone(), job.to_string()]).collect();
                let done = if emitted.duplicate { "already exists" } else { "enqueued" };
                format!("graph {} {done}\n{}", emitted.graph_id, table(["NODE", "JOB"], rows))
            });
        }
        Graph::Show { graph, draw } => {
            let graph = database.graph_show(graph).await?;
            output.show(&graph, |graph| match draw {
                Some(drawing) => drawing.of(graph),
                None => in_words(graph),
            });
        }
    }
    done()
}

fn read(file: &str) -> anyhow::Result<Value> {
    let text = match file {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            text
        }
        file => std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?,
    };
    serde_json::from_str(&text).with_context(|| format!("{file} is not JSON"))
}

/// Nodes come parents first, indented by their distance from a root.
fn in_words(graph: &Shown) -> String {
    let names: BTreeMap<JobId, &str> = graph.nodes.iter().map(|n| (n.job_id, n.node.as_str())).collect();
    let mut depths: BTreeMap<JobId, usize> = BTreeMap::new();
    let rows = graph.nodes.iter().map(|node| {
        let parents: Vec<&GraphEdge> = graph.edges.iter().filter(|edge| edge.to == node.job_id).collect();
        let depth = parents.iter().filter_map(|edge| depths.get(&edge.from)).max().map_or(0, |d| d + 1);
        depths.insert(node.job_id, depth);
        let waits = parents.iter().map(|edge| waits_for(edge, &names)).collect::<Vec<_>>().join(", ");
        [
            format!("{}{}", "  ".repeat(depth), node.node),
            node.state.to_string(),
            node.job_kind.clone().unwrap_or_default(),
            node.job_id.to_string(),
            waits,
        ]
    });
    let head =
        format!("graph {} ({}) by {} at {:.0}", graph.name, graph.graph_id, graph.actor, graph.created_at);
    format!("{head}\n{}", table(["NODE", "STATE", "KIND", "JOB", "WAITS FOR"], rows))
}

/// A parent outside the graph is a replay of the dead one.
fn waits_for(edge: &GraphEdge, names: &BTreeMap<JobId, &str>) -> String {
    let parent =
        names.get(&edge.from).map_or_else(|| format!("job {}", edge.from), |name| (*name).to_owned());
    match (edge.satisfied, edge.on_failure.as_str()) {
        (true, _) => format!("{parent} (done)"),
        (false, "hold") => format!("{parent} (held if it fails)"),
        (false, _) => format!("{parent} (cancelled if it fails)"),
    }
}
