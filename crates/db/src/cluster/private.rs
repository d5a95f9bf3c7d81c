//! The data directory is private: it holds keys, passwords and data.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use nix::unistd::Uid;

/// Name prefixes of towpath's files in a data directory.
const OURS: [&str; 4] = ["towpath", "server.json", "streams", "postgres"];

/// Creates the data directory, accessible only to its owner. Restricts an existing one too, if it holds nothing but
/// towpath's files.
///
/// # Errors
///
/// It cannot be created or read.
pub fn private_dir(dir: &Path) -> io::Result<()> {
    // When run by root, PostgreSQL has its own user, who needs to traverse the directory but not to list it.
    let wanted = if Uid::effective().is_root() { 0o711 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(wanted).create(dir)?;
    let meta = fs::metadata(dir)?;
    let mode = meta.mode() & 0o7777;
    if mode & 0o777 & !wanted == 0 {
        return Ok(());
    }
    let shown = dir.display();
    if meta.uid() != Uid::effective().as_raw() || !is_ours(dir)? {
        tracing::warn!(
            "the data directory {shown} is readable by other users (mode {mode:o}); choose a private one with --data"
        );
        return Ok(());
    }
    fs::set_permissions(dir, Permissions::from_mode(mode & (0o7000 | wanted)))?;
    tracing::warn!(
        "the data directory {shown} was readable by other users (mode {mode:o}); restricted it to its owner"
    );
    Ok(())
}

/// Whether a directory holds only towpath's files, if any.
fn is_ours(dir: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if !OURS.iter().any(|ours| name.to_string_lossy().starts_with(ours)) {
            return Ok(false);
        }
    }
    Ok(true)
}
