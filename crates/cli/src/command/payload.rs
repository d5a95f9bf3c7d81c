//! `towpath payload put | get | delete | key …`: data that jobs name instead of carrying it.

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use serde_json::json;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use towpath_db::Database;
use towpath_db::payload::{NewPayload, PayloadKey};
use towpath_model::payload::{BYTES_MAX, PayloadRef};

use crate::output::{Exit, Output, done, table};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Payload {
    /// Store data and print its reference, for a job's --payload-ref
    Put {
        /// File to store; - for standard input
        file: PathBuf,
        /// Project it belongs to
        #[arg(long, default_value = "default")]
        project: String,
        /// Content type
        #[arg(long, value_name = "TYPE", default_value = "application/json")]
        content_type: String,
    },
    /// Print stored data, or write it to a file; the read is audited
    Get {
        /// Its reference, as in payload:0190f5a4-5c2e-7bb0-9f33-0123456789ab
        payload_ref: PayloadRef,
        /// File to write (default: standard output)
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Delete stored data; a job that still names it fails when it asks for it; audited
    Delete {
        /// Its reference, as in payload:0190f5a4-5c2e-7bb0-9f33-0123456789ab
        payload_ref: PayloadRef,
    },
    /// Manage encryption keys of projects
    #[command(subcommand)]
    Key(Key),
}

#[derive(Subcommand)]
pub(crate) enum Key {
    /// List the keys of all projects
    List,
    /// Create the next key of a project; the first key turns encryption on
    Rotate {
        /// The project
        project: String,
    },
    /// Erase every key of a project; its encrypted payloads can never be read again
    Erase {
        /// The project
        project: String,
        /// Erase them; this cannot be undone
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(payload: Payload, settings: &Settings, output: &Output) -> Exit {
    super::with_database(settings, async |database| {
        match payload {
            Payload::Put { file, project, content_type } => {
                let data = read(&file)?;
                let new = NewPayload { data: &data, content_type: &content_type, project: &project };
                let stored = database.payload_put(new).await?.to_string();
                output.show(&json!({ "payload_ref": stored }), |_| stored.clone());
            }
            Payload::Get { payload_ref, output: file } => {
                get(&database, payload_ref, file.as_deref(), output).await?;
            }
            Payload::Delete { payload_ref } => {
                database.payload_delete(payload_ref, &super::actor()).await?;
                let deleted = payload_ref.to_string();
                output.show(&json!({ "payload_ref": deleted }), |_| format!("Deleted {deleted}."));
            }
            Payload::Key(key) => run_key(key, &database, output).await?,
        }
        done()
    })
    .await
}

async fn run_key(key: Key, database: &Database, output: &Output) -> anyhow::Result<()> {
    match key {
        Key::List => output.show(&database.payload_key_list().await?, |keys| in_words(keys)),
        Key::Rotate { project } => {
            let key_id = database.payload_key_rotate(&project, &super::actor()).await?;
            output.show(&json!({ "project": project, "key_id": key_id }), |_| {
                format!("new payloads of {project} are now encrypted with key {key_id}")
            });
        }
        Key::Erase { project, yes: false } => bail!(
            "this erases every key of {project}, and its encrypted payloads can never be read again; \
             confirm with --yes"
        ),
        Key::Erase { project, yes: true } => {
            let erased = database.payload_key_erase(&project, &super::actor()).await?;
            output.show(&json!({ "project": project, "erased": erased }), |_| {
                format!(
                    "erased {erased} keys of {project}; backups and archived WAL still hold them, wrapped, until you delete those"
                )
            });
        }
    }
    Ok(())
}

async fn get(
    database: &Database,
    payload_ref: PayloadRef,
    file: Option<&Path>,
    output: &Output,
) -> anyhow::Result<()> {
    let payload = database.payload_get(payload_ref, &super::actor()).await?;
    if let Some(file) = file {
        std::fs::write(file, &payload.data).with_context(|| format!("cannot write {}", file.display()))?;
        output.line(&format!("wrote {} bytes to {}", payload.data.len(), file.display()));
    } else if output.is_json() {
        let data = STANDARD.encode(&payload.data);
        let shown = json!({ "payload_ref": payload_ref.to_string(), "project": payload.project,
            "content_type": payload.content_type, "created_at": payload.created_at,
            "created_by": payload.created_by, "data": data });
        output.show(&shown, ToString::to_string);
    } else {
        std::io::stdout().write_all(&payload.data).context("cannot write to standard output")?;
    }
    Ok(())
}

/// Reads at most one byte more than the database accepts, so that the database can refuse it.
fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut data = Vec::new();
    let most = BYTES_MAX as u64 + 1;
    if file == Path::new("-") {
        std::io::stdin().take(most).read_to_end(&mut data).context("cannot read standard input")?;
    } else {
        let opened = std::fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        opened
            .take(most)
            .read_to_end(&mut data)
            .with_context(|| format!("cannot read {}", file.display()))?;
    }
    Ok(data)
}

fn in_words(keys: &[PayloadKey]) -> String {
    if keys.is_empty() {
        return "no project encrypts its payloads; turn it on with: towpath payload key rotate PROJECT"
            .into();
    }
    let line = |key: &PayloadKey| {
        let erased = key.erased_at.map_or_else(String::new, |at| {
            format!("{at:.0} by {}", key.erased_by.as_deref().unwrap_or_default())
        });
        [
            key.project.clone(),
            key.key_id.to_string(),
            format!("{:.0}", key.created_at),
            key.created_by.clone(),
            erased,
        ]
    };
    table(["PROJECT", "KEY", "CREATED", "BY", "ERASED"], keys.iter().map(line))
}
