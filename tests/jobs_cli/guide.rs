//! The commands of `docs/guides/jobs.md`, every one of them, in order.

use std::path::Path;

use super::Shell;

/// The indented `towpath …` lines of a page below `docs`.
pub(crate) fn commands(page: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = std::fs::read_to_string(page).unwrap();
    text.lines().filter_map(|line| line.strip_prefix("    towpath ")).map(str::to_owned).collect()
}

/// As a shell splits a line: words, and quoted words.
pub(crate) fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (vec![], String::new(), None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ') => words.push(std::mem::take(&mut word)),
            (_, c) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// STYLE: guides show commands that CI runs. Names in capitals stand for ids.
#[tokio::test]
async fn every_command_of_the_guide_works() {
    let shell = Shell::open().await;
    let dead = [shell.dead("mail", "timeout").await, shell.dead("mail", "timeout").await];
    let finished = shell.enqueue("mail").await;
    shell.claim().await.lease.ack(&shell.database).await.unwrap();
    let unfinished = shell.enqueue("mail").await;
    let graph = r#"{"nodes": [{"node": "a", "job_kind": "x"}]}"#;
    std::fs::write(shell.place.dir.join("graph.json"), graph).unwrap();
    let emitted = shell.json(&["job", "graph", "emit", "graph.json"]);
    let mut ran = 0;
    for line in commands("guides/jobs.md").iter().filter(|line| !line.starts_with("up")) {
        let words: Vec<String> = split(line);
        let verb = words[1].as_str();
        let id = |word: &String| match (word.as_str(), verb) {
            ("JOB", "cancel") => unfinished.clone(),
            ("JOB", "retry") => dead[0].clone(),
            ("JOB", _) => finished.clone(),
            ("LETTER", _) => dead[1].clone(),
            ("GRAPH", _) => emitted["graph_id"].as_str().unwrap().to_owned(),
            _ => word.clone(),
        };
        let words: Vec<String> = words.iter().map(id).collect();
        shell.ok(&words.iter().map(String::as_str).collect::<Vec<_>>());
        ran += 1;
    }
    assert!(ran > 30, "the guide was read: {ran} commands");
}
