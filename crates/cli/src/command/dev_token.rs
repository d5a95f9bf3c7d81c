//! The token of `towpath up --dev`: it may do everything that tokens of the HTTP API can.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use towpath_db::Database;
use towpath_db::cluster::private_dir;
use towpath_db::executor_token::{Produces, TokenHash, TokenSpec};

const FILE: &str = "dev-token";
/// The executor that the token is of.
const EXECUTOR: &str = "dev";

/// The token in the data directory, or a new one if it is not valid any more.
pub(crate) async fn keep(database: &Database, data: &Path) -> anyhow::Result<String> {
    let path = data.join(FILE);
    if let Ok(token) = std::fs::read_to_string(&path)
        && database.executor_token_check(&TokenHash::of(token.trim())).await.is_ok()
    {
        return Ok(token.trim().to_owned());
    }
    let token = create(database).await?;
    write(&token, data).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(token)
}

async fn create(database: &Database) -> anyhow::Result<String> {
    let (notes, actor) = (Some("created by towpath up --dev"), &super::actor());
    if !database.consumer_list().await?.iter().any(|row| row.executor_id == EXECUTOR) {
        database.consumer_put(EXECUTOR, "external_worker", None, notes, actor).await?;
    }
    let all = ["*".to_owned()];
    let spec = TokenSpec {
        executor_id: EXECUTOR,
        may_enqueue: true,
        may_register: true,
        produces: Produces { kinds: Some(&all), domains: Some(&all) },
        notes,
        actor,
        ..TokenSpec::default()
    };
    Ok(database.executor_token_create(&spec).await?.token)
}

/// Readable only by its owner.
fn write(token: &str, data: &Path) -> std::io::Result<()> {
    private_dir(data)?;
    let unfinished = data.join(format!("{FILE}.new"));
    let _ = std::fs::remove_file(&unfinished);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&unfinished)?;
    writeln!(file, "{token}")?;
    std::fs::rename(&unfinished, data.join(FILE))
}
