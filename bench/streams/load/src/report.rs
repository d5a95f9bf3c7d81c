//! The tables of a run: medians over the rounds, and how each server compares with Towpath.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

/// One table: its title, the key that tells its rows apart, and what each column shows.
struct Table {
    measure: &'static str,
    title: &'static str,
    columns: &'static [Column],
}

struct Column {
    name: &'static str,
    value: fn(&Value) -> Option<f64>,
    /// Whether Towpath's ratio to the others is worth a number.
    compared: bool,
}

const fn column(name: &'static str, value: fn(&Value) -> Option<f64>, compared: bool) -> Column {
    Column { name, value, compared }
}

fn field(line: &Value, name: &str) -> Option<f64> {
    line[name].as_f64()
}

fn per(line: &Value, count: &str, time: &str) -> Option<f64> {
    let time = field(line, time).filter(|time| *time > 0.0)?;
    Some(field(line, count)? / time)
}

const TABLES: &[Table] = &[
    Table {
        measure: "append",
        title: "Durable appends of 100 bytes",
        columns: &[
            column("appends/s", |it| per(it, "appends", "seconds"), true),
            column("per server CPU-second", |it| per(it, "appends", "server_cpu_seconds"), true),
            column("p50 ms", |it| field(it, "p50_ms"), false),
            column("p99 ms", |it| field(it, "p99_ms"), false),
            column("generator CPU µs", |it| Some(1e6 / per(it, "appends", "client_cpu_seconds")?), false),
            column("memory MiB", |it| field(it, "memory_mib"), false),
        ],
    },
    Table {
        measure: "catch-up",
        title: "Catch-up reads of whole streams",
        columns: &[
            column("reads/s", |it| per(it, "reads", "seconds"), true),
            column("per server CPU-second", |it| per(it, "reads", "server_cpu_seconds"), true),
            column("MB/s", |it| Some(per(it, "reads", "seconds")? * field(it, "stream_bytes")? / 1e6), false),
            column("p50 ms", |it| field(it, "p50_ms"), false),
            column("p99 ms", |it| field(it, "p99_ms"), false),
            column("memory MiB", |it| field(it, "memory_mib"), false),
        ],
    },
    Table {
        measure: "sse",
        title: "Server-sent events: one message of 100 bytes to every client",
        columns: &[
            column("deliveries/s", |it| per(it, "deliveries", "seconds"), true),
            column("per server CPU-second", |it| per(it, "deliveries", "server_cpu_seconds"), true),
            column("half have it, ms", |it| field(it, "half_have_it_ms"), false),
            column("all have it, ms", |it| field(it, "all_have_it_ms"), false),
            column("KiB a client", |it| field(it, "kib_per_client"), false),
            column("memory MiB", |it| field(it, "memory_mib"), false),
        ],
    },
];

/// The server the others are compared with.
const OURS: &str = "towpath";

type Rows = BTreeMap<(Vec<u64>, String), Vec<Value>>;

pub fn tables(files: &[PathBuf]) -> Result<String> {
    let mut lines = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            lines.push(serde_json::from_str::<Value>(line)?);
        }
    }
    let mut out = String::new();
    for table in TABLES {
        let mut rows = Rows::new();
        for line in lines.iter().filter(|line| line["measure"] == table.measure) {
            let key = ["streams", "connections", "stream_bytes", "clients", "token"];
            let key = key.iter().map(|name| line[*name].as_u64().unwrap_or(0)).collect();
            let peer = line["peer"].as_str().unwrap_or_default().to_owned();
            rows.entry((key, peer)).or_default().push(line.clone());
        }
        if !rows.is_empty() {
            write_table(&mut out, table, &rows)?;
        }
    }
    Ok(out)
}

fn write_table(out: &mut String, table: &Table, rows: &Rows) -> Result<()> {
    writeln!(out, "### {}\n", table.title)?;
    let names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
    writeln!(out, "| what | server | {} |", names.join(" | "))?;
    writeln!(out, "|---|---|{}", "--:|".repeat(names.len()))?;
    let mut keys: Vec<&Vec<u64>> = rows.keys().map(|(key, _)| key).collect();
    keys.dedup();
    for key in keys {
        let mut peers: Vec<&String> = rows.keys().filter(|(of, _)| of == key).map(|(_, peer)| peer).collect();
        peers.sort_by_key(|peer| (*peer != OURS, (*peer).clone()));
        let ours = rows.get(&(key.clone(), OURS.to_owned()));
        for peer in peers {
            let lines = &rows[&(key.clone(), peer.clone())];
            let failed = lines.iter().all(|line| line["failed"] == true);
            let cells = table.columns.iter().map(|column| match failed {
                true => "failed".to_owned(),
                false => cell(column, lines, ours.filter(|_| peer != OURS)),
            });
            let cells: Vec<String> = cells.collect();
            writeln!(out, "| {} | {peer} | {} |", what(table.measure, key), cells.join(" | "))?;
        }
    }
    writeln!(out)?;
    Ok(())
}

fn what(measure: &str, key: &[u64]) -> String {
    match measure {
        "append" if key[4] == 1 => format!("{} streams, {} connections, with a token", key[0], key[1]),
        "append" => format!("{} streams, {} connections", key[0], key[1]),
        "catch-up" => format!("{} kB, {} connections", key[2] / 1000, key[1]),
        _ => format!("{} clients", key[3]),
    }
}

/// The median, its range if the rounds differ, and Towpath's ratio to it.
fn cell(column: &Column, lines: &[Value], ours: Option<&Vec<Value>>) -> String {
    let Some((low, middle, high)) = spread(column, lines) else { return String::new() };
    let mut text = number(middle);
    if lines.len() > 1 && column.compared {
        let _ = write!(text, " [{}..{}]", number(low), number(high));
    }
    if let Some((_, our_middle, _)) = ours.filter(|_| column.compared).and_then(|ours| spread(column, ours)) {
        let _ = write!(text, " ({:.2}×)", middle / our_middle);
    }
    text
}

fn spread(column: &Column, lines: &[Value]) -> Option<(f64, f64, f64)> {
    let mut values: Vec<f64> = lines.iter().filter_map(column.value).collect();
    values.sort_by(f64::total_cmp);
    Some((*values.first()?, values[values.len() / 2], *values.last()?))
}

fn number(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 1000.0 => format!("{value:.0}"),
        value => {
            let digits = format!("{value:.0}");
            let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|it| std::str::from_utf8(it).unwrap_or("")).collect();
            groups.join(",")
        }
    }
}
