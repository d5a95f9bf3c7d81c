//! The master key of encrypted payloads. It is kept in a file only its owner can read, never in the database.

use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, bail};
use towpath_db::Database;
use towpath_model::payload::MasterKeys;

use crate::settings::Settings;

/// Adds the master key, if the settings name one.
pub(crate) fn with(settings: &Settings, database: Database) -> anyhow::Result<Database> {
    let Some(path) = &settings.payload_master_key_file else { return Ok(database) };
    let shown = path.display();
    let mode = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.permissions().mode();
    if mode & 0o077 != 0 {
        bail!("{shown} holds the master key and is readable by other users; fix it with: chmod 600 {shown}");
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let keys = MasterKeys::parse(&text).map_err(|error| anyhow::anyhow!("{shown}: {error}"))?;
    Ok(database.with_master_keys(keys))
}
