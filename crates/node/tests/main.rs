//! The stream store on a real PostgreSQL: the shared log, and the intake.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod intake;
mod log;

use std::path::Path;
use std::sync::Arc;

use towpath_db::Database;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Start;
use towpath_node::PostgresLog;
use towpath_streams::embedded::{Config, Embedded};
use towpath_streams::{Append, Messages, Store};

fn name(id: &str) -> StreamName {
    StreamName::new("default", id).unwrap()
}

fn text(text: &str) -> Append {
    Append { messages: Messages::one(text.to_owned()), ..Append::default() }
}

/// A node of the shared log, with its cache in a directory.
async fn node(database: &Database, directory: &Path) -> Embedded {
    let log = PostgresLog::open(database.clone()).await.unwrap();
    let mut config = Config::new(directory);
    config.clock = log.clock();
    config.log = Some(Arc::new(log));
    tokio::task::spawn_blocking(|| Embedded::open(config)).await.unwrap().unwrap()
}

async fn shut_down(store: Embedded) {
    tokio::task::spawn_blocking(move || store.shut_down()).await.unwrap();
}

/// All messages of a stream, without the commas of JSON.
async fn all(store: &dyn Store, id: &str) -> Vec<String> {
    store.fresh().await.unwrap();
    let page = store.read(&name(id), Start::Beginning, usize::MAX).await.unwrap();
    let of = |message: bytes::Bytes| String::from_utf8(message.to_vec()).unwrap();
    page.batch.messages().map(|message| of(message).trim_end_matches(',').to_owned()).collect()
}
